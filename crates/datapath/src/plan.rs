//! What wires one pod, in order.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use berth_types::{AddressSet, InterfaceName, LINK_GATEWAY_V4, LINK_GATEWAY_V6, NetConf, ifb_name};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::{Op, Shape, Side, Thing, Veth};

/// The kernel keeps at most this much of an alias (`IFALIASZ`, linux/if.h, less one).
const LONGEST_ALIAS: usize = 255;

/// Everything that `conf` means, host and pod.
///
/// **Order matters:** the host's end is up before the pod's, since with a carrier the kernel
/// would give it an address of its own first; the limits stand before the first packet can pass;
/// the host's routes come last, so that nothing reaches a pod that is half wired.
pub fn attach(conf: &NetConf) -> Vec<Op> {
    let mut ops = vec![Op::ensure(
        Side::Host,
        Thing::Veth(Veth {
            host: conf.host_interface.clone(),
            host_mac: conf.host_mac,
            pod: conf.interface.clone(),
            pod_mac: conf.pod_mac,
            mtu: conf.mtu,
        }),
    )];
    host_link(conf, &mut ops);
    limits(conf, &mut ops);
    pod_links(conf, &mut ops);
    pod_addresses(conf, &mut ops);
    let link = &conf.host_interface;
    ops.extend(conf.addresses.iter().map(|address| {
        Op::ensure(Side::Host, Thing::Route { link: link.clone(), to: single(address), via: None })
    }));
    ops
}

fn pod_links(conf: &NetConf, ops: &mut Vec<Op>) {
    let loopback: InterfaceName = "lo".parse().expect("an interface name");
    if conf.addresses.v6.is_some() {
        // A runtime may have made the namespace with IPv6 off (`conf/all`): what counts for
        // traffic is the link's own switch, and loopback's for the pod talking to itself.
        ops.push(sysctl(Side::Pod, &loopback, "disable_ipv6", "0", Some("1")));
        ops.push(sysctl(Side::Pod, &conf.interface, "disable_ipv6", "0", None));
        ops.push(sysctl(Side::Pod, &conf.interface, "accept_ra", "0", None));
    }
    ops.push(Op::ensure(Side::Pod, Thing::Up { link: loopback }));
    ops.push(Op::ensure(Side::Pod, Thing::Up { link: conf.interface.clone() }));
}

fn host_link(conf: &NetConf, ops: &mut Vec<Op>) {
    let link = &conf.host_interface;
    let v6 = conf.addresses.v6.is_some();
    if v6 {
        ops.push(sysctl(Side::Host, link, "disable_ipv6", "0", None));
        ops.push(sysctl(Side::Host, link, "accept_ra", "0", None));
    }
    let alias = alias(&conf.alias);
    ops.push(Op::ensure(Side::Host, Thing::HostUp { link: link.clone(), alias, v6 }));
    // The pod has permanent neighbours for its gateways, but loses them when a later plugin
    // changes its MAC: then it finds them by asking.
    let mut host = |address| {
        ops.push(Op::ensure(Side::Host, Thing::Address { link: link.clone(), address }));
    };
    if conf.addresses.v4.is_some() {
        host(single(LINK_GATEWAY_V4.into()));
    }
    if v6 {
        // Also the source of the host's own solicitations.
        host(Ipv6Net::new(LINK_GATEWAY_V6, 64).expect("64 is a prefix length").into());
    }
}

/// Towards the pod at the host's end; from the pod at an ifb that everything coming in through
/// the host's end is sent through.
fn limits(conf: &NetConf, ops: &mut Vec<Op>) {
    let shape = |limit: Option<u64>| limit.and_then(|rate| Shape::new(rate, conf.mtu));
    let link = &conf.host_interface;
    let mut host = |thing| ops.push(Op::ensure(Side::Host, thing));
    if let Some(shape) = shape(conf.bandwidth.ingress) {
        host(Thing::Limit { link: link.clone(), shape });
    }
    if let Some(shape) = shape(conf.bandwidth.egress) {
        let ifb = ifb_name(link);
        host(Thing::Ifb { link: ifb.clone(), mtu: conf.mtu });
        host(Thing::Limit { link: ifb.clone(), shape });
        host(Thing::Ingress { link: link.clone() });
        host(Thing::Redirect { from: link.clone(), to: ifb });
    }
}

fn pod_addresses(conf: &NetConf, ops: &mut Vec<Op>) {
    let link = &conf.interface;
    let mut pod = |thing| ops.push(Op::ensure(Side::Pod, thing));
    for address in conf.addresses.iter() {
        pod(Thing::Address { link: link.clone(), address: single(address) });
    }
    for gateway in gateways(&conf.addresses) {
        pod(Thing::Neighbour { link: link.clone(), address: gateway, mac: conf.host_mac });
        if gateway.is_ipv4() {
            pod(Thing::Route { link: link.clone(), to: single(gateway), via: None });
        }
        if conf.default_route {
            pod(Thing::Route { link: link.clone(), to: everywhere(gateway), via: Some(gateway) });
        }
        for to in conf.extra_routes.iter().filter(|to| to.addr().is_ipv4() == gateway.is_ipv4()) {
            pod(Thing::Route { link: link.clone(), to: to.trunc(), via: Some(gateway) });
        }
    }
}

