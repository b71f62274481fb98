//! What an attachment means to the kernel: a plan, and its execution.
//!
//! **Invariant:** [`plan`] decides and never acts; what executes it acts and never decides. The
//! plan that ADD runs is the plan that CHECK compares with.

#![allow(unused_variables, clippy::unused_async, clippy::todo)]

use std::{net::IpAddr, path::Path};

use berth_types::{HostPrefix, InterfaceFacts, InterfaceName, NetConf, NetnsId};
use ipnet::IpNet;
use std::collections::BTreeSet;

#[derive(Debug, thiserror::Error)]
pub enum NetnsError {
    #[error("network namespace {0:?} does not exist")]
    Missing(std::path::PathBuf),
    #[error("{0:?} is not a network namespace")]
    NotANamespace(std::path::PathBuf),
    #[error("{0:?} is the host's own network namespace")]
    Own(std::path::PathBuf),
    #[error("network namespace {path:?} cannot be opened")]
    Open { path: std::path::PathBuf, source: std::io::Error },
}

/// An open network namespace that is not our own.
#[derive(Debug)]
pub struct PodNetns {}

/// Identity of the namespace at `path`, without entering it.
pub fn identify(path: &Path) -> Result<NetnsId, NetnsError> {
    todo!()
}

impl PodNetns {
    pub fn open(path: &Path) -> Result<Self, NetnsError> {
        todo!()
    }

    pub fn id(&self) -> NetnsId {
        todo!()
    }
}

/// Wires `conf` into `netns`; repeating it changes nothing. On a failure everything that this
/// call changed is taken back.
pub async fn attach(netns: &PodNetns, conf: &NetConf) -> Result<Attached, AttachError> {
    todo!()
}

/// What was wired, and how to take it back.
#[derive(Debug)]
pub struct Attached {
    pub host: InterfaceFacts,
    pub pod: InterfaceFacts,
}

impl Attached {
    /// Takes back what the attach changed (and nothing that was there before it).
    pub async fn undo(self) -> Result<(), AttachError> {
        todo!()
    }
}

/// Kernel against plan: one sentence for each difference, empty when all is right. `expected_mac`
/// replaces the pod's MAC where a later plugin of the chain changed it.
pub async fn check(netns: &PodNetns, conf: &NetConf) -> Result<Vec<String>, AttachError> {
    todo!()
}

#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The pod has an interface of that name that is not ours.
    #[error("interface {0} exists already in the pod's network namespace")]
    InterfaceExists(InterfaceName),
    #[error("{0}")]
    Other(String),
}

/// The host's side, for the daemon.
#[derive(Debug)]
pub struct Host {}

impl Host {
    /// Inside a tokio runtime, in the host's network namespace.
    pub fn open(prefix: HostPrefix) -> Result<Self, AttachError> {
        todo!()
    }

    /// Takes the links off the network at once, without waiting for the kernel to free anything.
    pub async fn unhook(&self, links: &[InterfaceName]) -> Result<(), AttachError> {
        todo!()
    }

    /// Deletes the links and their ifbs in one batch, waits until they are gone, and forgets
    /// connections of the addresses.
    pub async fn reap(
        &self,
        links: &[InterfaceName],
        addresses: &[IpAddr],
    ) -> Result<(), AttachError> {
        todo!()
    }

    pub async fn links(&self) -> Result<BTreeSet<InterfaceName>, AttachError> {
        todo!()
    }

    /// Forwarding on where it is off, masquerade of `pod_cidrs` to the outside.
    pub async fn prepare(&self, pod_cidrs: &[IpNet], masquerade: bool) -> Result<(), AttachError> {
        todo!()
    }

    /// A route or address of the node that overlaps one of `pod_cidrs` and is not ours.
    pub async fn overlap(
        &self,
        pod_cidrs: &[IpNet],
    ) -> Result<Option<(IpNet, String)>, AttachError> {
        todo!()
    }

    /// MTU of the link with the default route, if there is one.
    pub async fn uplink_mtu(&self) -> Result<Option<u32>, AttachError> {
        todo!()
    }
}
