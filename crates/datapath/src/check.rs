//! CHECK: the kernel against the plan. What is there beside the plan is nobody's fault.

use std::{collections::BTreeSet, net::IpAddr};

use berth_types::{InterfaceName, MacAddress, NetConf};
use ipnet::IpNet;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::{
    AttachError, NetError, Op, PodNetns, Side, Thing, attach,
    kernel::Sides,
    message::{self, Link},
    plan,
    seen::{self, LinkSeen, NeighbourSeen, RouteSeen},
    sysctl, tc,
};

mod compare;

/// Kernel against plan: one sentence for each difference, empty when all is right. The pod's
/// MAC may also be `pod_mac_in_result`, where a later plugin of the chain changed it.
pub async fn check(
    netns: &PodNetns,
    conf: &NetConf,
    pod_mac_in_result: Option<MacAddress>,
) -> Result<Vec<String>, AttachError> {
    attach::wirable(conf)?;
    let sides = Sides::open(netns).map_err(AttachError::Enter)?;
    let plan = plan::attach(conf);
    let state = observe(&sides, &plan).map_err(AttachError::Read)?;
    Ok(compare::differences(&plan, &state, pod_mac_in_result))
}

/// What a plan is compared with: everything on the links that it names.
#[derive(Debug, Default)]
struct State {
    links: Vec<(Side, LinkSeen)>,
    addresses: Vec<(Side, u32, IpNet)>,
    neighbours: Vec<(Side, NeighbourSeen)>,
    routes: Vec<(Side, RouteSeen)>,
    /// Index of the link, bytes per second.
    limits: Vec<(u32, u64)>,
    ingresses: Vec<u32>,
    /// From and to, as indexes.
    redirects: Vec<(u32, u32)>,
    /// `None` where there is no such setting.
    sysctls: Vec<(Side, String, Option<String>)>,
}

impl State {
    fn link(&self, side: Side, name: &InterfaceName) -> Option<&LinkSeen> {
        let mut links = self.links.iter();
        links.find(|(on, link)| *on == side && link.is_named(name)).map(|(_, link)| link)
    }
}

fn observe(sides: &Sides, plan: &[Op]) -> Result<State, NetError> {
    let mut state = State::default();
    for (side, name) in links(plan) {
        if let Some(link) = sides.find(side, Link::Name(name))? {
            read_link(sides, side, link.index, &mut state)?;
            state.links.push((side, link));
        }
    }
    let qdiscs = sides.host.dump(&tc::dump_qdiscs(0))?;
    for message in &qdiscs {
        let RouteNetlinkMessage::NewQueueDiscipline(qdisc) = message else { continue };
        let index = qdisc.header.index.cast_unsigned();
        state.limits.extend(tc::limit_rate(qdisc).map(|rate| (index, rate)));
        state.ingresses.extend(tc::is_ingress(qdisc).then_some(index));
    }
    for op in plan {
        if let Thing::Redirect { from, .. } = &op.thing {
            let Some(from) = state.link(op.side, from).map(|link| link.index) else { continue };
            for message in sides.host.dump(&tc::dump_filters(from))? {
                let RouteNetlinkMessage::NewTrafficFilter(filter) = message else { continue };
                state.redirects.extend(tc::redirected_to(&filter).map(|to| (from, to)));
            }
        }
        if let Thing::Sysctl { path, .. } = &op.thing {
            let value = sides.sysctl(op.side, path, |path| Ok(sysctl::read(path).ok()))?;
            state.sysctls.push((op.side, path.clone(), value));
        }
    }
    Ok(state)
}

fn read_link(sides: &Sides, side: Side, index: u32, state: &mut State) -> Result<(), NetError> {
    let netlink = sides.netlink(side);
    let found = netlink.dump(&message::dump_addresses(index))?;
    let found = found.iter().filter_map(seen::address).filter(|(on, _)| *on == index);
    state.addresses.extend(found.map(|(index, address)| (side, index, address)));
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        let found = netlink.dump(&message::dump_neighbours(index, family))?;
        let found = found.iter().filter_map(seen::neighbour).filter(|n| n.index == index);
        state.neighbours.extend(found.map(|neighbour| (side, neighbour)));
        let found = netlink.dump(&message::dump_routes(family, Some(index)))?;
        state.routes.extend(found.iter().filter_map(seen::route).map(|route| (side, route)));
    }
    Ok(())
}

/// The links that a plan makes or finds.
fn links(plan: &[Op]) -> BTreeSet<(Side, &InterfaceName)> {
    let mut links = BTreeSet::new();
    for op in plan {
        if let Thing::Veth(veth) = &op.thing {
            links.insert((Side::Host, &veth.host));
            links.insert((Side::Pod, &veth.pod));
        }
        if let Thing::Ifb { link, .. } | Thing::Up { link } = &op.thing {
            links.insert((op.side, link));
        }
    }
    links
}

/// Whether the state has this neighbour, and with which MAC.
fn neighbour(state: &State, side: Side, index: u32, address: IpAddr) -> Option<&NeighbourSeen> {
    let mut neighbours = state.neighbours.iter();
    let found = neighbours.find(|(on, n)| *on == side && n.index == index && n.address == address);
    found.map(|(_, neighbour)| neighbour)
}
