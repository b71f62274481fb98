//! A file system without space, in a mount namespace of the test's own.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::{fs::File, io::Write, path::Path};

use berth_core::ports::{Store, StoreError};
use berth_store::{OpenError, Options};
use berth_testkit::{in_netns, run};
use common::{allocate, marks, options, put, release};

const RESERVE: u64 = 3 << 20;

/// Writes until `leave` KiB are free.
fn fill(mount: &Path, name: &str, leave: u64) {
    let mut file = File::create(mount.join(name)).unwrap();
    while free_kib(mount) > leave {
        let chunk = usize::try_from((free_kib(mount) - leave).min(64)).unwrap();
        if file.write_all(&vec![1; chunk * 1024]).is_err() {
            break;
        }
    }
    // tmpfs counts whole pages.
    assert!(free_kib(mount) <= leave + 4, "{}", free_kib(mount));
}

/// A process that another test is just starting may hold the file for a moment longer.
fn make_room(mount: &Path, name: &str) {
    let before = free_kib(mount);
    std::fs::remove_file(mount.join(name)).unwrap();
    for _ in 0..1000 {
        if free_kib(mount) > before + 1024 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{name} was removed, and its room is not there");
}

fn free_kib(mount: &Path) -> u64 {
    let found = nix::sys::statvfs::statvfs(mount).unwrap();
    found.blocks_available() * found.fragment_size() / 1024
}

fn small(directory: &Path) -> Options {
    Options { reserve: RESERVE, ..options(directory) }
}

fn mount(megabytes: u64) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    run(&format!("mount -t tmpfs -o size={megabytes}m tmpfs {}", directory.path().display()));
    directory
}

fn unmount(directory: &tempfile::TempDir) {
    common::unmount(directory.path());
}

#[test]
fn a_full_disk_refuses_adds_records_deletes_and_breaks_nothing() {
    in_netns(|| async {
        let mounted = mount(24);
        let state = mounted.path().join("state");
        let ballast = state.join("ballast");
        let (store, _) = berth_store::open(small(&state)).unwrap();
        for slot in 0..20 {
            store.commit(allocate(slot, 1)).await.unwrap();
        }
        assert!(ballast.exists());

        // Below the reserve: no new records, but those that are there can change.
        fill(mounted.path(), "most", 2048);
        let err = store.commit(allocate(100, 1)).await.unwrap_err();
        let StoreError::DiskFull { free, needed: RESERVE } = err else { panic!("{err:?}") };
        assert!(free < RESERVE);
        store.commit(vec![put(1, 2)]).await.unwrap();
        assert!(ballast.exists());

        // Nothing at all: the ballast makes room for deletes.
        fill(mounted.path(), "rest", 0);
        for slot in 0..15 {
            store.commit(release(slot)).await.unwrap();
        }
        assert!(!ballast.exists());
        assert!(matches!(store.commit(allocate(100, 1)).await, Err(StoreError::DiskFull { .. })));
        store.close().await;

        // A restart while it is full.
        let (store, loaded) = berth_store::open(small(&state)).unwrap();
        assert_eq!((loaded.attachments.len(), loaded.doubtful), (5, None));
        assert_eq!(loaded.tombstones.len(), 15);
        store.commit(release(15)).await.unwrap();

        // And when there is space again, all is as before.
        make_room(mounted.path(), "most");
        make_room(mounted.path(), "rest");
        store.commit(allocate(100, 1)).await.unwrap();
        assert!(ballast.exists());
        store.close().await;
        let (store, loaded) = berth_store::open(small(&state)).unwrap();
        let expected = [(16, 1), (17, 1), (18, 1), (19, 1), (100, 1)];
        assert_eq!(marks(&loaded.attachments), expected.into());
        assert_eq!(*store.failed().borrow(), None);
        drop(store);
        unmount(&mounted);
    });
}

#[test]
fn without_any_space_the_store_does_not_open_and_is_none_the_worse() {
    in_netns(|| async {
        let mounted = mount(16);
        let state = mounted.path().join("state");
        let (store, _) = berth_store::open(small(&state)).unwrap();
        store.commit(allocate(1, 1)).await.unwrap();
        store.close().await;
        fill(mounted.path(), "most", 0);
        let _ = std::fs::remove_file(state.join("ballast"));
        fill(mounted.path(), "rest", 0);
        for _ in 0..2 {
            let err = berth_store::open(small(&state)).unwrap_err();
            assert!(matches!(err, OpenError::DiskFull { .. }), "{err:?}");
        }
        make_room(mounted.path(), "rest");
        let (store, loaded) = berth_store::open(small(&state)).unwrap();
        assert_eq!((marks(&loaded.attachments), loaded.doubtful), ([(1, 1)].into(), None));
        drop(store);
        unmount(&mounted);
    });
}

#[test]
fn a_damaged_database_is_rebuilt_on_a_disk_that_has_no_room_for_copies() {
    in_netns(|| async {
        for left in [5500, 0] {
            let mounted = mount(40);
            let state = mounted.path().join("state");
            let (store, _) = berth_store::open(small(&state)).unwrap();
            store.commit(allocate(1, 1)).await.unwrap();
            store.close().await;
            // From here on there is a snapshot, which the log below does not lead to.
            berth_store::open(small(&state)).unwrap().0.close().await;
            File::options().write(true).open(state.join("db/db")).unwrap().set_len(200).unwrap();
            fill(mounted.path(), "fill", left);
            let (store, loaded) = berth_store::open(small(&state)).unwrap();
            assert_eq!(marks(&loaded.attachments), [(1, 1)].into(), "{left} KiB");
            assert!(loaded.doubtful.unwrap().contains("damaged"));
            store.commit(release(1)).await.unwrap();
            drop(store);
            unmount(&mounted);
        }
    });
}

/// Another program takes the space between the look at it and the write.
#[test]
fn a_write_that_fails_breaks_the_store_and_a_restart_has_all_that_was_acknowledged() {
    in_netns(|| async {
        let mounted = mount(16);
        let state = mounted.path().join("state");
        // Without the look and the ballast it comes to that.
        let blind = || Options { reserve: 0, ..options(&state) };
        let (store, _) = berth_store::open(blind()).unwrap();
        let failed = store.failed();
        let _ = std::fs::remove_file(state.join("ballast"));
        fill(mounted.path(), "most", 0);
        let mut acknowledged = 0;
        let broken = loop {
            match store.commit(vec![put(acknowledged, 1)]).await {
                Ok(()) => acknowledged += 1,
                Err(err) => break err,
            }
        };
        assert!(matches!(broken, StoreError::Broken(_)), "{broken:?}");
        assert!(failed.borrow().is_some());
        assert!(matches!(store.commit(release(0)).await, Err(StoreError::Broken(_))));
        assert!(matches!(store.attachments(), Err(StoreError::Broken(_))));
        drop(store);
        make_room(mounted.path(), "most");
        let (store, loaded) = berth_store::open(blind()).unwrap();
        let found = marks(&loaded.attachments);
        assert_eq!(loaded.doubtful, None);
        assert!((0..acknowledged).all(|slot| found.contains_key(&slot)), "{acknowledged}");
        drop(store);
        unmount(&mounted);
    });
}
