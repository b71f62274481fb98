use std::net::IpAddr;

use berth_types::{
    AddressSet, Attachment, AttachmentKey, AttachmentState, Bandwidth, BootTime, InterfaceFacts,
    LINK_GATEWAY_V4, LINK_GATEWAY_V6, MacAddress, NetConf, PodIdentity, ProcessStart, ResourceKind,
};

use ipnet::IpNet;

use crate::{BadRequest, v1};

/// The longest pod namespace, name or uid taken: Kubernetes allows 253 characters for a name.
const LONGEST_POD_FIELD: usize = 253;

pub fn key(wire: Option<v1::AttachmentKey>) -> Result<AttachmentKey, BadRequest> {
    let wire = wire.ok_or(BadRequest::Missing("key"))?;
    AttachmentKey::new(&wire.network, &wire.container_id, &wire.interface)
        .map_err(|err| BadRequest::field("key", err))
}

pub fn process_start(wire: Option<v1::ProcessStart>) -> Result<ProcessStart, BadRequest> {
    let wire = wire.ok_or(BadRequest::Missing("process_start"))?;
    let boot_id = wire.boot_id.parse().map_err(|err| BadRequest::field("process_start", err))?;
    Ok(ProcessStart { boot_id, at: BootTime::from_nanos(wire.boottime_nanoseconds) })
}

/// Names from outside end in logs, tables and an ifalias: control characters are refused.
pub fn pod_identity(wire: Option<v1::PodIdentity>) -> Result<PodIdentity, BadRequest> {
    let Some(wire) = wire else { return Ok(PodIdentity::default()) };
    let check = |field, text: String| {
        if text.len() > LONGEST_POD_FIELD {
            return Err(BadRequest::field(field, "longer than 253 bytes"));
        }
        if text.chars().any(|c| c.is_control() || c == '/') {
            return Err(BadRequest::field(
                field,
                format!("{text:?} has a control character or a slash"),
            ));
        }
        Ok((!text.is_empty()).then_some(text))
    };
    Ok(PodIdentity {
        namespace: check("pod.namespace", wire.namespace)?,
        name: check("pod.name", wire.name)?,
        uid: check("pod.uid", wire.uid)?,
    })
}

/// At most one address of each family.
pub fn address_set(field: &'static str, wire: &[String]) -> Result<AddressSet, BadRequest> {
    let mut set = AddressSet::default();
    for text in wire {
        let taken = match text.parse::<IpAddr>() {
            Ok(IpAddr::V4(address)) => set.v4.replace(address).is_some(),
            Ok(IpAddr::V6(address)) => set.v6.replace(address).is_some(),
            Err(_) => {
                let text: String = text.chars().take(64).collect();
                return Err(BadRequest::field(field, format!("{text:?} is not an IP address")));
            }
        };
        if taken {
            return Err(BadRequest::field(field, "more than one address of a family"));
        }
    }
    Ok(set)
}

pub fn optional_mac(field: &'static str, text: &str) -> Result<Option<MacAddress>, BadRequest> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|err| BadRequest::field(field, err))
}

pub fn ip_set(addresses: &AddressSet) -> v1::IpSet {
    v1::IpSet {
        ipv4: addresses.v4.map(|address| address.to_string()).unwrap_or_default(),
        ipv6: addresses.v6.map(|address| address.to_string()).unwrap_or_default(),
    }
}

/// At most one prefix of each family, as text.
pub fn prefix_set<'a>(prefixes: impl Iterator<Item = &'a IpNet>) -> v1::IpSet {
    let mut set = v1::IpSet::default();
    for prefix in prefixes {
        match prefix {
            IpNet::V4(prefix) => set.ipv4 = prefix.to_string(),
            IpNet::V6(prefix) => set.ipv6 = prefix.to_string(),
        }
    }
    set
}

