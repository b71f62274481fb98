use std::{
    fs::{File, OpenOptions},
    io::{self, Read},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
};

use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
};

/// Held for as long as the directory is in use. The kernel lets go of it when the process ends,
/// however it ends.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: Flock<File>,
}

#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("the state directory is in use by process {0}")]
    Held(String),
    #[error("cannot lock the state directory")]
    Io(#[source] io::Error),
}

impl Lock {
    /// Never waits.
    pub(crate) fn take(path: &Path) -> Result<Self, LockError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(LockError::Io)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(file) => {
                // For people; the lock itself is the kernel's.
                let write = || {
                    file.set_len(0)?;
                    file.write_all_at(format!("{}\n", std::process::id()).as_bytes(), 0)
                };
                match write() {
                    // On a full disk the pid cannot be written, and that must not stop anyone.
                    Err(err) if err.kind() != io::ErrorKind::StorageFull => Err(LockError::Io(err)),
                    Ok(()) | Err(_) => Ok(Self { _file: file }),
                }
            }
            Err((mut file, Errno::EWOULDBLOCK)) => {
                let mut pid = String::new();
                let _ = file.read_to_string(&mut pid);
                let pid = pid.trim();
                Err(LockError::Held(if pid.is_empty() { "unknown" } else { pid }.to_owned()))
            }
            Err((_, errno)) => Err(LockError::Io(errno.into())),
        }
    }
}
