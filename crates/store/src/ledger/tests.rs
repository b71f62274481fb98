use std::{fs, path::Path};

use super::*;
use crate::{
    commits::{CAPACITY, PAGE},
    directory::Directory,
    recover::recover,
};

/// What a process that is killed now leaves behind: the files, without what sled still has in its
/// memory.
fn killed(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir(&to).unwrap();
            killed(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

#[test]
fn a_commit_over_the_oldest_ones_waits_until_the_database_has_them() {
    let [alive, dead] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let directory = Directory::make(alive.path()).unwrap();
    let mut ledger = recover(&directory, None).unwrap().ledger;
    // The log has as many pages, and nobody else calls for a checkpoint here.
    for _ in 0..CAPACITY / PAGE + 100 {
        ledger.commit(Writes::new(), None).unwrap();
    }
    killed(alive.path(), dead.path());
    let recovered = recover(&Directory::make(dead.path()).unwrap(), None).unwrap();
    assert_eq!(recovered.loaded.doubtful, None);
    assert_eq!(recovered.ledger.state, ledger.state);
}

/// The kernel tells only the first sync that data could not be written.
#[test]
fn after_a_failed_checkpoint_none_succeeds() {
    let directory = tempfile::tempdir().unwrap();
    let mut ledger = recover(&Directory::make(directory.path()).unwrap(), None).unwrap().ledger;
    ledger.commit(Writes::new(), None).unwrap();
    *lock(&ledger.durable.failed) = true;
    assert!(matches!(ledger.checkpoint().run(), Err(CommitError::Checkpoint)));
    assert!(ledger.is_behind());
}
