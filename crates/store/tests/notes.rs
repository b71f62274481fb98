//! Notes: answered before they are on disk. A copy of the directory is what a crash would leave.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::{path::Path, time::Duration};

use berth_core::ports::{Loaded, Store};
use berth_store::{Options, SledStore};
use berth_testkit::run;
use common::{allocate, attachment, marks, open, options, put};

/// What the next daemon would find.
fn after_a_crash(directory: &Path) -> Loaded {
    let base = tempfile::tempdir().unwrap();
    let copy = base.path().join("state");
    run(&format!("cp -r {} {}", directory.display(), copy.display()));
    let (store, loaded) = open(&copy).unwrap();
    drop(store);
    loaded
}

fn syncs(store: &SledStore) -> u64 {
    store.statistics().commits
}

#[tokio::test]
async fn a_note_is_seen_at_once_and_gets_to_the_disk_though_nothing_follows() {
    let directory = tempfile::tempdir().unwrap();
    // Without an export, which would bring it there too: one at the first commit, then none.
    let export_interval = Duration::from_secs(3600);
    let options = Options { reserve: 0, export_interval, ..options(directory.path()) };
    let (store, _) = berth_store::open(options).unwrap();
    store.commit(allocate(1, 1)).await.unwrap();
    while !directory.path().join("export.json").exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let before = syncs(&store);
    store.note(vec![put(1, 2)]).await.unwrap();
    assert_eq!(store.attachment(&attachment(1, 2).key).unwrap(), Some(attachment(1, 2)));
    for _ in 0..1000 {
        if syncs(&store) > before {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(syncs(&store), before + 1, "nobody brought it to the disk");
    let loaded = after_a_crash(directory.path());
    assert_eq!(marks(&loaded.attachments), [(1, 2)].into());
    assert_eq!(loaded.doubtful, None);
}

#[tokio::test]
async fn a_commit_takes_the_notes_before_it_along_even_where_it_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path()).unwrap();
    store.commit(allocate(1, 1)).await.unwrap();
    for mark in 2..40 {
        // Without a pause between them, so that some are asked for in one batch.
        let (noted, committed) = tokio::join!(store.note(vec![put(1, mark)]), async {
            store.commit(vec![put(1, mark)]).await
        });
        noted.unwrap();
        committed.unwrap();
        let loaded = after_a_crash(directory.path());
        assert_eq!(marks(&loaded.attachments), [(1, mark)].into());
        assert_eq!(loaded.doubtful, None);
    }
}

#[tokio::test]
async fn an_export_is_never_ahead_of_the_database() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path()).unwrap();
    store.commit(allocate(1, 1)).await.unwrap();
    let exports = || store.statistics().exports;
    let begun = exports();
    for mark in 2..1000 {
        store.note(vec![put(1, mark)]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    assert!(exports() > begun, "there was no export among the notes");
    assert_eq!(after_a_crash(directory.path()).doubtful, None);
    store.close().await;
    let (_store, loaded) = open(directory.path()).unwrap();
    assert_eq!(marks(&loaded.attachments), [(1, 999)].into());
    assert_eq!(loaded.doubtful, None);
}
