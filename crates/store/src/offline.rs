//! A look at, and into, the state of a daemon that does not run: `berthctl db`. Each takes the
//! daemon's lock, so a running daemon refuses it and the other way round.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    commits::{self, CommitLog, LogError},
    database::{Database, OpenDatabaseError},
    directory::Directory,
    export::{self, ExportError},
    ledger::Ledger,
    load,
    lock::{Lock, LockError},
    replay::{self, Contents},
    row::State,
    sequence::{Recorded, SequenceFile},
    tree::{Rows, Tree},
    verdict::{Found, Verdict, judge},
};

/// What a daemon would find if it started now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Commit sequence of the database, of the sequence file and of the export, where they can
    /// be read.
    pub database_sequence: Option<u64>,
    pub recorded_sequence: Option<u64>,
    pub exported_sequence: Option<u64>,
    pub attachments: usize,
    pub addresses: usize,
    pub intents: usize,
    pub cooling: usize,
    pub reservations: usize,
    pub tombstones: usize,
    pub set_aside: usize,
    /// In words for a person; empty when all is well.
    pub problems: Vec<String>,
}

/// What to do with records that are there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    Refuse,
    MoveAside,
}

#[derive(Debug, thiserror::Error)]
pub enum OfflineError {
    #[error("{0:?} is not a state directory")]
    NoDirectory(PathBuf),
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error("cannot work in {path:?}")]
    Io { path: PathBuf, source: io::Error },
    #[error("cannot read the database: {0}")]
    Database(String),
    #[error("the database holds {0} rows already")]
    NotEmpty(usize),
    #[error("cannot read the document")]
    Document(#[from] ExportError),
    #[error("cannot write the database: {0}")]
    Write(String),
}

/// Compares everything with everything and changes nothing: it looks at a copy of the database,
/// since sled writes when it opens.
pub fn check(path: &Path) -> Result<Report, OfflineError> {
    let (directory, _lock) = enter(path)?;
    let mut report = Report::default();
    // Opening it would make it.
    let recorded = if directory.sequence().exists() {
        SequenceFile::open(&directory.sequence()).map_err(io_error(path))?.1
    } else {
        Recorded::Missing
    };
    if let Recorded::At(sequence) = recorded {
        report.recorded_sequence = Some(sequence);
    }
    let logged = commits::read(&directory.commits()).map_err(|err| log_error(path, err))?;
    let export = match export::read_file(&directory.export()) {
        Ok(export) => export,
        Err(err) => {
            report.problems.push(berth_types::chain(&err));
            None
        }
    };
    if export.as_ref().is_some_and(|export| !export.whole) {
        report.problems.push("the export does not add up to its digest".to_owned());
    }
    report.exported_sequence = export.as_ref().map(|export| export.sequence);
    let spare = replay::spare(export, &logged.runs).map(|spare| spare.sequence);
    let found = match read_copy(&directory) {
        Ok(contents) => {
            let found = contents.found();
            if found != Found::Empty {
                report.database_sequence = Some(contents.state.sequence);
            }
            if let Some(doubt) = &contents.state.doubtful {
                report.problems.push(format!("in doubt: {doubt}"));
            }
            if contents.mended {
                report.problems.push("the commit log mends rows of the database".to_owned());
            }
            count(&contents.rows, &mut report)?;
            found
        }
        Err(OfflineError::Database(problem)) => Found::Damaged(problem),
        Err(err) => return Err(err),
    };
    match judge(&found, recorded, logged.acknowledged, spare) {
        Verdict::Keep => (),
        Verdict::KeepInDoubt(doubt) | Verdict::Rebuild(doubt) | Verdict::StartEmpty(doubt) => {
            report.problems.push(format!("a start would find: {doubt}"));
        }
    }
    Ok(report)
}

/// The database as a document that [`import`] takes. Changes nothing.
pub fn export(path: &Path) -> Result<Vec<u8>, OfflineError> {
    let (directory, _lock) = enter(path)?;
    let Contents { state, rows, .. } = read_copy(&directory)?;
    Ok(export::write(&state, &rows)?)
}

