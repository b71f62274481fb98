use std::{fmt::Display, net::IpAddr};

use berth_types::{InterfaceName, MacAddress};

use super::{State, neighbour};
use crate::{
    Op, Side, Thing, Veth,
    op::RouteText,
    seen::{LinkKind, LinkSeen},
};

/// One sentence for each difference, in the plan's order. A link that is missing is one
/// difference, whatever should be on it.
pub(super) fn differences(
    plan: &[Op],
    state: &State,
    pod_mac_in_result: Option<MacAddress>,
) -> Vec<String> {
    let mut found = Vec::new();
    let mut mac_was_changed = false;
    for op in plan {
        if let Thing::Veth(veth) = &op.thing {
            pair(veth, state, pod_mac_in_result, &mut found);
            let pod_mac = state.link(Side::Pod, &veth.pod).and_then(|link| link.mac);
            mac_was_changed = pod_mac != Some(veth.pod_mac) && pod_mac == pod_mac_in_result;
        }
        // With the MAC of a link, the kernel forgets even its permanent neighbours; the gateways
        // answer for themselves.
        let is_forgotten = mac_was_changed
            && matches!(&op.thing, Thing::Neighbour { link, address, .. }
                if !is_permanent(state, op.side, link, *address));
        if !is_forgotten {
            found.extend(difference(op.side, &op.thing, state));
        }
    }
    found
}

fn difference(side: Side, thing: &Thing, state: &State) -> Option<String> {
    match thing {
        Thing::Veth(_) => None,
        Thing::Ifb { link, .. } => match state.link(side, link) {
            Some(_) => None,
            None => Some(missing(side, format_args!("link {link}"))),
        },
        Thing::HostUp { link, .. } | Thing::Up { link } => {
            let seen = state.link(side, link)?;
            (!seen.up).then(|| format!("link {link} is down {}", place(side)))
        }
        Thing::Sysctl { path, value, .. } => {
            let mut values = state.sysctls.iter().filter(|(on, p, _)| *on == side && p == path);
            // A setting goes with its link; where that is missing, it has been said.
            let seen = values.find_map(|(_, _, seen)| seen.as_ref())?;
            (seen != value)
                .then(|| format!("sysctl {path} is {seen} instead of {value} {}", place(side)))
        }
        Thing::Address { link, address } => {
            let index = state.link(side, link)?.index;
            (!state.addresses.contains(&(side, index, *address)))
                .then(|| missing(side, format_args!("address {address} dev {link}")))
        }
        Thing::Neighbour { link, address, mac } => {
            let index = state.link(side, link)?.index;
            match neighbour(state, side, index, *address) {
                Some(seen) if seen.permanent && seen.mac == Some(*mac) => None,
                Some(seen) if seen.permanent => Some(format!(
                    "neighbour {address} dev {link} has MAC {} instead of {mac} {}",
                    text(seen.mac),
                    place(side)
                )),
                _ => Some(missing(side, format_args!("permanent neighbour {address} dev {link}"))),
            }
        }
        Thing::Route { link, to, via } => {
            let index = state.link(side, link)?.index;
            let is_there = state.routes.iter().any(|(on, route)| {
                *on == side && route.to == *to && route.via == *via && route.links == [index]
            });
            let route = RouteText { link, to, via: *via };
            (!is_there).then(|| missing(side, format_args!("route {route}")))
        }
        Thing::Limit { link, shape } => {
            let index = state.link(side, link)?.index;
            match state.limits.iter().find(|(on, _)| *on == index) {
                Some((_, rate)) if *rate == shape.rate => None,
                Some((_, rate)) => Some(format!(
                    "bandwidth limit of {link} is {rate} instead of {} bytes per second {}",
                    shape.rate,
                    place(side)
                )),
                None => Some(missing(side, format_args!("bandwidth limit of {link}"))),
            }
        }
        Thing::Ingress { link } => {
            let index = state.link(side, link)?.index;
            (!state.ingresses.contains(&index))
                .then(|| missing(side, format_args!("ingress queue of {link}")))
        }
        Thing::Redirect { from, to } => {
            let redirect = (state.link(side, from)?.index, state.link(side, to)?.index);
            (!state.redirects.contains(&redirect))
                .then(|| missing(side, format_args!("redirect from {from} to {to}")))
        }
    }
}

fn is_permanent(state: &State, side: Side, link: &InterfaceName, address: IpAddr) -> bool {
    let index = state.link(side, link).map(|link| link.index);
    let seen = index.and_then(|index| neighbour(state, side, index, address));
    seen.is_some_and(|seen| seen.permanent)
}

fn pair(
    veth: &Veth,
    state: &State,
    pod_mac_in_result: Option<MacAddress>,
    found: &mut Vec<String>,
) {
    let host = state.link(Side::Host, &veth.host);
    let pod = state.link(Side::Pod, &veth.pod);
    match host {
        Some(host) => {
            found.extend(mac(Side::Host, host, &[Some(veth.host_mac)]));
            found.extend(mtu(Side::Host, host, veth.mtu));
        }
        None => found.push(missing(Side::Host, format_args!("link {}", veth.host))),
    }
    match pod {
        Some(pod) => {
            found.extend(mac(Side::Pod, pod, &[Some(veth.pod_mac), pod_mac_in_result]));
            found.extend(mtu(Side::Pod, pod, veth.mtu));
        }
        None => found.push(missing(Side::Pod, format_args!("link {}", veth.pod))),
    }
    if let (Some(host), Some(pod)) = (host, pod)
        && !are_a_pair(host, pod)
    {
        found.push(apart(&veth.host, &veth.pod));
    }
}

fn are_a_pair(host: &LinkSeen, pod: &LinkSeen) -> bool {
    let leads_to = |from: &LinkSeen, to: &LinkSeen| {
        from.kind == LinkKind::Veth && from.peer.is_some_and(|peer| peer.index == to.index)
    };
    leads_to(host, pod) && leads_to(pod, host)
}

fn apart(host: &InterfaceName, pod: &InterfaceName) -> String {
    format!("link {pod} in the pod is not the other end of {host} on the host")
}

fn mac(side: Side, link: &LinkSeen, right: &[Option<MacAddress>]) -> Option<String> {
    if link.mac.is_some() && right.contains(&link.mac) {
        return None;
    }
    let planned = text(right.iter().rev().find_map(|mac| *mac));
    let name = &link.name;
    Some(format!("link {name} has MAC {} instead of {planned} {}", text(link.mac), place(side)))
}

fn mtu(side: Side, link: &LinkSeen, planned: u32) -> Option<String> {
    let LinkSeen { name, mtu, .. } = link;
    (*mtu != planned)
        .then(|| format!("link {name} has MTU {mtu} instead of {planned} {}", place(side)))
}

fn text(mac: Option<MacAddress>) -> String {
    mac.map_or("none".to_owned(), |mac| mac.to_string())
}

fn missing(side: Side, what: impl Display) -> String {
    format!("{what} is missing {}", place(side))
}

fn place(side: Side) -> &'static str {
    match side {
        Side::Host => "on the host",
        Side::Pod => "in the pod",
    }
}
