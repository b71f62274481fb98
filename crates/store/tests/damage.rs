//! Files that are not as they were written. Whatever the damage, the store opens; what it tells
//! is either the truth or said to be in doubt.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use berth_core::ports::{Loaded, Store};
use berth_store::offline;
use common::{allocate, copy, marks, open, release};

/// A state directory with a history, and the marks that it holds.
async fn state(directory: &Path, reopened: bool) -> BTreeMap<u16, u32> {
    let (store, _) = open(directory).unwrap();
    for round in 0..4_u16 {
        for slot in 0..40 {
            store.commit(allocate(slot, 10 + u32::from(round))).await.unwrap();
            if slot % 3 == 0 {
                store.commit(release(slot)).await.unwrap();
            }
        }
    }
    store.close().await;
    if reopened {
        // Now there is a snapshot.
        open(directory).unwrap().0.close().await;
    }
    let expected =
        (0..40).filter(|slot| slot % 3 != 0).map(|slot| (slot, 13)).collect::<BTreeMap<_, _>>();
    let (_store, loaded) = open(directory).unwrap();
    assert_eq!((marks(&loaded.attachments), loaded.doubtful), (expected.clone(), None));
    expected
}

fn flip(path: &Path, bit: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[bit / 8] ^= 1 << (bit % 8);
    fs::write(path, bytes).unwrap();
}

fn truncate(path: &Path, length: u64) {
    fs::OpenOptions::new().write(true).open(path).unwrap().set_len(length).unwrap();
}

/// Files of the database that hold anything, and how much of each is in use.
fn files(directory: &Path) -> Vec<(PathBuf, usize)> {
    let entries = fs::read_dir(directory.join("db")).unwrap();
    let files = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let mut files: Vec<_> = files
        .map(|path| {
            let bytes = fs::read(&path).unwrap();
            (path, bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1))
        })
        .filter(|(_, used)| *used > 0)
        .collect();
    files.sort();
    files
}

#[derive(Debug, Default)]
struct Tally {
    unharmed: usize,
    rebuilt: usize,
}

/// With its export at hand nothing is lost, and nothing false is said.
fn check_with_export(directory: &Path, expected: &BTreeMap<u16, u32>, case: &str) -> bool {
    let (store, loaded) = open(directory).unwrap_or_else(|err| panic!("{case}: {err:?}"));
    assert_eq!(marks(&loaded.attachments), *expected, "{case}: {:?}", loaded.doubtful);
    drop(store);
    loaded.doubtful.is_none()
}

#[tokio::test]
async fn a_flipped_bit_or_a_lost_end_is_noticed_and_the_export_makes_up_for_it() {
    for reopened in [false, true] {
        let original = tempfile::tempdir().unwrap();
        let expected = state(original.path(), reopened).await;
        let unharmed = tempfile::tempdir().unwrap();
        copy(original.path(), unharmed.path());
        assert!(check_with_export(unharmed.path(), &expected, "a copy"));
        let mut tally = Tally::default();
        let mut seed = 7_usize;
        for (path, used) in files(original.path()) {
            let name = path.file_name().unwrap().to_owned();
            for try_ in 0..24 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_041);
                let at = (seed >> 16) % used;
                let directory = tempfile::tempdir().unwrap();
                copy(original.path(), directory.path());
                let target = directory.path().join("db").join(&name);
                if try_ % 3 == 0 {
                    truncate(&target, at as u64);
                } else {
                    flip(&target, at * 8 + (seed >> 7) % 8);
                }
                let case = format!("{name:?} at {at} of {used}, try {try_}");
                if check_with_export(directory.path(), &expected, &case) {
                    tally.unharmed += 1;
                } else {
                    tally.rebuilt += 1;
                }
            }
        }
        println!("snapshot: {reopened}, {tally:?}");
        assert!(tally.rebuilt > 0, "{tally:?}");
    }
}

