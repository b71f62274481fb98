use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

use berth_types::durable;
use tokio::time::Instant;
use tracing::{error, warn};

use crate::{
    ballast::{LOW, free_bytes},
    export,
    ledger::Ledger,
    snapshot::{Snapshot, SnapshotError},
    store::{Shared, lock},
};

/// An export of thousands of records takes tens of milliseconds: it takes no more than this part of
/// the time, whatever its size, so that one attachment does not cost more where there are many.
const EXPORT_SHARE: u32 = 500;

/// But one that takes long does not make the next one wait for hours. And after one that failed, a
/// full disk is left alone for as long.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Rounds of the log after which an export is written even if none is due yet: the log should lead
/// from the export to the last commit.
const MOST_LAPS: f64 = 0.5;

/// Writes the export beside the commits, on a thread of its own.
#[derive(Debug)]
pub(crate) struct Exporter {
    path: PathBuf,
    interval: Duration,
    /// Set while there is a commit that the export does not have.
    due: Option<Instant>,
    not_before: Instant,
    /// Where the log was when the last export was begun.
    begun: f64,
    writing: Option<JoinHandle<Written>>,
    /// The last one, from the first row to the last byte.
    took: Duration,
}

#[derive(Debug)]
struct Written {
    took: Duration,
    /// The commit that it is of, where it is there.
    done: Option<u64>,
}

impl Exporter {
    /// `due` where the export at `path` is not of the last commit.
    pub(crate) fn new(path: PathBuf, interval: Duration, due: bool) -> Self {
        let not_before = Instant::now();
        let due = due.then_some(not_before);
        let (writing, took) = (None, Duration::ZERO);
        Self { path, interval, due, not_before, begun: 0.0, writing, took }
    }

    /// When it has to be seen to; `None` while there is nothing to write.
    pub(crate) fn due(&self) -> Option<Instant> {
        // One that is being written may fail.
        self.due.or_else(|| self.writing.as_ref().map(|_| self.not_before))
    }

    /// There was a commit, which brought the log to `laps`.
    pub(crate) fn want(&mut self, laps: f64) {
        let due = *self.due.get_or_insert(self.not_before);
        if laps - self.begun >= MOST_LAPS {
            self.due = Some(due.min(Instant::now()));
        }
    }

    /// Begins one, if one is to be written and the last one has ended.
    pub(crate) fn begin(&mut self, ledger: &Ledger, shared: &Arc<Shared>) {
        if self.writing.as_ref().is_some_and(|writing| !writing.is_finished()) {
            // A disk that takes as long as that is not asked more often.
            self.not_before = Instant::now() + self.pause();
            self.due = self.due.map(|_| self.not_before);
            return;
        }
        self.wait_for_end(ledger, shared);
        if self.due.is_some_and(|due| due > Instant::now()) || self.due.take().is_none() {
            return;
        }
        self.begun = ledger.laps();
        self.not_before = Instant::now() + self.pause();
        let (snapshot, path, for_thread) =
            (ledger.snapshot(), self.path.clone(), Arc::clone(shared));
        let writing =
            std::thread::Builder::new().name("berth-export".to_owned()).spawn(move || {
                let begun = Instant::now();
                let done = write(snapshot, &path, &for_thread);
                Written { took: begun.elapsed(), done }
            });
        match writing {
            Ok(writing) => self.writing = Some(writing),
            Err(err) => {
                warn!(%err, "cannot start a thread for the export");
                self.due = Some(self.not_before);
            }
        }
    }

    fn pause(&self) -> Duration {
        self.interval.max((self.took * EXPORT_SHARE).min(LONGEST_PAUSE))
    }

    /// One that failed is due again, and of one that has the last commit none is.
    pub(crate) fn wait_for_end(&mut self, ledger: &Ledger, shared: &Shared) {
        let Some(writing) = self.writing.take() else { return };
        let done = match writing.join() {
            Ok(Written { took, done }) => {
                self.took = took;
                done
            }
            Err(_) => {
                error!("the thread of the export panicked");
                lock(&shared.statistics).exports_failed += 1;
                None
            }
        };
        match done {
            Some(sequence) if sequence == ledger.state.sequence => self.due = None,
            Some(_) => {}
            None => {
                self.not_before = Instant::now() + LONGEST_PAUSE;
                self.due = Some(self.not_before);
            }
        }
    }

    /// The last one, if the one on disk is not of the last commit.
    pub(crate) fn finish(&mut self, ledger: &Ledger, shared: &Shared) {
        self.wait_for_end(ledger, shared);
        if self.due.is_some() {
            write(ledger.snapshot(), &self.path, shared);
        }
    }
}

/// The commit that it is of, where it is there. One that cannot be written is no reason to stop: database and commit log hold
/// everything.
fn write(snapshot: Snapshot, path: &Path, shared: &Shared) -> Option<u64> {
    let written = match snapshot.read() {
        Ok((state, rows)) => export::write(&state, &rows)
            .inspect_err(|err| error!(error = berth_types::chain(err), "cannot export the store"))
            .is_ok_and(|document| write_document(path, &document))
            .then_some(state.sequence),
        // The database is not what was written to it: the next opening finds out what can be had, as
        // long as the export before and the log lead to it.
        Err(err @ (SnapshotError::Digest | SnapshotError::Read(_))) => {
            shared.broke(err);
            None
        }
    };
    let mut statistics = lock(&shared.statistics);
    if written.is_some() {
        statistics.exports += 1;
    } else {
        statistics.exports_failed += 1;
    }
    written
}

fn write_document(path: &Path, document: &[u8]) -> bool {
    crash_point!("store::before_export");
    let written = has_room(path, document.len() as u64)
        .and_then(|()| durable::replace(path, document, 0o600));
    if let Err(err) = &written {
        warn!(%err, "cannot write the export");
    }
    crash_point!("store::after_export");
    written.is_ok()
}

/// What is left on a full disk is for the commits.
fn has_room(path: &Path, length: u64) -> io::Result<()> {
    if free_bytes(path.parent().unwrap_or(path))? < length + LOW {
        return Err(io::ErrorKind::StorageFull.into());
    }
    Ok(())
}
