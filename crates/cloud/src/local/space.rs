use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use berth_core::ports::SourceError;
use ipnet::IpNet;

/// One family's addresses, as numbers.
#[derive(Debug)]
pub(super) struct Space {
    is_v4: bool,
    /// Usable stretches, in order, first and last included.
    stretches: Vec<(u128, u128)>,
    size: usize,
    out: BTreeSet<u128>,
    /// Where the search for the next one begins.
    cursor: u128,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpaceError {
    #[error("no pod CIDR is given")]
    NoCidr,
    #[error("pod CIDRs {0} and {1} overlap")]
    Overlap(IpNet, IpNet),
    #[error("pod CIDR {0} has no address to give out")]
    Empty(IpNet),
}

impl Space {
    pub(super) fn new(cidrs: &[IpNet], excluded: &[IpNet]) -> Result<Self, SpaceError> {
        for (n, one) in cidrs.iter().enumerate() {
            for other in &cidrs[n + 1..] {
                if one.contains(other) || other.contains(one) {
                    return Err(SpaceError::Overlap(*one, *other));
                }
            }
        }
        let is_v4 = cidrs.first().ok_or(SpaceError::NoCidr)?.addr().is_ipv4();
        let holes: Vec<(u128, u128)> =
            excluded.iter().filter(|it| it.addr().is_ipv4() == is_v4).map(bounds).collect();
        let mut stretches = Vec::new();
        for cidr in cidrs {
            let own = without(usable(cidr), &holes);
            if own.is_empty() {
                return Err(SpaceError::Empty(*cidr));
            }
            stretches.extend(own);
        }
        stretches.sort_unstable();
        let size = stretches
            .iter()
            .fold(0u128, |sum, (first, last)| sum.saturating_add(last - first).saturating_add(1));
        // More than a node can ever use is as good as that.
        let size = usize::try_from(size.min(u128::from(u32::MAX))).unwrap_or(usize::MAX);
        let cursor = stretches.first().map_or(0, |(first, _)| *first);
        Ok(Self { is_v4, stretches, size, out: BTreeSet::new(), cursor })
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// The next one after the last that was given, round and round.
    pub(super) fn next(&mut self) -> Option<IpAddr> {
        if self.out.len() >= self.size {
            return None;
        }
        let number =
            self.free_from(self.cursor, u128::MAX).or_else(|| self.free_from(0, self.cursor))?;
        self.out.insert(number);
        self.cursor = number.saturating_add(1);
        Some(self.address(number))
    }

    fn free_from(&self, first: u128, end: u128) -> Option<u128> {
        for &(from, to) in &self.stretches {
            let mut number = from.max(first);
            for &taken in self.out.range(number..) {
                if taken != number || number > to {
                    break;
                }
                number += 1;
            }
            if number <= to && number < end {
                return Some(number);
            }
        }
        None
    }

    /// Whether it is one of these addresses, given out or not.
    pub(super) fn has(&self, address: IpAddr) -> Result<(), SourceError> {
        let number = number(address);
        if !self.stretches.iter().any(|(first, last)| (first..=last).contains(&&number)) {
            let why =
                "it is in no pod CIDR, or excluded, or a network, gateway or broadcast address";
            return Err(SourceError::NotOurs { address, why: why.into() });
        }
        Ok(())
    }

    pub(super) fn take(&mut self, address: IpAddr) -> Result<(), SourceError> {
        self.has(address)?;
        if !self.out.insert(number(address)) {
            return Err(SourceError::Taken(address));
        }
        Ok(())
    }

    pub(super) fn put_back(&mut self, address: IpAddr) {
        self.out.remove(&number(address));
    }

    fn address(&self, number: u128) -> IpAddr {
        match u32::try_from(number) {
            Ok(number) if self.is_v4 => Ipv4Addr::from(number).into(),
            Ok(_) | Err(_) => Ipv6Addr::from(number).into(),
        }
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

fn bounds(cidr: &IpNet) -> (u128, u128) {
    (number(cidr.network()), number(cidr.broadcast()))
}

/// Without the network address (for IPv6 the subnet-router anycast address, RFC 4291 section
/// 2.6.1), the first address and, for IPv4, the broadcast address. A single address, or two (RFC
/// 3021), are given out as they are.
fn usable(cidr: &IpNet) -> (u128, u128) {
    let (first, last) = bounds(cidr);
    match last - first {
        0 | 1 => (first, last),
        _ if cidr.addr().is_ipv4() => (first + 2, last - 1),
        _ => (first + 2, last),
    }
}

fn without(whole: (u128, u128), holes: &[(u128, u128)]) -> Vec<(u128, u128)> {
    let mut left = if whole.0 <= whole.1 { vec![whole] } else { Vec::new() };
    for &(from, to) in holes {
        left = left
            .into_iter()
            .flat_map(|(first, last)| {
                if to < first || last < from {
                    return vec![(first, last)];
                }
                let before = (first < from).then(|| (first, from - 1));
                let after = (to < last).then(|| (to + 1, last));
                before.into_iter().chain(after).collect()
            })
            .collect();
    }
    left
}
