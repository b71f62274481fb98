use std::{
    fs::{self, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use berth_types::durable;
use nix::{fcntl::posix_fallocate, sys::statvfs::statvfs};
use tracing::{info, warn};

/// Enough for several segments of sled's log (512 KiB each), its snapshot and some thousand
/// releases.
const SIZE: u32 = 4 << 20;

/// Below this even a release may fail: a new segment, and what the file system needs for it.
pub(crate) const LOW: u64 = 1 << 20;

/// Space that is kept so that it can be given up: with a full disk, releases are still written
/// down and the database can still be opened.
#[derive(Debug)]
pub(crate) struct Ballast {
    path: PathBuf,
    held: bool,
}

impl Ballast {
    pub(crate) fn at(path: PathBuf) -> Self {
        let held = fs::metadata(&path).is_ok_and(|found| found.len() >= u64::from(SIZE));
        Self { path, held }
    }

    /// Gives the space up when little is left and takes it again when there is plenty beyond
    /// `reserve`. Answers the bytes that are free now.
    pub(crate) fn balance(&mut self, reserve: u64) -> io::Result<u64> {
        let directory = self.path.parent().unwrap_or(Path::new("/")).to_owned();
        let free = free_bytes(&directory)?;
        if free < LOW && self.held {
            fs::remove_file(&self.path)?;
            self.held = false;
            // Freed blocks can be used once their removal is on disk.
            durable::sync_directory(&directory)?;
            let after = free_bytes(&directory)?;
            warn!(before = free, after, "the disk is full: gave up the ballast");
            return Ok(after);
        }
        if !self.held && free >= reserve.saturating_add(2 * u64::from(SIZE)) {
            match self.take() {
                Ok(()) => {
                    self.held = true;
                    info!(bytes = SIZE, "took ballast");
                    return free_bytes(&directory);
                }
                Err(err) => warn!(%err, "cannot take ballast"),
            }
        }
        Ok(free)
    }

    /// What was given up and has to come back before new records may have it.
    pub(crate) fn owed(&self) -> u64 {
        if self.held { 0 } else { u64::from(SIZE) }
    }

    fn take(&self) -> io::Result<()> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&self.path)?;
        posix_fallocate(&file, 0, i64::from(SIZE))?;
        file.sync_all()
    }
}

/// Bytes that can still be written, those kept for root not counted.
pub(crate) fn free_bytes(directory: &Path) -> io::Result<u64> {
    let found = statvfs(directory)?;
    Ok(found.blocks_available() * found.fragment_size())
}