#[tokio::test]
async fn without_an_export_damage_is_never_served_as_the_truth() {
    let original = tempfile::tempdir().unwrap();
    let expected = state(original.path(), false).await;
    fs::remove_file(original.path().join("export.json")).unwrap();
    let log = original.path().join("db/db");
    let used = files(original.path()).into_iter().find(|(path, _)| *path == log).unwrap().1;
    let mut doubted = 0;
    for part in 1..30 {
        let directory = tempfile::tempdir().unwrap();
        copy(original.path(), directory.path());
        flip(&directory.path().join("db/db"), used * part / 30 * 8);
        let (_store, loaded) = open(directory.path()).unwrap();
        if loaded.doubtful.is_none() {
            assert_eq!(marks(&loaded.attachments), expected, "part {part}");
        } else {
            doubted += 1;
        }
    }
    assert!(doubted > 0);
}

fn moved_aside(directory: &Path) -> usize {
    let names = fs::read_dir(directory).unwrap();
    names
        .filter(|e| e.as_ref().unwrap().file_name().to_string_lossy().starts_with("corrupt-"))
        .count()
}

#[tokio::test]
async fn a_lost_or_older_database_is_noticed_by_its_sequence() {
    let original = tempfile::tempdir().unwrap();
    let (store, _) = open(original.path()).unwrap();
    store.commit(allocate(1, 1)).await.unwrap();
    store.close().await;
    let older = tempfile::tempdir().unwrap();
    copy(&original.path().join("db"), older.path());
    let (store, _) = open(original.path()).unwrap();
    store.commit(allocate(2, 1)).await.unwrap();
    store.close().await;

    let open_with = |database: Option<&Path>, export: bool| -> (Loaded, usize) {
        let directory = tempfile::tempdir().unwrap();
        copy(original.path(), directory.path());
        // It would lead from the older one to the last commit.
        fs::remove_file(directory.path().join("commits")).unwrap();
        fs::remove_dir_all(directory.path().join("db")).unwrap();
        if let Some(database) = database {
            copy(database, &directory.path().join("db"));
        }
        if !export {
            fs::remove_file(directory.path().join("export.json")).unwrap();
        }
        let problems = offline::check(directory.path()).unwrap().problems;
        assert_eq!(problems.len(), 1, "{problems:?}");
        let (store, loaded) = open(directory.path()).unwrap();
        drop(store);
        // What was rebuilt is as good as any; the doubt stays.
        let (_store, again) = open(directory.path()).unwrap();
        assert_eq!(again, loaded);
        assert!(loaded.doubtful.is_some());
        (loaded, moved_aside(directory.path()))
    };
    let both = BTreeMap::from([(1, 1), (2, 1)]);
    let (loaded, aside) = open_with(Some(older.path()), true);
    assert_eq!((marks(&loaded.attachments), aside), (both.clone(), 1));
    let (loaded, aside) = open_with(Some(older.path()), false);
    assert_eq!((marks(&loaded.attachments), aside), (BTreeMap::from([(1, 1)]), 0));
    let (loaded, aside) = open_with(None, true);
    assert_eq!((marks(&loaded.attachments), aside), (both, 1));
    let (loaded, aside) = open_with(None, false);
    assert_eq!((marks(&loaded.attachments), aside), (BTreeMap::new(), 1));
}

#[tokio::test]
async fn what_the_database_lost_of_the_last_moments_the_commit_log_gives_back() {
    let original = tempfile::tempdir().unwrap();
    let (store, _) = open(original.path()).unwrap();
    store.commit(allocate(1, 1)).await.unwrap();
    store.commit(allocate(2, 1)).await.unwrap();
    store.close().await;
    let older = tempfile::tempdir().unwrap();
    copy(&original.path().join("db"), older.path());
    let (store, _) = open(original.path()).unwrap();
    for mark in 2..50 {
        store.commit(allocate(1, mark)).await.unwrap();
    }
    store.commit(release(2)).await.unwrap();
    store.close().await;
    for export in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        copy(original.path(), directory.path());
        fs::remove_dir_all(directory.path().join("db")).unwrap();
        copy(older.path(), &directory.path().join("db"));
        if !export {
            fs::remove_file(directory.path().join("export.json")).unwrap();
        }
        assert_eq!(offline::check(directory.path()).unwrap().problems, [""; 0]);
        for _ in 0..2 {
            let (_store, loaded) = open(directory.path()).unwrap();
            assert_eq!(marks(&loaded.attachments), [(1, 49)].into());
            assert_eq!(loaded.doubtful, None);
        }
        assert_eq!(moved_aside(directory.path()), 0);
    }
}

