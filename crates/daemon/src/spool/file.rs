//! One file of the spool, whoever put it there.

use std::{
    fs::OpenOptions,
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use berth_types::{SpooledRelease, durable};
use nix::libc;
use tracing::error;

/// The plugin's own are a few hundred bytes, with a reason that may tell of a failed ADD.
const LARGEST: u64 = 64 * 1024;

#[derive(Debug, thiserror::Error)]
pub(super) enum Unreadable {
    /// Nor will it ever be one.
    #[error("{0}")]
    NotARelease(String),
    /// It may be one: another time.
    #[error(transparent)]
    Now(io::Error),
}

pub(super) fn read(path: &Path) -> Result<SpooledRelease, Unreadable> {
    let not = |problem: &str| Unreadable::NotARelease(problem.to_owned());
    // A link is not followed, and what is no file does not make the daemon wait.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = opened.map_err(|err| match err.raw_os_error() {
        Some(libc::ELOOP) => not("it is a link"),
        Some(libc::ENXIO) => not("it is a socket"),
        Some(libc::EACCES) => not("it may not be read"),
        _ => Unreadable::Now(err),
    })?;
    if !file.metadata().map_err(Unreadable::Now)?.is_file() {
        return Err(not("it is not a file"));
    }
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(Unreadable::Now)?;
    parse(&bytes).map_err(Unreadable::NotARelease)
}

pub(crate) fn parse(bytes: &[u8]) -> Result<SpooledRelease, String> {
    if bytes.len() as u64 > LARGEST {
        return Err(format!("longer than {LARGEST} bytes"));
    }
    let spooled: SpooledRelease = serde_json::from_slice(bytes).map_err(|err| err.to_string())?;
    if spooled.version != SpooledRelease::VERSION {
        return Err(format!("version {} is not known", spooled.version));
    }
    if !spooled.is_whole() {
        return Err("it is not as it was written".to_owned());
    }
    Ok(spooled)
}

/// Kept for a person to look at, out of the way, under the first name that is free.
pub(super) fn set_aside(path: &Path, problem: &str) {
    error!(?path, problem, "what is in the spool is not a release and is set aside");
    let names = std::iter::once("unreadable".to_owned())
        .chain((1..).map(|number| format!("{number}.unreadable")));
    let free = names
        .map(|name| path.with_extension(name))
        .find(|name: &PathBuf| name.symlink_metadata().is_err());
    if let Some(Err(err)) = free.map(|aside| durable::rename(path, &aside)) {
        error!(%err, ?path, "cannot set it aside");
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use nix::{sys::stat::Mode, unistd::mkfifo};

    use super::*;

    #[test]
    fn what_is_no_file_is_neither_followed_nor_waited_for_nor_read_whole() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        fs::write(path("elsewhere"), "secret").unwrap();
        symlink(path("elsewhere"), path("link")).unwrap();
        fs::create_dir(path("directory")).unwrap();
        mkfifo(&path("fifo"), Mode::S_IRWXU).unwrap();
        let huge = fs::File::create(path("huge")).unwrap();
        // A hole: a terabyte that takes no room, but would in memory.
        huge.set_len(1 << 40).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        for (name, problem) in [
            ("link", "it is a link"),
            ("directory", "it is not a file"),
            ("fifo", "it is not a file"),
            ("socket", "it is a socket"),
            ("huge", "longer than 65536 bytes"),
            ("elsewhere", "expected value at line 1 column 1"),
        ] {
            let Err(Unreadable::NotARelease(found)) = read(&path(name)) else {
                panic!("{name} was taken")
            };
            assert_eq!(found, problem, "{name}");
        }
        // Gone meanwhile, or no descriptor left: nothing is known of it.
        assert!(matches!(read(&path("gone")), Err(Unreadable::Now(_))));
    }

    #[test]
    fn what_was_set_aside_before_stays() {
        let place = tempfile::tempdir().unwrap();
        for content in ["one", "two", "three"] {
            let path = place.path().join("1-x.json");
            fs::write(&path, content).unwrap();
            set_aside(&path, "a test");
            assert!(!path.exists());
        }
        let content = |name| fs::read_to_string(place.path().join(name)).unwrap();
        assert_eq!(content("1-x.unreadable"), "one");
        assert_eq!(content("1-x.1.unreadable"), "two");
        assert_eq!(content("1-x.2.unreadable"), "three");
    }
}
