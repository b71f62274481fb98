use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use berth_types::{BootTime, Resource, ResourceId};

use super::{
    Wish,
    slot::{FormerHolder, Slot, SlotState},
};

/// The slots, with indexes so that no question walks over all of them. Every change of a state
/// goes through [`Table::set`], which keeps the indexes.
#[derive(Debug, Clone, Default)]
pub(super) struct Table {
    slots: BTreeMap<ResourceId, Slot>,
    idle: BTreeSet<(BootTime, ResourceId)>,
    ending: BTreeSet<(BootTime, ResourceId)>,
    former: BTreeMap<FormerHolder, ResourceId>,
    addresses: BTreeMap<IpAddr, ResourceId>,
    foreign: BTreeSet<ResourceId>,
}

impl Table {
    /// Gives the resource back where the slot, or another with one of its addresses, is there
    /// already.
    pub(super) fn insert(&mut self, resource: Resource, state: SlotState) -> Result<(), Resource> {
        let taken = resource.addresses.iter().any(|address| self.addresses.contains_key(&address));
        if self.slots.contains_key(&resource.id) || taken {
            return Err(resource);
        }
        for address in resource.addresses.iter() {
            self.addresses.insert(address, resource.id.clone());
        }
        let id = resource.id.clone();
        let slot = Slot { resource, state: SlotState::Draining, foreign: false };
        self.slots.insert(id.clone(), slot);
        self.set(&id, state);
        Ok(())
    }

    pub(super) fn set(&mut self, id: &ResourceId, next: SlotState) {
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

    pub(super) fn remove(&mut self, id: &ResourceId) {
        self.set(id, SlotState::Draining);
        self.foreign.remove(id);
        if let Some(slot) = self.slots.remove(id) {
            for address in slot.resource.addresses.iter() {
                self.addresses.remove(&address);
            }
        }
    }

    pub(super) fn mark_foreign(&mut self, id: &ResourceId) {
        if let Some(slot) = self.slots.get_mut(id) {
            slot.foreign = true;
            self.foreign.insert(id.clone());
        }
    }

    pub(super) fn get(&self, id: &ResourceId) -> Option<&Slot> {
        self.slots.get(id)
    }

    pub(super) fn state(&self, id: &ResourceId) -> Option<&SlotState> {
        self.get(id).map(|slot| &slot.state)
    }

    pub(super) fn id_of(&self, address: IpAddr) -> Option<&ResourceId> {
        self.addresses.get(&address)
    }

    pub(super) fn of_address(&self, address: IpAddr) -> Option<&Slot> {
        self.id_of(address).and_then(|id| self.get(id))
    }

    /// A slot that rests or is reserved for just this asker, once its links are gone.
    pub(super) fn own_old(&self, wish: &Wish) -> Option<ResourceId> {
        let by_pod = wish.pod.clone().map(FormerHolder::Pod);
        let candidates = [Some(FormerHolder::Key(wish.key.clone())), by_pod];
        candidates
            .into_iter()
            .flatten()
            .filter_map(|holder| self.former.get(&holder))
            .find(|id| self.get(id).is_some_and(|slot| !slot.foreign && slot.state.is_for(wish)))
            .cloned()
    }

    /// The idle one that rested longest.
    pub(super) fn longest_idle(&self) -> Option<&ResourceId> {
        self.idle.first().map(|(_, id)| id)
    }

    /// As many idle ones, those that rested least.
    pub(super) fn shortest_idle(&self, count: usize) -> Vec<ResourceId> {
        self.idle.iter().rev().take(count).map(|(_, id)| id.clone()).collect()
    }

    pub(super) fn idle_count(&self) -> usize {
        self.idle.len()
    }

    /// What ends by itself, the soonest first.
    pub(super) fn ending(&self) -> impl Iterator<Item = &(BootTime, ResourceId)> {
        self.ending.iter()
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.slots.values()
    }

    /// Without those that the provider does not count any more.
    pub(super) fn own_count(&self) -> usize {
        self.slots.len() - self.foreign.len()
    }
}
