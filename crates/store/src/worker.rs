use std::{path::PathBuf, sync::Arc, thread::JoinHandle, time::Duration};

use berth_core::ports::{Change, StoreError, Tombstone};
use berth_types::durable;
use tokio::{sync::mpsc, time::Instant};
use tracing::{error, warn};

use crate::{
    Options,
    ballast::Ballast,
    batch::{self, Plan, Remains, Space},
    directory::Directory,
    expiry::Expiries,
    export,
    ledger::{CommitError, Ledger},
    lock::Lock,
    recover::Recovered,
    row::{self, Record},
    store::{Answer, Request, Shared, lock},
    tree::{Tree, Writes},
};

/// Requests that share one commit at most, so that the first of them does not wait for ever.
const LARGEST_BATCH: usize = 512;

/// Expired tombstones that one commit takes along.
const LARGEST_PURGE: usize = 256;

/// An export of thousands of records takes milliseconds of the store's thread: it takes no more
/// than this part of its time.
const EXPORT_SHARE: u32 = 20;

/// The one thread that writes.
#[derive(Debug)]
pub(crate) struct Worker {
    ledger: Ledger,
    remains: Remains,
    expiries: Expiries,
    ballast: Ballast,
    exporter: Exporter,
    options: Options,
    /// Let go last.
    _lock: Lock,
}

#[derive(Debug)]
struct Exporter {
    directory: Directory,
    /// Set while there is a commit that the export does not have.
    due: Option<Instant>,
    not_before: Instant,
    writing: Option<JoinHandle<bool>>,
}

