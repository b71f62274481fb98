//! What a commit promises, as its callers see it.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::{
    collections::BTreeSet, net::IpAddr, os::unix::fs::PermissionsExt, path::Path, sync::Arc,
    time::Duration,
};

use berth_core::ports::{Change, Intent, IntentId, IntentKind, Store, StoreError, Unwiring};
use berth_store::{Options, offline};
use common::{
    Hand, address, allocate, attachment, cooling, key, marks, open, options, put, release,
    resource, tombstone,
};

fn taken(outcome: Result<(), StoreError>) -> String {
    match outcome {
        Err(err @ StoreError::AddressTaken { .. }) => err.to_string(),
        other => panic!("{other:?}"),
    }
}

/// `holder`'s attachment with another slot's address.
fn put_with_address_of(holder: u16, slot: u16) -> Change {
    let mut record = attachment(holder, 1);
    record.resource = resource(slot);
    Change::PutAttachment(Box::new(record))
}

#[tokio::test]
async fn an_address_has_one_holder_and_the_loser_writes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path()).unwrap();
    store.commit(allocate(1, 1)).await.unwrap();

    let changes = vec![Change::PutCooling(cooling(9)), put_with_address_of(2, 1)];
    let outcome = store.commit(changes).await;
    assert_eq!(taken(outcome), "address 10.0.0.1 is held by net/c1/eth0");

    drop(store);
    let (store, loaded) = open(directory.path()).unwrap();
    assert_eq!(loaded.attachments, [attachment(1, 1)]);
    assert_eq!(loaded.cooling, []);
    assert!(store.commit(vec![put_with_address_of(2, 1)]).await.is_err());
}

#[tokio::test]
async fn an_address_can_change_hands_within_one_commit_and_not_before() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path()).unwrap();
    store.commit(allocate(1, 1)).await.unwrap();
    taken(store.commit(vec![put_with_address_of(2, 1), Change::RemoveAttachment(key(1))]).await);
    store.commit(vec![Change::RemoveAttachment(key(1)), put_with_address_of(2, 1)]).await.unwrap();
    assert_eq!(store.attachment(&key(1)).unwrap(), None);
    // An attachment that moves to another address gives the old one back.
    store.commit(vec![put(2, 7)]).await.unwrap();
    store.commit(vec![put(1, 7)]).await.unwrap();
    assert_eq!(marks(&store.attachments().unwrap()), [(1, 7), (2, 7)].into());
}

#[tokio::test]
async fn every_kind_of_change_is_there_after_a_restart_and_gone_when_removed() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path()).unwrap();
    let pod = berth_types::PodInterface {
        network: "net".parse().unwrap(),
        interface: "eth0".parse().unwrap(),
        namespace: "a".to_owned(),
        name: "b".to_owned(),
    };
    let reserved =
        berth_core::ports::Reserved { pod, resource: resource(3), deadline: cooling(3).deadline };
    let intent = Intent {
        id: IntentId("unwire net/c1/eth0".to_owned()),
        what: IntentKind::Unwire(Unwiring {
            key: key(1),
            host_interface: "bth0".parse().unwrap(),
            resource: Some(resource(1).id),
            addresses: resource(1).addresses,
        }),
    };
    let buried = tombstone(2, Duration::from_secs(9));
    store
        .commit(vec![
            put(1, 1),
            Change::PutTombstone(buried.clone()),
            Change::PutCooling(cooling(2)),
            Change::PutReservation(reserved.clone()),
            Change::BeginIntent(intent.clone()),
        ])
        .await
        .unwrap();
    drop(store);

    let (store, loaded) = open(directory.path()).unwrap();
    assert_eq!(loaded.attachments, [attachment(1, 1)]);
    assert_eq!(loaded.tombstones, std::slice::from_ref(&buried));
    assert_eq!(loaded.cooling, [cooling(2)]);
    assert_eq!(loaded.reservations, [reserved]);
    assert_eq!(loaded.intents, std::slice::from_ref(&intent));
    let remove = vec![
        Change::RemoveAttachment(key(1)),
        Change::RemoveCooling(resource(2).id),
        Change::RemoveReservation(resource(3).id),
        Change::EndIntent(intent.id),
    ];
    store.commit(remove.clone()).await.unwrap();
    // What is not there is removed with success, and writes nothing.
    let commits = store.statistics().commits;
    store.commit(remove).await.unwrap();
    assert_eq!(store.statistics().commits, commits);
    drop(store);
    // A tombstone goes when its time is over and not before.
    let left = berth_core::ports::Loaded { tombstones: vec![buried], ..Default::default() };
    assert_eq!(open(directory.path()).unwrap().1, left);
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_at_once_share_commits() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path()).unwrap();
    let store = Arc::new(store);
    let callers: Vec<_> = (0..250)
        .map(|slot| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.commit(allocate(slot, 1)).await })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap().unwrap();
    }
    let statistics = store.statistics();
    assert_eq!((statistics.requests, statistics.records), (250, 250));
    assert!(statistics.commits <= 50, "{statistics:?}");
    assert!(statistics.largest_batch > 5, "{statistics:?}");
    assert!(statistics.flush_longest <= statistics.flush_total && statistics.bytes_on_disk > 0);
}

