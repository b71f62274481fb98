use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use std::time::Duration;

use berth_types::PodInterface;

use super::*;
use crate::ports::Former;

const COOL_DOWN: Duration = Duration::from_secs(30);

fn key(n: u8) -> AttachmentKey {
    AttachmentKey::new("net", &format!("c{n}"), "eth0").unwrap()
}

fn pod(n: u8) -> PodInterface {
    PodInterface {
        network: "net".parse().unwrap(),
        interface: "eth0".parse().unwrap(),
        namespace: "shop".into(),
        name: format!("web-{n}"),
    }
}

fn resource(n: u8) -> Resource {
    Resource::veth(AddressSet {
        v4: Some([10, 0, 0, n].into()),
        v6: Some([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(n)].into()),
    })
}

fn wish(n: u8) -> Wish {
    Wish { key: key(n), pod: Some(pod(n)), addresses: AddressSet::default() }
}

fn cooling(n: u8, now: BootTime) -> SlotState {
    SlotState::Cooling {
        until: now + COOL_DOWN,
        wired: true,
        former: Some(Former { key: key(n), pod: Some(pod(n)) }),
    }
}

fn limits(min_idle: usize, max_idle: usize, capacity: usize) -> Limits {
    Limits { min_idle, max_idle, capacity }
}

fn pool_of(resources: impl IntoIterator<Item = u8>) -> Pool {
    let mut pool = Pool::new(limits(0, 8, 8));
    pool.grown(resources.into_iter().map(resource).collect());
    pool
}

fn lease(pool: &mut Pool, n: u8) -> Resource {
    let got = pool.promise(&wish(n)).unwrap();
    pool.settle(&got.id, &key(n), true);
    got
}

const START: BootTime = BootTime::from_nanos(1_000);

#[test]
fn a_released_address_rests_and_its_links_must_be_gone_too() {
    let mut pool = pool_of([1]);
    let held = lease(&mut pool, 1);
    assert!(pool.release(&held.id, &key(1), cooling(1, START)));

    pool.next_action(START + COOL_DOWN / 2, 0);
    assert_eq!(pool.promise(&wish(2)), Err(Refusal::NothingIdle));
    pool.next_action(START + COOL_DOWN, 0);
    assert_eq!(pool.promise(&wish(2)), Err(Refusal::NothingIdle), "links are still there");
    pool.unwired(&held.id);
    pool.next_action(START + COOL_DOWN, 0);
    assert_eq!(pool.promise(&wish(2)).unwrap(), held);
}

#[test]
fn its_last_holder_may_have_a_resting_address_back_at_once() {
    let mut pool = pool_of([1, 2]);
    let held = lease(&mut pool, 1);
    pool.release(&held.id, &key(1), cooling(1, START));
    pool.unwired(&held.id);
    assert_eq!(pool.promise(&wish(1)).unwrap(), held);
}

#[test]
fn a_new_sandbox_of_the_same_pod_gets_the_resting_address() {
    let mut pool = pool_of([1, 2]);
    let held = lease(&mut pool, 1);
    pool.release(&held.id, &key(1), cooling(1, START));
    pool.unwired(&held.id);
    let again = Wish { key: key(9), ..wish(1) };
    assert_eq!(pool.promise(&again).unwrap(), held);
}

#[test]
fn a_late_release_does_not_touch_a_successor() {
    let mut pool = pool_of([1]);
    let held = lease(&mut pool, 1);
    assert!(!pool.release(&held.id, &key(2), cooling(2, START)));
    assert_eq!(pool.counts().leased, 1);
}

#[test]
fn a_reserved_address_waits_for_its_pod_alone() {
    let mut pool = pool_of([1]);
    let held = lease(&mut pool, 1);
    let until = START + Duration::from_secs(3600);
    pool.release(&held.id, &key(1), SlotState::Reserved { pod: pod(1), until, wired: false });
    assert_eq!(pool.promise(&wish(2)), Err(Refusal::NothingIdle));
    assert_eq!(pool.promise(&Wish { key: key(7), ..wish(1) }).unwrap(), held);
}

