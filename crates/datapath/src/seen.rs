//! What the kernel has, in our words.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the kernel's attributes are many, and those not named say nothing here"
)]

use std::net::IpAddr;

use berth_types::{InterfaceName, MacAddress};
use ipnet::IpNet;
use netlink_packet_route::{
    RouteNetlinkMessage,
    address::{AddressAttribute, AddressMessage},
    link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, State},
    neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState},
    route::{RouteAddress, RouteAttribute, RouteMessage, RouteProtocol, RouteType},
};

use crate::{LINK_GROUP, ROUTE_PROTOCOL, UNHOOKED_GROUP};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LinkSeen {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) up: bool,
    /// Up, and so is the other end.
    pub(crate) running: bool,
    pub(crate) mac: Option<MacAddress>,
    pub(crate) mtu: u32,
    pub(crate) group: u32,
    pub(crate) kind: LinkKind,
    pub(crate) alias: Option<String>,
    pub(crate) peer: Option<Peer>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkKind {
    Veth,
    Ifb,
    Other,
}

/// The other end of a veth pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) index: u32,
    /// The kernel's id for its namespace, where that is another one.
    pub(crate) namespace: Option<i32>,
}

impl LinkSeen {
    /// Whether a host link was made by us and is in use.
    pub(crate) fn is_live(&self) -> bool {
        self.group == LINK_GROUP && self.kind != LinkKind::Other
    }

    /// Whether a host link was made by us and waits to be deleted.
    pub(crate) fn is_unhooked(&self) -> bool {
        self.group == UNHOOKED_GROUP && self.kind != LinkKind::Other
    }

    pub(crate) fn is_named(&self, name: &InterfaceName) -> bool {
        self.name == name.as_str()
    }
}

pub(crate) fn link(message: &RouteNetlinkMessage) -> Option<LinkSeen> {
    let RouteNetlinkMessage::NewLink(message) = message else { return None };
    Some(link_seen(message))
}

fn link_seen(message: &LinkMessage) -> LinkSeen {
    let mut seen = LinkSeen {
        index: message.header.index,
        name: String::new(),
        up: message.header.flags.contains(LinkFlags::Up),
        running: false,
        mac: None,
        mtu: 0,
        group: 0,
        kind: LinkKind::Other,
        alias: None,
        peer: None,
    };
    let mut namespace = None;
    let mut peer = None;
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => seen.name.clone_from(name),
            LinkAttribute::OperState(state) => seen.running = *state == State::Up,
            LinkAttribute::Address(bytes) => {
                let octets = bytes.as_slice().try_into().ok();
                seen.mac = octets.and_then(MacAddress::new);
            }
            LinkAttribute::Mtu(mtu) => seen.mtu = *mtu,
            LinkAttribute::Group(group) => seen.group = *group,
            LinkAttribute::IfAlias(alias) => seen.alias = Some(alias.clone()),
            LinkAttribute::Link(index) => peer = Some(*index),
            LinkAttribute::LinkNetNsId(id) => namespace = Some(*id),
            LinkAttribute::LinkInfo(infos) => {
                for info in infos {
                    match info {
                        LinkInfo::Kind(InfoKind::Veth) => seen.kind = LinkKind::Veth,
                        LinkInfo::Kind(InfoKind::Ifb) => seen.kind = LinkKind::Ifb,
                        _ => (),
                    }
                }
            }
            _ => (),
        }
    }
    seen.peer = peer.map(|index| Peer { index, namespace });
    seen
}

/// Index of the link and the address with its prefix.
pub(crate) fn address(message: &RouteNetlinkMessage) -> Option<(u32, IpNet)> {
    let RouteNetlinkMessage::NewAddress(AddressMessage { header, attributes, .. }) = message else {
        return None;
    };
    // On a point-to-point link, `Address` is the other end and `Local` ours.
    let local = attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    });
    let address = local.or_else(|| {
        attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Address(address) => Some(*address),
            _ => None,
        })
    })?;
    Some((header.index, IpNet::new(address, header.prefix_len).ok()?))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NeighbourSeen {
    pub(crate) index: u32,
    pub(crate) address: IpAddr,
    pub(crate) mac: Option<MacAddress>,
    pub(crate) permanent: bool,
}

pub(crate) fn neighbour(message: &RouteNetlinkMessage) -> Option<NeighbourSeen> {
    let RouteNetlinkMessage::NewNeighbour(NeighbourMessage { header, attributes, .. }) = message
    else {
        return None;
    };
    let address = attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => Some(IpAddr::V4(*v4)),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => Some(IpAddr::V6(*v6)),
        _ => None,
    })?;
    let mac = attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(bytes) => {
            bytes.as_slice().try_into().ok().and_then(MacAddress::new)
        }
        _ => None,
    });
    let permanent = header.state == NeighbourState::Permanent;
    Some(NeighbourSeen { index: header.ifindex, address, mac, permanent })
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RouteSeen {
    pub(crate) to: IpNet,
    pub(crate) via: Option<IpAddr>,
    /// More than one for a multipath route, none for one that leads nowhere.
    pub(crate) links: Vec<u32>,
    pub(crate) metric: u32,
    pub(crate) ours: bool,
    /// Learned from a router advertisement.
    pub(crate) advertised: bool,
}

pub(crate) fn route(message: &RouteNetlinkMessage) -> Option<RouteSeen> {
    let RouteNetlinkMessage::NewRoute(RouteMessage { header, attributes, .. }) = message else {
        return None;
    };
    let everywhere = match header.address_family {
        netlink_packet_route::AddressFamily::Inet => IpAddr::from([0; 4]),
        netlink_packet_route::AddressFamily::Inet6 => IpAddr::from([0; 16]),
        _ => return None,
    };
    let mut to = everywhere;
    let mut seen = RouteSeen {
        to: IpNet::new(everywhere, 0).ok()?,
        via: None,
        links: Vec::new(),
        metric: 0,
        ours: header.protocol == RouteProtocol::Other(ROUTE_PROTOCOL),
        advertised: header.protocol == RouteProtocol::Ra,
    };
    for attribute in attributes {
        match attribute {
            RouteAttribute::Destination(address) => to = ip(address)?,
            RouteAttribute::Gateway(address) => seen.via = ip(address),
            RouteAttribute::Oif(index) => seen.links.push(*index),
            RouteAttribute::Priority(metric) => seen.metric = *metric,
            RouteAttribute::MultiPath(hops) => {
                seen.links.extend(hops.iter().map(|hop| hop.interface_index));
            }
            _ => (),
        }
    }
    seen.to = IpNet::new(to, header.destination_prefix_length).ok()?;
    Some(seen)
}

/// Whether a looked-up route says that the address is this namespace's own.
pub(crate) fn is_local_route(message: &RouteNetlinkMessage) -> bool {
    matches!(message, RouteNetlinkMessage::NewRoute(m) if m.header.kind == RouteType::Local)
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(v4) => Some((*v4).into()),
        RouteAddress::Inet6(v6) => Some((*v6).into()),
        _ => None,
    }
}