#[tokio::test]
async fn a_damaged_record_of_the_commit_log_is_missed_where_the_database_needs_it() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path()).unwrap();
    let first = tempfile::tempdir().unwrap();
    copy(directory.path(), first.path());
    for mark in 1..5 {
        store.commit(allocate(1, mark)).await.unwrap();
    }
    // As after kill -9: the commits are in the log only.
    let killed = tempfile::tempdir().unwrap();
    copy(directory.path(), killed.path());
    let (_, loaded) = open_copy(killed.path(), |_| ());
    assert_eq!((marks(&loaded.attachments), loaded.doubtful), ([(1, 4)].into(), None));
    for (record, reached) in [(4, 3), (3, 2), (2, 1)] {
        let damage = |copy: &Path| flip(&copy.join("commits"), record * 4096 * 8 + 900);
        let (_, loaded) = open_copy(killed.path(), damage);
        assert_eq!(marks(&loaded.attachments), [(1, reached)].into());
        assert!(loaded.doubtful.unwrap().contains("is at commit"), "record {record}");
        // As after a power cut, which the sequence file is behind: those after it know.
        let (_, loaded) = open_copy(killed.path(), |copy| {
            damage(copy);
            fs::copy(first.path().join("sequence"), copy.join("sequence")).unwrap();
        });
        assert_eq!(loaded.doubtful.is_some(), record < 4, "record {record}");
    }
}

#[tokio::test]
async fn a_damaged_database_is_rebuilt_from_an_older_export_and_the_log_after_it() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path()).unwrap();
    store.commit([allocate(1, 1), allocate(2, 1)].concat()).await.unwrap();
    store.close().await;
    let older = fs::read(directory.path().join("export.json")).unwrap();
    let (store, _) = open(directory.path()).unwrap();
    store.commit(release(1)).await.unwrap();
    store.commit(allocate(3, 7)).await.unwrap();
    store.close().await;
    fs::write(directory.path().join("export.json"), older).unwrap();
    truncate(&directory.path().join("db/db"), 200);
    for _ in 0..2 {
        let (store, loaded) = open(directory.path()).unwrap();
        assert_eq!(marks(&loaded.attachments), [(2, 1), (3, 7)].into());
        assert!(!loaded.doubtful.unwrap().contains("lost"));
        store.close().await;
    }
    let aside = directory.path().join("corrupt-4-0");
    assert!(aside.join("commits").exists() && aside.join("export.json").exists());
}

/// The store on a copy of `directory` that `change` was done to.
fn open_copy(directory: &Path, change: impl FnOnce(&Path)) -> (berth_store::SledStore, Loaded) {
    let base = tempfile::tempdir().unwrap();
    copy(directory, base.path());
    let _ = fs::remove_file(base.path().join("export.json"));
    change(base.path());
    open(base.path()).unwrap()
}

#[tokio::test]
async fn a_snapshot_that_a_crash_left_half_written_does_not_stop_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let expected = state(directory.path(), true).await;
    for (name, bytes) in [
        ("snap.00000000000FFFFF.generating", &b""[..]),
        ("snap.0000000000000001.generating", b"short"),
    ] {
        fs::write(directory.path().join("db").join(name), bytes).unwrap();
        // As sled sees it, the database is damaged for ever.
        if bytes.is_empty() {
            let copied = tempfile::tempdir().unwrap();
            copy(&directory.path().join("db"), copied.path());
            assert!(matches!(sled::open(copied.path()), Err(sled::Error::Corruption { .. })));
        }
        assert!(check_with_export(directory.path(), &expected, name), "{name}");
        assert_eq!(moved_aside(directory.path()), 0);
    }
}

#[tokio::test]
async fn leftovers_of_a_killed_export_are_removed() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join(".export.json.77.tmp"), "{").unwrap();
    let _store = open(directory.path()).unwrap();
    assert!(!directory.path().join(".export.json.77.tmp").exists());
}
