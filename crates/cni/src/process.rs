use std::{env, process::ExitCode};

use crate::{
    add, check, clock, cni_compat, del,
    error::{CniError, Failure},
    fail_point, gc,
    invocation::{Command, Invocation},
    output, status, stdin,
};

/// One execution, from the environment to the exit status.
pub fn main() -> ExitCode {
    let started = clock::now();
    fail_point::set_up();
    let done = Invocation::read(|name| env::var_os(name), stdin::Patient::new()).and_then(
        |Invocation { verb, version, command }| {
            run(command, started).map_err(|error| Failure { verb, version, error })
        },
    );
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.report();
            // Always 1: a code of 256 or more would wrap, and 256 would be a success.
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command, started: berth_types::BootTime) -> Result<(), CniError> {
    match command {
        Command::About => {
            output::about();
            Ok(())
        }
        Command::Version(version) => output::document(&cni_compat::version_reply(version)),
        Command::Nothing { why } => {
            output::note(why);
            Ok(())
        }
        Command::Add(add) => within_runtime(add::run(*add, clock::process_start(started)?)),
        Command::Del(del) => within_runtime(del::run(del, clock::process_start(started)?)),
        Command::Check(check) => within_runtime(check::run(*check)),
        Command::Gc(gc) => within_runtime(gc::run(gc)),
        Command::Status(status) => within_runtime(status::run(status)),
    }
}

/// One thread: the work is a handful of messages one after the other.
fn within_runtime(work: impl Future<Output = Result<(), CniError>>) -> Result<(), CniError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        // A connection is all that there is to wait for.
        .max_io_events_per_tick(16)
        .build()
        .map_err(|source| CniError::Io { what: "cannot start the event loop", source })?;
    let done = runtime.block_on(work);
    // The process ends now, and the kernel takes all of it away at once.
    std::mem::forget(runtime);
    done
}
