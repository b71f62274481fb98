//! The pool's rules, without clocks, tasks or I/O: callers hand `now` in and carry the returned
//! [`Action`]s out.
//!
//! ```text
//!             grown            promise           settle(kept)
//! (provider) ──────▶ Idle ──────────────▶ Promised ─────────▶ Leased
//!     ▲               ▲ ▲                    │                   │ release
//!     │ drained       │ │ settle(returned)   │                   ▼
//!  Draining ◀─────────┘ └────────────────────┘        Cooling | Reserved
//!               shrink        ▲                              │
//!                             └───── rested, links gone ─────┘
//! ```
//! Quarantined and Invalid slots are given to nobody until a person or a reconciliation says so.

mod growth;
mod slot;
mod table;

use std::{net::IpAddr, num::NonZeroUsize};

use berth_types::{AddressSet, AttachmentKey, BootTime, PodInterface, Resource, ResourceId};

use growth::Growth;
pub use slot::{Counts, Quarantine, Slot, SlotState};
use table::Table;

use crate::ports::SourceError;

/// The idle resources to keep, and what there can be at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Fewer idle ones are filled up.
    pub min_idle: usize,
    /// More idle ones are given back.
    pub max_idle: usize,
    /// As many as the provider could ever have out.
    pub capacity: usize,
}

/// As many resources as one call to the provider asks for: the most that the cloud APIs take
/// for one interface (Alibaba Cloud AssignPrivateIpAddresses).
const LARGEST_GROWTH: usize = 10;

#[derive(Debug, Clone)]
pub struct Pool {
    table: Table,
    limits: Limits,
    growth: Growth,
    /// On their way back to the provider, not yet handed out as an [`Action`].
    returning: Vec<Resource>,
}

/// Work for whoever drives the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    Grow(NonZeroUsize),
    Shrink(Vec<Resource>),
}

/// Who asks, and for what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    pub key: AttachmentKey,
    pub pod: Option<PodInterface>,
    /// Empty for any.
    pub addresses: AddressSet,
}

/// Why a wish is not granted now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Nothing idle: the caller may wait for growth.
    NothingIdle,
    /// The addresses asked for are in no slot: the provider has to be asked for them.
    NotHere,
    /// They are idle, but not together: those slots have to go back to the provider first.
    Apart(Vec<Resource>),
    /// `until` is when that ends by itself.
    Held { address: IpAddr, by: String, until: Option<BootTime> },
}

impl Pool {
    pub fn new(limits: Limits) -> Self {
        Self { table: Table::default(), limits, growth: Growth::Ready, returning: Vec::new() }
    }

    /// Puts a slot as it was before a restart. A slot that is there already keeps its state.
    pub fn restore(&mut self, resource: Resource, state: SlotState) {
        // What is there already keeps its state: records come first.
        let _ = self.table.insert(resource, state);
    }

    /// The provider does not know this one any more: it lives on until it is released, and is
    /// given to nobody afterwards.
    pub fn mark_foreign(&mut self, id: &ResourceId) {
        self.table.mark_foreign(id);
    }

    /// Promises what fits `wish`: what the asker had before, else the one that rested longest.
    pub fn promise(&mut self, wish: &Wish) -> Result<Resource, Refusal> {
        let id = if wish.addresses.is_empty() {
            self.table
                .own_old(wish)
                .or_else(|| self.table.longest_idle().cloned())
                .ok_or(Refusal::NothingIdle)?
        } else {
            self.exactly(wish)?
        };
        self.promise_slot(&id, &wish.key)
    }

    /// Promises a resource that was asked of the provider by its addresses.
    pub fn promise_fresh(&mut self, resource: Resource, wish: &Wish) -> Result<Resource, Refusal> {
        let id = resource.id.clone();
        if let Some(address) = resource.addresses.iter().find(|it| self.table.id_of(*it).is_some())
        {
            return Err(Refusal::Held { address, by: "the pool".into(), until: None });
        }
        self.add_idle(resource);
        self.promise_slot(&id, &wish.key)
    }

    fn add_idle(&mut self, resource: Resource) {
        let idle = SlotState::Idle { since: BootTime::default() };
        if let Err(rejected) = self.table.insert(resource, idle) {
            self.returning.push(rejected);
        }
    }

    fn promise_slot(&mut self, id: &ResourceId, key: &AttachmentKey) -> Result<Resource, Refusal> {
        let slot = self.table.get(id).ok_or(Refusal::NothingIdle)?;
        let (resource, before) = (slot.resource.clone(), Box::new(slot.state.clone()));
        self.table.set(id, SlotState::Promised { by: key.clone(), before });
        Ok(resource)
    }

