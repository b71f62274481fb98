//! The export, and the commit log that leads from it to the last commit.

#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(clippy::print_stdout, reason = "a figure")]

mod common;

use std::time::Duration;

use berth_core::ports::Store;
use berth_store::Options;
use common::{allocate, marks, open, options, put, release};

#[tokio::test]
async fn the_export_follows_the_last_commit_and_is_not_written_more_often_than_told() {
    let directory = tempfile::tempdir().unwrap();
    let interval = Duration::from_millis(400);
    let eager = Options { export_interval: interval, ..options(directory.path()) };
    let begun = tokio::time::Instant::now();
    let (store, _) = berth_store::open(eager).unwrap();
    for mark in 0..100 {
        store.commit(vec![put(1, mark)]).await.unwrap();
    }
    let path = directory.path().join("export.json");
    // However slow the machine is, it follows.
    let follows = async || {
        while !std::fs::read_to_string(&path).is_ok_and(|it| it.contains("\"mtu\":99")) {
            tokio::time::sleep(interval / 4).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), follows())
        .await
        .expect("the last commit's export");
    store.commit(vec![put(1, 100)]).await.unwrap();
    tokio::time::sleep(interval * 2).await;
    let most = begun.elapsed().as_millis() / interval.as_millis() + 1;
    let exports = u128::from(store.statistics().exports);
    assert!((2..=most).contains(&exports), "{exports} of at most {most}");
    // Nothing is written when nothing was committed.
    tokio::time::sleep(interval * 5).await;
    let written = std::fs::metadata(&path).unwrap().modified().unwrap();
    tokio::time::sleep(interval * 2).await;
    assert_eq!(std::fs::metadata(&path).unwrap().modified().unwrap(), written);
}

/// An export that mixed the rows of two commits would not add up, and would be counted as failed.
#[tokio::test]
async fn exports_beside_commits_are_each_of_one_commit() {
    let directory = tempfile::tempdir().unwrap();
    let eager = Options { export_interval: Duration::from_millis(1), ..options(directory.path()) };
    let (store, _) = berth_store::open(eager).unwrap();
    let all: Vec<_> = (0..2_000).flat_map(|slot| allocate(slot, 1)).collect();
    store.commit(all).await.unwrap();
    let begun = tokio::time::Instant::now();
    let mut mark = 1;
    while store.statistics().exports < 10 {
        mark += 1;
        let slot = u16::try_from(mark % 1_999).unwrap();
        store.commit(allocate(slot, mark)).await.unwrap();
        store.commit(release(1_999 - slot)).await.unwrap();
        assert_eq!(store.statistics().exports_failed, 0, "after {mark}");
        assert!(begun.elapsed() < Duration::from_secs(300), "{:?}", store.statistics());
    }
    println!("{mark} rounds of commits beside ten exports");
}

#[tokio::test]
async fn more_commits_than_the_log_has_room_for_are_all_kept() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path()).unwrap();
    for mark in 1..5_000 {
        store.commit(allocate(u16::try_from(mark % 5).unwrap(), mark)).await.unwrap();
        if mark % 490 == 0 {
            let killed = tempfile::tempdir().unwrap();
            common::copy(directory.path(), killed.path());
            let (_store, loaded) = open(killed.path()).unwrap();
            let marks = marks(&loaded.attachments);
            assert_eq!(marks.values().max(), Some(&mark));
            assert_eq!((marks.len(), loaded.doubtful), (5, None));
        }
    }
    assert_eq!(std::fs::metadata(directory.path().join("commits")).unwrap().len(), 8 << 20);
}

#[tokio::test]
async fn an_export_that_failed_is_made_up_for() {
    let directory = tempfile::tempdir().unwrap();
    let export = directory.path().join("export.json");
    // Nothing can be put in its place.
    std::fs::create_dir_all(export.join("x")).unwrap();
    let (store, _) = open(directory.path()).unwrap();
    store.commit(allocate(1, 1)).await.unwrap();
    while store.statistics().exports_failed == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    std::fs::remove_dir_all(&export).unwrap();
    store.close().await;
    assert!(std::fs::read_to_string(&export).unwrap().contains("net/c1/eth0"));
}

/// They fill the log sooner than as many small ones.
#[tokio::test]
async fn the_log_leads_from_the_export_to_the_last_commit_where_commits_are_large() {
    let directory = tempfile::tempdir().unwrap();
    let hour = Duration::from_secs(3600);
    let rare = Options { export_interval: hour, ..options(directory.path()) };
    let (store, _) = berth_store::open(rare).unwrap();
    for mark in 1..400 {
        let all: Vec<_> = (0..64).flat_map(|slot| allocate(slot, mark)).collect();
        store.commit(all).await.unwrap();
    }
    let killed = tempfile::tempdir().unwrap();
    common::copy(directory.path(), killed.path());
    std::fs::write(killed.path().join("db/db"), "spoiled").unwrap();
    let (_store, loaded) = open(killed.path()).unwrap();
    let doubt = loaded.doubtful.unwrap();
    assert!(doubt.contains("rebuilt") && !doubt.contains("lost"), "{doubt}");
    assert_eq!(marks(&loaded.attachments), (0..64).map(|slot| (slot, 399)).collect());
}
