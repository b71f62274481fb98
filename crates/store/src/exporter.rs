use std::{
    path::{Path, PathBuf},
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

use berth_types::durable;
use tokio::time::Instant;
use tracing::{error, warn};

use crate::{
    export,
    ledger::Ledger,
    snapshot::{Snapshot, SnapshotError},
    store::{Shared, lock},
};

/// An export of thousands of records takes tens of milliseconds: it takes no more than this part of
/// the time, whatever its size, so that one attachment does not cost more where there are many.
const EXPORT_SHARE: u32 = 500;

/// Commits after which an export is written even if none is due yet: the log holds four times as
/// many, and should lead from the export to the last commit.
const MOST_COMMITS: u64 = 512;

/// Writes the export beside the commits, on a thread of its own.
#[derive(Debug)]
pub(crate) struct Exporter {
    path: PathBuf,
    interval: Duration,
    /// Set while there is a commit that the export does not have.
    due: Option<Instant>,
    not_before: Instant,
    /// Commit that the last export was begun at, or that the first one is not behind.
    begun: u64,
    writing: Option<JoinHandle<Duration>>,
    /// The last one, from the first row to the last byte.
    took: Duration,
}

impl Exporter {
    /// `due` where the export at `path` is not of the last commit, `sequence`.
    pub(crate) fn new(path: PathBuf, interval: Duration, sequence: u64, due: bool) -> Self {
        let not_before = Instant::now();
        let due = due.then_some(not_before);
        Self {
            path,
            interval,
            due,
            not_before,
            begun: sequence,
            writing: None,
            took: Duration::ZERO,
        }
    }

    /// When the next one is to be written; `None` while there is nothing to write.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// `sequence` was committed.
    pub(crate) fn want(&mut self, sequence: u64) {
        let due = *self.due.get_or_insert(self.not_before);
        if sequence.saturating_sub(self.begun) >= MOST_COMMITS {
            self.due = Some(due.min(Instant::now()));
        }
    }

    pub(crate) fn begin(&mut self, ledger: &Ledger, shared: &Arc<Shared>) {
        self.begun = ledger.state.sequence;
        let is_written = self.writing.as_ref().is_none_or(JoinHandle::is_finished);
        if is_written {
            self.wait_for_end();
        }
        self.not_before = Instant::now() + self.interval.max(self.took * EXPORT_SHARE);
        // A disk that takes as long as that is not asked more often.
        self.due = (!is_written).then_some(self.not_before);
        if !is_written {
            return;
        }
        let (snapshot, path, shared) = (ledger.snapshot(), self.path.clone(), Arc::clone(shared));
        let writing =
            std::thread::Builder::new().name("berth-export".to_owned()).spawn(move || {
                let begun = Instant::now();
                write(snapshot, &path, &shared);
                begun.elapsed()
            });
        match writing {
            Ok(writing) => self.writing = Some(writing),
            Err(err) => warn!(%err, "cannot start a thread for the export"),
        }
    }

    pub(crate) fn wait_for_end(&mut self) {
        // What it could not do, it said.
        if let Some(Ok(took)) = self.writing.take().map(JoinHandle::join) {
            self.took = took;
        }
    }

    /// The last one, if the one on disk is not of the last commit.
    pub(crate) fn finish(&mut self, ledger: &Ledger, shared: &Shared) {
        self.wait_for_end();
        if self.due.is_some() {
            write(ledger.snapshot(), &self.path, shared);
        }
    }
}

/// An export that cannot be written is no reason to stop: database and commit log hold everything.
fn write(snapshot: Snapshot, path: &Path, shared: &Shared) {
    let document = match snapshot.read() {
        Ok((state, rows)) => export::write(&state, &rows),
        Err(err @ SnapshotError::Digest) => {
            // The next opening finds out what can be had. The export before is better than this.
            error!(%err, "cannot export the store");
            lock(&shared.statistics).exports_failed += 1;
            return;
        }
        Err(err @ SnapshotError::Read(_)) => {
            shared.broke(err);
            return;
        }
    };
    let written = document
        .inspect_err(|err| error!(error = berth_types::chain(err), "cannot export the store"))
        .is_ok_and(|document| write_document(path, &document));
    let mut statistics = lock(&shared.statistics);
    if written {
        statistics.exports += 1;
    } else {
        statistics.exports_failed += 1;
    }
}

fn write_document(path: &Path, document: &[u8]) -> bool {
    crash_point!("store::before_export");
    let written = durable::replace(path, document, 0o600);
    if let Err(err) = &written {
        warn!(%err, "cannot write the export");
    }
    crash_point!("store::after_export");
    written.is_ok()
}
