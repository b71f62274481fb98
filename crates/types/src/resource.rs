use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{AddressSet, id::InvalidId};

/// What kind of thing an attachment holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResourceKind {
    /// A whole network interface of the cloud, moved into the pod.
    Eni,
    /// An address of an interface that several pods share.
    EniIp,
    /// An address of the node's pod CIDR, behind a veth pair.
    Veth,
    /// A public address bound to one of the others.
    Eip,
}

impl fmt::Display for ResourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Eni => "eni",
            Self::EniIp => "eni_ip",
            Self::Veth => "veth",
            Self::Eip => "eip",
        })
    }
}

/// The name of one thing a pool gives out, unique within its kind: for veth its addresses.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ResourceId(Box<str>);

impl ResourceId {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ResourceId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let valid =
            !text.is_empty() && text.len() <= 128 && text.bytes().all(|b| b.is_ascii_graphic());
        if valid {
            Ok(Self(text.into()))
        } else {
            Err(InvalidId::new("resource id", text, "1 to 128 printable ASCII characters"))
        }
    }
}

impl TryFrom<String> for ResourceId {
    type Error = InvalidId;

    fn try_from(text: String) -> Result<Self, InvalidId> {
        text.parse()
    }
}

impl From<ResourceId> for String {
    fn from(id: ResourceId) -> Self {
        id.0.into()
    }
}

impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One thing a pool gives out, with the addresses that come with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resource {
    pub id: ResourceId,
    pub kind: ResourceKind,
    pub addresses: AddressSet,
}

impl Resource {
    /// An address set of the node's own pod CIDRs; its addresses are its name.
    pub fn veth(addresses: AddressSet) -> Self {
        let id = ResourceId(addresses.to_string().into());
        Self { id, kind: ResourceKind::Veth, addresses }
    }
}