/// The link gateway of each family in use.
fn gateways(addresses: &AddressSet) -> impl Iterator<Item = IpAddr> + use<> {
    let v4 = addresses.v4.map(|_| LINK_GATEWAY_V4.into());
    let v6 = addresses.v6.map(|_| LINK_GATEWAY_V6.into());
    v4.into_iter().chain(v6)
}

fn sysctl(
    side: Side,
    link: &InterfaceName,
    name: &str,
    value: &'static str,
    otherwise: Option<&'static str>,
) -> Op {
    let path = format!("net/ipv6/conf/{link}/{name}");
    Op::ensure(side, Thing::Sysctl { path, value, otherwise })
}

/// Cut at a character where it is too long for the kernel.
fn alias(text: &str) -> String {
    let end = (0..=text.len().min(LONGEST_ALIAS)).rev().find(|end| text.is_char_boundary(*end));
    text[..end.unwrap_or(0)].to_owned()
}

fn single(address: IpAddr) -> IpNet {
    address.into()
}

fn everywhere(like: IpAddr) -> IpNet {
    match like {
        IpAddr::V4(_) => Ipv4Net::new(Ipv4Addr::UNSPECIFIED, 0).expect("0 is a length").into(),
        IpAddr::V6(_) => Ipv6Net::new(Ipv6Addr::UNSPECIFIED, 0).expect("0 is a length").into(),
    }
}

#[cfg(test)]
mod tests {
    use berth_types::{Bandwidth, ResourceKind};

    use super::*;

    fn conf(v4: Option<&str>, v6: Option<&str>) -> NetConf {
        NetConf {
            kind: ResourceKind::Veth,
            interface: "eth0".parse().unwrap(),
            host_interface: "bth4d1dca9f9bd1".parse().unwrap(),
            addresses: AddressSet {
                v4: v4.map(|text| text.parse().unwrap()),
                v6: v6.map(|text| text.parse().unwrap()),
            },
            pod_mac: "02:00:00:00:00:0b".parse().unwrap(),
            host_mac: "02:00:00:00:00:0a".parse().unwrap(),
            mtu: 1500,
            bandwidth: Bandwidth::default(),
            default_route: true,
            extra_routes: Vec::new(),
            alias: "prod/web-0".to_owned(),
        }
    }

    #[track_caller]
    fn check(conf: &NetConf, expected: &str) {
        let got: String = attach(conf).iter().map(|op| format!("{op}\n")).collect();
        assert_eq!(got, expected);
    }

    #[test]
    fn an_ipv4_pod_gets_its_address_and_a_way_out() {
        check(
            &conf(Some("10.0.0.7"), None),
            "\
[host] ip link add bth4d1dca9f9bd1 mtu 1500 address 02:00:00:00:00:0a type veth peer name eth0 mtu 1500 address 02:00:00:00:00:0b netns pod
[host] ip link set bth4d1dca9f9bd1 up alias prod/web-0
[host] ip addr add 169.254.1.1/32 dev bth4d1dca9f9bd1 scope host
[pod] ip link set lo up
[pod] ip link set eth0 up
[pod] ip addr add 10.0.0.7/32 dev eth0
[pod] ip neigh replace 169.254.1.1 lladdr 02:00:00:00:00:0a dev eth0 nud permanent
[pod] ip route add 169.254.1.1/32 dev eth0 scope link proto 190
[pod] ip route add default via 169.254.1.1 dev eth0 onlink proto 190
[host] ip route add 10.0.0.7/32 dev bth4d1dca9f9bd1 scope link proto 190
",
        );
    }

    #[test]
    fn an_ipv6_pod_waits_for_no_duplicate_address_detection() {
        check(
            &conf(None, Some("fd00::7")),
            "\
[host] ip link add bth4d1dca9f9bd1 mtu 1500 address 02:00:00:00:00:0a type veth peer name eth0 mtu 1500 address 02:00:00:00:00:0b netns pod
[host] sysctl -w net/ipv6/conf/bth4d1dca9f9bd1/disable_ipv6=0
[host] sysctl -w net/ipv6/conf/bth4d1dca9f9bd1/accept_ra=0
[host] ip link set bth4d1dca9f9bd1 up alias prod/web-0 addrgenmode none
[host] ip addr add fe80::1/64 dev bth4d1dca9f9bd1 nodad
[pod] sysctl -w net/ipv6/conf/lo/disable_ipv6=0
[pod] sysctl -w net/ipv6/conf/eth0/disable_ipv6=0
[pod] sysctl -w net/ipv6/conf/eth0/accept_ra=0
[pod] ip link set lo up
[pod] ip link set eth0 up
[pod] ip addr add fd00::7/128 dev eth0 nodad
[pod] ip neigh replace fe80::1 lladdr 02:00:00:00:00:0a dev eth0 nud permanent
[pod] ip route add default via fe80::1 dev eth0 onlink proto 190
[host] ip route add fd00::7/128 dev bth4d1dca9f9bd1 proto 190
",
        );
    }

