use ipnet::IpNet;

use crate::{
    op::RouteText,
    seen::{LinkSeen, RouteSeen},
};

/// The first of the node's routes and addresses that shares an address with a pod CIDR.
pub(super) fn find(
    pod_cidrs: &[IpNet],
    routes: &[RouteSeen],
    addresses: &[(u32, IpNet)],
    links: &[LinkSeen],
) -> Option<(IpNet, String)> {
    let link = |index: u32| links.iter().find(|link| link.index == index);
    let is_ours = |index: u32| link(index).is_some_and(|l| l.is_live() || l.is_unhooked());
    for route in routes {
        let leads_to_pods = route.ours || route.links.iter().any(|index| is_ours(*index));
        if route.to.prefix_len() == 0 || leads_to_pods {
            continue;
        }
        if let Some(cidr) = pod_cidrs.iter().find(|cidr| overlap(cidr, &route.to)) {
            let name = route.links.first().and_then(|index| link(*index)?.name.parse().ok());
            let text = match name {
                Some(name) => RouteText { link: &name, to: &route.to, via: route.via }.to_string(),
                None => route.to.to_string(),
            };
            return Some((*cidr, format!("route {text}")));
        }
    }
    for (index, address) in addresses.iter().filter(|(index, _)| !is_ours(*index)) {
        if let Some(cidr) = pod_cidrs.iter().find(|cidr| cidr.contains(&address.addr())) {
            let name = link(*index).map_or("?", |link| link.name.as_str());
            return Some((*cidr, format!("address {address} dev {name}")));
        }
    }
    None
}

fn overlap(a: &IpNet, b: &IpNet) -> bool {
    a.contains(&b.network()) || b.contains(&a.network())
}

#[cfg(test)]
mod tests {
    use crate::{LINK_GROUP, seen::LinkKind};

    use super::*;

    fn link(index: u32, name: &str, group: u32) -> LinkSeen {
        LinkSeen {
            index,
            name: name.to_owned(),
            up: true,
            running: true,
            mac: None,
            mtu: 1500,
            group,
            kind: LinkKind::Veth,
            alias: None,
            peer: None,
        }
    }

    fn route(to: &str, index: u32) -> RouteSeen {
        RouteSeen {
            to: to.parse().unwrap(),
            via: None,
            links: vec![index],
            metric: 0,
            ours: false,
            advertised: false,
        }
    }

    #[track_caller]
    fn check(routes: &[RouteSeen], addresses: &[(u32, &str)], expected: Option<(&str, &str)>) {
        let cidrs = ["10.1.0.0/16".parse().unwrap(), "fd00:1::/64".parse().unwrap()];
        let links = [link(2, "eth0", 0), link(3, "bth000000000000", LINK_GROUP)];
        let addresses: Vec<_> =
            addresses.iter().map(|(index, text)| (*index, text.parse().unwrap())).collect();
        let found = find(&cidrs, routes, &addresses, &links);
        let expected = expected.map(|(cidr, text)| (cidr.parse().unwrap(), text.to_owned()));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_route_within_around_or_equal_to_a_pod_cidr_overlaps_it() {
        for to in ["10.1.2.0/24", "10.0.0.0/8", "10.1.0.0/16"] {
            let text = format!("route {to} dev eth0");
            check(&[route(to, 2)], &[], Some(("10.1.0.0/16", &text)));
        }
        let expected = Some(("fd00:1::/64", "route fd00:1::/48 dev eth0"));
        check(&[route("fd00:1::/48", 2)], &[], expected);
    }

    #[test]
    fn an_address_within_a_pod_cidr_overlaps_it() {
        let expected = Some(("10.1.0.0/16", "address 10.1.9.9/32 dev eth0"));
        check(&[], &[(2, "10.0.0.1/8"), (2, "10.1.9.9/32")], expected);
    }

    #[test]
    fn neighbours_the_default_route_and_our_own_do_not_overlap() {
        let mut marked = route("10.1.0.8/32", 2);
        marked.ours = true;
        let routes = [
            route("0.0.0.0/0", 2),
            route("::/0", 2),
            route("10.2.0.0/16", 2),
            route("fe80::/64", 2),
            route("10.1.0.7/32", 3),
            marked,
        ];
        check(&routes, &[(2, "10.2.0.1/16"), (3, "10.1.0.1/32")], None);
    }
}
