//! The store against a model of it, over commits that may fail, crashes of the handle and time.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use berth_core::ports::{Change, Store, StoreError};
use common::{address, attachment, cooling, key, open, resource};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Op {
    /// Commits at once, as of callers at the same time.
    Commit(Vec<Vec<Step>>),
    Reopen,
}

/// One change: slots hold addresses of each other's numbers, so that they collide.
#[derive(Debug, Clone, Copy)]
enum Step {
    Put { slot: u16, address: u16 },
    Remove(u16),
    Cool(u16),
    Warm(u16),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Model {
    holds: BTreeMap<u16, u16>,
    cooling: BTreeSet<u16>,
}

impl Model {
    /// All of `steps`, or the address that is taken.
    fn commit(&mut self, steps: &[Step]) -> Result<(), IpAddr> {
        let mut next = self.clone();
        for step in steps {
            match *step {
                Step::Put { slot, address } => {
                    let taken =
                        next.holds.iter().any(|(holder, held)| *holder != slot && *held == address);
                    if taken {
                        return Err(IpAddr::V4(common::address(address)));
                    }
                    next.holds.insert(slot, address);
                }
                Step::Remove(slot) => _ = next.holds.remove(&slot),
                Step::Cool(slot) => _ = next.cooling.insert(slot),
                Step::Warm(slot) => _ = next.cooling.remove(&slot),
            }
        }
        *self = next;
        Ok(())
    }
}

fn change(step: Step) -> Change {
    match step {
        Step::Put { slot, address } => {
            let mut record = attachment(slot, 1);
            record.resource = resource(address);
            Change::PutAttachment(Box::new(record))
        }
        Step::Remove(slot) => Change::RemoveAttachment(key(slot)),
        Step::Cool(slot) => Change::PutCooling(cooling(slot)),
        Step::Warm(slot) => Change::RemoveCooling(resource(slot).id),
    }
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..5_u16, 0..5_u16).prop_map(|(slot, address)| Step::Put { slot, address }),
        2 => (0..5_u16).prop_map(Step::Remove),
        1 => (0..5_u16).prop_map(Step::Cool),
        1 => (0..5_u16).prop_map(Step::Warm),
    ]
}

fn any_op() -> impl Strategy<Value = Op> {
    let unit = prop::collection::vec(any_step(), 0..4);
    prop_oneof![
        6 => prop::collection::vec(unit, 1..5).prop_map(Op::Commit),
        1 => Just(Op::Reopen),
    ]
}

fn held(attachments: &[berth_types::Attachment]) -> BTreeMap<u16, u16> {
    let number = |attachment: &berth_types::Attachment| {
        let slot = attachment.key.container_id.as_str()[1..].parse().unwrap();
        let held = attachment.resource.addresses.v4.unwrap();
        (slot, (0..5).find(|number| address(*number) == held).unwrap())
    };
    attachments.iter().map(number).collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_store_does_what_its_model_does(ops in prop::collection::vec(any_op(), 1..16)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let mut model = Model::default();
        let mut store = open(directory.path()).unwrap().0;
        for op in ops {
            match op {
                Op::Commit(units) => {
                    let outcomes = runtime.block_on(async {
                        // Handed over in order, answered together.
                        let commits = units
                            .iter()
                            .map(|unit| store.commit(unit.iter().copied().map(change).collect()));
                        futures_in_order(commits.collect()).await
                    });
                    for (unit, outcome) in units.iter().zip(outcomes) {
                        match (model.commit(unit), outcome) {
                            (Ok(()), Ok(())) => (),
                            (Err(taken), Err(StoreError::AddressTaken { address, .. })) => {
                                prop_assert_eq!(taken, address);
                            }
                            (expected, outcome) => {
                                prop_assert!(false, "{expected:?} but {outcome:?} for {unit:?}");
                            }
                        }
                    }
                }
                Op::Reopen => {
                    drop(store);
                    let (opened, loaded) = open(directory.path()).unwrap();
                    prop_assert_eq!(loaded.doubtful, None);
                    prop_assert_eq!(&loaded.set_aside, &[]);
                    let cools: BTreeSet<_> =
                        loaded.cooling.iter().map(|cooling| cooling.resource.id.clone()).collect();
                    let expected: BTreeSet<_> =
                        model.cooling.iter().map(|slot| resource(*slot).id).collect();
                    prop_assert_eq!(cools, expected);
                    prop_assert_eq!(held(&loaded.attachments), model.holds.clone());
                    store = opened;
                }
            }
            prop_assert_eq!(held(&store.attachments().unwrap()), model.holds.clone());
            for slot in 0..5 {
                let found = store.attachment(&key(slot)).unwrap();
                prop_assert_eq!(found.is_some(), model.holds.contains_key(&slot));
            }
        }
    }
}

/// Polls all until each is done, beginning with the first.
async fn futures_in_order<F: Future + Unpin>(mut futures: Vec<F>) -> Vec<F::Output> {
    let mut outputs: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(move |context| {
        for (future, output) in futures.iter_mut().zip(&mut outputs) {
            if output.is_none()
                && let std::task::Poll::Ready(done) = std::pin::Pin::new(future).poll(context)
            {
                *output = Some(done);
            }
        }
        if outputs.iter().all(Option::is_some) {
            return std::task::Poll::Ready(outputs.drain(..).flatten().collect());
        }
        std::task::Poll::Pending
    })
    .await
}
