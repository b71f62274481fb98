use std::{
    fs::File,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    directory,
    tree::{Rows, Tree, Writes},
};

/// sled's cache. 16,000 records are about 10 MiB.
const CACHE: u64 = 16 << 20;

/// How often sled's own thread wakes to flush and to clean segments. The flushing is done by us,
/// so only the cleaning is left to it; between passes an idle store does nothing at all.
const CLEANING_PAUSE: Duration = Duration::from_secs(30);

/// sled's own log, in the database's directory.
const LOG: &str = "db";

/// The trees in sled. Only the store thread writes.
#[derive(Debug)]
pub(crate) struct Database {
    db: sled::Db,
    trees: Vec<sled::Tree>,
    /// Our own descriptor of sled's log: its `flush` does not make the file's size durable.
    log: File,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenDatabaseError {
    #[error("{0}")]
    Damaged(String),
    #[error("cannot open the database")]
    Sled(#[source] sled::Error),
    #[error("cannot open the database")]
    Io(#[from] io::Error),
}

/// How long sled's threads may take to let go of its file, and what sled says until then: it
/// gives the error no kind of its own.
const CLOSING: Duration = Duration::from_secs(5);
const LOCKED: &str = "could not acquire lock";

#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    #[error("cannot change the database")]
    Row(#[source] sled::Error),
    #[error("cannot flush the database")]
    Flush(#[source] sled::Error),
    #[error("cannot sync the database's log")]
    Sync(#[source] io::Error),
}

impl Database {
    /// What it finds is durable when it returns: a crash may have left commits in the page cache
    /// that were never synced, or that the disk refused.
    pub(crate) fn open(path: &Path) -> Result<Self, OpenDatabaseError> {
        directory::remove_half_written_snapshots(path)?;
        if let Ok(log) = File::open(path.join(LOG)) {
            log.sync_all()?;
            directory::forget(&log);
        }
        let open = || {
            let db = sled::Config::new()
                .path(path)
                .cache_capacity(CACHE)
                .flush_every_ms(u64::try_from(CLEANING_PAUSE.as_millis()).ok())
                .open()?;
            let trees = Tree::ALL.map(|tree| db.open_tree(tree.name()));
            let trees = trees.into_iter().collect::<Result<Vec<_>, _>>()?;
            db.flush()?;
            Ok::<_, sled::Error>((db, trees))
        };
        let begun = Instant::now();
        let (db, trees) = loop {
            match guarded(open)? {
                Ok(opened) => break opened,
                // The directory is ours, so it can only be a thread of sled's from an earlier
                // opening of this process that has not quite ended.
                Err(sled::Error::Io(err))
                    if err.to_string().contains(LOCKED) && begun.elapsed() < CLOSING =>
                {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(err) => return Err(OpenDatabaseError::from_sled(err)),
            }
        };
        directory::settle(path)?;
        let log = File::open(path.join(LOG))?;
        Ok(Self { db, trees, log })
    }

    pub(crate) fn tree(&self, tree: Tree) -> &sled::Tree {
        &self.trees[tree as usize]
    }

    /// Everything there is. Damage shows here at the latest.
    pub(crate) fn rows(&self) -> Result<Rows, OpenDatabaseError> {
        let read = || {
            let mut rows = Rows::new();
            for tree in Tree::ALL {
                for row in self.tree(tree).iter() {
                    let (key, value) = row?;
                    rows.insert((tree, key.to_vec()), value.to_vec());
                }
            }
            Ok::<_, sled::Error>(rows)
        };
        guarded(read)?.map_err(OpenDatabaseError::from_sled)
    }

    pub(crate) fn get(&self, tree: Tree, key: &[u8]) -> Result<Option<Vec<u8>>, sled::Error> {
        Ok(self.tree(tree).get(key)?.map(|value| value.to_vec()))
    }

    /// All of `writes`, in memory, in their order. A crash may leave any part of it on disk, and
    /// after an error nothing is known of what is there: the commit log has it.
    pub(crate) fn apply(&self, writes: &Writes) -> Result<(), WriteError> {
        for ((tree, key), value) in writes {
            let tree = self.tree(*tree);
            match value {
                Some(value) => tree.insert(key.as_slice(), value.as_slice()),
                None => tree.remove(key.as_slice()),
            }
            .map_err(WriteError::Row)?;
        }
        Ok(())
    }

    /// Everything applied is on disk when it returns.
    pub(crate) fn sync(&self) -> Result<(), WriteError> {
        self.db.flush().map_err(WriteError::Flush)?;
        crash_point!("store::after_flush");
        self.log.sync_data().map_err(WriteError::Sync)?;
        crash_point!("store::after_sync");
        Ok(())
    }
}

impl OpenDatabaseError {
    fn from_sled(err: sled::Error) -> Self {
        match &err {
            sled::Error::Io(_) => Self::Sled(err),
            // `Unsupported` too: it is what a spoiled configuration file looks like.
            sled::Error::Corruption { .. }
            | sled::Error::Unsupported(_)
            | sled::Error::ReportableBug(_)
            | sled::Error::CollectionNotFound(_) => Self::Damaged(err.to_string()),
        }
    }

    pub(crate) fn is_no_space(&self) -> bool {
        match self {
            Self::Sled(sled::Error::Io(err)) | Self::Io(err) => {
                err.kind() == io::ErrorKind::StorageFull
            }
            Self::Sled(_) | Self::Damaged(_) => false,
        }
    }
}

/// sled asserts what a damaged file does not keep.
fn guarded<T>(read: impl FnOnce() -> T) -> Result<T, OpenDatabaseError> {
    catch_unwind(AssertUnwindSafe(read))
        .map_err(|_| OpenDatabaseError::Damaged("sled panicked while reading it".to_owned()))
}
