use std::{collections::BTreeMap, io};

use berth_types::InterfaceName;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use nix::errno::Errno;

use crate::{
    NetError, Op, PodNetns, Side, Thing, Verb,
    direct::Direct,
    exec::{Executor, Outcome},
    message::{self, Link},
    op::RouteText,
    seen::{self, LinkSeen},
    sysctl, tc,
};

mod veth;

/// Both namespaces of one attachment: the calling thread's and the pod's.
#[derive(Debug)]
pub(crate) struct Sides {
    pub(crate) host: Direct,
    pub(crate) pod: Direct,
    pub(crate) netns: PodNetns,
}

impl Sides {
    pub(crate) fn open(netns: &PodNetns) -> io::Result<Self> {
        let socket = netns.within(|| Socket::new(NETLINK_ROUTE))??;
        Ok(Self { host: Direct::open()?, pod: Direct::over(socket)?, netns: netns.clone() })
    }

    pub(crate) fn netlink(&self, side: Side) -> &Direct {
        match side {
            Side::Host => &self.host,
            Side::Pod => &self.pod,
        }
    }

    pub(crate) fn find(&self, side: Side, link: Link<'_>) -> Result<Option<LinkSeen>, NetError> {
        let found = self.netlink(side).get(message::get_link(link))?;
        Ok(found.as_ref().and_then(seen::link))
    }

    pub(crate) fn sysctl<T>(
        &self,
        side: Side,
        path: &str,
        job: impl FnOnce(&str) -> io::Result<T>,
    ) -> Result<T, NetError> {
        let done = match side {
            Side::Host => job(path),
            Side::Pod => self.netns.within(|| job(path)).and_then(|done| done),
        };
        done.map_err(|source| NetError::Sysctl { path: path.to_owned(), source })
    }
}

/// The executor of plans that wire one pod.
#[derive(Debug)]
pub(crate) struct Kernel {
    sides: Sides,
    indexes: BTreeMap<(Side, InterfaceName), u32>,
    /// What the pair was when this plan came to it.
    pair: Outcome,
}

impl Kernel {
    pub(crate) fn open(netns: &PodNetns) -> io::Result<Self> {
        Ok(Self { sides: Sides::open(netns)?, indexes: BTreeMap::new(), pair: Outcome::AlreadySo })
    }

    pub(crate) fn sides(&self) -> &Sides {
        &self.sides
    }

    pub(crate) fn index(&self, side: Side, link: &InterfaceName) -> Result<u32, NetError> {
        if let Some(index) = self.indexes.get(&(side, link.clone())) {
            return Ok(*index);
        }
        let found = self.sides.find(side, Link::Name(link))?;
        Ok(found.ok_or_else(|| NetError::NoLink(link.clone()))?.index)
    }

    fn ensure(&mut self, side: Side, thing: &Thing) -> Result<Outcome, NetError> {
        const ADD: u16 = NLM_F_CREATE | NLM_F_EXCL;
        const REPLACE: u16 = NLM_F_CREATE | NLM_F_REPLACE;
        let (message, flags) = match thing {
            Thing::Veth(veth) => return self.ensure_veth(veth),
            Thing::Ifb { link, mtu } => return self.ensure_ifb(link, *mtu),
            Thing::Up { link } => return self.ensure_up(side, link),
            Thing::Route { link, to, via } => return self.ensure_route(side, link, to, *via),
            Thing::Sysctl { path, value, .. } => {
                return self.sides.sysctl(side, path, |p| sysctl::ensure(p, value));
            }
            Thing::HostUp { link, alias, v6 } => {
                (message::host_up(self.index(side, link)?, alias, *v6), 0)
            }
            Thing::Address { link, address } => {
                let message = message::address(self.index(side, link)?, *address, side);
                self.change(side, RouteNetlinkMessage::NewAddress(message), ADD)?;
                return Ok(Outcome::Changed);
            }
            Thing::Ingress { link } => {
                let message = tc::ingress(self.index(side, link)?);
                self.change(side, RouteNetlinkMessage::NewQueueDiscipline(message), ADD)?;
                return Ok(Outcome::Changed);
            }
            Thing::Neighbour { link, address, mac } => {
                let index = self.index(side, link)?;
                let message = message::neighbour(index, *address, *mac);
                (RouteNetlinkMessage::NewNeighbour(message), REPLACE)
            }
            Thing::Limit { link, shape } => {
                let message = tc::limit(self.index(side, link)?, shape);
                (RouteNetlinkMessage::NewQueueDiscipline(message), REPLACE)
            }
            Thing::Redirect { from, to } => {
                let (from, to) = (self.index(side, from)?, self.index(side, to)?);
                (RouteNetlinkMessage::NewTrafficFilter(tc::redirect(from, to)), REPLACE)
            }
        };
        self.change(side, message, flags)?;
        // What is set and not added was there before exactly if its link was.
        Ok(self.pair)
    }

