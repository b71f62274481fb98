use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::{AddressSet, Attachment, Bandwidth, InterfaceName, MacAddress, ResourceKind};

/// The gateway every pod sees (RFC 3927 link-local; as Calico and Terway use it): never on the
/// wire, since the pod has a permanent neighbour entry for it.
pub const LINK_GATEWAY_V4: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
pub const LINK_GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// All that wiring one interface takes. The plugin decides nothing beyond it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetConf {
    pub kind: ResourceKind,
    /// The interface's name in the pod.
    pub interface: InterfaceName,
    pub host_interface: InterfaceName,
    pub addresses: AddressSet,
    pub pod_mac: MacAddress,
    pub host_mac: MacAddress,
    pub mtu: u32,
    pub bandwidth: Bandwidth,
    /// Whether the pod's default route leaves through this interface.
    pub default_route: bool,
    /// More destinations that leave through this interface.
    pub extra_routes: Vec<IpNet>,
    /// Text for the host link's ifalias: `namespace/name` of the pod, or the container id.
    pub alias: String,
}

impl NetConf {
    /// What `attachment` looks like when it is wired.
    pub fn of(attachment: &Attachment) -> Self {
        let pod = attachment.pod.to_string();
        let alias = if pod == "-" { attachment.key.container_id.to_string() } else { pod };
        Self {
            kind: attachment.resource.kind,
            interface: attachment.key.interface.clone(),
            host_interface: attachment.host_interface.clone(),
            addresses: attachment.resource.addresses,
            pod_mac: attachment.pod_mac,
            host_mac: attachment.host_mac,
            mtu: attachment.mtu,
            bandwidth: attachment.bandwidth,
            default_route: true,
            extra_routes: Vec::new(),
            alias,
        }
    }
}