    fn exactly(&self, wish: &Wish) -> Result<ResourceId, Refusal> {
        let mut found: Vec<&Slot> = Vec::new();
        for address in wish.addresses.iter() {
            let Some(slot) = self.table.of_address(address) else {
                continue;
            };
            let usable = matches!(slot.state, SlotState::Idle { .. }) || slot.state.is_for(wish);
            if !usable || slot.foreign {
                let until = slot.state.ends();
                return Err(Refusal::Held { address, by: slot.state.to_string(), until });
            }
            if !found.iter().any(|other| other.resource.id == slot.resource.id) {
                found.push(slot);
            }
        }
        match found.as_slice() {
            [] => Err(Refusal::NotHere),
            [slot] if wish.addresses.iter().all(|it| slot.resource.addresses.contains(it)) => {
                Ok(slot.resource.id.clone())
            }
            apart => {
                // Only what nobody has a claim to may be taken apart.
                if let Some(claimed) = apart.iter().find(|it| it.state.idle_since().is_none()) {
                    let address = claimed.resource.addresses.iter().next();
                    let address = address.ok_or(Refusal::NothingIdle)?;
                    let until = claimed.state.ends();
                    return Err(Refusal::Held { address, by: claimed.state.to_string(), until });
                }
                Err(Refusal::Apart(apart.iter().map(|slot| slot.resource.clone()).collect()))
            }
        }
    }

    /// Nobody gets these addresses until [`Pool::trust`] says so. One that is leased stays so.
    pub fn quarantine(&mut self, resource: Resource, cause: Quarantine) {
        let state = SlotState::Quarantined { cause };
        let known = resource.addresses.iter().find_map(|it| self.table.id_of(it).cloned());
        match known {
            None => self.restore(resource, state),
            Some(id) => match self.table.state(&id) {
                Some(SlotState::Idle { .. } | SlotState::Cooling { .. }) => {
                    self.table.set(&id, state);
                }
                Some(
                    SlotState::Promised { .. }
                    | SlotState::Leased { .. }
                    | SlotState::Reserved { .. }
                    | SlotState::Quarantined { .. }
                    | SlotState::Draining
                    | SlotState::Invalid { .. },
                )
                | None => (),
            },
        }
    }

    /// What spoke against these is gone: they rest once more and are given out again.
    pub fn clear(&mut self, is_over: impl Fn(&Quarantine) -> bool, until: BootTime) {
        let over = |slot: &&Slot| matches!(&slot.state, SlotState::Quarantined { cause } if is_over(cause));
        let cleared: Vec<ResourceId> =
            self.table.slots().filter(over).map(|slot| slot.resource.id.clone()).collect();
        for id in cleared {
            self.table.set(&id, SlotState::Cooling { until, wired: false, former: None });
        }
    }

    /// Takes idle slots out for good because their addresses are wanted in another combination.
    pub fn take_apart(&mut self, resources: &[Resource]) {
        for resource in resources {
            if matches!(self.table.state(&resource.id), Some(SlotState::Idle { .. })) {
                self.table.set(&resource.id, SlotState::Draining);
            }
        }
    }

    /// Ends a promise: kept for good, or back to what it was, since nobody can have used it.
    pub fn settle(&mut self, id: &ResourceId, by: &AttachmentKey, keep: bool) {
        let Some(SlotState::Promised { by: holder, before }) = self.table.state(id) else { return };
        if holder != by {
            return;
        }
        let next =
            if keep { SlotState::Leased { to: by.clone() } } else { before.as_ref().clone() };
        self.table.set(id, next);
    }

    /// Ends a promise that turned out to be of something that another holds: nobody gets it.
    pub fn condemn(&mut self, id: &ResourceId, by: &AttachmentKey, cause: Quarantine) {
        if matches!(self.table.state(id), Some(SlotState::Promised { by: holder, .. }) if holder == by)
        {
            self.table.set(id, SlotState::Quarantined { cause });
        }
    }

    /// Gives a leased slot to another attachment (a new sandbox of the same pod).
    pub fn transfer(&mut self, id: &ResourceId, from: &AttachmentKey, to: &AttachmentKey) {
        if matches!(self.table.state(id), Some(SlotState::Leased { to: holder }) if holder == from)
        {
            self.table.set(id, SlotState::Leased { to: to.clone() });
        }
    }

    /// Lets `owner`'s slot rest. A slot that another holds is left alone: a late release never
    /// hurts a successor. `rest` is Cooling or Reserved.
    pub fn release(&mut self, id: &ResourceId, owner: &AttachmentKey, rest: SlotState) -> bool {
        let held = matches!(self.table.state(id), Some(SlotState::Leased { to }) if to == owner);
        if held {
            self.table.set(id, rest);
        }
        held
    }

