use std::{io, path::PathBuf, sync::Arc, time::Duration};

use berth_core::ports::{Clock, Loaded};

use crate::{
    ballast::{Ballast, LOW},
    commits,
    directory::Directory,
    lock::{Lock, LockError},
    recover::{RecoverError, recover},
    store::SledStore,
    worker::Worker,
};

#[derive(Clone)]
pub struct Options {
    /// `/var/lib/berth`; made where it is missing.
    pub directory: PathBuf,
    /// Tells which rows have expired.
    pub clock: Arc<dyn Clock>,
    /// Bytes that must be free for a new attachment to be recorded.
    pub reserve: u64,
    /// The shortest time between two exports, unless there are so many commits that the log would not
    /// lead from one to the next.
    pub export_interval: Duration,
}

impl Options {
    /// A reserve of 8 MiB, a second between exports.
    pub fn new(directory: impl Into<PathBuf>, clock: Arc<dyn Clock>) -> Self {
        Self {
            directory: directory.into(),
            clock,
            reserve: 8 << 20,
            export_interval: Duration::from_secs(1),
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").field("directory", &self.directory).finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error("cannot prepare the state directory {path:?}")]
    Directory { path: PathBuf, source: io::Error },
    #[error("the disk is full: {free} bytes free in the state directory, {needed} needed to open")]
    DiskFull { free: u64, needed: u64 },
    #[error("cannot recover the store")]
    Recover(#[from] RecoverError),
    #[error("cannot start the store's thread")]
    Thread(#[source] io::Error),
}

/// Opens the store. Blocks on the disk: call it before anything is served.
///
/// A damaged database is moved aside and rebuilt from its export; then, and when it turns out to
/// be older than what was acknowledged, [`Loaded::doubtful`] says so, at this opening and every
/// later one until [`SledStore::settle_doubt`]. On an error nothing was lost: where the disk is
/// full, opening works again once there is space.
pub fn open(options: Options) -> Result<(SledStore, Loaded), OpenError> {
    let failed = |source| OpenError::Directory { path: options.directory.clone(), source };
    let directory = Directory::make(&options.directory).map_err(failed)?;
    let lock = Lock::take(&directory.lock())?;
    directory.remove_leftovers().map_err(failed)?;
    let mut ballast = Ballast::at(directory.ballast());
    let free = ballast.balance(options.reserve).map_err(failed)?;
    // The commit log where it is not there yet, and what sled begins to write: it would leave half a
    // snapshot.
    let needed = LOW + commits::missing(&directory.commits());
    if free < needed {
        return Err(OpenError::DiskFull { free, needed });
    }
    let recovered = recover(&directory, Some(options.clock.boot_id()))?;
    let loaded = recovered.loaded.clone();
    let worker = Worker::new(options, directory, recovered, ballast, lock);
    let store = SledStore::start(worker).map_err(OpenError::Thread)?;
    Ok((store, loaded))
}
