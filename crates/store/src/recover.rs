use std::{io, path::PathBuf};

use berth_core::ports::Loaded;
use berth_types::BootId;
use tracing::{error, warn};

use crate::{
    batch::Remains,
    commits::{Commit, CommitLog, LogError},
    database::{Database, OpenDatabaseError, WriteError},
    digest::Digest,
    directory::Directory,
    export,
    ledger::{CommitError, Ledger},
    load,
    replay::{self, Contents, StateError},
    row::State,
    sequence::{Recorded, SequenceFile},
    tree::Rows,
    verdict::{Found, Verdict, judge},
};

/// A store that can be committed to.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) ledger: Ledger,
    pub(crate) loaded: Loaded,
    pub(crate) remains: Remains,
    /// Whether the export on disk is of the last commit.
    pub(crate) exported: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    #[error("cannot read or write {path:?}")]
    Io { path: PathBuf, source: io::Error },
    #[error("no space in the state directory to open the database")]
    NoSpace,
    #[error("cannot open the database: {0}")]
    Database(String),
    #[error("the database has schema {found}, this program knows up to {known}")]
    NewerSchema { found: u32, known: u32 },
    #[error("{0}")]
    NewerLog(String),
    #[error("cannot write a row: {0}")]
    Row(String),
    #[error("cannot commit what the recovery found: {0}")]
    Commit(String),
}

/// Opens the database or what can be had in its place, compares it with what was acknowledged,
/// and writes down what it had to change.
pub(crate) fn recover(
    directory: &Directory,
    boot_id: Option<&BootId>,
) -> Result<Recovered, RecoverError> {
    let failed = |path: PathBuf| |source| RecoverError::io(path, source);
    let (sequence, recorded) =
        SequenceFile::open(&directory.sequence()).map_err(failed(directory.sequence()))?;
    let (log, logged) =
        CommitLog::open(&directory.commits()).map_err(|err| RecoverError::log(directory, err))?;
    let export = export::read_file(&directory.export()).unwrap_or_else(|err| {
        error!(error = berth_types::chain(&err), "the export cannot be read");
        None
    });
    let exported = export.as_ref().map_or(0, |export| export.sequence);
    let export_is_whole = export.as_ref().is_none_or(|export| export.whole);
    if !export_is_whole {
        error!("the export is damaged");
    }
    let spare = replay::spare(export, &logged.runs);
    let (found, opened) = find(directory, &logged.runs)?;
    let verdict =
        judge(&found, recorded, logged.acknowledged, spare.as_ref().map(|spare| spare.sequence));

    let newest = match recorded {
        Recorded::At(sequence) => sequence.max(exported).max(logged.highest),
        Recorded::Missing | Recorded::Damaged => exported.max(logged.highest),
    };
    let (database, holds, mut state, rows, doubt) = match (verdict, opened) {
        (Verdict::Keep, Some(opened)) => {
            let (database, Contents { state, rows, .. }) = opened.catch_up()?;
            (database, Some(state.sequence), state, rows, None)
        }
        (Verdict::KeepInDoubt(doubt), Some(opened)) => {
            if matches!(found, Found::Holds { whole: false, .. }) {
                // The next export is made of these rows, and this one may have what they lost.
                match directory.keep_copies(newest) {
                    Ok(kept) => warn!(path = %kept.display(), "kept copies of export and log"),
                    Err(err) => warn!(%err, "cannot keep copies of export and log"),
                }
            }
            let (database, Contents { mut state, rows, .. }) = opened.catch_up()?;
            let holds = state.sequence;
            state.sequence = holds.max(newest);
            state.digest = Digest::of(&rows);
            (database, Some(holds), state, rows, Some(doubt))
        }
        (Verdict::Rebuild(doubt), opened) => {
            drop(opened);
            let database = replace(directory, newest)?;
            let spare = spare.expect("the verdict needs one");
            let state = State { sequence: newest, doubtful: spare.doubtful, ..State::default() };
            let note = if spare.whole { "" } else { "; the export is damaged too" };
            (database, None, state, spare.rows, Some(format!("{doubt}{note}")))
        }
        (Verdict::StartEmpty(doubt), opened) => {
            drop(opened);
            let database = replace(directory, newest)?;
            let state = State { sequence: newest, ..State::default() };
            (database, None, state, Rows::new(), Some(doubt))
        }
        (Verdict::Keep | Verdict::KeepInDoubt(_), None) => {
            unreachable!("what is kept was opened")
        }
    };

    let contents = load::read(&rows).map_err(|err| RecoverError::Row(err.to_string()))?;
    for aside in &contents.loaded.set_aside {
        warn!(tree = aside.tree, key = aside.key, problem = aside.problem, "set aside a row");
    }
    let mut changed = !contents.repairs.is_empty() || state.sequence == 0;
    if let Some(doubt) = doubt {
        error!(doubt, "the database is not what was acknowledged");
        state.doubtful = Some(match state.doubtful.take() {
            Some(earlier) if earlier != doubt => format!("{earlier}; {doubt}"),
            Some(_) | None => doubt,
        });
        changed = true;
    }
    crash_point!("store::before_repair");
    let files = (log, sequence);
    let ledger = match holds {
        None => {
            let mut rows = rows;
            replay::redo(&mut rows, &contents.repairs);
            Ledger::fill(database, files, state, &rows, boot_id)
        }
        Some(holds) => {
            let mut ledger = Ledger::new(database, files, holds, state);
            let written =
                if changed { ledger.commit(contents.repairs, boot_id).map(|_| ()) } else { Ok(()) };
            let noted = written.and_then(|()| ledger.note_sequence());
            noted.and_then(|()| ledger.checkpoint().run()).map(|()| ledger)
        }
    };
    let ledger = ledger.map_err(RecoverError::from_commit)?;
    Ok(Recovered {
        // A damaged one is written anew.
        exported: !changed && exported == ledger.state.sequence && export_is_whole,
        loaded: Loaded { doubtful: ledger.state.doubtful.clone(), ..contents.loaded },
        remains: contents.remains,
        ledger,
    })
}

