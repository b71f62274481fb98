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

mod slot;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    num::NonZeroUsize,
    time::Duration,
};

use berth_types::{
    AddressSet, AttachmentKey, BootTime, InterfaceName, PodRef, Resource, ResourceId,
};

use slot::FormerHolder;
pub use slot::{Counts, Quarantine, Slot, SlotState};

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

/// The least and the most that the provider is left alone after it refused. The pause doubles
/// from one to the other.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// As many resources as one call to the provider asks for: the most that the cloud APIs take
/// for one interface (Alibaba Cloud AssignPrivateIpAddresses).
const LARGEST_GROWTH: usize = 10;

#[derive(Debug, Clone)]
pub struct Pool {
    slots: BTreeMap<ResourceId, Slot>,
    /// Indexes over `slots`, kept by [`Pool::set`] and nothing else.
    idle: BTreeSet<(BootTime, ResourceId)>,
    ending: BTreeSet<(BootTime, ResourceId)>,
    former: BTreeMap<FormerHolder, ResourceId>,
    addresses: BTreeMap<IpAddr, ResourceId>,
    limits: Limits,
    growth: Growth,
}

/// Whether more may be asked for right now.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Growth {
    Ready,
    /// `pause` is how long the one before it was left alone for, if it was refused.
    InFlight {
        pause: Option<Duration>,
    },
    BackingOff {
        until: BootTime,
        pause: Duration,
        because: SourceError,
    },
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
    pub pod: Option<PodRef>,
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
    Held {
        address: IpAddr,
        by: String,
    },
}

impl Pool {
    pub fn new(limits: Limits) -> Self {
        Self {
            slots: BTreeMap::new(),
            idle: BTreeSet::new(),
            ending: BTreeSet::new(),
            former: BTreeMap::new(),
            addresses: BTreeMap::new(),
            limits,
            growth: Growth::Ready,
        }
    }

    /// Puts a slot as it was before a restart. A slot that is there already keeps its state.
    pub fn restore(&mut self, resource: Resource, state: SlotState) {
        let taken = resource.addresses.iter().any(|address| self.addresses.contains_key(&address));
        if self.slots.contains_key(&resource.id) || taken {
            return;
        }
        for address in resource.addresses.iter() {
            self.addresses.insert(address, resource.id.clone());
        }
        let id = resource.id.clone();
        self.slots
            .insert(id.clone(), Slot { resource, state: SlotState::Draining, foreign: false });
        self.set(&id, state);
    }

    /// The provider does not know this one any more: it lives on until it is released, and is
    /// given to nobody afterwards.
    pub fn mark_foreign(&mut self, id: &ResourceId) {
        if let Some(slot) = self.slots.get_mut(id) {
            slot.foreign = true;
        }
    }

    /// Promises what fits `wish`: what the asker had before, else the one that rested longest.
    pub fn promise(&mut self, wish: &Wish) -> Result<Resource, Refusal> {
        let id = if wish.addresses.is_empty() {
            self.own_old(wish)
                .or_else(|| self.idle.first().map(|(_, id)| id.clone()))
                .ok_or(Refusal::NothingIdle)?
        } else {
            self.exactly(wish)?
        };
        self.promise_slot(&id, &wish.key)
    }

    /// Promises a resource that was asked of the provider by its addresses.
    pub fn promise_fresh(&mut self, resource: Resource, wish: &Wish) -> Result<Resource, Refusal> {
        let id = resource.id.clone();
        if let Some(address) = resource.addresses.iter().find(|it| self.addresses.contains_key(it))
        {
            return Err(Refusal::Held { address, by: "the pool".into() });
        }
        self.restore(resource, SlotState::Idle { since: BootTime::default() });
        self.promise_slot(&id, &wish.key)
    }

    fn promise_slot(&mut self, id: &ResourceId, key: &AttachmentKey) -> Result<Resource, Refusal> {
        let slot = self.slots.get(id).ok_or(Refusal::NothingIdle)?;
        let (resource, before) = (slot.resource.clone(), Box::new(slot.state.clone()));
        self.set(id, SlotState::Promised { by: key.clone(), before });
        Ok(resource)
    }

    /// A slot that rests or is reserved for just this asker, once its links are gone.
    fn own_old(&self, wish: &Wish) -> Option<ResourceId> {
        let by_pod = wish.pod.clone().map(FormerHolder::Pod);
        let candidates = [Some(FormerHolder::Key(wish.key.clone())), by_pod];
        candidates
            .into_iter()
            .flatten()
            .filter_map(|holder| self.former.get(&holder))
            .find(|id| {
                self.slots.get(*id).is_some_and(|slot| !slot.foreign && slot.state.is_for(wish))
            })
            .cloned()
    }