#[test]
fn a_reservation_ends_with_its_deadline() {
    let mut pool = pool_of([1]);
    let held = lease(&mut pool, 1);
    let until = START + Duration::from_secs(60);
    pool.release(&held.id, &key(1), SlotState::Reserved { pod: pod(1), until, wired: false });
    pool.next_action(until, 0);
    assert!(pool.promise(&wish(2)).is_ok());
}

#[test]
fn an_address_asked_for_by_name_is_promised_or_its_holder_named() {
    let mut pool = pool_of([1, 2]);
    let by_name = |n: u8, last: u8| Wish {
        addresses: AddressSet { v4: Some([10, 0, 0, last].into()), v6: None },
        ..wish(n)
    };
    let got = pool.promise(&by_name(5, 2)).unwrap();
    assert_eq!(got, resource(2));
    pool.settle(&got.id, &key(5), true);
    let Err(Refusal::Held { by, .. }) = pool.promise(&by_name(6, 2)) else { panic!() };
    assert_eq!(by, "leased to net/c5/eth0");
    assert_eq!(pool.promise(&by_name(6, 77)), Err(Refusal::NotHere));
}

#[test]
fn addresses_of_two_idle_slots_are_asked_for_anew_together() {
    let mut pool = pool_of([1, 2]);
    let mixed = Wish {
        addresses: AddressSet { v4: resource(1).addresses.v4, v6: resource(2).addresses.v6 },
        ..wish(1)
    };
    let Err(Refusal::Apart(slots)) = pool.promise(&mixed) else { panic!() };
    pool.take_apart(&slots);
    pool.drained(&slots.iter().map(|slot| slot.id.clone()).collect::<Vec<_>>());
    assert_eq!(pool.promise(&mixed), Err(Refusal::NotHere));
    let fresh = Resource::veth(mixed.addresses);
    assert_eq!(pool.promise_fresh(fresh.clone(), &mixed).unwrap(), fresh);
}

#[test]
fn a_resting_slot_is_not_taken_apart_for_another_combination() {
    let mut pool = pool_of([1, 2]);
    let held = lease(&mut pool, 1);
    pool.release(&held.id, &key(1), cooling(1, START));
    pool.unwired(&held.id);
    let mixed = Wish {
        addresses: AddressSet { v4: resource(1).addresses.v4, v6: resource(2).addresses.v6 },
        ..wish(1)
    };
    assert!(matches!(pool.promise(&mixed), Err(Refusal::Held { .. })));
}

#[test]
fn a_pause_that_is_over_is_not_waited_for_again() {
    let mut pool = Pool::new(limits(1, 8, 100));
    assert!(pool.next_action(START, 0).is_some());
    pool.grow_failed(START, SourceError::Exhausted);
    pool.restore(resource(1), SlotState::Idle { since: START });
    let later = START + Duration::from_secs(5);
    assert_eq!(pool.next_action(later, 0), None);
    assert_eq!(pool.next_change(), None, "there is nothing to wake up for");
}

#[test]
fn what_the_provider_gave_twice_goes_back_to_it() {
    let mut pool = pool_of([1]);
    let overlapping = Resource::veth(AddressSet { v4: resource(1).addresses.v4, v6: None });
    pool.grown(vec![overlapping.clone()]);
    assert_eq!(pool.next_action(START, 0), Some(Action::Shrink(vec![overlapping])));
}

#[test]
fn strangers_take_no_room_and_what_the_provider_knows_of_them_goes_back() {
    let mut pool = Pool::new(limits(1, 1, 1));
    pool.restore(resource(9), SlotState::Leased { to: key(9) });
    pool.mark_foreign(&resource(9).id);
    assert_eq!(pool.next_action(START, 0), NonZeroUsize::new(1).map(Action::Grow));
    pool.grown(vec![resource(1)]);
    pool.release(&resource(9).id, &key(9), cooling(9, START));
    pool.unwired(&resource(9).id);
    let action = pool.next_action(START + COOL_DOWN, 0);
    assert_eq!(action, Some(Action::Shrink(vec![resource(9)])));
}