struct Opened {
    database: Database,
    contents: Contents,
}

impl Opened {
    /// The database on disk as its contents say: what the log had beyond it is done again.
    fn catch_up(self) -> Result<(Database, Contents), RecoverError> {
        let Self { database, contents } = self;
        if !contents.replayed.is_empty() {
            if contents.mended {
                warn!("the database was damaged; the commit log mended it");
            }
            let failed = |err| RecoverError::from_commit(CommitError::Write(err));
            database.apply(&contents.replayed).map_err(failed)?;
            crash_point!("store::after_replay");
            database.sync().map_err(failed)?;
        }
        Ok((database, contents))
    }
}

fn find(
    directory: &Directory,
    runs: &[Vec<Commit>],
) -> Result<(Found, Option<Opened>), RecoverError> {
    let read = Database::open(&directory.database())
        .and_then(|database| database.rows().map(|rows| (database, rows)));
    let (database, rows) = match read {
        Ok(read) => read,
        Err(OpenDatabaseError::Damaged(problem)) => return Ok((Found::Damaged(problem), None)),
        Err(err) => return Err(RecoverError::from_open(err)),
    };
    let contents = match Contents::of(rows, runs) {
        Ok(contents) => contents,
        Err(StateError::NewerSchema(found)) => {
            return Err(RecoverError::NewerSchema { found, known: State::SCHEMA });
        }
        Err(err @ (StateError::Missing | StateError::Unreadable(_))) => {
            return Ok((Found::Damaged(err.to_string()), None));
        }
    };
    Ok((contents.found(), Some(Opened { database, contents })))
}

/// A new database in place of the old one, which is moved aside.
fn replace(directory: &Directory, newest: u64) -> Result<Database, RecoverError> {
    let aside = directory
        .move_database_aside(newest)
        .map_err(|source| RecoverError::io(directory.path().to_owned(), source))?;
    warn!(path = %aside.display(), "moved the database aside");
    crash_point!("store::moved_aside");
    Database::open(&directory.database()).map_err(RecoverError::from_open)
}

fn is_no_space(err: &WriteError) -> bool {
    match err {
        WriteError::Row(sled::Error::Io(err))
        | WriteError::Flush(sled::Error::Io(err))
        | WriteError::Sync(err) => err.kind() == io::ErrorKind::StorageFull,
        WriteError::Row(_) | WriteError::Flush(_) => false,
    }
}

impl RecoverError {
    fn log(directory: &Directory, err: LogError) -> Self {
        match err {
            LogError::Io(source) => Self::io(directory.commits(), source),
            LogError::Unknown(_) => Self::NewerLog(err.to_string()),
        }
    }

    fn io(path: PathBuf, source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::StorageFull {
            Self::NoSpace
        } else {
            Self::Io { path, source }
        }
    }

    fn from_commit(err: CommitError) -> Self {
        match err {
            CommitError::Write(ref write) if is_no_space(write) => Self::NoSpace,
            CommitError::Log(ref err) if err.kind() == io::ErrorKind::StorageFull => Self::NoSpace,
            CommitError::Read(_)
            | CommitError::State(_)
            | CommitError::Record(_)
            | CommitError::Log(_)
            | CommitError::Write(_)
            | CommitError::Checkpoint
            | CommitError::Sequence(_) => Self::Commit(berth_types::chain(&err)),
        }
    }

    fn from_open(err: OpenDatabaseError) -> Self {
        if err.is_no_space() { Self::NoSpace } else { Self::Database(berth_types::chain(&err)) }
    }
}