    fn exactly(&self, wish: &Wish) -> Result<ResourceId, Refusal> {
        let mut found: Vec<&Slot> = Vec::new();
        for address in wish.addresses.iter() {
            let Some(slot) = self.addresses.get(&address).and_then(|id| self.slots.get(id)) else {
                continue;
            };
            let usable = matches!(slot.state, SlotState::Idle { .. }) || slot.state.is_for(wish);
            if !usable || slot.foreign {
                return Err(Refusal::Held { address, by: slot.state.to_string() });
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
            apart => Err(Refusal::Apart(apart.iter().map(|slot| slot.resource.clone()).collect())),
        }
    }

    /// Nobody gets these addresses until [`Pool::trust`] says so. One that is leased stays so.
    pub fn quarantine(&mut self, resource: Resource, cause: Quarantine) {
        let state = SlotState::Quarantined { cause };
        let known = resource.addresses.iter().find_map(|it| self.addresses.get(&it).cloned());
        match known {
            None => self.restore(resource, state),
            Some(id) if matches!(self.state(&id), Some(SlotState::Idle { .. })) => {
                self.set(&id, state);
            }
            Some(_) => (),
        }
    }

    /// What spoke against these is gone: they rest once more and are given out again.
    pub fn trust(&mut self, still_wired: &BTreeSet<InterfaceName>, until: BootTime) {
        let cleared: Vec<ResourceId> = self
            .slots
            .values()
            .filter(|slot| {
                matches!(&slot.state, SlotState::Quarantined { cause: Quarantine::Wired(interface) }
                    if !still_wired.contains(interface))
            })
            .map(|slot| slot.resource.id.clone())
            .collect();
        for id in cleared {
            self.set(&id, SlotState::Cooling { until, wired: false, former: None });
        }
    }

    /// Takes idle slots out for good because their addresses are wanted in another combination.
    pub fn take_apart(&mut self, resources: &[Resource]) {
        for resource in resources {
            if matches!(self.state(&resource.id), Some(SlotState::Idle { .. })) {
                self.set(&resource.id, SlotState::Draining);
            }
        }
    }

    /// Ends a promise: kept for good, or back to what it was, since nobody can have used it.
    pub fn settle(&mut self, id: &ResourceId, by: &AttachmentKey, keep: bool) {
        let Some(SlotState::Promised { by: holder, before }) = self.state(id) else { return };
        if holder != by {
            return;
        }
        let next =
            if keep { SlotState::Leased { to: by.clone() } } else { before.as_ref().clone() };
        self.set(id, next);
    }

    /// Ends a promise that turned out to be of something that another holds: nobody gets it.
    pub fn condemn(&mut self, id: &ResourceId, by: &AttachmentKey, cause: Quarantine) {
        if matches!(self.state(id), Some(SlotState::Promised { by: holder, .. }) if holder == by) {
            self.set(id, SlotState::Quarantined { cause });
        }
    }

    /// Gives a leased slot to another attachment (a new sandbox of the same pod).
    pub fn transfer(&mut self, id: &ResourceId, from: &AttachmentKey, to: &AttachmentKey) {
        if matches!(self.state(id), Some(SlotState::Leased { to: holder }) if holder == from) {
            self.set(id, SlotState::Leased { to: to.clone() });
        }
    }

    /// Lets `owner`'s slot rest. A slot that another holds is left alone: a late release never
    /// hurts a successor. `rest` is Cooling or Reserved.
    pub fn release(&mut self, id: &ResourceId, owner: &AttachmentKey, rest: SlotState) -> bool {
        let held = matches!(self.state(id), Some(SlotState::Leased { to }) if to == owner);
        if held {
            self.set(id, rest);
        }
        held
    }

    /// The links of its last holder are really gone.
    pub fn unwired(&mut self, id: &ResourceId) {
        let next = match self.state(id) {
            Some(SlotState::Cooling { until, wired: true, former }) => {
                SlotState::Cooling { until: *until, wired: false, former: former.clone() }
            }
            Some(SlotState::Reserved { pod, until, wired: true }) => {
                SlotState::Reserved { pod: pod.clone(), until: *until, wired: false }
            }
            _ => return,
        };
        self.set(id, next);
    }

    /// New resources from the provider; addresses that some slot has already are left out.
    pub fn grown(&mut self, fresh: Vec<Resource>) {
        self.growth = Growth::Ready;
        for resource in fresh {
            self.restore(resource, SlotState::Idle { since: BootTime::default() });
        }
    }

    pub fn grow_failed(&mut self, now: BootTime, because: SourceError) {
        let pause = match &self.growth {
            Growth::InFlight { pause: Some(pause) } | Growth::BackingOff { pause, .. } => {
                (*pause * 2).min(BACKOFF.1)
            }
            Growth::Ready | Growth::InFlight { pause: None } => BACKOFF.0,
        };
        self.growth = Growth::BackingOff { until: now + pause, pause, because };
    }

    /// They are back with the provider.
    pub fn drained(&mut self, gone: &[ResourceId]) {
        for id in gone {
            if matches!(self.state(id), Some(SlotState::Draining)) {
                self.remove(id);
            }
        }
    }

    /// Ends what is due, then says what brings the idle count back between its marks. `waiting`
    /// callers count as demand.
    pub fn next_action(&mut self, now: BootTime, waiting: usize) -> Option<Action> {
        self.end_due(now);
        let wanted = (self.limits.min_idle + waiting).min(self.limits.capacity);
        let room = self.limits.capacity.saturating_sub(self.slots.len());
        let missing = wanted.saturating_sub(self.idle.len()).min(room).min(LARGEST_GROWTH);
        if let Some(missing) = NonZeroUsize::new(missing) {
            let pause = match &self.growth {
                Growth::Ready => None,
                Growth::BackingOff { until, pause, .. } if *until <= now => Some(*pause),
                Growth::InFlight { .. } | Growth::BackingOff { .. } => return None,
            };
            self.growth = Growth::InFlight { pause };
            return Some(Action::Grow(missing));
        }
        let surplus = self.idle.len().saturating_sub(self.limits.max_idle.max(waiting));
        let victims: Vec<ResourceId> =
            self.idle.iter().rev().take(surplus).map(|(_, id)| id.clone()).collect();
        for id in &victims {
            self.set(id, SlotState::Draining);
        }
        let gone: Vec<Resource> = victims
            .iter()
            .filter_map(|id| self.slots.get(id).map(|slot| slot.resource.clone()))
            .collect();
        (!gone.is_empty()).then_some(Action::Shrink(gone))
    }

    fn end_due(&mut self, now: BootTime) {
        let due: Vec<ResourceId> = self
            .ending
            .iter()
            .take_while(|(until, _)| *until <= now)
            .map(|(_, id)| id.clone())
            .collect();
        for id in due {
            let Some(slot) = self.slots.get(&id) else { continue };
            match &slot.state {
                SlotState::Cooling { wired: false, .. }
                | SlotState::Reserved { wired: false, .. } => {
                    if slot.foreign {
                        self.remove(&id);
                    } else {
                        self.set(&id, SlotState::Idle { since: now });
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
        let resting = self.ending.iter().find(|(_, id)| {
            matches!(
                self.state(id),
                Some(
                    SlotState::Cooling { wired: false, .. }
                        | SlotState::Reserved { wired: false, .. }
                )
            )
        });
        let backoff = match &self.growth {
            Growth::BackingOff { until, .. } => Some(*until),
            Growth::Ready | Growth::InFlight { .. } => None,
        };
        resting.map(|(until, _)| *until).into_iter().chain(backoff).min()
    }

    /// Whether a caller who waits may get something without anybody releasing anything.
    pub fn may_grow(&self, now: BootTime) -> bool {
        let refused = matches!(&self.growth, Growth::BackingOff { until, .. } if *until > now);
        !refused && self.slots.len() < self.limits.capacity
    }

    pub fn last_refusal(&self) -> Option<&SourceError> {
        match &self.growth {
            Growth::BackingOff { because, .. } => Some(because),
            Growth::Ready | Growth::InFlight { .. } => None,
        }
    }

    pub fn limits(&self) -> Limits {
        self.limits
    }

    pub fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.slots.values()
    }

    pub fn counts(&self) -> Counts {
        Counts::of(self.slots.values())
    }

    fn state(&self, id: &ResourceId) -> Option<&SlotState> {
        self.slots.get(id).map(|slot| &slot.state)
    }

    /// The one place where a state changes, and with it the indexes.
    fn set(&mut self, id: &ResourceId, next: SlotState) {
        let Some(slot) = self.slots.get_mut(id) else { return };
        let before = std::mem::replace(&mut slot.state, next);
        if let Some(since) = before.idle_since() {
            self.idle.remove(&(since, id.clone()));
        }
        if let Some(until) = before.ends() {
            self.ending.remove(&(until, id.clone()));
        }
        for holder in before.former_holders() {
            if self.former.get(&holder) == Some(id) {
                self.former.remove(&holder);
            }
        }
        if let Some(since) = slot.state.idle_since() {
            self.idle.insert((since, id.clone()));
        }
        if let Some(until) = slot.state.ends() {
            self.ending.insert((until, id.clone()));
        }
        for holder in slot.state.former_holders() {
            self.former.insert(holder, id.clone());
        }
    }

    fn remove(&mut self, id: &ResourceId) {
        self.set(id, SlotState::Draining);
        if let Some(slot) = self.slots.remove(id) {
            for address in slot.resource.addresses.iter() {
                self.addresses.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests;
