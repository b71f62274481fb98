use std::{fmt, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{
    AttachmentKey, Bandwidth, BootTime, InterfaceName, MacAddress, NetworkName, ProcessStart,
    Resource,
};

/// What the daemon remembers of one attachment. It is the body of a row on disk: fields are
/// only ever added, with a default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    pub key: AttachmentKey,
    pub state: AttachmentState,
    pub resource: Resource,
    #[serde(default)]
    pub pod: PodIdentity,
    pub netns: Netns,
    /// Start of the process that asked for it, and with it of this life of the key: a release
    /// by an earlier process is late and does nothing.
    pub started: ProcessStart,
    /// When the record was first made, on the clock of `started.boot_id`.
    pub created: BootTime,
    pub host_interface: InterfaceName,
    pub host_mac: MacAddress,
    pub pod_mac: MacAddress,
    pub mtu: u32,
    #[serde(default)]
    pub bandwidth: Bandwidth,
    /// For how long the resource is kept for the pod once it is released, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sticky_seconds: Option<u64>,
}

/// How far an allocation has come (a released one has no record).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum AttachmentState {
    /// Written down and answered; the plugin is wiring it. If it has not said so by
    /// `collect_by` and the namespace is dead, GC takes it back.
    Bound { collect_by: BootTime },
    /// The plugin said that the wiring stands.
    Committed { wired: WiredFacts },
}

/// What the plugin found when it had wired the pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WiredFacts {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<InterfaceFacts>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<InterfaceFacts>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceFacts {
    pub name: InterfaceName,
    pub mac: MacAddress,
}

/// The pod, as far as the runtime said. podman gives a name and nothing else.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodIdentity {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

impl PodIdentity {
    /// The pod's interface that `key` is of, where the pod's namespace and name are known.
    pub fn interface_of(&self, key: &AttachmentKey) -> Option<PodInterface> {
        Some(PodInterface {
            network: key.network.clone(),
            interface: key.interface.clone(),
            namespace: self.namespace.clone()?,
            name: self.name.clone()?,
        })
    }
}

/// `namespace/name`, or what is known of it; `-` where nothing is.
impl fmt::Display for PodIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.namespace, &self.name) {
            (Some(namespace), Some(name)) => write!(f, "{namespace}/{name}"),
            (None, Some(name)) => f.write_str(name),
            (Some(namespace), None) => write!(f, "{namespace}/-"),
            (None, None) => f.write_str("-"),
        }
    }
}

/// One interface of a pod by its Kubernetes name: what a later sandbox of the pod may have back.
/// The name may come again with another pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodInterface {
    pub network: NetworkName,
    pub interface: InterfaceName,
    pub namespace: String,
    pub name: String,
}

impl fmt::Display for PodInterface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} on {}/{}", self.namespace, self.name, self.network, self.interface)
    }
}

/// A network namespace as the runtime named it, and what was found there at the time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Netns {
    pub path: PathBuf,
    pub id: NetnsId,
}

/// Device and inode of an nsfs file (stat(2)). They name a namespace for as long as it lives
/// and may be used again afterwards; together with the boot they tell most old ones from new.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NetnsId {
    pub device: u64,
    pub inode: u64,
}
