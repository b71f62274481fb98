use std::{
    fs::{self, DirBuilder, File, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
};

use berth_types::durable;

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

    /// Moves the database aside, with copies of the export and of the commit log, which the next one
    /// will overwrite.
    /// Answers the new place.
    pub(crate) fn move_database_aside(&self, sequence: u64) -> io::Result<PathBuf> {
        let aside = (0..)
            .map(|number| self.path.join(format!("corrupt-{sequence}-{number}")))
            .find(|path| !path.exists())
            .expect("some number is free");
        DirBuilder::new().mode(0o700).create(&aside)?;
        for (file, name) in [(self.export(), "export.json"), (self.commits(), "commits")] {
            if file.exists()
                && let Err(err) = fs::copy(&file, aside.join(name))
            {
                // Too little space for a copy must not stop the recovery.
                tracing::warn!(%err, name, "cannot keep a copy");
            }
        }
        if self.database().exists() {
            #[expect(clippy::disallowed_methods, reason = "a directory; its fsyncs follow")]
            fs::rename(self.database(), aside.join("db"))?;
        }
        durable::sync_directory(&aside)?;
        durable::sync_directory(&self.path)?;
        Ok(aside)
    }
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

/// Bytes that the files below `directory` take up.
pub(crate) fn size(directory: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => size(&entry.path()),
            Ok(found) => found.len(),
            Err(_) => 0,
        })
        .sum()
}
