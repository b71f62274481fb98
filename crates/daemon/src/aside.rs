use tokio::{runtime::Handle, sync::Semaphore, task};

/// As many at once. Each has a thread, and what it waits for may need another one.
static PLACES: Semaphore = Semaphore::const_new(8);

/// Runs `work`, which computes for long or blocks, on a thread of its own: on the one that answers,
/// every ADD would wait for it. Dropped, it goes on to its end.
pub(crate) async fn aside<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let place = PLACES.acquire().await.expect("it is never closed");
    let runtime = Handle::current();
    let done = task::spawn_blocking(move || {
        let _place = place;
        runtime.block_on(work)
    });
    match done.await.map_err(task::JoinError::try_into_panic) {
        Ok(done) => done,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        // The runtime ends, and everything with it.
        Err(Err(_)) => std::future::pending().await,
    }
}
