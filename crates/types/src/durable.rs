//! Files that are there after a power cut, whole, or not at all.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// Puts `bytes` at `path` in place of what was there: a temporary file in the same directory,
/// fsync, rename, fsync of the directory. The temporary name begins with a dot and does not end
/// in `.conf`, `.conflist` or `.json`, so a runtime that watches the directory sees only the
/// rename. On an error the old content is still there and the temporary file is gone.
pub fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let directory = parent(path)?;
    let temporary = temporary_name(path)?;
    let written = (|| {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(mode)
            .open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        #[expect(clippy::disallowed_methods, reason = "this is the function the lint points to")]
        std::fs::rename(&temporary, path)
    })();
    if let Err(err) = written {
        let _ = std::fs::remove_file(&temporary);
        return Err(err);
    }
    sync_directory(directory)
}

/// Gives what is at `from` the name `to` in the same directory, durably. Whatever it is, it is
/// neither opened nor followed.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    #[expect(clippy::disallowed_methods, reason = "its fsync follows")]
    std::fs::rename(from, to)?;
    sync_directory(parent(to)?)
}

/// Makes what was created, renamed or removed in `directory` durable.
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

fn parent(path: &Path) -> io::Result<&Path> {
    path.parent()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a path with no directory"))
}

fn temporary_name(path: &Path) -> io::Result<PathBuf> {
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a path with no file name"))?;
    // Two processes may write the same file (two plugins spooling one key).
    let unique = format!(".{}.{}.tmp", name.to_string_lossy(), std::process::id());
    Ok(path.with_file_name(unique))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_file_is_whole_and_leaves_no_temporary() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.json");
        replace(&path, b"one", 0o600).unwrap();
        replace(&path, b"two", 0o600).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failed_replace_keeps_the_old_content() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        std::fs::create_dir(&path).unwrap();
        assert!(replace(&path, b"x", 0o600).is_err());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