    fn remove(&mut self, side: Side, thing: &Thing) -> Result<Outcome, NetError> {
        let message = match thing {
            Thing::Veth(crate::Veth { host: link, .. }) | Thing::Ifb { link, .. } => {
                let message = message::delete_link(self.index(side, link)?);
                self.indexes.remove(&(side, link.clone()));
                message
            }
            Thing::HostUp { link, .. } | Thing::Up { link } => {
                message::down(self.index(side, link)?)
            }
            Thing::Sysctl { path, otherwise, .. } => {
                let Some(value) = *otherwise else { return Ok(Outcome::AlreadySo) };
                return self.sides.sysctl(side, path, |p| sysctl::ensure(p, value));
            }
            Thing::Address { link, address } => {
                let message = message::address(self.index(side, link)?, *address, side);
                RouteNetlinkMessage::DelAddress(message)
            }
            Thing::Neighbour { link, address, mac } => {
                let index = self.index(side, link)?;
                let message = message::neighbour(index, *address, *mac);
                RouteNetlinkMessage::DelNeighbour(message)
            }
            Thing::Route { link, to, via } => {
                let message = message::route(self.index(side, link)?, *to, *via);
                RouteNetlinkMessage::DelRoute(message)
            }
            Thing::Limit { link, shape } => {
                let message = tc::limit(self.index(side, link)?, shape);
                RouteNetlinkMessage::DelQueueDiscipline(message)
            }
            Thing::Ingress { link } => {
                let message = tc::ingress(self.index(side, link)?);
                RouteNetlinkMessage::DelQueueDiscipline(message)
            }
            Thing::Redirect { from, to } => {
                let (from, to) = (self.index(side, from)?, self.index(side, to)?);
                RouteNetlinkMessage::DelTrafficFilter(tc::redirect(from, to))
            }
        };
        self.change(side, message, 0)?;
        Ok(Outcome::Changed)
    }

    fn change(
        &self,
        side: Side,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<Vec<RouteNetlinkMessage>, NetError> {
        self.sides.netlink(side).change(message, flags)
    }

    fn ensure_up(&mut self, side: Side, link: &InterfaceName) -> Result<Outcome, NetError> {
        // Nothing takes it back (`Op::inverse`), so nobody looks whether it was up before.
        let known = self.indexes.get(&(side, link.clone())).copied();
        let message = message::up(known.map_or(Link::Name(link), Link::Index));
        self.change(side, RouteNetlinkMessage::SetLink(message), 0)?;
        Ok(self.pair)
    }

    fn ensure_route(
        &mut self,
        side: Side,
        link: &InterfaceName,
        to: &ipnet::IpNet,
        via: Option<std::net::IpAddr>,
    ) -> Result<Outcome, NetError> {
        let index = self.index(side, link)?;
        let message = RouteNetlinkMessage::NewRoute(message::route(index, *to, via));
        match self.change(side, message, NLM_F_CREATE | NLM_F_EXCL) {
            Ok(_) => Ok(Outcome::Changed),
            // For a route, EEXIST says that the destination is taken, by whatever route.
            Err(err) if err.errno() == Some(Errno::EEXIST) => {
                let dump = message::dump_routes(message::family(to.addr()), None);
                let routes = self.sides.netlink(side).dump(&dump)?;
                let routes: Vec<_> =
                    routes.iter().filter_map(seen::route).filter(|r| r.to == *to).collect();
                if routes.iter().any(|r| r.via == via && r.links == [index]) {
                    return Ok(Outcome::AlreadySo);
                }
                let Some(other) = routes.first() else { return Err(err) };
                Err(NetError::Foreign(self.describe(side, other)?))
            }
            Err(err) => Err(err),
        }
    }

    fn describe(&self, side: Side, route: &seen::RouteSeen) -> Result<String, NetError> {
        let Some(index) = route.links.first() else { return Ok(format!("route {}", route.to)) };
        let link = self.sides.find(side, Link::Index(*index))?;
        let name = link.and_then(|link| link.name.parse().ok());
        Ok(match name {
            Some(name) => {
                format!("route {}", RouteText { link: &name, to: &route.to, via: route.via })
            }
            None => format!("route {} through link number {index}", route.to),
        })
    }
}

impl Executor for Kernel {
    fn apply(&mut self, op: &Op) -> Result<Outcome, NetError> {
        let done = match op.verb {
            Verb::Ensure => self.ensure(op.side, &op.thing),
            Verb::Remove => self.remove(op.side, &op.thing),
        };
        match done {
            Err(err) if already_so(op, &err) => Ok(Outcome::AlreadySo),
            done => done,
        }
    }
}

/// Adding what exists and deleting what is gone are the states asked for.
fn already_so(op: &Op, err: &NetError) -> bool {
    let errno = err.errno();
    match (op.verb, &op.thing) {
        (Verb::Ensure, Thing::Address { .. } | Thing::Ingress { .. }) => {
            errno == Some(Errno::EEXIST)
        }
        (Verb::Ensure, _) => false,
        // What is on a link goes with it.
        (Verb::Remove, _) if matches!(err, NetError::NoLink(_)) => true,
        (Verb::Remove, _) if errno == Some(Errno::ENODEV) => true,
        (Verb::Remove, Thing::Address { .. }) => errno == Some(Errno::EADDRNOTAVAIL),
        (Verb::Remove, Thing::Route { .. }) => errno == Some(Errno::ESRCH),
        (Verb::Remove, Thing::Neighbour { .. }) => errno == Some(Errno::ENOENT),
        (Verb::Remove, Thing::Limit { .. } | Thing::Ingress { .. } | Thing::Redirect { .. }) => {
            matches!(errno, Some(Errno::ENOENT | Errno::EINVAL))
        }
        (
            Verb::Remove,
            Thing::Veth(_)
            | Thing::Ifb { .. }
            | Thing::HostUp { .. }
            | Thing::Up { .. }
            | Thing::Sysctl { .. },
        ) => false,
    }
}