#[tokio::test]
async fn a_commit_whose_caller_went_away_is_still_made() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path()).unwrap();
    let mut commit = store.commit(allocate(1, 1));
    // One poll hands it over.
    assert!(futures_poll_once(&mut commit).await);
    drop(commit);
    store.commit(Vec::new()).await.unwrap();
    assert_eq!(marks(&store.attachments().unwrap()), [(1, 1)].into());
}

async fn futures_poll_once<F: Future + Unpin>(future: &mut F) -> bool {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(context).is_pending())
    })
    .await
}

#[tokio::test]
async fn a_second_opener_is_refused_at_once_with_the_holders_pid() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path()).unwrap();
    let message = format!("the state directory is in use by process {}", std::process::id());
    assert_eq!(open(directory.path()).unwrap_err().to_string(), message);
    assert_eq!(offline::check(directory.path()).unwrap_err().to_string(), message);
    store.close().await;
    open(directory.path()).unwrap();
}

#[tokio::test]
async fn a_closed_store_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path()).unwrap();
    store.commit(allocate(1, 1)).await.unwrap();
    store.close().await;
    store.close().await;
    assert!(matches!(store.commit(allocate(2, 1)).await, Err(StoreError::Stopped)));
    assert!(matches!(store.attachments(), Err(StoreError::Stopped)));
    assert_eq!(*store.failed().borrow(), None);
}

#[tokio::test]
async fn files_are_for_root_alone() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("state");
    let (store, _) = open(&directory).unwrap();
    store.commit(allocate(1, 1)).await.unwrap();
    store.close().await;
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory), 0o700);
    assert_eq!(mode(&directory.join("db")), 0o700);
    for file in ["lock", "sequence", "export.json", "ballast", "db/db", "db/conf"] {
        assert_eq!(mode(&directory.join(file)), 0o600, "{file}");
    }
}

#[tokio::test]
async fn expired_rests_leave_with_a_later_commit() {
    let directory = tempfile::tempdir().unwrap();
    let hand = Hand::new("boot");
    let with_hand = || Options { clock: hand.clone(), ..options(directory.path()) };
    let (store, _) = berth_store::open(with_hand()).unwrap();
    store.commit(vec![Change::PutCooling(cooling(1))]).await.unwrap();
    store.close().await;
    hand.advance(Duration::from_secs(31));
    let (store, loaded) = berth_store::open(with_hand()).unwrap();
    assert_eq!(loaded.cooling.len(), 1);
    store.commit(vec![Change::PutCooling(cooling(2))]).await.unwrap();
    store.close().await;
    let (_store, loaded) = berth_store::open(with_hand()).unwrap();
    assert_eq!(loaded.cooling, [cooling(2)]);
}