#[test]
fn growth_is_asked_for_in_one_batch_for_all_who_wait() {
    let mut pool = Pool::new(limits(2, 8, 100));
    assert_eq!(pool.next_action(START, 5), NonZeroUsize::new(7).map(Action::Grow));
    assert_eq!(pool.next_action(START, 5), None, "one call at a time");
}

#[test]
fn a_provider_that_refused_is_left_alone_for_longer_and_longer() {
    let mut pool = Pool::new(limits(1, 8, 100));
    let mut now = START;
    let mut pauses = Vec::new();
    for _ in 0..8 {
        assert!(pool.next_action(now, 0).is_some());
        pool.grow_failed(now, SourceError::Exhausted);
        let next = pool.next_change().unwrap();
        pauses.push(next.since(now).as_secs());
        now = next;
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
}

#[test]
fn more_idle_than_wanted_goes_back_and_the_longest_rested_stay() {
    let mut pool = Pool::new(limits(0, 1, 8));
    pool.grown(vec![resource(1), resource(2)]);
    let Some(Action::Shrink(gone)) = pool.next_action(START, 0) else { panic!() };
    assert_eq!(gone, [resource(2)]);
    assert_eq!(pool.next_action(START, 0), None);
}

#[test]
fn what_the_provider_does_not_know_is_never_given_again() {
    let mut pool = pool_of([]);
    pool.restore(resource(1), SlotState::Leased { to: key(1) });
    pool.mark_foreign(&resource(1).id);
    pool.release(&resource(1).id, &key(1), cooling(1, START));
    pool.unwired(&resource(1).id);
    assert_eq!(pool.promise(&wish(1)), Err(Refusal::NothingIdle));
    pool.next_action(START + COOL_DOWN, 0);
    assert_eq!(pool.counts(), Counts::default());
}

#[derive(Debug, Clone)]
enum Op {
    Promise { who: u8, address: Option<u8> },
    Settle { keep: bool },
    Release(u8),
    LateRelease(u8),
    Unwired(u8),
    Advance(u64),
    ProviderAnswers { refuses: bool },
    Crash,
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..8u8, prop::option::weighted(0.2, 1..12u8)).prop_map(|(who, address)| Op::Promise { who, address }),
        3 => any::<bool>().prop_map(|keep| Op::Settle { keep }),
        3 => (0..8u8).prop_map(Op::Release),
        1 => (0..8u8).prop_map(Op::LateRelease),
        2 => (0..8u8).prop_map(Op::Unwired),
        2 => (0..60u64).prop_map(Op::Advance),
        3 => any::<bool>().prop_map(|refuses| Op::ProviderAnswers { refuses }),
        1 => Just(Op::Crash),
    ]
}

/// What must be so, kept beside the pool in the plainest way.
#[derive(Default)]
struct Model {
    promised: HashMap<ResourceId, AttachmentKey>,
    leased: HashMap<ResourceId, AttachmentKey>,
    resting: HashMap<ResourceId, (BootTime, AttachmentKey)>,
    wired: HashSet<ResourceId>,
}

