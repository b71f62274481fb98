use std::{collections::BTreeSet, net::IpAddr};

use berth_types::{HostPrefix, InterfaceName, ifb_name};
use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST, NetlinkMessage};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    link::{LinkAttribute, LinkMessage},
};
use netlink_sys::protocols::NETLINK_ROUTE;
use nix::errno::Errno;

use super::{HostError, raw::Raw};
use crate::{
    UNHOOKED_GROUP,
    message::{self, Link},
    netlink::Netlink,
    seen::{self, LinkKind, LinkSeen},
};

pub(super) async fn all(netlink: &Netlink) -> Result<Vec<LinkSeen>, HostError> {
    let read = |source| HostError::Read { what: "links", source };
    let found = netlink.dump(&message::dump_links()).await.map_err(read)?;
    Ok(found.iter().filter_map(seen::link).collect())
}

/// The host interface that a link of ours belongs to: itself, or for an ifb the one it is named
/// after.
pub(super) fn host_interface(
    prefix: &HostPrefix,
    known: &BTreeSet<InterfaceName>,
    link: &LinkSeen,
) -> Option<InterfaceName> {
    let name = match link.kind {
        LinkKind::Veth => link.name.clone(),
        // It is named after the one it belongs to, but for the first letter.
        LinkKind::Ifb => {
            let rest = link.name.get(1..)?;
            let owner = known.iter().find(|name| name.as_str().get(1..) == Some(rest));
            let by_prefix = || format!("{}{rest}", &prefix.as_str()[..1]);
            owner.map_or_else(by_prefix, ToString::to_string)
        }
        LinkKind::Other => return None,
    };
    let ours = link.is_live() && link.kind == LinkKind::Veth;
    let is_named = name.starts_with(prefix.as_str()) || known.contains(name.as_str());
    (ours || is_named).then(|| name.parse().ok())?
}

/// Goes on after a failure, and answers the first; else the interfaces of what was there.
pub(super) async fn unhook(
    netlink: &Netlink,
    links: &[InterfaceName],
) -> Result<BTreeSet<InterfaceName>, HostError> {
    let mut first = Ok(());
    let mut were_there = BTreeSet::new();
    for link in links {
        for name in [link, &ifb_name(link)] {
            match unhook_named(netlink, name).await {
                Ok(true) => {
                    were_there.insert(link.clone());
                }
                Ok(false) => (),
                Err(err) => first = first.and(Err(err)),
            }
        }
    }
    first.map(|()| were_there)
}

/// It looks before it acts: where an ADD failed because its name was taken, what has the name is
/// not ours.
async fn unhook_named(netlink: &Netlink, name: &InterfaceName) -> Result<bool, HostError> {
    let failed = |source| HostError::Unhook { link: name.clone(), source };
    let found = netlink.get(message::get_link(Link::Name(name))).await.map_err(failed)?;
    match found.as_ref().and_then(seen::link).filter(LinkSeen::is_live) {
        Some(found) => unhook_one(netlink, &found).await.map(|()| true),
        None => Ok(false),
    }
}

/// By index: the name may be a successor's in a moment.
async fn unhook_one(netlink: &Netlink, link: &LinkSeen) -> Result<(), HostError> {
    match netlink.change(message::unhook(link.index), 0).await {
        Err(err) if err.errno() != Some(Errno::ENODEV) => {
            let link = link.name.parse().expect("links of ours have valid names");
            Err(HostError::Unhook { link, source: err })
        }
        _ => Ok(()),
    }
}

pub(super) async fn reap(
    netlink: &Netlink,
    links: &[InterfaceName],
    addresses: &[IpAddr],
) -> Result<(), HostError> {
    let mut found = all(netlink).await?;
    if unhook_leftovers(netlink, links, addresses, &found).await? {
        found = all(netlink).await?;
    }
    let doomed: Vec<_> = found.iter().filter(|link| link.group == UNHOOKED_GROUP).collect();
    if doomed.is_empty() {
        return Ok(());
    }
    // Somebody may have put a link of another kind into our group: then it is one by one.
    if doomed.iter().all(|link| link.is_unhooked()) {
        delete_all().await?;
    } else {
        for link in doomed.iter().filter(|link| link.is_unhooked()) {
            delete_one(link).await?;
        }
    }
    let left: Vec<_> = all(netlink)
        .await?
        .into_iter()
        .filter(|left| left.is_unhooked() && doomed.iter().any(|link| link.index == left.index))
        .map(|link| link.name)
        .collect();
    if left.is_empty() { Ok(()) } else { Err(HostError::StillThere(left)) }
}

/// Whether there was something to unhook: one of `links`, by its index, if a route of ours still
/// leads to it for one of `addresses`, even if somebody took our mark off it; and an ifb whose
/// pair is gone.
async fn unhook_leftovers(
    netlink: &Netlink,
    links: &[InterfaceName],
    addresses: &[IpAddr],
    found: &[LinkSeen],
) -> Result<bool, HostError> {
    let named =
        |name: &InterfaceName| found.iter().find(|link| link.is_named(name) && !link.is_unhooked());
    let mut leftovers = Vec::new();
    for name in links {
        let ifb = named(&ifb_name(name)).filter(|link| link.is_live());
        match named(name).filter(|link| link.kind == LinkKind::Veth) {
            Some(pair) if carries(netlink, pair.index, addresses).await? => {
                leftovers.push(pair);
                leftovers.extend(ifb);
            }
            Some(_) => (),
            None => leftovers.extend(ifb),
        }
    }
    for link in &leftovers {
        unhook_one(netlink, link).await?;
    }
    Ok(!leftovers.is_empty())
}

async fn carries(netlink: &Netlink, index: u32, addresses: &[IpAddr]) -> Result<bool, HostError> {
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let dump = message::dump_routes(family, Some(index));
        let routes = netlink.dump(&dump).await;
        let routes = routes.map_err(|source| HostError::Read { what: "routes", source })?;
        let mut routes = routes.iter().filter_map(seen::route).filter(|route| route.ours);
        if routes.any(|route| addresses.iter().any(|address| route.to == (*address).into())) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Everything in our group by one message: the kernel pays for its grace periods once.
async fn delete_all() -> Result<(), HostError> {
    let mut link = LinkMessage::default();
    link.attributes.push(LinkAttribute::Group(UNHOOKED_GROUP));
    let what = format!("the links of group {UNHOOKED_GROUP}");
    delete(RouteNetlinkMessage::DelLink(link), what).await
}

async fn delete_one(link: &LinkSeen) -> Result<(), HostError> {
    delete(message::delete_link(link.index), link.name.clone()).await
}

/// Deleting takes the kernel tens of milliseconds, during which the sender does not run.
async fn delete(message: RouteNetlinkMessage, what: String) -> Result<(), HostError> {
    let mut request = NetlinkMessage::from(message);
    request.header.flags = NLM_F_REQUEST | NLM_F_ACK;
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    let socket = Raw::open(NETLINK_ROUTE).map_err(HostError::Open)?;
    let work = tokio::task::spawn_blocking(move || socket.ask(&bytes, &mut |_| ()));
    match work.await.map_err(HostError::Task)? {
        Err(err) if err.raw_os_error() != Some(nix::libc::ENODEV) => {
            Err(HostError::Delete { what, source: err })
        }
        _ => Ok(()),
    }
}