#[tokio::test]
async fn expired_tombstones_leave_with_a_later_commit() {
    let directory = tempfile::tempdir().unwrap();
    let hand = Hand::new("boot");
    let with_hand = Options { clock: hand.clone(), ..options(directory.path()) };
    let (store, _) = berth_store::open(with_hand).unwrap();
    let bury =
        |slot, seconds| vec![Change::PutTombstone(tombstone(slot, Duration::from_secs(seconds)))];
    store.commit(bury(1, 10)).await.unwrap();
    store.commit(bury(2, 10)).await.unwrap();
    store.commit(bury(2, 60)).await.unwrap();
    hand.advance(Duration::from_secs(11));
    // Not by a commit that changes nothing.
    store.commit(vec![Change::RemoveCooling(resource(1).id)]).await.unwrap();
    let document = || String::from_utf8(offline::export(directory.path()).unwrap()).unwrap();
    store.close().await;
    assert_eq!(document().matches("\"deleted_by\"").count(), 2);

    let with_hand = Options { clock: hand.clone(), ..options(directory.path()) };
    let (store, _) = berth_store::open(with_hand).unwrap();
    store.commit(allocate(5, 1)).await.unwrap();
    store.close().await;
    assert_eq!(document().matches("\"deleted_by\"").count(), 1);
    assert!(document().contains("net/c2/eth0"));
}

/// Changes a row of a store that is closed, as damage or another program would.
fn tamper(directory: &Path, change: impl FnOnce(&sled::Db)) {
    let db = sled::open(directory.join("db")).unwrap();
    change(&db);
    db.flush().unwrap();
}

#[tokio::test]
async fn a_poison_row_is_set_aside_its_address_is_kept_and_its_delete_frees_it() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path()).unwrap();
    store.commit([allocate(1, 1), allocate(2, 1)].concat()).await.unwrap();
    store.close().await;
    // Without export and commit log the rows must do, though they do not add up any more.
    std::fs::remove_file(directory.path().join("export.json")).unwrap();
    std::fs::remove_file(directory.path().join("commits")).unwrap();
    tamper(directory.path(), |db| {
        let tree = db.open_tree("attachments").unwrap();
        tree.insert("net/c1/eth0", "poison").unwrap();
    });

    for _ in 0..2 {
        let (store, loaded) = open(directory.path()).unwrap();
        assert_eq!(marks(&loaded.attachments), [(2, 1)].into());
        assert_eq!(loaded.set_aside.len(), 1);
        assert_eq!(loaded.set_aside[0].addresses, BTreeSet::from([IpAddr::V4(address(1))]));
        assert!(loaded.doubtful.unwrap().contains("do not add up"));
        assert_eq!(
            taken(store.commit(vec![put_with_address_of(7, 1)]).await),
            "address 10.0.0.1 is held by net/c1/eth0"
        );
        store.close().await;
    }
    let (store, _) = open(directory.path()).unwrap();
    store.commit(release(1)).await.unwrap();
    store.commit(vec![put_with_address_of(7, 1)]).await.unwrap();
    // A second delete of the old one does not take the new holder's address.
    store.commit(release(1)).await.unwrap();
    taken(store.commit(vec![put_with_address_of(8, 1)]).await);
    store.close().await;
    let (_store, loaded) = open(directory.path()).unwrap();
    assert_eq!(loaded.set_aside, []);
}

#[tokio::test]
async fn a_database_that_is_kept_in_doubt_leaves_a_copy_of_the_export_that_it_may_be_compared_with()
{
    let directory = tempfile::tempdir().unwrap();
    let export = directory.path().join("export.json");
    let (store, _) = open(directory.path()).unwrap();
    store.commit([allocate(1, 1), allocate(2, 1)].concat()).await.unwrap();
    store.close().await;
    let older = std::fs::read(&export).unwrap();
    let (store, _) = open(directory.path()).unwrap();
    store.commit(allocate(3, 1)).await.unwrap();
    store.close().await;
    std::fs::write(&export, &older).unwrap();
    std::fs::remove_file(directory.path().join("commits")).unwrap();
    tamper(directory.path(), |db| {
        db.open_tree("attachments").unwrap().remove("net/c1/eth0").unwrap();
    });
    let (store, loaded) = open(directory.path()).unwrap();
    // All that was committed since the export, and not the row that was lost.
    assert_eq!(marks(&loaded.attachments), [(2, 1), (3, 1)].into());
    assert!(loaded.doubtful.unwrap().contains("do not add up"));
    store.close().await;
    assert_ne!(std::fs::read(&export).unwrap(), older);
    let entries = std::fs::read_dir(directory.path()).unwrap();
    let kept: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("corrupt-"))
        .collect();
    assert_eq!(kept.len(), 1);
    assert_eq!(std::fs::read(kept[0].join("export.json")).unwrap(), older);
}