proptest! {
    /// Whatever the callers, the clock, the provider and crashes do: no address is held twice,
    /// none goes to a stranger while it rests or is still wired, and nothing is lost.
    #[test]
    fn no_address_is_held_twice_or_given_too_early(ops in prop::collection::vec(any_op(), 0..250)) {
        let limits = limits(1, 3, 12);
        let mut pool = Pool::new(limits);
        let mut model = Model::default();
        let mut now = START;
        let mut at_provider: Vec<u8> = (1..=12).collect();
        let mut pending: Option<Action> = None;

        for op in ops {
            match op {
                Op::Promise { who, address } => {
                    let addresses = address.map(|n| AddressSet { v4: resource(n).addresses.v4, v6: None });
                    let wish = Wish { addresses: addresses.unwrap_or_default(), ..wish(who) };
                    if let Ok(got) = pool.promise(&wish) {
                        prop_assert!(!model.leased.contains_key(&got.id), "leased twice");
                        prop_assert!(!model.promised.contains_key(&got.id), "promised twice");
                        prop_assert!(!model.wired.contains(&got.id), "given with links left");
                        if let Some((until, former)) = model.resting.get(&got.id) {
                            prop_assert!(*until <= now || *former == wish.key, "given while it rests");
                        }
                        model.promised.insert(got.id, wish.key);
                    }
                }
                Op::Settle { keep } => {
                    if let Some((id, by)) = model.promised.iter().next().map(|(id, by)| (id.clone(), by.clone())) {
                        pool.settle(&id, &by, keep);
                        model.promised.remove(&id);
                        if keep {
                            model.resting.remove(&id);
                            model.leased.insert(id, by);
                        }
                    }
                }
                Op::Release(n) => {
                    if let Some((id, by)) = model.leased.iter().nth(n.into()).map(|(id, by)| (id.clone(), by.clone())) {
                        let until = now + COOL_DOWN;
                        let former = Some(Former { key: by.clone(), pod: None });
                        let rest = SlotState::Cooling { until, wired: true, former };
                        prop_assert!(pool.release(&id, &by, rest));
                        model.leased.remove(&id);
                        model.wired.insert(id.clone());
                        model.resting.insert(id, (until, by));
                    }
                }
                Op::LateRelease(n) => {
                    if let Some(id) = model.leased.keys().nth(n.into()) {
                        prop_assert!(!pool.release(id, &key(99), cooling(99, now)));
                    }
                }
                Op::Unwired(n) => {
                    if let Some(id) = model.wired.iter().nth(n.into()).cloned() {
                        pool.unwired(&id);
                        model.wired.remove(&id);
                    }
                }
                Op::Advance(seconds) => now = now + Duration::from_secs(seconds),
                Op::ProviderAnswers { refuses } => match pending.take() {
                    Some(Action::Grow(_)) if refuses => pool.grow_failed(now, SourceError::Exhausted),
                    Some(Action::Grow(n)) => {
                        let left = at_provider.len().saturating_sub(n.get());
                        pool.grown(at_provider.split_off(left).into_iter().map(resource).collect());
                    }
                    Some(Action::Shrink(gone)) => {
                        for resource in &gone {
                            prop_assert!(!model.leased.contains_key(&resource.id));
                            let last = resource.addresses.v4.map(|it| it.octets()[3]).unwrap();
                            at_provider.push(last);
                        }
                        pool.drained(&gone.iter().map(|it| it.id.clone()).collect::<Vec<_>>());
                    }
                    None => (),
                },
                // A restart: what was written down comes back, what was only promised does not.
                Op::Crash => {
                    let mut fresh = Pool::new(limits);
                    for slot in pool.slots() {
                        let id = &slot.resource.id;
                        if let Some(to) = model.leased.get(id) {
                            fresh.restore(slot.resource.clone(), SlotState::Leased { to: to.clone() });
                        } else if let Some((until, by)) = model.resting.get(id).filter(|(until, _)| *until > now || model.wired.contains(id)) {
                            let former = Some(Former { key: by.clone(), pod: None });
                            let wired = model.wired.contains(id);
                            fresh.restore(slot.resource.clone(), SlotState::Cooling { until: *until, wired, former });
                        } else {
                            at_provider.push(slot.resource.addresses.v4.map(|it| it.octets()[3]).unwrap());
                        }
                    }
                    // What the provider answers to a call of before is out and unknown: it comes
                    // back to it at the next start, as `adopt` names only what is held.
                    pending = None;
                    model.promised.clear();
                    pool = fresh;
                }
            }
            if pending.is_none() {
                pending = pool.next_action(now, 0);
            }
            let counts = pool.counts();
            prop_assert_eq!(counts.leased, model.leased.len());
            prop_assert_eq!(counts.promised, model.promised.len());
            prop_assert_eq!(counts.total() + at_provider.len(), 12, "an address is lost");
            prop_assert_eq!(pool.table.idle_count(), counts.idle);
        }
    }
}
