mod collection;
mod histories;
mod model;

use std::{sync::Arc, time::Duration};

use berth_types::{AttachmentState, WiredFacts};

use super::*;
use crate::ports::StoreError;
use model::{World, key, pod};

#[tokio::test(start_paused = true)]
async fn the_same_key_gets_the_same_answer() {
    let world = World::new().start().await;
    let first = world.add("c1", "web-0", 1).await.unwrap();
    world.commit("c1", 1).await.unwrap();
    let again = world.add("c1", "web-0", 2).await.unwrap();
    assert_eq!(first.resource, again.resource);
    assert!(matches!(again.state, AttachmentState::Committed { .. }), "it stands already");
    assert_eq!(world.records().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_new_namespace_of_the_same_key_keeps_the_address_when_the_old_one_is_dead() {
    let world = World::new().start().await;
    let first = world.add("c1", "web-0", 1).await.unwrap();
    world.namespaces.kill("/run/netns/c1");
    world.namespaces.make("/run/netns/other");
    let again = world.add_in("c1", "web-0", 2, "/run/netns/other").await.unwrap();
    assert_eq!(first.resource, again.resource);
    assert_eq!(again.netns.path.to_str(), Some("/run/netns/other"));
    assert!(world.host.reaped(&first.host_interface), "the old life's link goes first");
}

#[tokio::test(start_paused = true)]
async fn a_second_live_namespace_of_the_same_key_is_refused_by_name() {
    let world = World::new().start().await;
    world.add("c1", "web-0", 1).await.unwrap();
    world.namespaces.make("/run/netns/other");
    let err = world.add_in("c1", "web-0", 2, "/run/netns/other").await.unwrap_err();
    assert_eq!(
        err.to_string(),
        "net/c1/eth0 is attached already, in namespace \"/run/netns/c1\", which is alive"
    );
}

#[tokio::test(start_paused = true)]
async fn an_add_that_began_before_the_delete_is_refused_and_one_that_began_after_it_is_served() {
    let world = World::new().start().await;
    let first = world.add("c1", "web-0", 10).await.unwrap();
    world.del("c1", 20).await.unwrap();
    let late = world.add("c1", "web-0", 15).await.unwrap_err();
    assert!(matches!(late, AllocateError::Late(_)), "{late}");
    let fresh = world.add("c1", "web-0", 30).await.unwrap();
    assert_eq!(fresh.resource, first.resource, "it may have its own resting address back");
}

#[tokio::test(start_paused = true)]
async fn an_add_whose_delete_came_first_is_refused() {
    let world = World::new().start().await;
    world.del("c1", 20).await.unwrap();
    assert!(matches!(world.add("c1", "web-0", 10).await, Err(AllocateError::Late(_))));
    assert!(world.records().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_tombstone_survives_a_restart() {
    let world = World::new().start().await;
    world.add("c1", "web-0", 10).await.unwrap();
    world.del("c1", 20).await.unwrap();
    let world = world.restart().await;
    assert!(matches!(world.add("c1", "web-0", 15).await, Err(AllocateError::Late(_))));
}

#[tokio::test(start_paused = true)]
async fn a_delete_of_an_earlier_life_does_not_touch_the_present_one() {
    let world = World::new().start().await;
    world.add("c1", "web-0", 30).await.unwrap();
    let released = world.del("c1", 20).await.unwrap();
    assert_eq!(released.addresses, None);
    assert_eq!(world.records().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_new_sandbox_takes_the_pods_address_over_only_from_a_dead_one() {
    let world = World::new().start().await;
    let first = world.add("c1", "db-0", 1).await.unwrap();
    let beside = world.add("c2", "db-0", 2).await.unwrap();
    assert_ne!(first.resource, beside.resource, "the first sandbox is alive");
    world.del("c2", 3).await.unwrap();

    world.namespaces.kill("/run/netns/c1");
    let heir = world.add("c3", "db-0", 4).await.unwrap();
    assert_eq!(heir.resource, first.resource);
    assert_eq!(world.records().len(), 1, "the dead one has no record any more");
    // Its late DEL finds nothing of its own.
    assert_eq!(world.del("c1", 5).await.unwrap().addresses, None);
    assert_eq!(world.records()[0].key, key("c3"));
}

#[tokio::test(start_paused = true)]
async fn a_commit_after_the_release_is_refused() {
    let world = World::new().start().await;
    world.add("c1", "web-0", 10).await.unwrap();
    world.commit("c1", 10).await.unwrap();
    assert!(matches!(world.records()[0].state, AttachmentState::Committed { .. }));
    world.del("c1", 20).await.unwrap();
    assert!(matches!(world.commit("c1", 10).await, Err(CommitError::Late(_))));
}

#[tokio::test(start_paused = true)]
async fn a_commit_of_an_earlier_life_is_refused() {
    let world = World::new().start().await;
    world.add("c1", "web-0", 10).await.unwrap();
    world.del("c1", 20).await.unwrap();
    world.add("c1", "web-0", 30).await.unwrap();
    assert!(matches!(world.commit("c1", 10).await, Err(CommitError::Late(_))));
    world.commit("c1", 30).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_late_delete_does_not_take_a_newer_ones_tombstone_back() {
    let world = World::new().start().await;
    world.add("c1", "web-0", 10).await.unwrap();
    world.del("c1", 30).await.unwrap();
    world.del("c1", 20).await.unwrap();
    assert!(matches!(world.add("c1", "web-0", 25).await, Err(AllocateError::Late(_))));
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_written_down_is_free_again() {
    let world = World::new().capacity(1).start().await;
    world.store.fail_next(StoreError::DiskFull { free: 1, needed: 2 });
    let err = world.add("c1", "web-0", 1).await.unwrap_err();
    assert!(matches!(err, AllocateError::Store(StoreError::DiskFull { .. })), "{err}");
    world.add("c2", "web-1", 2).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_address_rests_until_its_links_are_gone_however_long_that_takes() {
    let world = World::new().capacity(1).start().await;
    world.add("c1", "web-0", 1).await.unwrap();
    world.host.refuse_to_reap(true);
    world.del("c1", 2).await.unwrap();
    world.advance(120).await;
    let err = world.add("c2", "web-1", 3).await.unwrap_err();
    assert!(matches!(err, AllocateError::Pool { source: PoolError::Exhausted(_), .. }), "{err}");
    world.host.refuse_to_reap(false);
    world.advance(40).await;
    world.add("c2", "web-1", 4).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_link_that_cannot_be_deleted_holds_up_no_other() {
    let world = World::new().capacity(2).start().await;
    let stuck = world.add("c1", "web-0", 1).await.unwrap();
    world.add("c2", "web-1", 2).await.unwrap();
    world.host.stick(&stuck.host_interface);
    world.del("c1", 3).await.unwrap();
    world.del("c2", 4).await.unwrap();
    world.advance(31).await;
    let got = world.add("c3", "web-2", 5).await.unwrap();
    assert_ne!(got.resource, stuck.resource);
}

#[tokio::test(start_paused = true)]
async fn an_address_that_the_store_gives_to_another_is_quarantined_not_promised_again() {
    let world = World::new().capacity(2).start().await;
    let holder = key("someone");
    let address = "10.0.0.1".parse().unwrap();
    world.store.fail_next(StoreError::AddressTaken { address, holder });
    world.add("c1", "web-0", 1).await.unwrap_err();
    let got = world.add("c2", "web-1", 2).await.unwrap();
    assert_eq!(got.resource.addresses.to_string(), "10.0.0.2");
    let told = world.ipam.explain(Question::Address(address)).await.unwrap();
    assert_eq!(
        told.verdict,
        "10.0.0.1 is in quarantine: the store says that net/someone/eth0 holds it"
    );
}

#[tokio::test(start_paused = true)]
async fn a_process_of_another_boot_or_from_the_future_gets_no_special_treatment() {
    let world = World::new().start().await;
    world.namespaces.make("/run/netns/c1");
    let err = world.add_of_boot("c1", "other-boot").await.unwrap_err();
    assert!(matches!(err, AllocateError::OtherBoot { .. }), "{err}");
    // A DEL that says it begins next year does not refuse every ADD until then.
    world.advance(1).await;
    world.del("c1", u64::MAX).await.unwrap();
    world.advance(1).await;
    world.add("c1", "web-0", 1_001_500_000_000).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_rest_goes_on_across_a_restart() {
    let world = World::new().capacity(1).start().await;
    world.add("c1", "web-0", 1).await.unwrap();
    world.del("c1", 2).await.unwrap();
    world.advance(20).await;
    let world = world.restart().await;
    assert!(world.add("c2", "web-1", 3).await.is_err());
    world.advance(11).await;
    world.add("c2", "web-1", 4).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_link_that_cannot_be_deleted_does_not_keep_the_daemon_from_starting() {
    let world = World::new().capacity(2).start().await;
    let held = world.add("c1", "web-0", 1).await.unwrap();
    world.host.refuse_to_reap(true);
    world.del("c1", 2).await.unwrap();
    let world = world.restart().await;
    world.advance(60).await;
    let got = world.add("c2", "web-1", 3).await.unwrap();
    assert_ne!(got.resource, held.resource, "its links are still there");
    world.host.refuse_to_reap(false);
    world.advance(60).await;
    assert_eq!(world.add("c3", "web-2", 4).await.unwrap().resource, held.resource);
    assert!(world.store.intents().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_release_of_a_boot_that_is_over_does_not_touch_a_life_of_this_one() {
    let world = World::new().start().await;
    world.add("c1", "web-0", 1).await.unwrap();
    let spooled = Release {
        key: key("c1"),
        started: Some(ProcessStart {
            boot_id: "earlier".parse().unwrap(),
            at: BootTime::from_nanos(u64::MAX),
        }),
        reason: "spooled".into(),
        only_if_dead: false,
        limit: Duration::from_secs(1),
    };
    assert_eq!(world.ipam.release(spooled).await.unwrap().addresses, None);
    assert_eq!(world.records().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn release_by_hand_spares_a_link_whose_record_was_lost() {
    let world = World::new().start().await;
    let name = berth_types::host_interface(&HostPrefix::default(), &key("c1"));
    world.host.wire(name.as_str(), "10.0.0.5");
    let by_hand = |only_if_dead| Release {
        key: key("c1"),
        started: None,
        reason: "test".into(),
        only_if_dead,
        limit: Duration::from_secs(1),
    };
    let err = world.ipam.release(by_hand(true)).await.unwrap_err();
    assert!(matches!(err, ReleaseError::MayBeInUse { .. }), "{err}");
    world.ipam.release(by_hand(false)).await.unwrap();
    world.advance(1).await;
    assert!(!world.host.has(name.as_str()));
}

#[tokio::test(start_paused = true)]
async fn a_release_interrupted_by_a_crash_is_finished_before_serving() {
    let world = World::new().start().await;
    let held = world.add("c1", "web-0", 1).await.unwrap();
    world.host.refuse_to_reap(true);
    world.del("c1", 2).await.unwrap();
    world.host.refuse_to_reap(false);
    let world = world.restart().await;
    assert!(world.host.reaped(&held.host_interface));
    assert!(world.store.intents().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_unknown_key_with_a_link_is_taken_off_the_network_by_its_delete() {
    let world = World::new().start().await;
    let name = berth_types::host_interface(&HostPrefix::default(), &key("c1"));
    world.host.wire(name.as_str(), "10.0.0.5");
    world.del("c1", 1).await.unwrap();
    world.advance(1).await;
    assert!(!world.host.has(name.as_str()));
}

#[tokio::test(start_paused = true)]
async fn two_adds_of_one_key_at_once_hold_one_address() {
    let world = Arc::new(World::new().start().await);
    let both = [1, 2].map(|at| {
        let world = Arc::clone(&world);
        tokio::spawn(async move { world.add("c1", "web-0", at).await })
    });
    let mut answers = Vec::new();
    for one in both {
        answers.push(one.await.unwrap().unwrap().resource);
    }
    assert_eq!(answers[0], answers[1]);
    assert_eq!(world.ipam.shortage().await.unwrap().counts.leased, 1);
}

#[tokio::test(start_paused = true)]
async fn a_stopping_daemon_refuses_adds_and_still_takes_deletes() {
    let world = World::new().start().await;
    world.add("c1", "web-0", 1).await.unwrap();
    world.ipam.begin_stop();
    assert!(matches!(world.add("c2", "web-1", 2).await, Err(AllocateError::Stopping(_))));
    assert!(world.del("c1", 3).await.unwrap().addresses.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_refused_add_can_be_explained_afterwards() {
    let world = World::new().capacity(1).start().await;
    world.add("c1", "web-0", 1).await.unwrap();
    world.add("c2", "web-1", 2).await.unwrap_err();
    let told = world.ipam.explain(Question::Pod(pod("web-1"))).await.unwrap();
    assert!(told.verdict.contains("no address is free: capacity 1, 1 leased"), "{told:?}");
    let held = world.ipam.explain(Question::Address("10.0.0.1".parse().unwrap())).await.unwrap();
    assert_eq!(held.verdict, "10.0.0.1 is leased to net/c1/eth0");
}

#[tokio::test(start_paused = true)]
async fn release_by_hand_spares_the_living_unless_forced() {
    let world = World::new().start().await;
    world.add("c1", "web-0", 1).await.unwrap();
    let by_hand = |only_if_dead| Release {
        key: key("c1"),
        started: None,
        reason: "test".into(),
        only_if_dead,
        limit: Duration::from_secs(1),
    };
    let err = world.ipam.release(by_hand(true)).await.unwrap_err();
    assert!(matches!(err, ReleaseError::InUse { .. }), "{err}");
    assert!(world.ipam.release(by_hand(false)).await.unwrap().addresses.is_some());
}

#[tokio::test(start_paused = true)]
async fn wired_facts_are_kept_and_a_wrong_namespace_is_refused() {
    let world = World::new().start().await;
    let added = world.add("c1", "web-0", 1).await.unwrap();
    let commit = Commit {
        key: key("c1"),
        started: added.started.clone(),
        wired: WiredFacts::default(),
        netns_inode: added.netns.id.inode + 1,
        limit: Duration::from_secs(1),
    };
    assert!(matches!(world.ipam.commit(commit).await, Err(CommitError::OtherNetns { .. })));
}