fn parse_ip_set(field: &'static str, wire: Option<v1::IpSet>) -> Result<AddressSet, BadRequest> {
    let wire = wire.unwrap_or_default();
    let given: Vec<String> =
        [wire.ipv4, wire.ipv6].into_iter().filter(|text| !text.is_empty()).collect();
    address_set(field, &given)
}

impl From<&AttachmentKey> for v1::AttachmentKey {
    fn from(key: &AttachmentKey) -> Self {
        Self {
            network: key.network.to_string(),
            container_id: key.container_id.to_string(),
            interface: key.interface.to_string(),
        }
    }
}

impl From<&ProcessStart> for v1::ProcessStart {
    fn from(start: &ProcessStart) -> Self {
        Self { boot_id: start.boot_id.to_string(), boottime_nanoseconds: start.at.as_nanos() }
    }
}

impl From<&PodIdentity> for v1::PodIdentity {
    fn from(pod: &PodIdentity) -> Self {
        Self {
            namespace: pod.namespace.clone().unwrap_or_default(),
            name: pod.name.clone().unwrap_or_default(),
            uid: pod.uid.clone().unwrap_or_default(),
        }
    }
}

impl From<Bandwidth> for v1::Bandwidth {
    fn from(bandwidth: Bandwidth) -> Self {
        Self {
            ingress_bytes_per_second: bandwidth.ingress.unwrap_or(0),
            egress_bytes_per_second: bandwidth.egress.unwrap_or(0),
        }
    }
}

impl From<v1::Bandwidth> for Bandwidth {
    fn from(wire: v1::Bandwidth) -> Self {
        let limit = |bytes| (bytes > 0).then_some(bytes);
        Self {
            ingress: limit(wire.ingress_bytes_per_second),
            egress: limit(wire.egress_bytes_per_second),
        }
    }
}

impl From<ResourceKind> for v1::IpType {
    fn from(kind: ResourceKind) -> Self {
        match kind {
            ResourceKind::Veth => Self::VpcIp,
            ResourceKind::Eni => Self::VpcEni,
            // A public address comes on top of an interface's; alone it has no wire type.
            ResourceKind::EniIp | ResourceKind::Eip => Self::EniMultiIp,
        }
    }
}

impl From<&NetConf> for v1::NetConf {
    fn from(conf: &NetConf) -> Self {
        let gateway = AddressSet {
            v4: conf.addresses.v4.map(|_| LINK_GATEWAY_V4),
            v6: conf.addresses.v6.map(|_| LINK_GATEWAY_V6),
        };
        Self {
            interface: conf.interface.to_string(),
            host_interface: conf.host_interface.to_string(),
            pod_ip: Some(ip_set(&conf.addresses)),
            subnet: None,
            gateway: Some(ip_set(&gateway)),
            service_cidrs: Vec::new(),
            eni: None,
            bandwidth: Some(conf.bandwidth.into()),
            mtu: conf.mtu,
            extra_routes: conf.extra_routes.iter().map(ToString::to_string).collect(),
            default_route: conf.default_route,
            pod_mac: conf.pod_mac.to_string(),
            host_mac: conf.host_mac.to_string(),
            alias: conf.alias.clone(),
        }
    }
}

/// The kind stands beside the [`v1::NetConf`] on the wire, not in it.
pub fn net_conf(ip_type: v1::IpType, wire: v1::NetConf) -> Result<NetConf, BadRequest> {
    let kind = match ip_type {
        v1::IpType::VpcIp => ResourceKind::Veth,
        v1::IpType::VpcEni => ResourceKind::Eni,
        v1::IpType::EniMultiIp => ResourceKind::EniIp,
        v1::IpType::Unspecified => return Err(BadRequest::Missing("ip_type")),
    };
    let mac = |field, text: &str| optional_mac(field, text)?.ok_or(BadRequest::Missing(field));
    let extra_routes = wire
        .extra_routes
        .iter()
        .map(|route| route.parse().map_err(|err| BadRequest::field("extra_routes", err)))
        .collect::<Result<_, _>>()?;
    Ok(NetConf {
        kind,
        interface: wire.interface.parse().map_err(|err| BadRequest::field("interface", err))?,
        host_interface: wire
            .host_interface
            .parse()
            .map_err(|err| BadRequest::field("host_interface", err))?,
        addresses: parse_ip_set("pod_ip", wire.pod_ip)?,
        pod_mac: mac("pod_mac", &wire.pod_mac)?,
        host_mac: mac("host_mac", &wire.host_mac)?,
        mtu: wire.mtu,
        bandwidth: wire.bandwidth.unwrap_or_default().into(),
        default_route: wire.default_route,
        extra_routes,
        alias: wire.alias,
    })
}

