use std::io;

use crate::{
    command::{config::ConfigError, db::DbError, release::SelectError},
    daemon::CallError,
    exit::Exit,
};

/// Why a command could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    Select(#[from] SelectError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Db(#[from] DbError),
    #[error("cannot write the answer")]
    Output(#[source] io::Error),
    #[error("cannot start")]
    Runtime(#[source] io::Error),
}

impl Failure {
    pub(crate) fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Output(err) if err.kind() == io::ErrorKind::BrokenPipe)
    }

    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Call(err) => err.exit(),
            Self::Select(err) => err.exit(),
            Self::Db(err) => err.exit(),
            Self::Config(_) | Self::Output(_) | Self::Runtime(_) => Exit::BadNews,
        }
    }
}
