//! Deletes the links of released attachments, in batches, behind everybody's back.
//!
//! A link takes the kernel 16 to 40 ms of grace periods to free, so a DEL only takes it off the
//! network and writes an intent. While one batch is being deleted the next one gathers.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use berth_types::{AttachmentKey, PodInterface, chain};
use tokio::{
    sync::{Notify, mpsc},
    time,
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::{
    fail_point,
    pool_task::PoolHandle,
    ports::{
        Change, HostError, HostNetwork, Intent, IntentId, IntentKind, Store, StoreError, Unwiring,
    },
};

/// As many links as one batch deletes: the kernel holds its one lock for the whole batch, and
/// an ADD waits for it.
const LARGEST_BATCH: usize = 64;

/// The pause after a failure, doubling.
const PAUSE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

/// As long as an ADD waits for the links of the same key's earlier life.
const SETTLE_WITHIN: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub(crate) struct Reaper {
    queue: mpsc::UnboundedSender<Unwiring>,
    pending: Arc<Pending>,
}

/// What is queued or being deleted, by key: a key may have several lives behind it.
#[derive(Debug, Default)]
struct Pending {
    keys: Mutex<Keys>,
    done: Notify,
}

#[derive(Debug, Default)]
struct Keys {
    counts: HashMap<AttachmentKey, usize>,
    /// The last sandbox of each pod's interface, while its links are there.
    of_pods: HashMap<PodInterface, AttachmentKey>,
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum ReapError {
    #[error("the links of {key}'s earlier life are not gone after {} s", SETTLE_WITHIN.as_secs())]
    TooSlow { key: AttachmentKey },
}

/// The intent that a release writes and the reaper ends.
pub(crate) fn unwire_intent(left: &Unwiring) -> Intent {
    Intent { id: intent_id(left), what: IntentKind::Unwire(left.clone()) }
}

fn intent_id(left: &Unwiring) -> IntentId {
    IntentId(format!("unwire/{}", left.key))
}

impl Pending {
    fn lock(&self) -> MutexGuard<'_, Keys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reaper {
    pub(crate) fn enqueue(&self, left: Unwiring, pod: Option<PodInterface>) {
        {
            let mut keys = self.pending.lock();
            *keys.counts.entry(left.key.clone()).or_default() += 1;
            keys.of_pods.extend(pod.map(|pod| (pod, left.key.clone())));
        }
        // A reaper that has stopped left its intents on disk for the next start.
        let _ = self.queue.send(left);
    }

    pub(crate) fn is_pending(&self, key: &AttachmentKey) -> bool {
        self.pending.lock().counts.contains_key(key)
    }

    /// The sandbox of a pod whose links are still being deleted.
    pub(crate) fn pending_of(&self, pod: &PodInterface) -> Option<AttachmentKey> {
        self.pending.lock().of_pods.get(pod).cloned()
    }

    /// Waits until nothing of an earlier life of `key` is left.
    pub(crate) async fn settle(&self, key: &AttachmentKey) -> Result<(), ReapError> {
        let settled = async {
            loop {
                let done = self.pending.done.notified();
                tokio::pin!(done);
                // From here on no wake-up is lost.
                done.as_mut().enable();
                if !self.is_pending(key) {
                    return;
                }
                done.await;
            }
        };
        time::timeout(SETTLE_WITHIN, settled)
            .await
            .map_err(|_| ReapError::TooSlow { key: key.clone() })
    }

    /// Deletes and waits.
    pub(crate) async fn settle_now(&self, left: Unwiring) -> Result<(), ReapError> {
        let key = left.key.clone();
        self.enqueue(left, None);
        self.settle(&key).await
    }
}

/// What the reaper's task works with.
pub(crate) struct ReaperParts {
    pub(crate) host: Arc<dyn HostNetwork>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) pool: PoolHandle,
}

/// The handle, and the future that the caller spawns.
pub(crate) fn reaper(
    parts: ReaperParts,
    stop: CancellationToken,
) -> (Reaper, impl Future<Output = ()> + Send) {
    let (queue, inbox) = mpsc::unbounded_channel();
    let pending = Arc::new(Pending::default());
    let handle = Reaper { queue, pending: Arc::clone(&pending) };
    (handle, run(parts, pending, inbox, stop))
}

async fn run(
    parts: ReaperParts,
    pending: Arc<Pending>,
    mut inbox: mpsc::UnboundedReceiver<Unwiring>,
    stop: CancellationToken,
) {
    // What could not be deleted is tried again on its own, beside what comes.
    let mut stuck: Vec<Unwiring> = Vec::new();
    let mut pause = PAUSE.0;
    loop {
        let mut batch = Vec::new();
        tokio::select! {
            () = stop.cancelled() => return,
            got = inbox.recv_many(&mut batch, LARGEST_BATCH) => if got == 0 { return },
            () = time::sleep(pause), if !stuck.is_empty() => {
                pause = (pause * 2).min(PAUSE.1);
                batch.append(&mut stuck);
            }
        }
        for left in reap_all(&parts, &pending, batch).await {
            if stuck.contains(&left) {
                // Asked for again meanwhile: once is enough.
                finished(&pending, std::slice::from_ref(&left));
            } else {
                stuck.push(left);
            }
        }
        if stuck.is_empty() {
            pause = PAUSE.0;
        }
    }
}

/// All at once; where that fails, one by one, so that one bad link holds up no other. Answers
/// those that are not gone.
async fn reap_all(parts: &ReaperParts, pending: &Pending, batch: Vec<Unwiring>) -> Vec<Unwiring> {
    let err = match reap(parts, &batch).await {
        Ok(()) => {
            finished(pending, &batch);
            return Vec::new();
        }
        Err(err) => err,
    };
    warn!(err = %chain(&err), links = batch.len(), "cannot delete links at once");
    let mut left = Vec::new();
    for one in batch {
        match reap(parts, std::slice::from_ref(&one)).await {
            Ok(()) => finished(pending, std::slice::from_ref(&one)),
            Err(err) => {
                warn!(key = %one.key, err = %chain(&err), "cannot delete a link, trying again");
                left.push(one);
            }
        }
    }
    left
}

#[derive(Debug, thiserror::Error)]
enum BatchError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("the links are gone, but that cannot be written down")]
    Store(#[from] StoreError),
}

async fn reap(parts: &ReaperParts, batch: &[Unwiring]) -> Result<(), BatchError> {
    parts.host.reap(batch).await?;
    fail_point!("core::reaper::deleted");
    let ends = batch.iter().map(|left| Change::EndIntent(intent_id(left))).collect();
    parts.store.commit(ends).await?;
    fail_point!("core::reaper::written");
    for id in batch.iter().filter_map(|left| left.resource.clone()) {
        parts.pool.unwired(id);
    }
    debug!(links = batch.len(), "links deleted");
    Ok(())
}

fn finished(pending: &Pending, batch: &[Unwiring]) {
    let mut keys = pending.lock();
    for left in batch {
        if let Some(count) = keys.counts.get_mut(&left.key) {
            *count -= 1;
            if *count == 0 {
                keys.counts.remove(&left.key);
                keys.of_pods.retain(|_, key| *key != left.key);
            }
        }
    }
    drop(keys);
    pending.done.notify_waiters();
}
