use berth_proto::v1;
use serde::Serialize;

use crate::text::given;

/// As many characters of a container id as a table shows; crictl shows the same.
const SHORT_ID: usize = 13;

/// Which attachment.
#[derive(Debug, Serialize)]
pub(crate) struct KeyView {
    pub(crate) network: String,
    pub(crate) container_id: String,
    pub(crate) interface: String,
}

impl KeyView {
    pub(crate) fn short_container(&self) -> String {
        self.container_id.chars().take(SHORT_ID).collect()
    }
}

impl From<Option<v1::AttachmentKey>> for KeyView {
    fn from(wire: Option<v1::AttachmentKey>) -> Self {
        let v1::AttachmentKey { network, container_id, interface } = wire.unwrap_or_default();
        Self { network, container_id, interface }
    }
}

/// The pod as the runtime named it; each part may be missing.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct PodView {
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) uid: Option<String>,
}

impl PodView {
    /// `namespace/name`, or the name alone; empty where nothing is known.
    pub(crate) fn title(&self) -> String {
        match (&self.namespace, &self.name) {
            (Some(namespace), Some(name)) => format!("{namespace}/{name}"),
            (None, Some(name)) => name.clone(),
            (Some(namespace), None) => format!("{namespace}/-"),
            (None, None) => String::new(),
        }
    }
}

impl From<Option<v1::PodIdentity>> for PodView {
    fn from(wire: Option<v1::PodIdentity>) -> Self {
        let v1::PodIdentity { namespace, name, uid } = wire.unwrap_or_default();
        Self { namespace: given(namespace), name: given(name), uid: given(uid) }
    }
}

/// One address of each family, or null.
#[derive(Debug, Serialize)]
pub(crate) struct AddressView {
    pub(crate) ipv4: Option<String>,
    pub(crate) ipv6: Option<String>,
}

impl AddressView {
    /// `10.0.0.7,fd00::7`; empty where there is none.
    pub(crate) fn title(&self) -> String {
        let both: Vec<&str> =
            [&self.ipv4, &self.ipv6].into_iter().filter_map(|one| one.as_deref()).collect();
        both.join(",")
    }
}

impl From<Option<v1::IpSet>> for AddressView {
    fn from(wire: Option<v1::IpSet>) -> Self {
        let v1::IpSet { ipv4, ipv6 } = wire.unwrap_or_default();
        Self { ipv4: given(ipv4), ipv6: given(ipv6) }
    }
}

/// Terway's spelling, as everywhere in texts.
pub(crate) fn ip_type(wire: v1::IpType) -> &'static str {
    match wire {
        v1::IpType::Unspecified => "unknown",
        v1::IpType::VpcIp => "VPCIP",
        v1::IpType::VpcEni => "VPCENI",
        v1::IpType::EniMultiIp => "ENIMultiIP",
    }
}
