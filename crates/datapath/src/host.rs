use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    net::IpAddr,
    path::PathBuf,
};

use berth_types::{HostPrefix, InterfaceName};
use ipnet::IpNet;
use netlink_packet_route::AddressFamily;
use tracing::warn;

use crate::{
    NetError,
    message::{self, Link},
    netlink::Netlink,
    seen, sysctl,
};

mod conntrack;
mod links;
mod masquerade;
mod overlap;
mod raw;

#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error("cannot open netlink")]
    Open(#[source] io::Error),
    #[error("cannot take {link} off the network")]
    Unhook { link: InterfaceName, source: NetError },
    #[error("cannot delete {what}")]
    Delete { what: String, source: io::Error },
    #[error("{} are still there after their deletion", .0.join(", "))]
    StillThere(Vec<String>),
    #[error("cannot read the host's {what}")]
    Read { what: &'static str, source: NetError },
    #[error("cannot forget connections of deleted pods")]
    Conntrack(#[source] io::Error),
    #[error("cannot turn forwarding on")]
    Forwarding(#[source] NetError),
    #[error("nft is not installed: masquerading needs the package nftables")]
    NoNft,
    #[error("cannot run {program:?}")]
    Nft { program: PathBuf, source: io::Error },
    #[error("nft refused the masquerade rules: {0}")]
    Rules(String),
    #[error("a task of this process was cut short")]
    Task(#[source] tokio::task::JoinError),
}

/// A link of a name of ours, as the kernel has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wired {
    /// It is in our link group: it was made by us, and nobody has changed that.
    pub marked: bool,
    /// The addresses that our routes lead to it.
    pub addresses: BTreeSet<IpAddr>,
}

/// The host's side, for the daemon.
#[derive(Debug)]
pub struct Host {
    prefix: HostPrefix,
    netlink: Netlink,
}

impl Host {
    /// Inside a tokio runtime, in the host's network namespace.
    pub fn open(prefix: HostPrefix) -> Result<Self, HostError> {
        let netlink = Netlink::open().map_err(HostError::Open)?;
        Ok(Self { prefix, netlink })
    }

    /// Takes the links off the network at once, without waiting for the kernel to free anything:
    /// down, so that their routes go and nothing passes, and marked for [`Host::reap`]. Links
    /// that are gone are done. It goes on after a failure, and answers the first; else those that
    /// were there.
    pub async fn unhook(
        &self,
        links: &[InterfaceName],
    ) -> Result<BTreeSet<InterfaceName>, HostError> {
        links::unhook(&self.netlink, links).await
    }

    /// Deletes every unhooked link and ifb in one batch, waits until they are gone, and forgets
    /// connections of the addresses.
    ///
    /// One of `links` that was not unhooked and still has a route to one of `addresses` is
    /// unhooked first. Without such a route it is a successor's of the same name, and stays.
    pub async fn reap(
        &self,
        links: &[InterfaceName],
        addresses: &[IpAddr],
    ) -> Result<(), HostError> {
        links::reap(&self.netlink, links, addresses).await?;
        conntrack::forget(addresses).await
    }

    /// The host interfaces that bear our mark, a name of ours or one of `known`, and are not unhooked, with the addresses routed to
    /// each, and whether they bear our mark. An ifb whose pair has gone with its namespace counts
    /// for the interface it belonged to, without addresses.
    pub async fn wired(
        &self,
        known: &BTreeSet<InterfaceName>,
    ) -> Result<BTreeMap<InterfaceName, Wired>, HostError> {
        let links = self.all_links().await?;
        let mut wired = BTreeMap::new();
        let mut names = HashMap::new();
        for link in links.iter().filter(|link| !link.is_unhooked()) {
            let Some(interface) = links::host_interface(&self.prefix, known, link) else {
                continue;
            };
            names.insert(link.index, interface.clone());
            let entry: &mut Wired = wired.entry(interface).or_default();
            entry.marked |= link.is_live();
        }
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            for route in self.routes(family).await?.iter().filter(|route| route.ours) {
                for interface in route.links.iter().filter_map(|index| names.get(index)) {
                    let entry = wired.entry(interface.clone()).or_default();
                    entry.addresses.insert(route.to.addr());
                }
            }
        }
        Ok(wired)
    }

    /// Forwarding on where it is off, for the families of `pod_cidrs`; masquerade of what their
    /// pods send to the outside, or none. Safe to repeat.
    ///
    /// With IPv6 forwarding on, the kernel takes router advertisements only on links where
    /// `accept_ra` is 2 (ip-sysctl.rst); where the node's own default route comes from one, this
    /// is said in a warning and left to the operator.
    pub async fn prepare(&self, pod_cidrs: &[IpNet], masquerade: bool) -> Result<(), HostError> {
        if pod_cidrs.iter().any(|cidr| cidr.addr().is_ipv4()) {
            forward("net/ipv4/ip_forward")?;
        }
        if pod_cidrs.iter().any(|cidr| cidr.addr().is_ipv6())
            && forward("net/ipv6/conf/all/forwarding")? == Switched::On
            && self.routers_are_advertised().await?
        {
            warn!(
                "IPv6 forwarding is on now: for the default route to outlive its router \
                 advertisement, set accept_ra=2 on the uplink"
            );
        }
        masquerade::apply(&self.prefix, pod_cidrs, masquerade).await
    }

    /// A route or address of the node that overlaps one of `pod_cidrs` and is not ours, in words.
    /// The default route overlaps nothing.
    pub async fn overlap(&self, pod_cidrs: &[IpNet]) -> Result<Option<(IpNet, String)>, HostError> {
        let links = self.all_links().await?;
        let mut routes = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            routes.extend(self.routes(family).await?);
        }
        let read = |source| HostError::Read { what: "addresses", source };
        let addresses = self.netlink.dump(&message::dump_addresses(0)).await.map_err(read)?;
        let addresses: Vec<_> = addresses.iter().filter_map(seen::address).collect();
        Ok(overlap::find(pod_cidrs, &routes, &addresses, &links))
    }

    /// MTU of the link with the default route, if there is one. IPv4's counts before IPv6's, and
    /// among several the one with the lowest metric; of a multipath route, the smallest.
    pub async fn uplink_mtu(&self) -> Result<Option<u32>, HostError> {
        let read = |source| HostError::Read { what: "uplink", source };
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let routes = self.routes(family).await?;
            let default = routes
                .into_iter()
                .filter(|route| route.to.prefix_len() == 0 && !route.links.is_empty())
                .min_by_key(|route| route.metric);
            let Some(default) = default else { continue };
            let mut smallest = None;
            for index in default.links {
                let message = message::get_link(Link::Index(index));
                let link = self.netlink.get(message).await.map_err(read)?;
                let mtu = link.as_ref().and_then(seen::link).map(|link| link.mtu);
                smallest = smallest.into_iter().chain(mtu).min();
            }
            return Ok(smallest);
        }
        Ok(None)
    }

    async fn all_links(&self) -> Result<Vec<seen::LinkSeen>, HostError> {
        links::all(&self.netlink).await
    }

    async fn routes(&self, family: AddressFamily) -> Result<Vec<seen::RouteSeen>, HostError> {
        let read = |source| HostError::Read { what: "routes", source };
        let found = self.netlink.dump(&message::dump_routes(family, None)).await.map_err(read)?;
        Ok(found.iter().filter_map(seen::route).collect())
    }

    async fn routers_are_advertised(&self) -> Result<bool, HostError> {
        let routes = self.routes(AddressFamily::Inet6).await?;
        Ok(routes.iter().any(|route| route.advertised && route.to.prefix_len() == 0))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Switched {
    On,
    /// Any value but 0 was there: not ours to change.
    WasOn,
}

fn forward(path: &str) -> Result<Switched, HostError> {
    let failed = |source| HostError::Forwarding(NetError::Sysctl { path: path.to_owned(), source });
    if sysctl::read(path).map_err(failed)? != "0" {
        return Ok(Switched::WasOn);
    }
    sysctl::ensure(path, "1").map_err(failed)?;
    Ok(Switched::On)
}

/// For the fuzzer: what one read of a netlink socket may bring, and what is taken out of it.
#[cfg(feature = "fuzz")]
pub(crate) fn fuzz(datagram: &[u8]) {
    let mut bodies = 0;
    let _ = raw::read(datagram, &mut |body| {
        bodies += body.len();
        conntrack::fuzz(body);
    });
    assert!(bodies <= datagram.len());
    conntrack::fuzz(datagram);
}
