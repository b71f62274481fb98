//! The requests to rtnetlink, as values.

use std::{net::IpAddr, os::fd::RawFd};

use berth_types::{InterfaceName, MacAddress};
use ipnet::IpNet;
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope},
    link::{
        AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoKind, InfoVeth, LinkAttribute,
        LinkExtentMask, LinkFlags, LinkInfo, LinkMessage,
    },
    neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState},
    nsid::{NsidAttribute, NsidMessage},
    route::{
        RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteProtocol,
        RouteScope, RouteType,
    },
};

use crate::{Side, Veth};

/// Marks every route of ours, in pods and on the host (`ip route show proto 190`). No daemon in
/// iproute2's rt_protos has this number.
pub const ROUTE_PROTOCOL: u8 = 190;

/// The group that host links of ours are born in (`ip link show group 48711`). Nothing else
/// tells them from foreign links as surely: it is set by the message that makes the link.
pub const LINK_GROUP: u32 = 0xbe47;

/// The group of links that were taken off the network and wait to be deleted.
pub const UNHOOKED_GROUP: u32 = LINK_GROUP + 1;

/// Of each end and direction. The kernel uses one anyway unless it is told otherwise; where the
/// message says nothing it makes one for every processor first, with files in sysfs, and takes
/// the rest down again (drivers/net/veth.c, veth_init_queues).
const QUEUES: u32 = 1;

/// The host's end of the pair, down, with its peer in the namespace open as `netns`. The peer
/// cannot be made up: the kernel answers ENOTCONN.
pub(crate) fn new_veth(veth: &Veth, netns: RawFd) -> RouteNetlinkMessage {
    let Veth { host, host_mac, pod, pod_mac, mtu } = veth;
    let mut peer = LinkMessage::default();
    peer.attributes = vec![
        LinkAttribute::IfName(pod.to_string()),
        LinkAttribute::NumTxQueues(QUEUES),
        LinkAttribute::NumRxQueues(QUEUES),
        LinkAttribute::Mtu(*mtu),
        LinkAttribute::Address(pod_mac.octets().to_vec()),
        LinkAttribute::NetNsFd(netns),
    ];
    let mut link = LinkMessage::default();
    link.attributes = vec![
        LinkAttribute::IfName(host.to_string()),
        LinkAttribute::NumTxQueues(QUEUES),
        LinkAttribute::NumRxQueues(QUEUES),
        LinkAttribute::Mtu(*mtu),
        LinkAttribute::Address(host_mac.octets().to_vec()),
        LinkAttribute::Group(LINK_GROUP),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
        ]),
    ];
    RouteNetlinkMessage::NewLink(link)
}

pub(crate) fn new_ifb(name: &InterfaceName, mtu: u32) -> RouteNetlinkMessage {
    let mut link = LinkMessage::default();
    link.header.flags = LinkFlags::Up;
    link.header.change_mask = LinkFlags::Up;
    link.attributes = vec![
        LinkAttribute::IfName(name.to_string()),
        LinkAttribute::Mtu(mtu),
        LinkAttribute::Group(LINK_GROUP),
        LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Ifb)]),
    ];
    RouteNetlinkMessage::NewLink(link)
}

pub(crate) fn up(link: Link<'_>) -> LinkMessage {
    let mut link = named(link);
    link.header.flags = LinkFlags::Up;
    link.header.change_mask = LinkFlags::Up;
    link
}

pub(crate) fn host_up(index: u32, alias: &str, v6: bool) -> RouteNetlinkMessage {
    let mut link = up(Link::Index(index));
    link.attributes.push(LinkAttribute::IfAlias(alias.to_owned()));
    if v6 {
        let none = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
        link.attributes.push(LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![none])]));
    }
    RouteNetlinkMessage::SetLink(link)
}

pub(crate) fn down(index: u32) -> RouteNetlinkMessage {
    let mut link = LinkMessage::default();
    link.header.index = index;
    link.header.change_mask = LinkFlags::Up;
    RouteNetlinkMessage::SetLink(link)
}

/// Takes a link off the network in one message: down, which takes its routes, and marked.
pub(crate) fn unhook(index: u32) -> RouteNetlinkMessage {
    let mut message = named(Link::Index(index));
    message.header.change_mask = LinkFlags::Up;
    message.attributes.push(LinkAttribute::Group(UNHOOKED_GROUP));
    RouteNetlinkMessage::SetLink(message)
}

/// A link by either of its identities.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Link<'a> {
    Name(&'a InterfaceName),
    Index(u32),
}