/// `age_seconds` is the caller's to know: this crate has no clock.
pub fn attachment(record: &Attachment, age_seconds: u64) -> v1::Attachment {
    let state = match record.state {
        AttachmentState::Bound { .. } => v1::AttachmentState::Bound,
        AttachmentState::Committed { .. } => v1::AttachmentState::Committed,
    };
    v1::Attachment {
        key: Some((&record.key).into()),
        state: state.into(),
        ip_type: v1::IpType::from(record.resource.kind).into(),
        pod: Some((&record.pod).into()),
        netns: record.netns.path.display().to_string(),
        age_seconds,
        net_conf: Some((&NetConf::of(record)).into()),
    }
}

pub fn interface_facts(
    field: &'static str,
    wire: Option<v1::InterfaceFacts>,
) -> Result<Option<InterfaceFacts>, BadRequest> {
    let Some(wire) = wire else { return Ok(None) };
    let name = wire.name.parse().map_err(|err| BadRequest::field(field, err))?;
    let mac = wire.mac.parse().map_err(|err| BadRequest::field(field, err))?;
    Ok(Some(InterfaceFacts { name, mac }))
}

impl From<&InterfaceFacts> for v1::InterfaceFacts {
    fn from(facts: &InterfaceFacts) -> Self {
        Self { name: facts.name.to_string(), mac: facts.mac.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use berth_types::{HostPrefix, MacSide, host_interface, stable_mac};

    use super::*;

    #[test]
    fn a_net_conf_survives_the_wire() {
        let key = AttachmentKey::new("net", "c1", "eth0").unwrap();
        let conf = NetConf {
            kind: ResourceKind::Veth,
            interface: key.interface.clone(),
            host_interface: host_interface(&HostPrefix::default(), &key),
            addresses: AddressSet {
                v4: Some("10.0.0.7".parse().unwrap()),
                v6: Some("fd00::7".parse().unwrap()),
            },
            pod_mac: stable_mac(MacSide::Pod, &key),
            host_mac: stable_mac(MacSide::Host, &key),
            mtu: 1500,
            bandwidth: Bandwidth { ingress: Some(1), egress: None },
            default_route: true,
            extra_routes: vec!["10.9.0.0/16".parse().unwrap()],
            alias: "shop/web-0".into(),
        };
        let wire = v1::NetConf::from(&conf);
        assert_eq!(net_conf(v1::IpType::VpcIp, wire).unwrap(), conf);
    }

    #[test]
    fn a_bad_field_is_named() {
        let wire = v1::AttachmentKey {
            network: "n".into(),
            container_id: "../x".into(),
            interface: "eth0".into(),
        };
        let err = super::key(Some(wire)).unwrap_err().to_string();
        assert!(err.starts_with("field `key`: container id \"../x\""), "{err}");
        let pod = v1::PodIdentity { name: "a\nb".into(), ..Default::default() };
        assert!(pod_identity(Some(pod)).unwrap_err().to_string().contains("pod.name"));
        let twice = ["10.0.0.1".to_owned(), "10.0.0.2".to_owned()];
        assert!(address_set("ips", &twice).is_err());
    }
}
