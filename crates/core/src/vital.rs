/// A task without which the daemon would only look alive. If it panics, the process ends at once
/// and the next one recovers from the disk, as after any crash.
pub async fn vital(task: impl Future<Output = ()>) {
    let _alarm = Alarm;
    task.await;
}

struct Alarm;

impl Drop for Alarm {
    fn drop(&mut self) {
        // The runtime drops a task that panicked while the panic is still on its way.
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}
