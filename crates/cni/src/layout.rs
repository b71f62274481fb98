//! The result of ADD in the layout of each version of the spec.

use std::net::IpAddr;

use berth_types::{Family, InterfaceFacts, LINK_GATEWAY_V4, LINK_GATEWAY_V6, NetConf};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{previous::PreviousResult, verb::SpecVersion};

/// `dns` of a result: settings for whoever writes the pod's resolv.conf.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Dns {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) nameservers: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) domain: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) search: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) options: Vec<String>,
}

impl Dns {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What was wired.
#[derive(Debug)]
pub(crate) struct Wired<'a> {
    pub(crate) conf: &'a NetConf,
    pub(crate) host: &'a InterfaceFacts,
    pub(crate) pod: &'a InterfaceFacts,
    pub(crate) netns: &'a str,
    pub(crate) dns: &'a Dns,
}

/// Our interfaces, addresses and routes after those of the chain. What came in `previous` is
/// there as it came; libcni has put it into the configuration's version already.
pub(crate) fn result(
    version: SpecVersion,
    wired: &Wired<'_>,
    previous: PreviousResult,
) -> Map<String, Value> {
    match version {
        SpecVersion::V0_3_0 | SpecVersion::V0_3_1 | SpecVersion::V0_4_0 => {
            legacy(version, wired, previous)
        }
        SpecVersion::V1_0_0 => one_zero(version, wired, previous),
        SpecVersion::V1_1_0 => one_one(version, wired, previous),
    }
}

/// 0.3.0 to 0.4.0: each address says its family, and `dns` is always there.
fn legacy(version: SpecVersion, wired: &Wired<'_>, previous: PreviousResult) -> Map<String, Value> {
    let mut result = Assembly::new(version, previous);
    let with_family = |address: IpAddr, entry: &mut Value| {
        entry["version"] = json!(if address.is_ipv4() { "4" } else { "6" });
    };
    result.append(wired, &|_| {}, &with_family);
    result.document.entry("dns").or_insert_with(|| json!({}));
    result.document
}

/// 1.0.0: no family in the addresses, `dns` only where there is something in it.
fn one_zero(
    version: SpecVersion,
    wired: &Wired<'_>,
    previous: PreviousResult,
) -> Map<String, Value> {
    let mut result = Assembly::new(version, previous);
    result.append(wired, &|_| {}, &|_, _| {});
    result.document
}

/// 1.1.0: as 1.0.0, and interfaces say their MTU.
fn one_one(
    version: SpecVersion,
    wired: &Wired<'_>,
    previous: PreviousResult,
) -> Map<String, Value> {
    let mut result = Assembly::new(version, previous);
    result.append(wired, &|interface| interface["mtu"] = json!(wired.conf.mtu), &|_, _| {});
    result.document
}

struct Assembly {
    document: Map<String, Value>,
}

impl Assembly {
    fn new(version: SpecVersion, previous: PreviousResult) -> Self {
        let mut document = previous.into_document();
        document.insert("cniVersion".to_owned(), json!(version.as_str()));
        Self { document }
    }

    fn append(
        &mut self,
        wired: &Wired<'_>,
        with_interface: &dyn Fn(&mut Value),
        with_address: &dyn Fn(IpAddr, &mut Value),
    ) {
        let interfaces = self.list("interfaces");
        let mut host = json!({"name": wired.host.name, "mac": wired.host.mac});
        let mut pod = json!({"name": wired.pod.name, "mac": wired.pod.mac, "sandbox": wired.netns});
        with_interface(&mut host);
        with_interface(&mut pod);
        interfaces.push(host);
        interfaces.push(pod);
        let index = interfaces.len() - 1;

        for address in wired.conf.addresses.iter() {
            let length = if address.is_ipv4() { 32 } else { 128 };
            let mut entry = json!({
                "interface": index,
                "address": format!("{address}/{length}"),
                "gateway": gateway(family(address)),
            });
            with_address(address, &mut entry);
            self.list("ips").push(entry);
        }
        let routes: Vec<Value> = routes(wired.conf).collect();
        if !routes.is_empty() {
            self.list("routes").extend(routes);
        }
        // A chain's own settings stand, as all that it made.
        let settled = self.document.get("dns").and_then(Value::as_object);
        if !wired.dns.is_empty() && settled.is_none_or(Map::is_empty) {
            self.document.insert("dns".to_owned(), json!(wired.dns));
        }
    }

    /// The list of that name; a null becomes an empty one.
    fn list(&mut self, key: &str) -> &mut Vec<Value> {
        let entry = self.document.entry(key).or_insert(Value::Null);
        if !entry.is_array() {
            *entry = json!([]);
        }
        entry.as_array_mut().expect("it was made a list a line ago")
    }
}

fn routes(conf: &NetConf) -> impl Iterator<Item = Value> {
    let route = |destination: String, family| json!({"dst": destination, "gw": gateway(family)});
    let default = conf.addresses.iter().filter(|_| conf.default_route).map(move |address| {
        let everywhere = if address.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
        route(everywhere.to_owned(), family(address))
    });
    let extra = conf
        .extra_routes
        .iter()
        .map(move |destination| route(destination.to_string(), family(destination.addr())));
    default.chain(extra)
}

fn family(address: IpAddr) -> Family {
    if address.is_ipv4() { Family::V4 } else { Family::V6 }
}

