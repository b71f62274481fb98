//! What GC takes and spares, what is kept for a pod, and what is set apart.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use super::{
    super::*,
    model::{SilentPods, World, key},
};

#[tokio::test(start_paused = true)]
async fn a_link_whose_mark_somebody_took_still_keeps_its_pod_alive() {
    let world = World::new().start().await;
    let added = world.add("c1", "web-0", 1).await.unwrap();
    world.host.wire_records(&[added]);
    world.host.take_marks();
    for _ in 0..4 {
        world.advance(130).await;
        assert!(world.gc().await.is_empty());
    }
    assert_eq!(world.records().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_sticky_pod_finds_its_address_again_and_nobody_else_gets_it() {
    let world = World::new().capacity(2).start().await;
    let first = world.add_sticky("c1", "db-0", 1, 300).await.unwrap();
    world.del("c1", 2).await.unwrap();
    world.advance(200).await;
    let world = world.restart().await;
    let other = world.add("c2", "web-1", 3).await.unwrap();
    assert_ne!(other.resource, first.resource);
    assert!(world.add("c3", "web-2", 4).await.is_err(), "the last one is reserved");
    let back = world.add_sticky("c4", "db-0", 5, 300).await.unwrap();
    assert_eq!(back.resource, first.resource);
}

#[tokio::test(start_paused = true)]
async fn a_sticky_pod_that_comes_back_before_its_links_are_gone_gets_its_address() {
    let world = World::new().start().await;
    let first = world.add_sticky("c1", "db-0", 1, 300).await.unwrap();
    world.del("c1", 2).await.unwrap();
    let again = world.add_sticky("c2", "db-0", 3, 300).await.unwrap();
    assert_eq!(again.resource, first.resource);
}

#[tokio::test(start_paused = true)]
async fn a_sticky_pod_with_two_sandboxes_keeps_both_addresses_across_a_restart() {
    let world = World::new().capacity(3).start().await;
    let one = world.add_sticky("c1", "db-0", 1, 300).await.unwrap();
    let other = world.add_sticky("c2", "db-0", 2, 300).await.unwrap();
    world.del("c1", 3).await.unwrap();
    world.del("c2", 4).await.unwrap();
    world.advance(60).await;
    let world = world.restart().await;
    let stranger = world.add("c3", "web-1", 5).await.unwrap();
    assert!(stranger.resource != one.resource && stranger.resource != other.resource);
    assert!(world.add("c4", "web-2", 6).await.is_err(), "the rest is reserved");
}

#[tokio::test(start_paused = true)]
async fn however_briefly_a_pod_is_sticky_its_address_rests_before_another_gets_it() {
    let world = World::new().capacity(1).start().await;
    world.add_sticky("c1", "db-0", 1, 1).await.unwrap();
    world.del("c1", 2).await.unwrap();
    world.advance(10).await;
    assert!(world.add("c2", "web-1", 3).await.is_err());
    world.advance(21).await;
    world.add("c2", "web-1", 4).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_address_of_an_unreadable_record_is_free_after_its_delete() {
    let world = World::new().capacity(1);
    world.store.set_aside("net/c1/eth0", "10.0.0.1");
    let world = world.start().await;
    assert!(world.add("c2", "web-1", 1).await.is_err());
    world.del("c1", 2).await.unwrap();
    world.advance(31).await;
    world.add("c2", "web-1", 3).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn links_without_a_record_at_the_start_are_left_alone_and_their_addresses_quarantined() {
    let world = World::new().capacity(2);
    world.host.wire("bth00000000000a", "10.0.0.1");
    let world = world.start().await;
    let got = world.add("c1", "web-0", 1).await.unwrap();
    assert_eq!(got.resource.addresses.to_string(), "10.0.0.2");
    assert!(world.add("c2", "web-1", 2).await.is_err());
    for _ in 0..5 {
        world.advance(200).await;
        world.gc().await;
    }
    assert!(world.host.has("bth00000000000a"), "it may be a live pod whose record was lost");
    world.host.unwire("bth00000000000a");
    world.gc().await;
    world.advance(31).await;
    world.add("c2", "web-1", 3).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_link_that_a_killed_plugin_left_is_collected() {
    let world = World::new().start().await;
    world.host.wire("bth00000000000b", "10.0.0.9");
    world.gc().await;
    assert!(world.host.has("bth00000000000b"), "one look is not enough");
    world.advance(121).await;
    world.gc().await;
    assert!(!world.host.has("bth00000000000b"));
}

#[tokio::test(start_paused = true)]
async fn the_dead_are_collected_in_two_looks_and_the_living_never() {
    let world = World::new().start().await;
    world.add("dead", "web-0", 1).await.unwrap();
    world.add("live", "web-1", 2).await.unwrap();
    world.host.wire_records(&world.records());
    world.advance(130).await;
    world.end_netns("dead");
    assert!(world.gc().await.iter().all(|finding| !finding.collected));
    world.advance(60).await;
    let found = world.gc().await;
    assert_eq!(found.len(), 1);
    assert!(found[0].collected);
    assert!(found[0].evidence.contains(&"its namespace is gone: its path is gone".to_owned()));
    assert_eq!(world.records()[0].key, key("live"));
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_collects_nothing_and_is_not_a_look() {
    let world = World::new().start().await;
    world.add("dead", "web-0", 1).await.unwrap();
    world.end_netns("dead");
    world.advance(130).await;
    for _ in 0..3 {
        let request = GcRequest { dry_run: true, runtime: None };
        let found = world.ipam.collect(request).await.unwrap();
        assert!(found[0].evidence.last().unwrap().starts_with("suspect"), "{found:?}");
        world.advance(100).await;
    }
    assert_eq!(world.records().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_whose_path_is_gone_keeps_its_address_while_its_link_stands() {
    let world = World::new().start().await;
    let held = world.add("c1", "web-0", 1).await.unwrap();
    world.host.wire_records(&world.records());
    world.namespaces.kill("/run/netns/c1");
    for _ in 0..4 {
        world.advance(130).await;
        let nobody = (held.key.network.clone(), BTreeSet::new());
        for runtime in [None, Some(nobody)] {
            let request = GcRequest { dry_run: false, runtime };
            assert_eq!(world.ipam.collect(request).await.unwrap().len(), 0);
        }
    }
    let by_hand = Release {
        key: key("c1"),
        started: None,
        reason: "test".into(),
        only_if_dead: true,
        limit: Duration::from_secs(1),
    };
    let err = world.ipam.release(by_hand).await.unwrap_err();
    assert!(matches!(err, ReleaseError::InUse { .. }), "{err}");
    // The pod comes again in another sandbox: it gets another address.
    let second = world.add("c2", "web-0", 2).await.unwrap();
    assert_ne!(second.resource, held.resource);

    world.end_netns("c1");
    world.gc().await;
    world.advance(60).await;
    assert!(world.gc().await[0].collected);
}

async fn longest_call(world: &World, round: u64) -> Duration {
    let mut longest = Duration::ZERO;
    let (name, at) = (format!("c{round}"), 1000 * round);
    for call in 0..3 {
        let began = tokio::time::Instant::now();
        match call {
            0 => drop(world.add(&name, &name, at).await.unwrap()),
            1 => drop(world.del(&name, at + 1).await.unwrap()),
            _ => drop(world.add("dead", "web-0", at + 2).await.unwrap()),
        }
        longest = longest.max(began.elapsed());
    }
    world.end_netns("dead");
    longest
}

#[tokio::test(start_paused = true)]
async fn a_source_of_pods_that_hangs_ends_no_pass_late_frees_nothing_and_holds_up_no_add() {
    let world = Arc::new(World::new().pods(SilentPods).start().await);
    world.add("dead", "web-0", 1).await.unwrap();
    world.end_netns("dead");
    let alone = longest_call(&world, 1).await;
    for pass in 0..3 {
        // Older than the grace, and further apart than two looks.
        world.advance(130).await;
        let began = tokio::time::Instant::now();
        let collecting = {
            let world = Arc::clone(&world);
            tokio::spawn(async move { world.gc().await })
        };
        world.advance(1).await;
        if pass == 2 {
            let during = longest_call(&world, 2).await;
            assert!(during <= alone, "{during:?} while the source hangs, {alone:?} without");
        }
        assert!(!collecting.is_finished(), "the source was not waited for");
        let found = tokio::time::timeout(Duration::from_secs(60), collecting).await;
        let found = found.expect("a pass ends, whatever the source does").unwrap();
        assert!(found.iter().all(|finding| !finding.collected), "{found:?}");
        assert!(began.elapsed() <= Duration::from_secs(11), "{:?}", began.elapsed());
    }
    assert!(world.records().iter().any(|record| record.key == key("dead")));
}
