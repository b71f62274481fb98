//! Addresses out of configured pod CIDRs, given out by the daemon itself.

mod space;

use std::{
    net::IpAddr,
    num::NonZeroUsize,
    sync::{Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use berth_core::ports::{Source, SourceError};
use berth_types::{AddressSet, Family, Resource, ResourceId};
use ipnet::IpNet;

use space::Space;
pub use space::SpaceError;

/// The node's pod CIDRs as a source of address pairs. With both families every resource is one
/// address of each, so that a dual-stack pod is one decision.
///
/// Addresses are given out in turn through the whole CIDR, so that one that came back is used
/// again as late as can be.
#[derive(Debug)]
pub struct LocalAddresses {
    spaces: Mutex<Spaces>,
    capacity: usize,
}

#[derive(Debug)]
struct Spaces {
    v4: Option<Space>,
    v6: Option<Space>,
}

impl LocalAddresses {
    /// `excluded` are addresses and prefixes that are never given out, beside each CIDR's
    /// network address, first address (the gateway's by custom) and broadcast address.
    pub fn new(pod_cidrs: &[IpNet], excluded: &[IpNet]) -> Result<Self, SpaceError> {
        let space = |family: fn(&IpNet) -> bool| {
            let own: Vec<IpNet> = pod_cidrs.iter().copied().filter(family).collect();
            if own.is_empty() { Ok(None) } else { Space::new(&own, excluded).map(Some) }
        };
        let v4 = space(|cidr| cidr.addr().is_ipv4())?;
        let v6 = space(|cidr| cidr.addr().is_ipv6())?;
        let sizes = [&v4, &v6].into_iter().flatten().map(Space::size);
        let capacity = sizes.min().ok_or(SpaceError::NoCidr)?;
        Ok(Self { spaces: Mutex::new(Spaces { v4, v6 }), capacity })
    }

    fn lock(&self) -> MutexGuard<'_, Spaces> {
        self.spaces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spaces {
    fn next(&mut self) -> Option<AddressSet> {
        let v4 = match &mut self.v4 {
            Some(space) => Some(space.next()?),
            None => None,
        };
        let v6 = match &mut self.v6 {
            Some(space) => match space.next() {
                Some(address) => Some(address),
                None => {
                    self.put_back(v4);
                    return None;
                }
            },
            None => None,
        };
        Some(pair(v4, v6))
    }

    fn of(&mut self, address: IpAddr) -> Option<&mut Space> {
        match address {
            IpAddr::V4(_) => self.v4.as_mut(),
            IpAddr::V6(_) => self.v6.as_mut(),
        }
    }

    fn space(&mut self, address: IpAddr) -> Result<&mut Space, SourceError> {
        let family = if address.is_ipv4() { Family::V4 } else { Family::V6 };
        self.of(address).ok_or(SourceError::NoFamily(family))
    }

    fn take(&mut self, address: IpAddr) -> Result<(), SourceError> {
        self.space(address)?.take(address)
    }

    fn put_back(&mut self, addresses: impl IntoIterator<Item = IpAddr>) {
        for address in addresses {
            if let Some(space) = self.of(address) {
                space.put_back(address);
            }
        }
    }

    /// Takes what is named, and any of the family that is not.
    fn exactly(&mut self, wanted: AddressSet) -> Result<AddressSet, SourceError> {
        let mut taken = Vec::new();
        let outcome = (|| {
            for address in wanted.iter() {
                self.take(address)?;
                taken.push(address);
            }
            let mut any = |space: &mut Option<Space>, named: bool| match space {
                Some(space) if !named => {
                    let address = space.next().ok_or(SourceError::Exhausted)?;
                    taken.push(address);
                    Ok(Some(address))
                }
                Some(_) | None => Ok(None),
            };
            let v4 = any(&mut self.v4, wanted.v4.is_some())?;
            let v6 = any(&mut self.v6, wanted.v6.is_some())?;
            Ok(pair(wanted.v4.map(IpAddr::V4).or(v4), wanted.v6.map(IpAddr::V6).or(v6)))
        })();
        if outcome.is_err() {
            self.put_back(taken);
        }
        outcome
    }
}

fn pair(v4: Option<IpAddr>, v6: Option<IpAddr>) -> AddressSet {
    let mut set = AddressSet::default();
    for address in v4.into_iter().chain(v6) {
        match address {
            IpAddr::V4(address) => set.v4 = Some(address),
            IpAddr::V6(address) => set.v6 = Some(address),
        }
    }
    set
}

#[async_trait]
impl Source for LocalAddresses {
    async fn assign(&self, count: NonZeroUsize) -> Result<Vec<Resource>, SourceError> {
        let mut spaces = self.lock();
        let fresh: Vec<Resource> =
            std::iter::from_fn(|| spaces.next()).take(count.get()).map(Resource::veth).collect();
        if fresh.is_empty() { Err(SourceError::Exhausted) } else { Ok(fresh) }
    }

    async fn assign_exactly(&self, addresses: AddressSet) -> Result<Resource, SourceError> {
        self.lock().exactly(addresses).map(Resource::veth)
    }

    async fn unassign(&self, resources: Vec<Resource>) -> Result<(), SourceError> {
        let mut spaces = self.lock();
        for resource in resources {
            spaces.put_back(resource.addresses.iter());
        }
        Ok(())
    }

    fn knows(&self, address: IpAddr) -> Result<(), SourceError> {
        self.lock().space(address)?.has(address)
    }

    fn adopt(&self, held: &[Resource]) -> Vec<ResourceId> {
        let mut spaces = self.lock();
        let mut foreign = Vec::new();
        for resource in held {
            // Every one that is ours is taken, even if another of the set is not.
            let outcomes: Vec<_> =
                resource.addresses.iter().map(|address| spaces.take(address)).collect();
            // One of a family less would be given to pods that lack it.
            let lacks = (spaces.v4.is_some() && resource.addresses.v4.is_none())
                || (spaces.v6.is_some() && resource.addresses.v6.is_none());
            if lacks || outcomes.iter().any(Result::is_err) {
                foreign.push(resource.id.clone());
            }
        }
        foreign
    }

    fn capacity(&self) -> usize {
        self.capacity
    }
}

#[cfg(test)]
mod tests;
