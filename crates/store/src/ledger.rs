use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use berth_types::BootId;
use tokio::time::Instant;

use crate::{
    commits::CommitLog,
    database::{Database, WriteError},
    digest::Digest,
    row::{self, RowError, State},
    sequence::SequenceFile,
    snapshot::{Since, Snapshot},
    store::lock,
    tree::{Rows, Tree, Writes},
};

/// The commit log, the database and the sequence file together: what a commit is.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) database: Arc<Database>,
    log: CommitLog,
    sequence: Arc<SequenceFile>,
    /// As last committed.
    pub(crate) state: State,
    durable: Arc<Durable>,
    since: Since,
}

/// What brings the database to the disk with all commits up to one, beside the commits that go on.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    database: Arc<Database>,
    sequence: Arc<SequenceFile>,
    upto: u64,
    /// Where another one has brought as much there meanwhile, it is enough.
    enough: Option<u64>,
    durable: Arc<Durable>,
}

#[derive(Debug)]
struct Durable {
    /// The database is on disk with all commits up to this one.
    upto: AtomicU64,
    /// Held by the checkpoint that is under way; whether one has failed. A second one would not be
    /// told: the kernel reports only once that data could not be written (fsync(2)).
    failed: Mutex<bool>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum CommitError {
    #[error("cannot read the database")]
    Read(#[source] sled::Error),
    #[error("cannot write the state row")]
    State(#[source] RowError),
    #[error("cannot write a record of the commit log")]
    Record(#[source] postcard::Error),
    #[error("cannot write the commit log")]
    Log(#[source] io::Error),
    #[error("cannot commit")]
    Write(#[from] WriteError),
    #[error("the database could not be brought to the disk before")]
    Checkpoint,
    #[error("cannot write the commit sequence")]
    Sequence(#[source] io::Error),
}

impl Ledger {
    /// Of a database that is on disk with all commits up to `holds`, and a `state` that the next
    /// commit follows.
    pub(crate) fn new(
        database: Database,
        (mut log, sequence): (CommitLog, SequenceFile),
        holds: u64,
        state: State,
    ) -> Self {
        log.follow(holds);
        Self {
            database: Arc::new(database),
            log,
            sequence: Arc::new(sequence),
            state,
            durable: Arc::new(Durable { upto: AtomicU64::new(holds), failed: Mutex::new(false) }),
            since: Since::default(),
        }
    }

    /// Of a new database that is filled with `rows`, on disk when it returns, as the commit after
    /// `state`.
    ///
    /// **Order matters:** what the rows were made of, the log among it, stays as it is until then: a
    /// crash leaves a database that does not add up, and they are made once more.
    pub(crate) fn fill(
        database: Database,
        files: (CommitLog, SequenceFile),
        mut state: State,
        rows: &Rows,
        boot_id: Option<&BootId>,
    ) -> Result<Self, CommitError> {
        state.sequence += 1;
        state.boot_id = boot_id.cloned();
        state.digest = Digest::of(rows);
        let mut writes: Writes =
            rows.iter().map(|(place, row)| (place.clone(), Some(row.clone()))).collect();
        database.apply(&writes)?;
        crash_point!("store::after_rows");
        writes.clear();
        let row = row::encode(&state).map_err(CommitError::State)?;
        writes.insert((Tree::Meta, State::KEY.into()), Some(row));
        database.apply(&writes)?;
        database.sync()?;
        let ledger = Self::new(database, files, state.sequence, state);
        ledger.note_sequence()?;
        Ok(ledger)
    }

    /// May be acknowledged when it returns. Answers how long the disk took.
    ///
    /// **Order matters:** the log before the database, so that whatever part of this the database
    /// has after a crash can be made whole; the sequence file last, so that it is never ahead.
    pub(crate) fn commit(
        &mut self,
        mut writes: Writes,
        boot_id: Option<&BootId>,
    ) -> Result<Duration, CommitError> {
        let mut next = self.state.clone();
        next.sequence += 1;
        next.boot_id = boot_id.cloned().or(next.boot_id);
        for ((tree, key), value) in &writes {
            if let Some(old) = self.database.get(*tree, key).map_err(CommitError::Read)? {
                next.digest -= Digest::of_row(*tree, key, &old);
            }
            if let Some(new) = value {
                next.digest += Digest::of_row(*tree, key, new);
            }
        }
        let state = row::encode(&next).map_err(CommitError::State)?;
        writes.insert((Tree::Meta, State::KEY.into()), Some(state));
        let record = self.log.record(next.sequence, &writes).map_err(CommitError::Record)?;
        if let Some(needed) = self.log.overwrites(&record)
            && !self.is_durable(needed)
        {
            Checkpoint { enough: Some(needed), ..self.checkpoint() }.run()?;
        }
        let begun = Instant::now();
        crash_point!("store::before_log");
        self.log.append(&record, next.sequence).map_err(CommitError::Log)?;
        let took = begun.elapsed();
        crash_point!("store::after_log_sync");
        let noting = self.since.hold();
        self.database.apply(&writes)?;
        crash_point!("store::after_apply");
        noting.add(writes, &next);
        self.state = next;
        self.sequence.write(self.state.sequence).map_err(CommitError::Sequence)?;
        crash_point!("store::after_sequence");
        Ok(took)
    }

    /// The log has something that the database may not have on disk.
    pub(crate) fn is_behind(&self) -> bool {
        !self.is_durable(self.state.sequence)
    }

    fn is_durable(&self, sequence: u64) -> bool {
        sequence <= self.durable.upto.load(Ordering::Acquire)
    }

    /// How far the log was written since it was opened, in rounds of all of it.
    pub(crate) fn laps(&self) -> f64 {
        self.log.laps()
    }

    /// The log goes on behind it: what leads from the export to here is worth more than its place.
    pub(crate) fn checkpoint(&self) -> Checkpoint {
        Checkpoint {
            database: Arc::clone(&self.database),
            sequence: Arc::clone(&self.sequence),
            upto: self.state.sequence,
            enough: None,
            durable: Arc::clone(&self.durable),
        }
    }

    /// A crash may have come before the sequence file's turn.
    pub(crate) fn note_sequence(&self) -> Result<(), CommitError> {
        self.sequence.write(self.state.sequence).map_err(CommitError::Sequence)?;
        self.sequence.sync().map_err(CommitError::Sequence)
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot::begin(&self.database, &self.since, &self.state)
    }
}

impl Checkpoint {
    /// **Order matters:** the database before the number that gives the log's records up.
    pub(crate) fn run(self) -> Result<(), CommitError> {
        let mut failed = lock(&self.durable.failed);
        if std::mem::replace(&mut *failed, true) {
            return Err(CommitError::Checkpoint);
        }
        if self.enough.is_some_and(|it| self.durable.upto.load(Ordering::Acquire) >= it) {
            *failed = false;
            return Ok(());
        }
        self.database.sync()?;
        self.sequence.sync().map_err(CommitError::Sequence)?;
        crash_point!("store::after_checkpoint");
        self.durable.upto.fetch_max(self.upto, Ordering::AcqRel);
        *failed = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
