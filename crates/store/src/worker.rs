use std::{path::PathBuf, sync::Arc, thread::JoinHandle, time::Duration};

use berth_core::ports::{Change, StoreError};
use tokio::{sync::mpsc, time::Instant};
use tracing::warn;

use crate::{
    Options,
    ballast::Ballast,
    batch::{self, Plan, Remains, Space},
    directory::Directory,
    expiry::Expiries,
    exporter::Exporter,
    ledger::{Checkpoint, CommitError, Ledger},
    lock::Lock,
    recover::Recovered,
    row::Record,
    store::{Answer, Request, Shared, lock},
    tree::{Tree, Writes},
};

/// Requests that share one commit at most, so that the first of them does not wait for ever.
const LARGEST_BATCH: usize = 512;

/// The database is brought to the disk this long after the first commit that it does not have
/// there: seldom enough to cost nothing, often enough that the log has room.
const CHECKPOINT_PAUSE: Duration = Duration::from_secs(1);

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
    /// When the database is to be brought to the disk.
    checkpoint: Option<Instant>,
    /// It is, on a thread of its own.
    checkpointing: Option<JoinHandle<()>>,
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
        let Recovered { ledger, remains, exported, .. } = recovered;
        let exporter = Exporter::new(directory.export(), options.export_interval, !exported);
        Self {
            ledger,
            remains,
            expiries,
            ballast,
            exporter,
            checkpoint: None,
            checkpointing: None,
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
        let _alarm = Alarm(shared);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        match runtime {
            // Everything below blocks, and there is nothing else on this runtime to be held up.
            Ok(runtime) => runtime.block_on(self.serve(requests, shared)),
            Err(err) => _ = shared.broke(err),
        }
        self.wait_for_threads(shared);
        if self.ledger.is_behind()
            && let Some(checkpoint) = self.next_checkpoint(shared)
        {
            run(checkpoint, shared);
        }
        if shared.is_broken() {
            shared.stop_reading();
        } else {
            self.exporter.finish(&self.ledger, shared);
        }
    }

    /// What they could not do, they said.
    fn wait_for_threads(&mut self, shared: &Shared) {
        let _ = self.checkpointing.take().map(JoinHandle::join);
        self.exporter.wait_for_end(&self.ledger, shared);
    }

    async fn serve(&mut self, mut requests: mpsc::Receiver<Request>, shared: &Arc<Shared>) {
        while !shared.is_broken() {
            let now = Instant::now();
            let is_due = |due: Instant| due <= now;
            if self.checkpoint.is_some_and(is_due) {
                self.checkpoint(shared);
            }
            if self.exporter.due().is_some_and(is_due) && !shared.is_broken() {
                self.exporter.begin(&self.ledger, shared);
            }
            let due = self.exporter.due().into_iter().chain(self.checkpoint).min();
            let first = match due {
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
        // A thread beside this one may have broken it while there was nothing to do here.
        let written = match shared.failure() {
            None => self.write(&units, settle).map_err(|err| shared.broke(err)),
            Some(broken) => Err(broken),
        };
        match written {
            Ok((outcomes, took)) => {
                if self.ledger.is_behind() {
                    self.checkpoint.get_or_insert_with(|| Instant::now() + CHECKPOINT_PAUSE);
                }
                Self::count(units.len(), took, shared);
                answers
                    .into_iter()
                    .zip(outcomes)
                    .for_each(|(answer, outcome)| tell(answer, outcome));
            }
            Err(broken) => {
                answers.into_iter().for_each(|answer| tell(answer, Err(broken.clone())));
            }
        }
    }

    /// Sets it going. Commits do not wait for it, unless it takes until the log is full.
    fn checkpoint(&mut self, shared: &Arc<Shared>) {
        self.checkpoint = None;
        if !self.ledger.is_behind() {
            return;
        }
        if self.checkpointing.as_ref().is_some_and(|running| !running.is_finished()) {
            self.checkpoint = Some(Instant::now() + CHECKPOINT_PAUSE);
            return;
        }
        let Some(checkpoint) = self.next_checkpoint(shared) else { return };
        let for_thread = Arc::clone(shared);
        let thread = std::thread::Builder::new().name("berth-checkpoint".to_owned());
        let running = thread.spawn(move || run(checkpoint, &for_thread));
        match running {
            Ok(running) => self.checkpointing = Some(running),
            Err(err) => {
                warn!(%err, "cannot start a thread for the checkpoint: commits wait for it");
                run(self.ledger.checkpoint(), shared);
            }
        }
    }

    fn next_checkpoint(&mut self, shared: &Shared) -> Option<Checkpoint> {
        if shared.is_broken() {
            return None;
        }
        // It may need a new segment, for which there is the ballast.
        match self.ballast.balance(self.options.reserve) {
            Ok(_) => Some(self.ledger.checkpoint()),
            Err(err) => {
                shared.broke(FailedBatch::Space(err));
                None
            }
        }
    }

    /// What to answer, once it is true. And how long the disk took, where something was written.
    fn write(&mut self, units: &[Vec<Change>], settle: bool) -> Result<Written, FailedBatch> {
        let reserve = self.options.reserve;
        let free = self.ballast.balance(reserve).map_err(FailedBatch::Space)?;
        let space = Space { free, needed: reserve.saturating_add(self.ballast.owed()) };
        let database = &self.ledger.database;
        let get = |tree, key: &[u8]| database.get(tree, key);
        let Plan { mut writes, outcomes } =
            batch::plan(units, space, &self.remains, get).map_err(FailedBatch::Read)?;
        let settle = settle && self.ledger.state.doubtful.take().is_some();
        if writes.is_empty() && !settle {
            return Ok((outcomes, None));
        }
        let now = self.options.clock.now();
        for name in self.expiries.due(now, LARGEST_PURGE) {
            writes.entry(name).or_insert(None);
        }
        let took = self.ledger.commit(writes.clone(), Some(self.options.clock.boot_id()))?;
        self.note_deadlines(&writes);
        self.exporter.want(self.ledger.laps());
        Ok((outcomes, Some(took)))
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

/// On whichever thread.
fn run(checkpoint: Checkpoint, shared: &Shared) {
    let _alarm = Alarm(shared);
    if let Err(err) = checkpoint.run() {
        shared.broke(FailedBatch::from(err));
    }
}

type Written = (Vec<Result<(), StoreError>>, Option<Duration>);

/// The caller may have gone away.
fn tell(answer: Answer, outcome: Result<(), StoreError>) {
    let _ = answer.send(outcome);
}

/// Tells of a thread that ended in a panic.
struct Alarm<'a>(&'a Shared);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.broke(FailedBatch::Panicked);
            self.0.stop_reading();
        }
    }
}
