//! Random histories of callers, namespaces, time and crashes, against what must always hold.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::model::{World, key};
use crate::ports::{Namespaces, NetnsState};

#[derive(Debug, Clone)]
enum Op {
    Add {
        who: u8,
        late: bool,
    },
    AddSticky(u8),
    Commit(u8),
    Del {
        who: u8,
        late: bool,
    },
    NetnsDies(u8),
    /// The namespace lives on, mounted elsewhere.
    PathVanishes(u8),
    Gc,
    Advance(u64),
    ReapFails(bool),
    Crash,
}

fn any_op() -> impl Strategy<Value = Op> {
    let who = 0..5u8;
    prop_oneof![
        5 => (who.clone(), prop::bool::weighted(0.2)).prop_map(|(who, late)| Op::Add { who, late }),
        1 => who.clone().prop_map(Op::AddSticky),
        2 => who.clone().prop_map(Op::Commit),
        4 => (who.clone(), prop::bool::weighted(0.2)).prop_map(|(who, late)| Op::Del { who, late }),
        2 => who.clone().prop_map(Op::NetnsDies),
        1 => who.prop_map(Op::PathVanishes),
        2 => Just(Op::Gc),
        2 => (1..150u64).prop_map(Op::Advance),
        1 => any::<bool>().prop_map(Op::ReapFails),
        1 => Just(Op::Crash),
    ]
}

async fn check(ops: Vec<Op>) -> Result<(), TestCaseError> {
    let mut world = World::new().capacity(6).start().await;
    let mut clock = 0;
    // The start of each key's last ADD that was served and last DEL that was answered.
    let mut added: BTreeMap<u8, u64> = BTreeMap::new();
    let mut deleted: BTreeMap<u8, u64> = BTreeMap::new();

    for op in ops {
        clock += 10;
        let records = world.records();
        let before: BTreeSet<_> = records.iter().map(|it| it.key.clone()).collect();
        match op {
            Op::Add { who, late } => {
                // A late call is of a process that began before the last DEL.
                let at = match deleted.get(&who) {
                    Some(at) if late => at - 1,
                    _ => clock,
                };
                // Two containers share each pod, as a recreated pod's sandboxes do.
                let answer = world.add(&format!("c{who}"), &format!("web-{}", who / 2), at).await;
                let is_late = deleted.get(&who).is_some_and(|deleted| at < *deleted);
                if is_late {
                    let held = before.contains(&key(&format!("c{who}")));
                    prop_assert!(answer.is_err() || held, "a late ADD was served");
                } else if answer.is_ok() {
                    world.host.wire_records(&[answer.unwrap()]);
                    added.insert(who, at);
                }
            }
            Op::AddSticky(who) => {
                let (container, pod) = (format!("c{who}"), format!("web-{}", who / 2));
                if let Ok(held) = world.add_sticky(&container, &pod, clock, 60).await {
                    world.host.wire_records(&[held]);
                    added.insert(who, clock);
                }
            }
            Op::Commit(who) => {
                if let Some(at) = added.get(&who) {
                    let _ = world.commit(&format!("c{who}"), *at).await;
                }
            }
            Op::Del { who, late } => {
                let at = match added.get(&who) {
                    Some(at) if late => at - 1,
                    _ => clock,
                };
                let container = format!("c{who}");
                let answer = world.del(&container, at).await;
                prop_assert!(answer.is_ok(), "{answer:?}");
                let life = world.records().into_iter().find(|it| it.key == key(&container));
                let stale = life.as_ref().is_some_and(|it| at < it.started.at.as_nanos());
                prop_assert!(life.is_none() || stale, "a DEL left its record");
                if life.is_none() {
                    let stone = deleted.entry(who).or_default();
                    *stone = (*stone).max(at);
                }
            }
            Op::NetnsDies(who) => world.end_netns(&format!("c{who}")),
            Op::PathVanishes(who) => world.namespaces.kill(&format!("/run/netns/c{who}")),
            Op::Gc => {
                let linked: BTreeSet<_> = records
                    .iter()
                    .filter(|it| world.host.is_hooked(&it.host_interface))
                    .map(|it| it.key.clone())
                    .collect();
                world.gc().await;
                let after: BTreeSet<_> = world.records().into_iter().map(|it| it.key).collect();
                for gone in records.iter().filter(|it| !after.contains(&it.key)) {
                    let look = world.namespaces.look(&gone.netns);
                    prop_assert!(look != NetnsState::Alive, "GC freed a live pod");
                    prop_assert!(!linked.contains(&gone.key), "GC freed a pod with its link");
                }
            }
            Op::Advance(seconds) => world.advance(seconds).await,
            Op::ReapFails(refuses) => world.host.refuse_to_reap(refuses),
            Op::Crash => {
                world = world.restart().await;
                let after: BTreeSet<_> = world.records().into_iter().map(|it| it.key).collect();
                prop_assert_eq!(&before, &after, "a restart changed the records");
            }
        }
        // The pool is a cache of the store. (The store itself refuses an address twice.)
        let counts = world.ipam.shortage().await.unwrap().counts;
        prop_assert_eq!(counts.leased, world.records().len());
        prop_assert_eq!(counts.promised, 0);
        prop_assert!(counts.total() <= 6);
    }

    // When everyone has gone and rested, everything is there again.
    world.host.refuse_to_reap(false);
    for who in 0..5 {
        world.del(&format!("c{who}"), clock + 1000).await.unwrap();
    }
    world.advance(120).await;
    for n in 0..6 {
        let name = format!("last-{n}");
        prop_assert!(world.add(&name, &name, clock + 2000).await.is_ok(), "an address was lost");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_doubled_lost_or_freed_while_it_lives(ops in prop::collection::vec(any_op(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(check(ops))?;
    }
}