fn gateway(family: Family) -> IpAddr {
    match family {
        Family::V4 => LINK_GATEWAY_V4.into(),
        Family::V6 => LINK_GATEWAY_V6.into(),
    }
}

#[cfg(test)]
mod tests {
    use berth_types::{AddressSet, Bandwidth, ResourceKind};

    use super::*;

    fn conf(v4: Option<&str>, v6: Option<&str>) -> NetConf {
        NetConf {
            kind: ResourceKind::Veth,
            interface: "eth0".parse().unwrap(),
            host_interface: "bth0123456789ab".parse().unwrap(),
            addresses: AddressSet {
                v4: v4.map(|it| it.parse().unwrap()),
                v6: v6.map(|it| it.parse().unwrap()),
            },
            pod_mac: "02:00:00:00:00:02".parse().unwrap(),
            host_mac: "02:00:00:00:00:01".parse().unwrap(),
            mtu: 1450,
            bandwidth: Bandwidth::default(),
            default_route: true,
            extra_routes: vec!["10.9.0.0/16".parse().unwrap()],
            alias: "shop/web-0".into(),
        }
    }

    fn facts(name: &str, mac: &str) -> InterfaceFacts {
        InterfaceFacts { name: name.parse().unwrap(), mac: mac.parse().unwrap() }
    }

    fn made(version: SpecVersion, conf: &NetConf, dns: &Dns, previous: Value) -> Value {
        let (host, pod) =
            (facts("bth0123456789ab", "02:00:00:00:00:01"), facts("eth0", "02:00:00:00:00:02"));
        let wired = Wired { conf, host: &host, pod: &pod, netns: "/run/netns/x", dns };
        Value::Object(result(version, &wired, PreviousResult::parse(previous).unwrap()))
    }

    #[test]
    fn each_version_has_its_layout() {
        let both = conf(Some("10.0.0.7"), Some("fd00::7"));
        let expected = |version: &str| {
            json!({
                "cniVersion": version,
                "interfaces": [
                    {"name": "bth0123456789ab", "mac": "02:00:00:00:00:01"},
                    {"name": "eth0", "mac": "02:00:00:00:00:02", "sandbox": "/run/netns/x"},
                ],
                "ips": [
                    {"interface": 1, "address": "10.0.0.7/32", "gateway": "169.254.1.1"},
                    {"interface": 1, "address": "fd00::7/128", "gateway": "fe80::1"},
                ],
                "routes": [
                    {"dst": "0.0.0.0/0", "gw": "169.254.1.1"},
                    {"dst": "::/0", "gw": "fe80::1"},
                    {"dst": "10.9.0.0/16", "gw": "169.254.1.1"},
                ],
            })
        };
        for version in SpecVersion::ALL {
            let mut expected = expected(version.as_str());
            if version < SpecVersion::V1_0_0 {
                expected["dns"] = json!({});
                expected["ips"][0]["version"] = json!("4");
                expected["ips"][1]["version"] = json!("6");
            }
            if version == SpecVersion::V1_1_0 {
                expected["interfaces"][0]["mtu"] = json!(1450);
                expected["interfaces"][1]["mtu"] = json!(1450);
            }
            assert_eq!(made(version, &both, &Dns::default(), Value::Null), expected, "{version:?}");
        }
    }

    #[test]
    fn a_pod_without_routes_of_ours_has_no_routes_entry() {
        let mut conf = conf(Some("10.0.0.7"), None);
        conf.default_route = false;
        conf.extra_routes.clear();
        let result = made(SpecVersion::V1_0_0, &conf, &Dns::default(), Value::Null);
        assert!(result.get("routes").is_none(), "{result}");
    }

    #[test]
    fn what_the_chain_made_stays_as_it_came_and_ours_follows() {
        let previous = json!({
            "cniVersion": "1.1.0",
            "interfaces": [{"name": "eth0", "mac": "", "mtu": 1400, "x-vendor": {"a": 1}}],
            "ips": [{"interface": null, "address": "10.1.2.3/24"}],
            "routes": [{"dst": "0.0.0.0/0", "priority": 7, "x": true}],
            "dns": {"nameservers": ["10.0.0.1"]},
            "x-top": [1],
        });
        let dns = Dns { nameservers: vec!["10.0.0.53".to_owned()], ..Dns::default() };
        let result =
            made(SpecVersion::V1_1_0, &conf(Some("10.0.0.7"), None), &dns, previous.clone());
        for key in ["interfaces", "ips", "routes"] {
            assert_eq!(result[key][0], previous[key][0], "{key}");
        }
        assert_eq!(result["x-top"], previous["x-top"]);
        assert_eq!(result["dns"], previous["dns"]);
        assert_eq!(result["interfaces"].as_array().unwrap().len(), 3);
        assert_eq!(result["ips"][1]["interface"], json!(2));
    }

    #[test]
    fn dns_that_was_asked_for_is_in_the_result() {
        let dns = Dns { nameservers: vec!["10.0.0.53".to_owned()], ..Dns::default() };
        for (version, previous) in [
            (SpecVersion::V0_3_1, Value::Null),
            (SpecVersion::V1_0_0, Value::Null),
            (SpecVersion::V1_0_0, json!({"dns": {}})),
        ] {
            let result = made(version, &conf(Some("10.0.0.7"), None), &dns, previous);
            assert_eq!(result["dns"], json!({"nameservers": ["10.0.0.53"]}));
        }
    }
}
