use std::{path::PathBuf, sync::Arc, time::Duration};

use berth_core::ports::{Change, StoreError};
use tokio::{sync::mpsc, time::Instant};

use crate::{
    Options,
    ballast::Ballast,
    batch::{self, Plan, Remains, Space},
    directory::Directory,
    expiry::Expiries,
    exporter::Exporter,
    ledger::{CommitError, Ledger},
    lock::Lock,
    recover::Recovered,
    row::Record,
    store::{Answer, Request, Shared, When, lock},
    tree::{Tree, Writes},
};

/// Requests that share one commit at most, so that the first of them does not wait for ever.
const LARGEST_BATCH: usize = 512;

/// A note is on disk after this, if no commit takes it along before. A node that starts pods has
/// a commit every few milliseconds, and a sync of its own for each note would hold those up.
const NOTE_PAUSE: Duration = Duration::from_millis(50);

/// Expired rows that one commit takes along.
const LARGEST_PURGE: usize = 256;

/// The one thread that writes.
#[derive(Debug)]
pub(crate) struct Worker {
    ledger: Ledger,
    remains: Remains,
    expiries: Expiries,
    ballast: Ballast,
    exporter: Exporter,
    /// When what was only noted is to be on disk.
    noted: Option<Instant>,
    options: Options,
    database_path: PathBuf,
    /// Let go last.
    _lock: Lock,
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
        let loaded = &recovered.loaded;
        for it in &loaded.tombstones {
            expiries.put(Tree::Tombstones, it.row_key().into_bytes(), &it.expires, boot, now);
        }
        for it in &loaded.cooling {
            expiries.put(Tree::Cooling, it.row_key().into_bytes(), &it.deadline, boot, now);
        }
        for it in &loaded.reservations {
            expiries.put(Tree::Reservations, it.row_key().into_bytes(), &it.deadline, boot, now);
        }
        let database_path = directory.database();
        let exporter =
            Exporter::new(directory.export(), options.export_interval, !recovered.exported);
        let Recovered { ledger, remains, .. } = recovered;
        Self {
            ledger,
            remains,
            expiries,
            ballast,
            exporter,
            noted: None,
            options,
            database_path,
            _lock: lock,
        }
    }

    pub(crate) fn tree(&self, tree: Tree) -> &sled::Tree {
        self.ledger.database.tree(tree)
    }

    pub(crate) fn database_path(&self) -> PathBuf {
        self.database_path.clone()
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
            let now = Instant::now();
            let is_due = |due: Instant| due <= now;
            let export = self.exporter.due().is_some_and(is_due);
            if export || self.noted.is_some_and(is_due) {
                self.catch_up(shared);
            }
            if export && !shared.is_broken() {
                self.exporter.begin(&self.ledger, shared);
            }
            let due = self.exporter.due().into_iter().chain(self.noted).min();
            let first = match due {
                Some(due) => match tokio::time::timeout_at(due, requests.recv()).await {
                    Ok(first) => first,
                    Err(_) => continue,
                },
                None => requests.recv().await,
            };
            let Some(first) = first else {
                self.catch_up(shared);
                return;
            };
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
                Request::Commit { changes, when, answer } => {
                    units.push(changes);
                    answers.push((when, answer));
                }
                Request::SettleDoubt { answer } => {
                    settle = true;
                    units.push(Vec::new());
                    answers.push((When::OnDisk, answer));
                }
            }
        }
        let refuse = |answers: Vec<(When, Answer)>, err: FailedBatch| {
            let broken = shared.broke(err);
            answers.into_iter().for_each(|(_, answer)| tell(answer, Err(broken.clone())));
        };
        let outcomes = match self.apply(&units, settle) {
            Ok(outcomes) => outcomes,
            Err(err) => return refuse(answers, err),
        };
        let mut waiting = Vec::new();
        for ((when, answer), outcome) in answers.into_iter().zip(outcomes) {
            match when {
                When::Applied => tell(answer, outcome),
                When::OnDisk => waiting.push(((when, answer), outcome)),
            }
        }
        // Also where nothing of it differs: what it relies on may be a note that is not there yet.
        let took = if waiting.is_empty() || !self.ledger.behind {
            None
        } else {
            match self.ledger.sync() {
                Ok(took) => {
                    self.noted = None;
                    Some(took)
                }
                Err(err) => {
                    let answers = waiting.into_iter().map(|(answer, _)| answer).collect();
                    return refuse(answers, err.into());
                }
            }
        };
        if self.ledger.behind {
            self.noted.get_or_insert_with(|| Instant::now() + NOTE_PAUSE);
        }
        Self::count(units.len(), took, shared);
        for ((_, answer), outcome) in waiting {
            tell(answer, outcome);
        }
    }

    /// Brings what was only noted to the disk.
    fn catch_up(&mut self, shared: &Shared) {
        self.noted = None;
        if !self.ledger.behind {
            return;
        }
        match self.ledger.sync() {
            Ok(took) => Self::count(0, Some(took), shared),
            Err(err) => _ = shared.broke(FailedBatch::from(err)),
        }
    }

    fn apply(
        &mut self,
        units: &[Vec<Change>],
        settle: bool,
    ) -> Result<Vec<Result<(), StoreError>>, FailedBatch> {
        let reserve = self.options.reserve;
        let free = self.ballast.balance(reserve).map_err(FailedBatch::Space)?;
        let space = Space { free, needed: reserve.saturating_add(self.ballast.owed()) };
        let database = &self.ledger.database;
        let get = |tree, key: &[u8]| database.get(tree, key);
        let Plan { mut writes, outcomes } =
            batch::plan(units, space, &self.remains, get).map_err(FailedBatch::Read)?;
        let settle = settle && self.ledger.state.doubtful.take().is_some();
        if !writes.is_empty() || settle {
            let now = self.options.clock.now();
            for name in self.expiries.due(now, LARGEST_PURGE) {
                writes.entry(name).or_insert(None);
            }
            self.ledger.apply(writes.clone(), Some(self.options.clock.boot_id()))?;
            self.note_deadlines(&writes);
            self.exporter.want();
        }
        Ok(outcomes)
    }

    fn note_deadlines(&mut self, writes: &Writes) {
        let (boot, now) = (self.options.clock.boot_id(), self.options.clock.now());
        for ((tree, key), value) in writes {
            self.expiries.note(*tree, key, value.as_deref(), boot, now);
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