    #[test]
    fn a_second_interface_of_both_families_takes_only_its_own_routes() {
        let mut conf = conf(Some("10.0.0.7"), Some("fd00::7"));
        conf.default_route = false;
        conf.extra_routes = vec!["10.96.0.0/12".parse().unwrap(), "fd00:1::1/64".parse().unwrap()];
        let text: String = attach(&conf).iter().map(|op| format!("{op}\n")).collect();
        let routes: Vec<_> = text.lines().filter(|line| line.contains(" route ")).collect();
        assert_eq!(
            routes,
            [
                "[pod] ip route add 169.254.1.1/32 dev eth0 scope link proto 190",
                "[pod] ip route add 10.96.0.0/12 via 169.254.1.1 dev eth0 onlink proto 190",
                "[pod] ip route add fd00:1::/64 via fe80::1 dev eth0 onlink proto 190",
                "[host] ip route add 10.0.0.7/32 dev bth4d1dca9f9bd1 scope link proto 190",
                "[host] ip route add fd00::7/128 dev bth4d1dca9f9bd1 proto 190",
            ]
        );
    }

    #[test]
    fn limits_stand_before_the_pod_has_an_address() {
        let mut conf = conf(Some("10.0.0.7"), None);
        conf.bandwidth = Bandwidth { ingress: Some(1_250_000), egress: Some(1000) };
        check(
            &conf,
            "\
[host] ip link add bth4d1dca9f9bd1 mtu 1500 address 02:00:00:00:00:0a type veth peer name eth0 mtu 1500 address 02:00:00:00:00:0b netns pod
[host] ip link set bth4d1dca9f9bd1 up alias prod/web-0
[host] ip addr add 169.254.1.1/32 dev bth4d1dca9f9bd1 scope host
[host] tc qdisc replace dev bth4d1dca9f9bd1 root handle 1: tbf rate 1250000bps burst 125000 limit 187500
[host] ip link add ith4d1dca9f9bd1 up mtu 1500 type ifb
[host] tc qdisc replace dev ith4d1dca9f9bd1 root handle 1: tbf rate 1000bps burst 15000 limit 15050
[host] tc qdisc add dev bth4d1dca9f9bd1 ingress
[host] tc filter replace dev bth4d1dca9f9bd1 parent ffff: pref 1 handle 800::800 protocol all u32 match u32 0 0 action mirred egress redirect dev ith4d1dca9f9bd1
[pod] ip link set lo up
[pod] ip link set eth0 up
[pod] ip addr add 10.0.0.7/32 dev eth0
[pod] ip neigh replace 169.254.1.1 lladdr 02:00:00:00:00:0a dev eth0 nud permanent
[pod] ip route add 169.254.1.1/32 dev eth0 scope link proto 190
[pod] ip route add default via 169.254.1.1 dev eth0 onlink proto 190
[host] ip route add 10.0.0.7/32 dev bth4d1dca9f9bd1 scope link proto 190
",
        );
    }

    #[test]
    fn the_inverse_of_everything_is_named() {
        let mut conf = conf(Some("10.0.0.7"), Some("fd00::7"));
        conf.bandwidth = Bandwidth { ingress: Some(1_250_000), egress: Some(1000) };
        let text: String = attach(&conf)
            .iter()
            .rev()
            .filter_map(Op::inverse)
            .map(|op| format!("{op}\n"))
            .collect();
        assert_eq!(
            text,
            "\
[host] ip route del fd00::7/128 dev bth4d1dca9f9bd1
[host] ip route del 10.0.0.7/32 dev bth4d1dca9f9bd1
[pod] ip route del default via fe80::1 dev eth0
[pod] ip neigh del fe80::1 dev eth0
[pod] ip route del default via 169.254.1.1 dev eth0
[pod] ip route del 169.254.1.1/32 dev eth0
[pod] ip neigh del 169.254.1.1 dev eth0
[pod] ip addr del fd00::7/128 dev eth0
[pod] ip addr del 10.0.0.7/32 dev eth0
[pod] sysctl -w net/ipv6/conf/lo/disable_ipv6=1
[host] tc qdisc del dev bth4d1dca9f9bd1 ingress
[host] tc qdisc del dev ith4d1dca9f9bd1 root
[host] ip link del ith4d1dca9f9bd1
[host] tc qdisc del dev bth4d1dca9f9bd1 root
[host] ip addr del fe80::1/64 dev bth4d1dca9f9bd1
[host] ip addr del 169.254.1.1/32 dev bth4d1dca9f9bd1
[host] ip link del bth4d1dca9f9bd1
"
        );
    }

    #[test]
    fn a_long_alias_is_cut_at_a_character() {
        assert_eq!(alias("a/b"), "a/b");
        assert_eq!(alias(&"ä".repeat(200)).len(), 254);
    }
}
