//! STATUS: whether an ADD would work now. containerd asks every few seconds with no limit of its
//! own and under a lock, so the answer comes within a second whatever the daemon does.
//!
//! A daemon that is only restarting does not turn the node NotReady. The daemon writes `served`
//! beside its socket when it serves, and removes `away-since`; the first STATUS that finds it
//! away makes `away-since`, and within the grace from there the answer stays "ready".

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use berth_types::BootTime;

use crate::{
    clock,
    daemon::{Daemon, DaemonError, Limit},
    error::CniError,
    invocation::Status,
    output,
};

const LIMIT: Duration = Duration::from_millis(800);

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct NoAddress(String);

pub(crate) async fn run(status: Status) -> Result<(), CniError> {
    match ask(&status).await {
        Ok(reason) if reason.is_empty() => Ok(()),
        Ok(reason) => Err(CniError::NotReady(Box::new(NoAddress(reason)))),
        Err(err) if err.is_away() && within_grace(&status, clock::now()) => {
            output::note("berthd is away for a moment: still ready");
            Ok(())
        }
        // 50 and not 51: pods that run do not need the daemon.
        Err(err) => Err(CniError::NotReady(Box::new(err))),
    }
}

async fn ask(status: &Status) -> Result<String, DaemonError> {
    let limit = Limit::after(LIMIT);
    let daemon = Daemon::connect(&status.socket, limit).await?;
    daemon.unavailable_reason(limit).await
}

fn within_grace(status: &Status, now: BootTime) -> bool {
    let Some(directory) = status.socket.parent() else { return false };
    if !directory.join("served").exists() {
        return false;
    }
    match away_since(&directory.join("away-since"), now) {
        // Later than now: of another boot, and worth nothing.
        Ok(since) => since <= now && now.since(since) < status.grace,
        Err(err) => {
            output::note(&format!("no grace for berthd: {err}"));
            false
        }
    }
}

/// When a STATUS first found the daemon away: now, if this is the first. The file appears whole
/// or not at all, and the first to make it wins.
fn away_since(path: &Path, now: BootTime) -> io::Result<BootTime> {
    let mut mine: PathBuf = path.to_owned();
    mine.set_extension(std::process::id().to_string());
    fs::write(&mine, now.as_nanos().to_string())?;
    let linked = fs::hard_link(&mine, path);
    fs::remove_file(&mine)?;
    match linked {
        Ok(()) => Ok(now),
        Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {
            let text = fs::read_to_string(path)?;
            let nanos = text.trim().parse().map_err(io::Error::other)?;
            Ok(BootTime::from_nanos(nanos))
        }
        Err(err) => Err(err),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn status(directory: &Path) -> Status {
        Status { socket: directory.join("berth.sock"), grace: SECOND * 15 }
    }

    #[test]
    fn a_daemon_that_served_has_its_grace_from_the_first_look_and_no_longer() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("served"), "").unwrap();
        let (status, now) = (status(place.path()), clock::now());
        assert!(within_grace(&status, now));
        assert!(within_grace(&status, now + SECOND * 14));
        assert!(!within_grace(&status, now + SECOND * 15));
        // Back and away again.
        fs::remove_file(place.path().join("away-since")).unwrap();
        assert!(within_grace(&status, now + SECOND * 60));
        assert!(!within_grace(&status, now + SECOND * 75));
        // Nothing else was left behind.
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_daemon_that_never_served_has_no_grace() {
        let place = tempfile::tempdir().unwrap();
        assert!(!within_grace(&status(place.path()), clock::now()));
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_mark_of_another_boot_or_of_nobody_gives_no_grace() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("served"), "").unwrap();
        let now = clock::now();
        for text in [(now + SECOND * 3600).as_nanos().to_string(), String::new(), "x".to_owned()] {
            fs::write(place.path().join("away-since"), &text).unwrap();
            assert!(!within_grace(&status(place.path()), now), "{text:?}");
        }
    }
}
