use std::{
    error::Error as StdError,
    io,
    sync::{Arc, Mutex, OnceLock, RwLock},
    thread::JoinHandle,
};

use async_trait::async_trait;
use berth_core::ports::{Change, Store, StoreError};
use berth_types::{Attachment, AttachmentKey};
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{error, warn};

use crate::{Statistics, directory, row, tree::Tree, worker::Worker};

/// Requests that may wait before callers do. A node starts some 250 pods at worst.
const QUEUE: usize = 1024;

/// The handle on the store's thread, and the reader beside it.
#[derive(Debug)]
pub struct SledStore {
    requests: Mutex<Option<mpsc::Sender<Request>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) enum Request {
    Commit { changes: Vec<Change>, answer: Answer },
    SettleDoubt { answer: Answer },
}

pub(crate) type Answer = oneshot::Sender<Result<(), StoreError>>;

/// What the thread and the handle both see.
#[derive(Debug)]
pub(crate) struct Shared {
    /// `None` once the store is closed.
    attachments: RwLock<Option<sled::Tree>>,
    pub(crate) statistics: Mutex<Statistics>,
    failure: OnceLock<Arc<dyn StdError + Send + Sync>>,
    failed: watch::Sender<Option<String>>,
    database: std::path::PathBuf,
}

impl SledStore {
    pub(crate) fn start(worker: Worker) -> Result<Self, io::Error> {
        let shared = Arc::new(Shared {
            attachments: RwLock::new(Some(worker.tree(Tree::Attachments).clone())),
            statistics: Mutex::default(),
            failure: OnceLock::new(),
            failed: watch::Sender::new(None),
            database: worker.database_path(),
        });
        let (sender, receiver) = mpsc::channel(QUEUE);
        let for_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("berth-store".to_owned())
            .spawn(move || worker.run(receiver, &for_thread))?;
        Ok(Self { requests: Mutex::new(Some(sender)), thread: Mutex::new(Some(thread)), shared })
    }

    /// Counts the records as it goes: not for every request.
    pub fn statistics(&self) -> Statistics {
        let mut statistics = *lock(&self.shared.statistics);
        statistics.records = self.shared.attachments().map_or(0, |attachments| attachments.len());
        statistics.bytes_on_disk = directory::size(&self.shared.database);
        statistics
    }

    /// Becomes `Some` with the reason when the store has broken: memory and disk may differ, so
    /// the process has to end, and the next one recovers.
    pub fn failed(&self) -> watch::Receiver<Option<String>> {
        self.shared.failed.subscribe()
    }

    /// Ends the doubt that [`Loaded::doubtful`](berth_core::ports::Loaded::doubtful) told of:
    /// the records were compared with the world and hold. Later openings do not tell of it again.
    pub async fn settle_doubt(&self) -> Result<(), StoreError> {
        self.ask(|answer| Request::SettleDoubt { answer }).await
    }

    /// Ends the store after all that was asked of it before, with a last export. What comes
    /// later is answered [`StoreError::Stopped`]. The directory is free when it returns. Not
    /// needed for durability.
    pub async fn close(&self) {
        let Some(thread) = self.stop() else { return };
        let joined = tokio::task::spawn_blocking(move || thread.join()).await;
        if !matches!(joined, Ok(Ok(()))) {
            warn!("the store's thread ended in a panic");
        }
    }

    async fn ask(&self, request: impl FnOnce(Answer) -> Request) -> Result<(), StoreError> {
        let Some(requests) = lock(&self.requests).clone() else { return Err(self.shared.gone()) };
        let (answer, answered) = oneshot::channel();
        // Cancelled here, nothing was begun; from here on it runs to its end.
        requests.send(request(answer)).await.map_err(|_| self.shared.gone())?;
        drop(requests);
        answered.await.unwrap_or_else(|_| Err(self.shared.gone()))
    }

    /// Without the last sender and the reader's tree, the thread lets go of everything.
    fn stop(&self) -> Option<JoinHandle<()>> {
        lock(&self.requests).take();
        self.shared.stop_reading();
        lock(&self.thread).take()
    }
}

impl Drop for SledStore {
    fn drop(&mut self) {
        if let Some(thread) = self.stop() {
            let _ = thread.join();
        }
    }
}

#[async_trait]
impl Store for SledStore {
    fn attachment(&self, key: &AttachmentKey) -> Result<Option<Attachment>, StoreError> {
        let key = key.to_string();
        let found = self.shared.attachments()?.get(&key).map_err(|err| self.shared.broke(err))?;
        let record = found.map(|bytes| row::decode(&bytes)).transpose();
        record.map_err(|err| StoreError::BadRow { key, problem: err.to_string() })
    }

    fn attachments(&self) -> Result<Vec<Attachment>, StoreError> {
        let mut records = Vec::new();
        for row in &self.shared.attachments()? {
            let (key, bytes) = row.map_err(|err| self.shared.broke(err))?;
            match row::decode(&bytes) {
                Ok(record) => records.push(record),
                Err(err) => error!(key = %key.escape_ascii(), %err, "a record cannot be read"),
            }
        }
        Ok(records)
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<(), StoreError> {
        self.ask(|answer| Request::Commit { changes, answer }).await
    }
}

impl Shared {
    fn attachments(&self) -> Result<sled::Tree, StoreError> {
        if self.failure.get().is_some() {
            return Err(self.gone());
        }
        let tree = self.attachments.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        tree.clone().ok_or_else(|| self.gone())
    }

    pub(crate) fn stop_reading(&self) {
        *self.attachments.write().unwrap_or_else(std::sync::PoisonError::into_inner) = None;
    }

    /// Breaks the store; the first failure counts. Answers what callers are told from now on.
    pub(crate) fn broke(&self, err: impl StdError + Send + Sync + 'static) -> StoreError {
        let failure = self.failure.get_or_init(|| {
            let text = berth_types::chain(&err);
            error!(error = text, "the store failed");
            self.failed.send_replace(Some(text));
            Arc::new(err)
        });
        StoreError::Broken(Arc::clone(failure))
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.failure.get().is_some()
    }

    /// What callers are told where it has broken.
    pub(crate) fn failure(&self) -> Option<StoreError> {
        self.failure.get().map(|failure| StoreError::Broken(Arc::clone(failure)))
    }

    fn gone(&self) -> StoreError {
        self.failure().unwrap_or(StoreError::Stopped)
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
