use std::{
    error::Error,
    fs, io,
    io::Read,
    path::{Path, PathBuf},
};

use berth_store::offline::{self, Existing, OfflineError, Report};
use serde::Serialize;

use crate::{
    arguments::{Db, DbVerb},
    exit::Exit,
    failure::Failure,
    output::Output,
    table::pairs,
    text::one_line,
};

/// Why the state on disk could not be read or was left alone.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DbError {
    #[error(transparent)]
    Offline(#[from] OfflineError),
    #[error("cannot read {file:?}")]
    Read { file: PathBuf, source: io::Error },
}

impl DbError {
    pub(crate) fn exit(&self) -> Exit {
        if is_denied(self) {
            return Exit::NotAllowed;
        }
        match self {
            Self::Offline(OfflineError::Lock(_) | OfflineError::NotEmpty(_)) => Exit::Refused,
            Self::Offline(
                OfflineError::NoDirectory(_)
                | OfflineError::Io { .. }
                | OfflineError::Database(_)
                | OfflineError::Document(_)
                | OfflineError::Write(_),
            )
            | Self::Read { .. } => Exit::BadNews,
        }
    }
}

/// Whether the kernel said that it may not be.
fn is_denied(err: &(dyn Error + 'static)) -> bool {
    let kind = err.downcast_ref::<io::Error>().map(io::Error::kind);
    kind == Some(io::ErrorKind::PermissionDenied) || err.source().is_some_and(is_denied)
}

/// `db check -o json`.
#[derive(Debug, Serialize)]
struct CheckView {
    /// Whether a start would find all well.
    sound: bool,
    /// In words; empty when all is well.
    problems: Vec<String>,
    database_sequence: Option<u64>,
    recorded_sequence: Option<u64>,
    exported_sequence: Option<u64>,
    attachments: usize,
    addresses: usize,
    intents: usize,
    cooling: usize,
    reservations: usize,
    tombstones: usize,
    set_aside: usize,
}

impl From<Report> for CheckView {
    fn from(report: Report) -> Self {
        Self {
            sound: report.problems.is_empty(),
            problems: report.problems,
            database_sequence: report.database_sequence,
            recorded_sequence: report.recorded_sequence,
            exported_sequence: report.exported_sequence,
            attachments: report.attachments,
            addresses: report.addresses,
            intents: report.intents,
            cooling: report.cooling,
            reservations: report.reservations,
            tombstones: report.tombstones,
            set_aside: report.set_aside,
        }
    }
}

/// `db import -o json`.
#[derive(Debug, Serialize)]
struct ImportView {
    rows: usize,
}

pub(crate) fn run(arguments: &Db, output: &mut Output) -> Result<Exit, Failure> {
    let directory = &arguments.state_dir;
    match &arguments.verb {
        DbVerb::Check => check(directory, output),
        DbVerb::Export => {
            output.raw(&offline::export(directory).map_err(DbError::from)?)?;
            Ok(Exit::Fine)
        }
        DbVerb::Import { file, move_aside } => {
            let document = read(file)?;
            let existing = if *move_aside { Existing::MoveAside } else { Existing::Refuse };
            let rows = offline::import(directory, &document, existing).map_err(DbError::from)?;
            output.show(&ImportView { rows }, |view| format!("imported {} rows\n", view.rows))?;
            Ok(Exit::Fine)
        }
    }
}

fn check(directory: &Path, output: &mut Output) -> Result<Exit, Failure> {
    let report = offline::check(directory).map_err(DbError::from)?;
    let view = CheckView::from(report);
    output.show(&view, draw)?;
    Ok(if view.sound { Exit::Fine } else { Exit::BadNews })
}

fn draw(view: &CheckView) -> String {
    let sequence = |number: Option<u64>| number.map_or("none".to_owned(), |n| n.to_string());
    let mut text = pairs([
        ("sound", if view.sound { "yes" } else { "no" }.to_owned()),
        ("attachments", view.attachments.to_string()),
        ("addresses", view.addresses.to_string()),
        ("cooling", view.cooling.to_string()),
        ("reservations", view.reservations.to_string()),
        ("tombstones", view.tombstones.to_string()),
        ("intents", view.intents.to_string()),
        ("set aside", view.set_aside.to_string()),
        ("last commit", sequence(view.database_sequence)),
        ("acknowledged", sequence(view.recorded_sequence)),
        ("exported", sequence(view.exported_sequence)),
    ]);
    for problem in &view.problems {
        text += &format!("  - {}\n", one_line(problem));
    }
    text
}

fn read(file: &Path) -> Result<Vec<u8>, DbError> {
    let read = if file == Path::new("-") {
        let mut document = Vec::new();
        io::stdin().lock().read_to_end(&mut document).map(|_| document)
    } else {
        fs::read(file)
    };
    read.map_err(|source| DbError::Read { file: file.to_owned(), source })
}