/// Makes the database out of `document` alone and answers how many rows it has. The next start
/// finds it in doubt, since nobody knows what happened after the document was written.
pub fn import(path: &Path, document: &[u8], existing: Existing) -> Result<usize, OfflineError> {
    let export = export::read(document)?;
    let directory = Directory::make(path).map_err(io_error(path))?;
    let _lock = Lock::take(&directory.lock())?;
    directory.remove_leftovers().map_err(io_error(path))?;
    let (sequence, recorded) = SequenceFile::open(&directory.sequence()).map_err(io_error(path))?;
    let (log, logged) =
        CommitLog::open(&directory.commits()).map_err(|err| log_error(path, err))?;
    let mut newest = export.sequence.max(logged.highest);
    if let Recorded::At(recorded) = recorded {
        newest = newest.max(recorded);
    }
    if directory.database().exists() {
        match existing {
            Existing::Refuse => {
                let Contents { state, rows, .. } = read_copy(&directory)?;
                if !rows.is_empty() {
                    return Err(OfflineError::NotEmpty(rows.len()));
                }
                newest = newest.max(state.sequence);
            }
            Existing::MoveAside => (),
        }
        directory.move_database_aside(newest).map_err(io_error(path))?;
    }
    let database = Database::open(&directory.database()).map_err(|err| write_error(&err))?;
    let mut doubt = "imported by hand".to_owned();
    if !export.whole {
        doubt.push_str(" from a document that does not add up to its digest");
    }
    let state = State { sequence: newest, doubtful: Some(doubt), ..State::default() };
    let count = export.rows.len();
    Ledger::fill(database, (log, sequence), state, &export.rows, None)
        .map_err(|err| write_error(&err))?;
    Ok(count)
}

fn enter(path: &Path) -> Result<(Directory, Lock), OfflineError> {
    if !path.is_dir() {
        return Err(OfflineError::NoDirectory(path.to_owned()));
    }
    let directory = Directory::make(path).map_err(io_error(path))?;
    let lock = Lock::take(&directory.lock())?;
    directory.remove_leftovers().map_err(io_error(path))?;
    Ok((directory, lock))
}

/// The database with its log, read from a copy that is gone afterwards.
fn read_copy(directory: &Directory) -> Result<Contents, OfflineError> {
    let logged = commits::read(&directory.commits());
    let runs = logged.map_err(|err| log_error(directory.path(), err))?.runs;
    let mut rows = Rows::new();
    if directory.database().exists() {
        let copy = directory.copy();
        let read = (|| {
            copy_tree(&directory.database(), &copy).map_err(io_error(&copy))?;
            let database = Database::open(&copy).map_err(|err| database_error(&err))?;
            database.rows().map_err(|err| database_error(&err))
        })();
        let removed = fs::remove_dir_all(&copy);
        rows = read?;
        removed.map_err(io_error(&copy))?;
    }
    Contents::of(rows, &runs).map_err(|err| OfflineError::Database(err.to_string()))
}

fn count(rows: &Rows, report: &mut Report) -> Result<(), OfflineError> {
    let contents = load::read(rows).map_err(|err| OfflineError::Database(err.to_string()))?;
    report.addresses = rows.keys().filter(|(tree, _)| *tree == Tree::ByAddress).count();
    let loaded = contents.loaded;
    report.attachments = loaded.attachments.len();
    report.intents = loaded.intents.len();
    report.cooling = loaded.cooling.len();
    report.reservations = loaded.reservations.len();
    report.tombstones = loaded.tombstones.len();
    report.set_aside = loaded.set_aside.len();
    for aside in loaded.set_aside {
        report.problems.push(format!("{} {}: {}", aside.tree, aside.key, aside.problem));
    }
    Ok(())
}

fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> OfflineError + use<> {
    let path = path.to_owned();
    move |source| OfflineError::Io { path, source }
}

fn log_error(path: &Path, err: LogError) -> OfflineError {
    match err {
        LogError::Io(source) => io_error(path)(source),
        LogError::Unknown(_) => OfflineError::Database(err.to_string()),
    }
}

fn database_error(err: &OpenDatabaseError) -> OfflineError {
    OfflineError::Database(berth_types::chain(err))
}

fn write_error(err: &(dyn std::error::Error + 'static)) -> OfflineError {
    OfflineError::Write(berth_types::chain(err))
}
