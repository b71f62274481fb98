use crate::{
    arguments::{Db, DbVerb},
    exit::Exit,
    failure::Failure,
    output::Output,
};

/// Why the state on disk was left alone.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DbError {
    #[error("`db {0}` is not built yet")]
    NotBuiltYet(&'static str),
}

impl DbError {
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::NotBuiltYet(_) => Exit::Refused,
        }
    }
}

pub(crate) fn run(arguments: &Db, _: &mut Output) -> Result<Exit, Failure> {
    let verb = match arguments.verb {
        DbVerb::Check => "check",
        DbVerb::Export => "export",
        DbVerb::Import { .. } => "import",
    };
    Err(DbError::NotBuiltYet(verb).into())
}
