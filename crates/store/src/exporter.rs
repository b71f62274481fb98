use std::{
    path::{Path, PathBuf},
    thread::JoinHandle,
    time::Duration,
};

use berth_types::durable;
use tokio::time::Instant;
use tracing::{error, warn};

use crate::{
    export,
    ledger::Ledger,
    store::{Shared, lock},
};

/// An export of thousands of records takes milliseconds of the store's thread: it takes no more
/// than this part of its time.
const EXPORT_SHARE: u32 = 20;

/// Writes the export beside the commits.
#[derive(Debug)]
pub(crate) struct Exporter {
    path: PathBuf,
    interval: Duration,
    /// Set while there is a commit that the export does not have.
    due: Option<Instant>,
    not_before: Instant,
    writing: Option<JoinHandle<bool>>,
}

impl Exporter {
    /// `due` where the export at `path` is not of the last commit.
    pub(crate) fn new(path: PathBuf, interval: Duration, due: bool) -> Self {
        let not_before = Instant::now();
        Self { path, interval, due: due.then_some(not_before), not_before, writing: None }
    }

    /// When the next one is to be written; `None` while there is nothing to write.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Something was committed.
    pub(crate) fn want(&mut self) {
        self.due.get_or_insert(self.not_before);
    }

    /// Takes the rows and leaves the writing to a thread of its own, so that no commit waits for
    /// a file of many records.
    pub(crate) fn begin(&mut self, ledger: &Ledger, shared: &Shared) {
        let begun = Instant::now();
        self.due = None;
        self.not_before = begun + self.interval;
        if self.writing.as_ref().is_some_and(|writing| !writing.is_finished()) {
            self.want();
            return;
        }
        self.note_end(shared);
        let Some(document) = document(ledger, shared) else { return };
        let took = begun.elapsed() * EXPORT_SHARE;
        self.not_before = self.not_before.max(begun + took);
        let path = self.path.clone();
        let writing = std::thread::Builder::new()
            .name("berth-export".to_owned())
            .spawn(move || write_document(&path, &document));
        match writing {
            Ok(writing) => self.writing = Some(writing),
            Err(err) => warn!(%err, "cannot start a thread for the export"),
        }
    }

    /// The last one, if the one on disk is not of the last commit.
    pub(crate) fn finish(&mut self, ledger: &Ledger, shared: &Shared) {
        self.note_end(shared);
        if self.due.is_some()
            && let Some(document) = document(ledger, shared)
        {
            write_document(&self.path, &document);
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
            shared.broke(err);
            return None;
        }
    };
    let document = export::write(&ledger.state, &rows);
    document
        .inspect_err(|err| error!(error = berth_types::chain(err), "cannot export the store"))
        .ok()
}

/// An export that cannot be written is no reason to stop: database and commit log hold everything.
fn write_document(path: &Path, document: &[u8]) -> bool {
    crash_point!("store::before_export");
    let written = durable::replace(path, document, 0o600);
    if let Err(err) = &written {
        warn!(%err, "cannot write the export");
    }
    crash_point!("store::after_export");
    written.is_ok()
}
