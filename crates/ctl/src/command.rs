//! One module for each command: its question, its JSON and its table.

pub(crate) mod completion;
pub(crate) mod config;
pub(crate) mod db;
mod explain;
mod gc;
mod key;
mod pods;
mod pool;
pub(crate) mod release;
mod status;
mod watch;

use crate::{
    arguments::{Config, Remote},
    daemon::Daemon,
    exit::Exit,
    failure::Failure,
    output::Output,
};

/// A command that the daemon answers.
pub(crate) async fn remote(
    daemon: &Daemon,
    command: Remote,
    output: &mut Output,
) -> Result<Exit, Failure> {
    match command {
        Remote::Status => status::run(daemon, output).await,
        Remote::Pods(pods) => pods::run(daemon, pods, output).await,
        Remote::Pool(pool) => pool::run(daemon, &pool, output).await,
        Remote::Explain(explain) => explain::run(daemon, explain, output).await,
        Remote::Gc(gc) => gc::run(daemon, &gc, output).await,
        Remote::Release(release) => release::run(daemon, release, output).await,
        Remote::Config(Config::Show) => config::run(daemon, output).await,
        Remote::Watch => watch::run(daemon, output).await,
    }
}