    /// The links of its last holder are really gone.
    pub fn unwired(&mut self, id: &ResourceId) {
        let next = match self.table.state(id) {
            Some(SlotState::Cooling { until, wired: true, former }) => {
                SlotState::Cooling { until: *until, wired: false, former: former.clone() }
            }
            Some(SlotState::Reserved { pod, until, wired: true }) => {
                SlotState::Reserved { pod: pod.clone(), until: *until, wired: false }
            }
            _ => return,
        };
        self.table.set(id, next);
    }

    /// New resources from the provider; addresses that some slot has already are left out.
    pub fn grown(&mut self, fresh: Vec<Resource>) {
        self.growth = Growth::Ready;
        for resource in fresh {
            self.add_idle(resource);
        }
    }

    pub fn grow_failed(&mut self, now: BootTime, because: SourceError) {
        self.growth.refused(now, because);
    }

    /// They are back with the provider.
    pub fn drained(&mut self, gone: &[ResourceId]) {
        for id in gone {
            if matches!(self.table.state(id), Some(SlotState::Draining)) {
                self.table.remove(id);
            }
        }
    }

    /// What brings the idle count back between its marks. `waiting` callers count as demand.
    pub fn next_action(&mut self, now: BootTime, waiting: usize) -> Option<Action> {
        self.end_due(now);
        if !self.returning.is_empty() {
            return Some(Action::Shrink(std::mem::take(&mut self.returning)));
        }
        let wanted = (self.limits.min_idle + waiting).min(self.limits.capacity);
        let room = self.limits.capacity.saturating_sub(self.table.own_count());
        let missing = wanted.saturating_sub(self.table.idle_count()).min(room).min(LARGEST_GROWTH);
        if let Some(missing) = NonZeroUsize::new(missing) {
            return self.growth.begin(now).then_some(Action::Grow(missing));
        }
        self.growth.rest(now);
        let surplus = self.table.idle_count().saturating_sub(self.limits.max_idle.max(waiting));
        let victims: Vec<ResourceId> = self.table.shortest_idle(surplus);
        for id in &victims {
            self.table.set(id, SlotState::Draining);
        }
        let gone: Vec<Resource> = victims
            .iter()
            .filter_map(|id| self.table.get(id).map(|slot| slot.resource.clone()))
            .collect();
        (!gone.is_empty()).then_some(Action::Shrink(gone))
    }

    /// Ends every rest that is over. Before anything is promised, so that nobody is told of a
    /// shortage that is past.
    pub fn end_due(&mut self, now: BootTime) {
        let due: Vec<ResourceId> = self
            .table
            .ending()
            .take_while(|(until, _)| *until <= now)
            .map(|(_, id)| id.clone())
            .collect();
        for id in due {
            let Some(slot) = self.table.get(&id) else { continue };
            match &slot.state {
                SlotState::Cooling { wired: false, .. }
                | SlotState::Reserved { wired: false, .. } => {
                    if slot.foreign {
                        // The provider may know a part of it.
                        self.returning.push(slot.resource.clone());
                        self.table.remove(&id);
                    } else {
                        self.table.set(&id, SlotState::Idle { since: now });
                    }
                }
                // Rested long enough, but its links are still there: it goes on resting.
                SlotState::Cooling { .. }
                | SlotState::Reserved { .. }
                | SlotState::Idle { .. }
                | SlotState::Promised { .. }
                | SlotState::Leased { .. }
                | SlotState::Quarantined { .. }
                | SlotState::Draining
                | SlotState::Invalid { .. } => (),
            }
        }
    }

    /// When something changes by itself next.
    pub fn next_change(&self) -> Option<BootTime> {
        let resting = self.table.ending().find(|(_, id)| {
            matches!(
                self.table.state(id),
                Some(
                    SlotState::Cooling { wired: false, .. }
                        | SlotState::Reserved { wired: false, .. }
                )
            )
        });
        let backoff = self.growth.backing_off_until();
        resting.map(|(until, _)| *until).into_iter().chain(backoff).min()
    }

    /// Whether a caller who waits may get something without anybody releasing anything.
    pub fn may_grow(&self, now: BootTime) -> bool {
        !self.growth.is_backing_off(now) && self.table.own_count() < self.limits.capacity
    }

    pub fn last_refusal(&self) -> Option<&SourceError> {
        self.growth.last_refusal()
    }

    /// Whether the provider does not know this one any more.
    pub fn is_foreign(&self, id: &ResourceId) -> bool {
        self.table.get(id).is_some_and(|slot| slot.foreign)
    }

    /// As many more as the provider could still give.
    pub fn room(&self) -> usize {
        self.limits.capacity.saturating_sub(self.table.own_count())
    }

    pub fn limits(&self) -> Limits {
        self.limits
    }

    pub fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.table.slots()
    }

    pub fn counts(&self) -> Counts {
        Counts::of(self.table.slots())
    }
}

#[cfg(test)]
mod tests;
