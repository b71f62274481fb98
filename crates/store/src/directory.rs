use std::{
    fs::{self, DirBuilder, File, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
};

use berth_types::durable;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

use crate::ballast::{LOW, free_bytes};

/// The state directory and what is where in it.
#[derive(Debug, Clone)]
pub(crate) struct Directory {
    path: PathBuf,
}

impl Directory {
    /// Made with mode 0700 where it is missing, durably.
    pub(crate) fn make(path: &Path) -> io::Result<Self> {
        if !path.is_dir() {
            DirBuilder::new().recursive(true).mode(0o700).create(path)?;
            if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                durable::sync_directory(parent)?;
            }
        }
        Ok(Self { path: path.to_owned() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn lock(&self) -> PathBuf {
        self.path.join("lock")
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.path.join("db")
    }

    pub(crate) fn sequence(&self) -> PathBuf {
        self.path.join("sequence")
    }

    pub(crate) fn commits(&self) -> PathBuf {
        self.path.join("commits")
    }

    pub(crate) fn export(&self) -> PathBuf {
        self.path.join("export.json")
    }

    pub(crate) fn ballast(&self) -> PathBuf {
        self.path.join("ballast")
    }

    /// Where `offline` looks at a copy.
    pub(crate) fn copy(&self) -> PathBuf {
        self.path.join("copy")
    }

    /// Removes what a killed process may have left half written.
    pub(crate) fn remove_leftovers(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(".export.json.") && name.ends_with(".tmp") {
                fs::remove_file(entry.path())?;
            }
        }
        match fs::remove_dir_all(self.copy()) {
            Err(err) if err.kind() != io::ErrorKind::NotFound => Err(err),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Moves the database aside, with copies of the export and of the commit log. Answers the new
    /// place.
    pub(crate) fn move_database_aside(&self, sequence: u64) -> io::Result<PathBuf> {
        let aside = self.keep_copies(sequence)?;
        if self.database().exists() {
            #[expect(clippy::disallowed_methods, reason = "a directory; its fsyncs follow")]
            fs::rename(self.database(), aside.join("db"))?;
            durable::sync_directory(&aside)?;
            durable::sync_directory(&self.path)?;
        }
        Ok(aside)
    }

    /// Of the export and of the commit log, which will be overwritten, where there is room for them
    /// beside a new database; on disk when it returns. Answers the place.
    pub(crate) fn keep_copies(&self, sequence: u64) -> io::Result<PathBuf> {
        let aside = (0..)
            .map(|number| self.path.join(format!("corrupt-{sequence}-{number}")))
            .find(|path| !path.exists())
            .expect("some number is free");
        DirBuilder::new().mode(0o700).create(&aside)?;
        let next = NEXT + size(&self.export());
        for (file, name) in [(self.export(), "export.json"), (self.commits(), "commits")] {
            // Too little space for a copy must not stop the recovery.
            if let Err(err) = keep_copy(&file, &aside.join(name), next) {
                tracing::warn!(%err, name, "cannot keep a copy");
            }
        }
        durable::sync_directory(&aside)?;
        durable::sync_directory(&self.path)?;
        Ok(aside)
    }
}

/// Bytes that a new database takes beside its rows.
const NEXT: u64 = LOW + (2 << 20);

/// Leaves `beside` bytes free, or makes no copy.
fn keep_copy(from: &Path, to: &Path, beside: u64) -> io::Result<()> {
    let length = match fs::metadata(from) {
        Ok(found) => found.len(),
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(err) => return Err(err),
    };
    if free_bytes(from.parent().unwrap_or(from))? < length + beside {
        return Err(io::ErrorKind::StorageFull.into());
    }
    let copied = fs::copy(from, to).and_then(|_| File::open(to)?.sync_all());
    copied.inspect_err(|_| _ = fs::remove_file(to))
}

/// Drops what is clean of `file` from the page cache.
///
/// Of a file that was read or written in one piece it is kept there in large folios, and the kernel
/// counts, and walks, all of a folio whenever a page of it is written: up to 2 MiB for 4 KiB. And
/// what the disk refused to take is clean there too (fsync(2), `EIO`).
pub(crate) fn forget(file: &File) {
    // It is advice.
    let _ = posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
}

/// Makes the files of a database, their modes and their names durable: sled syncs neither its
/// directory nor its configuration.
pub(crate) fn settle(database: &Path) -> io::Result<()> {
    for entry in fs::read_dir(database)? {
        let path = entry?.path();
        if path.is_dir() {
            fs::set_permissions(&path, Permissions::from_mode(0o700))?;
            durable::sync_directory(&path)?;
        } else {
            fs::set_permissions(&path, Permissions::from_mode(0o600))?;
            File::open(&path)?.sync_all()?;
        }
    }
    fs::set_permissions(database, Permissions::from_mode(0o700))?;
    durable::sync_directory(database)?;
    database.parent().map_or(Ok(()), durable::sync_directory)
}

/// sled takes a snapshot that a crash left half written for a damaged one, for ever.
pub(crate) fn remove_half_written_snapshots(database: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(database) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("snap.") && name.ends_with(".generating") {
            tracing::warn!(file = name, "removed a snapshot that was half written");
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Bytes that the file, or the files below the directory, at `path` take up.
pub(crate) fn size(path: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(path) else {
        return fs::metadata(path).map_or(0, |found| found.len());
    };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => size(&entry.path()),
            Ok(found) => found.len(),
            Err(_) => 0,
        })
        .sum()
}