#[derive(Debug, thiserror::Error)]
enum FailedBatch {
    #[error("cannot read the database")]
    Read(#[source] sled::Error),
    #[error(transparent)]
    Commit(#[from] CommitError),
    #[error("cannot look at the free space")]
    Space(#[source] std::io::Error),
    #[error("the store's thread panicked")]
    Panicked,
}

impl Worker {
    pub(crate) fn new(
        options: Options,
        directory: Directory,
        recovered: Recovered,
        ballast: Ballast,
        lock: Lock,
    ) -> Self {
        let mut expiries = Expiries::default();
        let (boot, now) = (options.clock.boot_id(), options.clock.now());
        for tombstone in &recovered.loaded.tombstones {
            expiries.put(tombstone.row_key().into_bytes(), tombstone, boot, now);
        }
        let started = Instant::now();
        let exporter = Exporter {
            directory,
            due: (!recovered.exported).then_some(started),
            not_before: started,
            writing: None,
        };
        let Recovered { ledger, remains, .. } = recovered;
        Self { ledger, remains, expiries, ballast, exporter, options, _lock: lock }
    }

    pub(crate) fn tree(&self, tree: Tree) -> &sled::Tree {
        self.ledger.database.tree(tree)
    }

    pub(crate) fn database_path(&self) -> PathBuf {
        self.exporter.directory.database()
    }

    /// Serves until the last sender is gone or the store breaks.
    pub(crate) fn run(mut self, requests: mpsc::Receiver<Request>, shared: &Arc<Shared>) {
        let _alarm = Alarm(Arc::clone(shared));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        match runtime {
            // Everything below blocks, and there is nothing else on this runtime to be held up.
            Ok(runtime) => runtime.block_on(self.serve(requests, shared)),
            Err(err) => _ = shared.broke(err),
        }
        if shared.is_broken() {
            shared.stop_reading();
        } else {
            self.exporter.finish(&self.ledger, shared);
        }
    }

    async fn serve(&mut self, mut requests: mpsc::Receiver<Request>, shared: &Shared) {
        while !shared.is_broken() {
            if self.exporter.due.is_some_and(|due| due <= Instant::now()) {
                self.exporter.begin(&self.ledger, &self.options, shared);
            }
            let first = match self.exporter.due {
                Some(due) => match tokio::time::timeout_at(due, requests.recv()).await {
                    Ok(first) => first,
                    Err(_) => continue,
                },
                None => requests.recv().await,
            };
            let Some(first) = first else { return };
            let mut batch = vec![first];
            while batch.len() < LARGEST_BATCH {
                let Ok(request) = requests.try_recv() else { break };
                batch.push(request);
            }
            self.commit(batch, shared);
        }
    }

    fn commit(&mut self, batch: Vec<Request>, shared: &Shared) {
        let (mut units, mut answers, mut settle) = (Vec::new(), Vec::new(), false);
        for request in batch {
            match request {
                Request::Commit { changes, answer } => {
                    units.push(changes);
                    answers.push(answer);
                }
                Request::SettleDoubt { answer } => {
                    settle = true;
                    units.push(Vec::new());
                    answers.push(answer);
                }
            }
        }
        let outcomes = match self.write(&units, settle, shared) {
            Ok(outcomes) => outcomes,
            Err(err) => {
                let broken = shared.broke(err);
                answers.into_iter().for_each(|answer| tell(answer, Err(broken.clone())));
                return;
            }
        };
        for (answer, outcome) in answers.into_iter().zip(outcomes) {
            tell(answer, outcome);
        }
    }

    fn write(
        &mut self,
        units: &[Vec<Change>],
        settle: bool,
        shared: &Shared,
    ) -> Result<Vec<Result<(), StoreError>>, FailedBatch> {
        let reserve = self.options.reserve;
        let free = self.ballast.balance(reserve).map_err(FailedBatch::Space)?;
        let database = &self.ledger.database;
        let get = |tree, key: &[u8]| database.get(tree, key);
        let Plan { mut writes, outcomes } =
            batch::plan(units, Space { free, reserve }, &self.remains, get)
                .map_err(FailedBatch::Read)?;
        let settle = settle && self.ledger.state.doubtful.take().is_some();
        let mut took = None;
        if !writes.is_empty() || settle {
            let now = self.options.clock.now();
            for key in self.expiries.due(now, LARGEST_PURGE) {
                writes.entry((Tree::Tombstones, key)).or_insert(None);
            }
            took = Some(self.ledger.commit(writes.clone(), Some(self.options.clock.boot_id()))?);
            self.note_tombstones(&writes);
            self.exporter.want();
        }
        Self::count(units.len(), took, shared);
        Ok(outcomes)
    }

    fn note_tombstones(&mut self, writes: &Writes) {
        let (boot, now) = (self.options.clock.boot_id(), self.options.clock.now());
        for ((tree, key), value) in writes {
            if *tree != Tree::Tombstones {
                continue;
            }
            match value.as_deref().map(row::decode::<Tombstone>) {
                Some(Ok(tombstone)) => self.expiries.put(key.clone(), &tombstone, boot, now),
                Some(Err(_)) | None => self.expiries.remove(key),
            }
        }
    }

    fn count(requests: usize, took: Option<Duration>, shared: &Shared) {
        let mut statistics = lock(&shared.statistics);
        statistics.requests += requests as u64;
        statistics.largest_batch = statistics.largest_batch.max(requests);
        if let Some(took) = took {
            statistics.commits += 1;
            statistics.flush_total += took;
            statistics.flush_longest = statistics.flush_longest.max(took);
        }
    }
}

/// The caller may have gone away.
fn tell(answer: Answer, outcome: Result<(), StoreError>) {
    let _ = answer.send(outcome);
}

impl Exporter {
    fn want(&mut self) {
        self.due.get_or_insert(self.not_before);
    }

    /// Takes the rows and leaves the writing to a thread of its own, so that no commit waits for
    /// a file of many records.
    fn begin(&mut self, ledger: &Ledger, options: &Options, shared: &Shared) {
        let begun = Instant::now();
        self.due = None;
        self.not_before = begun + options.export_interval;
        if self.writing.as_ref().is_some_and(|writing| !writing.is_finished()) {
            self.want();
            return;
        }
        self.note_end(shared);
        let Some(document) = document(ledger, shared) else { return };
        let took = begun.elapsed() * EXPORT_SHARE;
        self.not_before = self.not_before.max(begun + took);
        let path = self.directory.export();
        let writing = std::thread::Builder::new()
            .name("berth-export".to_owned())
            .spawn(move || write_document(&path, &document));
        match writing {
            Ok(writing) => self.writing = Some(writing),
            Err(err) => warn!(%err, "cannot start a thread for the export"),
        }
    }

    /// The last one, if the one on disk is not of the last commit.
    fn finish(&mut self, ledger: &Ledger, shared: &Shared) {
        self.note_end(shared);
        if self.due.is_some()
            && let Some(document) = document(ledger, shared)
        {
            write_document(&self.directory.export(), &document);
        }
    }

    fn note_end(&mut self, shared: &Shared) {
        let Some(writing) = self.writing.take() else { return };
        let written = writing.join().unwrap_or(false);
        let mut statistics = lock(&shared.statistics);
        if written {
            statistics.exports += 1;
        } else {
            statistics.exports_failed += 1;
        }
    }
}

fn document(ledger: &Ledger, shared: &Shared) -> Option<Vec<u8>> {
    let rows = match ledger.rows() {
        Ok(rows) => rows,
        Err(err) => {
            shared.broke(FailedBatch::Read(err));
            return None;
        }
    };
    let document = export::write(&ledger.state, &rows);
    document
        .inspect_err(|err| error!(error = berth_types::chain(err), "cannot export the store"))
        .ok()
}

/// An export that cannot be written is no reason to stop: the database holds everything.
fn write_document(path: &std::path::Path, document: &[u8]) -> bool {
    crash_point!("store::before_export");
    let written = durable::replace(path, document, 0o600);
    if let Err(err) = &written {
        warn!(%err, "cannot write the export");
    }
    written.is_ok()
}

/// Tells of a thread that ended in a panic.
struct Alarm(Arc<Shared>);

impl Drop for Alarm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.broke(FailedBatch::Panicked);
            self.0.stop_reading();
        }
    }
}
