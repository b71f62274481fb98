use std::{io, path::PathBuf};

use berth_core::ports::Loaded;
use berth_types::BootId;
use tracing::{error, warn};

use crate::{
    batch::Remains,
    database::{Database, OpenDatabaseError, WriteError},
    digest::Digest,
    directory::Directory,
    export,
    ledger::{CommitError, Ledger},
    load,
    row::{self, RowError, State},
    sequence::{Recorded, SequenceFile},
    tree::{Rows, Tree},
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
    let path = directory.sequence();
    let (sequence, recorded) =
        SequenceFile::open(&path).map_err(|source| RecoverError::io(path, source))?;
    let export = export::read_file(&directory.export()).unwrap_or_else(|err| {
        error!(error = berth_types::chain(&err), "the export cannot be read");
        None
    });
    let (found, opened) = find(directory)?;
    let verdict = judge(&found, recorded, export.as_ref().map(|export| export.sequence));

    let exported = export.as_ref().map_or(0, |export| export.sequence);
    let export_is_whole = export.as_ref().is_none_or(|export| export.whole);
    if !export_is_whole {
        error!("the export is damaged");
    }
    let newest = match recorded {
        Recorded::At(sequence) => sequence.max(exported),
        Recorded::Missing | Recorded::Damaged => exported,
    };
    let (mut ledger, rows, imported, doubt) = match (verdict, opened) {
        (Verdict::Keep, Some((database, state, rows))) => {
            (Ledger::new(database, sequence, state), rows, false, None)
        }
        (Verdict::KeepInDoubt(doubt), Some((database, mut state, rows))) => {
            state.sequence = state.sequence.max(newest);
            state.digest = Digest::of(&rows);
            (Ledger::new(database, sequence, state), rows, false, Some(doubt))
        }
        (Verdict::Rebuild(doubt), opened) => {
            drop(opened);
            let database = replace(directory, newest)?;
            let export = export.expect("the verdict needs an export");
            let state = State { sequence: newest, doubtful: export.doubtful, ..State::default() };
            let note = if export.whole { "" } else { "; the export is damaged too" };
            let ledger = Ledger::new(database, sequence, state);
            (ledger, export.rows, true, Some(format!("{doubt}{note}")))
        }
        (Verdict::StartEmpty(doubt), opened) => {
            drop(opened);
            let database = replace(directory, newest)?;
            let state = State { sequence: newest, ..State::default() };
            (Ledger::new(database, sequence, state), Rows::new(), true, Some(doubt))
        }
        (Verdict::Keep | Verdict::KeepInDoubt(_), None) => {
            unreachable!("what is kept was opened")
        }
    };

    let contents = load::read(&rows).map_err(|err| RecoverError::Row(err.to_string()))?;
    let mut writes = contents.repairs;
    if imported {
        for (place, bytes) in rows {
            writes.entry(place).or_insert(Some(bytes));
        }
    }
    let fresh = ledger.state.sequence == 0;
    if let Some(doubt) = doubt {
        error!(doubt, "the database is not what was acknowledged");
        ledger.state.doubtful = Some(match ledger.state.doubtful.take() {
            Some(earlier) if earlier != doubt => format!("{earlier}; {doubt}"),
            Some(_) | None => doubt,
        });
    } else if writes.is_empty() && !fresh {
        // A crash may have come between the database and the sequence file.
        let sequence = ledger.state.sequence;
        ledger
            .sequence
            .write(sequence)
            .map_err(|source| RecoverError::io(directory.sequence(), source))?;
        return Ok(Recovered {
            // A damaged one is written anew.
            exported: exported == sequence && export_is_whole,
            loaded: Loaded { doubtful: ledger.state.doubtful.clone(), ..contents.loaded },
            remains: contents.remains,
            ledger,
        });
    }
    for aside in &contents.loaded.set_aside {
        warn!(tree = aside.tree, key = aside.key, problem = aside.problem, "set aside a row");
    }
    crash_point!("store::before_repair");
    ledger.commit(writes, boot_id).map_err(|err| match err {
        CommitError::Write(ref write) if is_no_space(write) => RecoverError::NoSpace,
        CommitError::Read(_)
        | CommitError::State(_)
        | CommitError::Write(_)
        | CommitError::Sequence(_) => RecoverError::Commit(berth_types::chain(&err)),
    })?;
    Ok(Recovered {
        exported: false,
        loaded: Loaded { doubtful: ledger.state.doubtful.clone(), ..contents.loaded },
        remains: contents.remains,
        ledger,
    })
}

type Opened = (Database, State, Rows);

fn find(directory: &Directory) -> Result<(Found, Option<Opened>), RecoverError> {
    let read = Database::open(&directory.database())
        .and_then(|database| database.rows().map(|rows| (database, rows)));
    let (database, mut rows) = match read {
        Ok(read) => read,
        Err(OpenDatabaseError::Damaged(problem)) => return Ok((Found::Damaged(problem), None)),
        Err(err) => return Err(RecoverError::from_open(err)),
    };
    let state = rows.remove(&(Tree::Meta, State::KEY.into()));
    rows.retain(|(tree, _), _| *tree != Tree::Meta);
    let Some(state) = state else {
        return Ok(if rows.is_empty() {
            (Found::Empty, Some((database, State::default(), rows)))
        } else {
            (Found::Damaged("the state row is missing".to_owned()), None)
        });
    };
    let state = match row::decode::<State>(&state) {
        Ok(state) => state,
        Err(RowError::UnknownVersion(found)) => {
            return Err(RecoverError::NewerSchema { found, known: State::SCHEMA });
        }
        Err(err) => return Ok((Found::Damaged(format!("the state row: {err}")), None)),
    };
    if state.schema > State::SCHEMA {
        let (found, known) = (state.schema, State::SCHEMA);
        return Err(RecoverError::NewerSchema { found, known });
    }
    let whole = Digest::of(&rows) == state.digest;
    let found = Found::Holds { sequence: state.sequence, whole };
    Ok((found, Some((database, state, rows))))
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
        WriteError::Transaction(sled::Error::Io(err))
        | WriteError::Flush(sled::Error::Io(err))
        | WriteError::Sync(err) => err.kind() == io::ErrorKind::StorageFull,
        WriteError::Transaction(_) | WriteError::Flush(_) => false,
    }
}

impl RecoverError {
    fn io(path: PathBuf, source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::StorageFull {
            Self::NoSpace
        } else {
            Self::Io { path, source }
        }
    }

    fn from_open(err: OpenDatabaseError) -> Self {
        if err.is_no_space() { Self::NoSpace } else { Self::Database(berth_types::chain(&err)) }
    }
}
