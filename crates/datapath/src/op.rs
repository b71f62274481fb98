use std::{fmt, net::IpAddr};

use berth_types::{InterfaceName, MacAddress};
use ipnet::IpNet;

use crate::{ROUTE_PROTOCOL, Shape};

/// Which of the two network namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    Host,
    Pod,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Makes it so, whatever is there of it already.
    Ensure,
    /// Takes it away, if it is there.
    Remove,
}

/// One change to one network namespace, as data. Its text is the command that would do it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Op {
    pub side: Side,
    pub verb: Verb,
    pub thing: Thing,
}

/// One piece of a wired pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Thing {
    Veth(Veth),
    Ifb {
        link: InterfaceName,
        mtu: u32,
    },
    /// The host's end: up, with its alias, and without an address that the kernel makes up.
    HostUp {
        link: InterfaceName,
        alias: String,
        v6: bool,
    },
    Up {
        link: InterfaceName,
    },
    /// `path` is below /proc/sys. `otherwise` is the value to go back to where it was not so;
    /// none where the setting ends with its link.
    Sysctl {
        path: String,
        value: &'static str,
        otherwise: Option<&'static str>,
    },
    /// IPv6 without duplicate address detection. The host's IPv4 end has scope host, so that the
    /// kernel never takes it for the source of anything.
    Address {
        link: InterfaceName,
        address: IpNet,
    },
    /// Permanent.
    Neighbour {
        link: InterfaceName,
        address: IpAddr,
        mac: MacAddress,
    },

    Route {
        link: InterfaceName,
        to: IpNet,
        via: Option<IpAddr>,
    },
    /// At the root of the link's egress.
    Limit {
        link: InterfaceName,
        shape: Shape,
    },
    Ingress {
        link: InterfaceName,
    },
    /// All that comes in through `from` leaves through `to` first.
    Redirect {
        from: InterfaceName,
        to: InterfaceName,
    },
}

/// A pair of links, made whole by one message: nothing of it is renamed or moved afterwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Veth {
    pub host: InterfaceName,
    pub host_mac: MacAddress,
    pub pod: InterfaceName,
    pub pod_mac: MacAddress,
    pub mtu: u32,
}

impl Op {
    pub(crate) fn ensure(side: Side, thing: Thing) -> Self {
        Self { side, verb: Verb::Ensure, thing }
    }

    /// What takes this change back, or `None` where leaving it does no harm: what lives on a
    /// link of ours ends with the link, and a loopback that is up is what every runtime makes.
    pub fn inverse(&self) -> Option<Self> {
        let verb = match self.verb {
            Verb::Ensure => Verb::Remove,
            Verb::Remove => return None,
        };
        let back = Self { side: self.side, verb, thing: self.thing.clone() };
        match &self.thing {
            Thing::HostUp { .. } | Thing::Up { .. } | Thing::Redirect { .. } => None,
            Thing::Sysctl { otherwise, .. } => otherwise.is_some().then_some(back),
            Thing::Veth(_)
            | Thing::Ifb { .. }
            | Thing::Address { .. }
            | Thing::Neighbour { .. }
            | Thing::Route { .. }
            | Thing::Limit { .. }
            | Thing::Ingress { .. } => Some(back),
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "host",
            Self::Pod => "pod",
        })
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] ", self.side)?;
        match self.verb {
            Verb::Ensure => ensure(self.side, &self.thing, f),
            Verb::Remove => remove(&self.thing, f),
        }
    }
}

fn ensure(side: Side, thing: &Thing, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match thing {
        Thing::Veth(Veth { host, host_mac, pod, pod_mac, mtu }) => write!(
            f,
            "ip link add {host} mtu {mtu} address {host_mac} type veth \
             peer name {pod} mtu {mtu} address {pod_mac} netns pod"
        ),
        Thing::Ifb { link, mtu } => write!(f, "ip link add {link} up mtu {mtu} type ifb"),
        Thing::HostUp { link, alias, v6 } => {
            write!(f, "ip link set {link} up alias {alias}")?;
            if *v6 { f.write_str(" addrgenmode none") } else { Ok(()) }
        }
        Thing::Up { link } => write!(f, "ip link set {link} up"),
        Thing::Sysctl { path, value, .. } => write!(f, "sysctl -w {path}={value}"),
        Thing::Address { link, address } => {
            write!(f, "ip addr add {address} dev {link}")?;
            match (side, address.addr()) {
                (_, IpAddr::V6(_)) => f.write_str(" nodad"),
                (Side::Host, IpAddr::V4(_)) => f.write_str(" scope host"),
                (Side::Pod, IpAddr::V4(_)) => Ok(()),
            }
        }
        Thing::Neighbour { link, address, mac } => {
            write!(f, "ip neigh replace {address} lladdr {mac} dev {link} nud permanent")
        }

        Thing::Route { link, to, via } => {
            write!(f, "ip route add {}", RouteText { link, to, via: *via })?;
            match via {
                Some(_) => write!(f, " onlink")?,
                None if to.addr().is_ipv4() => write!(f, " scope link")?,
                None => (),
            }
            write!(f, " proto {ROUTE_PROTOCOL}")
        }
        Thing::Limit { link, shape: Shape { rate, burst, limit } } => write!(
            f,
            "tc qdisc replace dev {link} root handle 1: tbf rate {rate}bps burst {burst} limit {limit}"
        ),
        Thing::Ingress { link } => write!(f, "tc qdisc add dev {link} ingress"),
        Thing::Redirect { from, to } => write!(
            f,
            "tc filter replace dev {from} parent ffff: pref 1 handle 800::800 protocol all \
             u32 match u32 0 0 action mirred egress redirect dev {to}"
        ),
    }
}

fn remove(thing: &Thing, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match thing {
        Thing::Veth(Veth { host: link, .. }) | Thing::Ifb { link, .. } => {
            write!(f, "ip link del {link}")
        }
        Thing::HostUp { link, .. } | Thing::Up { link } => write!(f, "ip link set {link} down"),
        Thing::Sysctl { path, otherwise, .. } => {
            write!(f, "sysctl -w {path}={}", otherwise.unwrap_or_default())
        }
        Thing::Address { link, address } => write!(f, "ip addr del {address} dev {link}"),
        Thing::Neighbour { link, address, .. } => {
            write!(f, "ip neigh del {address} dev {link}")
        }
        Thing::Route { link, to, via } => {
            write!(f, "ip route del {}", RouteText { link, to, via: *via })
        }
        Thing::Limit { link, .. } => write!(f, "tc qdisc del dev {link} root"),
        Thing::Ingress { link } => write!(f, "tc qdisc del dev {link} ingress"),
        Thing::Redirect { from, .. } => write!(f, "tc filter del dev {from} parent ffff: pref 1"),
    }
}

/// A route as `ip route` lists it.
pub(crate) struct RouteText<'a> {
    pub(crate) link: &'a InterfaceName,
    pub(crate) to: &'a IpNet,
    pub(crate) via: Option<IpAddr>,
}

impl fmt::Display for RouteText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to.prefix_len() {
            0 => f.write_str("default")?,
            _ => write!(f, "{}", self.to)?,
        }
        if let Some(via) = self.via {
            write!(f, " via {via}")?;
        }
        write!(f, " dev {}", self.link)
    }
}