#[tokio::test]
async fn a_row_that_was_changed_behind_the_last_commits_is_mended() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path()).unwrap();
    store.commit([allocate(1, 1), allocate(2, 1)].concat()).await.unwrap();
    store.close().await;
    std::fs::remove_file(directory.path().join("export.json")).unwrap();
    tamper(directory.path(), |db| {
        let tree = db.open_tree("attachments").unwrap();
        tree.insert("net/c1/eth0", "poison").unwrap();
        tree.remove("net/c2/eth0").unwrap();
    });
    let (_store, loaded) = open(directory.path()).unwrap();
    assert_eq!(marks(&loaded.attachments), [(1, 1), (2, 1)].into());
    assert_eq!((loaded.set_aside, loaded.doubtful), (vec![], None));
}

#[tokio::test]
async fn a_doubt_is_told_until_it_is_settled() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path()).unwrap();
    store.commit(allocate(1, 1)).await.unwrap();
    store.commit(allocate(2, 1)).await.unwrap();
    store.close().await;
    std::fs::remove_file(directory.path().join("sequence")).unwrap();
    for _ in 0..2 {
        let (store, loaded) = open(directory.path()).unwrap();
        assert_eq!(loaded.doubtful.as_deref(), Some("the sequence file is missing"));
        assert_eq!(marks(&loaded.attachments), [(1, 1), (2, 1)].into());
        drop(store);
    }
    let (store, _) = open(directory.path()).unwrap();
    store.settle_doubt().await.unwrap();
    drop(store);
    assert_eq!(open(directory.path()).unwrap().1.doubtful, None);
}

#[tokio::test]
async fn ten_thousand_records_are_imported_whole_and_open_quickly() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path()).unwrap();
    for chunk in 0..20 {
        let changes: Vec<Change> = (0..500).map(|n| put(chunk * 500 + n, 1)).collect();
        store.commit(changes).await.unwrap();
    }
    store.close().await;
    let document = offline::export(directory.path()).unwrap();
    let report = offline::check(directory.path()).unwrap();
    assert_eq!((report.attachments, report.addresses, report.problems), (10_000, 10_000, vec![]));

    let other = tempfile::tempdir().unwrap();
    let rows = offline::import(other.path(), &document, offline::Existing::Refuse).unwrap();
    assert_eq!(rows, 20_000);
    let begun = tokio::time::Instant::now();
    let (store, loaded) = open(other.path()).unwrap();
    let took = begun.elapsed();
    println!("10,000 records opened in {took:?}, {} bytes", store.statistics().bytes_on_disk);
    assert_eq!(loaded.attachments.len(), 10_000);
    assert_eq!(loaded.doubtful.as_deref(), Some("imported by hand"));
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[tokio::test]
async fn an_import_never_replaces_records_unasked() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path()).unwrap();
    store.commit(allocate(1, 1)).await.unwrap();
    store.close().await;
    let document = offline::export(directory.path()).unwrap();
    let (store, _) = open(directory.path()).unwrap();
    store.commit(allocate(2, 1)).await.unwrap();
    store.close().await;

    let refused = offline::import(directory.path(), &document, offline::Existing::Refuse);
    assert_eq!(refused.unwrap_err().to_string(), "the database holds 4 rows already");
    offline::import(directory.path(), &document, offline::Existing::MoveAside).unwrap();
    let (_store, loaded) = open(directory.path()).unwrap();
    assert_eq!(marks(&loaded.attachments), [(1, 1)].into());
    let kept = std::fs::read_dir(directory.path())
        .unwrap()
        .any(|entry| entry.unwrap().file_name().to_string_lossy().starts_with("corrupt-"));
    assert!(kept);
    let err = offline::import(directory.path(), b"{}", offline::Existing::MoveAside).unwrap_err();
    assert!(berth_types::chain(&err).contains("not an export of a store"), "{err:?}");
}