fn named(link: Link<'_>) -> LinkMessage {
    let mut message = LinkMessage::default();
    match link {
        Link::Name(name) => message.attributes.push(LinkAttribute::IfName(name.to_string())),
        Link::Index(index) => message.header.index = index,
    }
    message
}

pub(crate) fn get_link(link: Link<'_>) -> RouteNetlinkMessage {
    let mut message = named(link);
    message.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
    RouteNetlinkMessage::GetLink(message)
}

pub(crate) fn dump_links() -> RouteNetlinkMessage {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
    RouteNetlinkMessage::GetLink(message)
}

pub(crate) fn delete_link(index: u32) -> RouteNetlinkMessage {
    RouteNetlinkMessage::DelLink(named(Link::Index(index)))
}

/// The kernel's id for another namespace, as links in it are described with.
pub(crate) fn get_namespace_id(netns: RawFd) -> RouteNetlinkMessage {
    let mut message = NsidMessage::default();
    message.attributes.push(NsidAttribute::Fd(netns.unsigned_abs()));
    RouteNetlinkMessage::GetNsId(message)
}

pub(crate) fn address(index: u32, address: IpNet, side: Side) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.index = index;
    message.header.prefix_len = address.prefix_len();
    message.header.family = family(address.addr());
    match address.addr() {
        IpAddr::V4(_) => {
            if side == Side::Host {
                message.header.scope = AddressScope::Host;
            }
            message.attributes.push(AddressAttribute::Local(address.addr()));
            message.attributes.push(AddressAttribute::Address(address.addr()));
        }
        IpAddr::V6(_) => {
            message.attributes.push(AddressAttribute::Address(address.addr()));
            message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
    }
    message
}

pub(crate) fn dump_addresses(index: u32) -> RouteNetlinkMessage {
    let mut message = AddressMessage::default();
    message.header.index = index;
    RouteNetlinkMessage::GetAddress(message)
}

pub(crate) fn neighbour(index: u32, address: IpAddr, mac: MacAddress) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family(address);
    message.header.ifindex = index;
    message.header.state = NeighbourState::Permanent;
    let destination = match address {
        IpAddr::V4(v4) => NeighbourAddress::Inet(v4),
        IpAddr::V6(v6) => NeighbourAddress::Inet6(v6),
    };
    message.attributes = vec![
        NeighbourAttribute::Destination(destination),
        NeighbourAttribute::LinkLayerAddress(mac.octets().to_vec()),
    ];
    message
}

pub(crate) fn dump_neighbours(index: u32, family: AddressFamily) -> RouteNetlinkMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family;
    message.attributes.push(NeighbourAttribute::IfIndex(index));
    RouteNetlinkMessage::GetNeighbour(message)
}

/// In the main table. Without a gateway the destination is on the link.
pub(crate) fn route(index: u32, to: IpNet, via: Option<IpAddr>) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family(to.addr());
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Other(ROUTE_PROTOCOL);
    message.header.kind = RouteType::Unicast;
    message.header.destination_prefix_length = to.prefix_len();
    if to.prefix_len() > 0 {
        message.attributes.push(RouteAttribute::Destination(route_address(to.addr())));
    }
    message.attributes.push(RouteAttribute::Oif(index));
    match via {
        Some(via) => {
            message.header.flags = RouteFlags::Onlink;
            message.attributes.push(RouteAttribute::Gateway(route_address(via)));
        }
        // IPv6 has no scopes for routes.
        None if to.addr().is_ipv4() => message.header.scope = RouteScope::Link,
        None => (),
    }
    message
}

/// The main table of one family, or what of it leads through the link with this index.
pub(crate) fn dump_routes(family: AddressFamily, index: Option<u32>) -> RouteNetlinkMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family;
    message.attributes.push(RouteAttribute::Table(RouteHeader::RT_TABLE_MAIN.into()));
    message.attributes.extend(index.map(RouteAttribute::Oif));
    RouteNetlinkMessage::GetRoute(message)
}

/// How a packet to `address` would leave, or arrive, by way of the link.
pub(crate) fn look_up_route(index: u32, address: IpAddr) -> RouteNetlinkMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family(address);
    message.header.destination_prefix_length = IpNet::from(address).prefix_len();
    message.attributes.push(RouteAttribute::Destination(route_address(address)));
    message.attributes.push(RouteAttribute::Oif(index));
    RouteNetlinkMessage::GetRoute(message)
}

fn route_address(address: IpAddr) -> RouteAddress {
    match address {
        IpAddr::V4(v4) => RouteAddress::Inet(v4),
        IpAddr::V6(v6) => RouteAddress::Inet6(v6),
    }
}

pub(crate) fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}
