//! The outside world as this crate sees it. Each trait has one production implementation, in a
//! crate of its own, and a small model of it for tests.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error as StdError,
    net::IpAddr,
    num::NonZeroUsize,
};

use async_trait::async_trait;
use berth_types::{
    AddressSet, Attachment, AttachmentKey, BootId, BootTime, Deadline, InterfaceName, Netns,
    NetnsId, PodInterface, ProcessStart, Resource, ResourceId,
};
use serde::{Deserialize, Serialize};

/// The boot-time clock.
pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> BootTime;

    fn boot_id(&self) -> &BootId;
}

/// The durable record of who holds what.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// One consistent record, as last committed.
    fn attachment(&self, key: &AttachmentKey) -> Result<Option<Attachment>, StoreError>;

    /// Every record that can be read, by key. What cannot be read was reported at the start.
    fn attachments(&self) -> Result<Vec<Attachment>, StoreError>;

    /// Makes all of `changes` true or none, in order. They are on disk when this returns `Ok`.
    ///
    /// Fails with [`StoreError::AddressTaken`] when a put attachment's address is indexed for
    /// another key after the changes before it, whatever the caller believes. Removing what is
    /// not there is not an error. Once begun it runs to its end, even if the caller goes away.
    async fn commit(&self, changes: Vec<Change>) -> Result<(), StoreError>;
}

/// One change to the store. The trees they touch are described in the store crate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    PutAttachment(Box<Attachment>),
    RemoveAttachment(AttachmentKey),
    PutTombstone(Tombstone),
    PutCooling(Cooling),
    RemoveCooling(ResourceId),
    PutReservation(Reserved),
    RemoveReservation(ResourceId),
    BeginIntent(Intent),
    EndIntent(IntentId),
}

/// A key that was deleted, and by whom: a call that began earlier is late.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    pub key: AttachmentKey,
    pub deleted_by: ProcessStart,
    /// No plugin lives longer than this.
    pub expires: Deadline,
}

/// A released resource that rests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cooling {
    pub resource: Resource,
    pub deadline: Deadline,
    /// Who had it: they may have it back before the deadline, nobody else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former: Option<Former>,
}

/// Who had a resource before it was released.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Former {
    pub key: AttachmentKey,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodInterface>,
}

/// A resource kept for a pod that will come back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reserved {
    pub pod: PodInterface,
    pub resource: Resource,
    pub deadline: Deadline,
}

/// Names an intent: the attachment's key and what is meant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IntentId(pub String);

/// Written down before the world changes, ended when it has: what a crash leaves half done is
/// finished at the next start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    pub id: IntentId,
    pub what: IntentKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum IntentKind {
    /// The record is erased; the host's links may still be there, and the resource rests until
    /// they are gone.
    Unwire(Unwiring),
}

/// What is left of a released attachment on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unwiring {
    pub key: AttachmentKey,
    pub host_interface: InterfaceName,
    /// What rests until the links are gone; none for a link that had no record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<ResourceId>,
    #[serde(default)]
    pub addresses: AddressSet,
}

/// What the store held when it was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Loaded {
    pub attachments: Vec<Attachment>,
    pub tombstones: Vec<Tombstone>,
    pub cooling: Vec<Cooling>,
    pub reservations: Vec<Reserved>,
    pub intents: Vec<Intent>,
    /// Rows that could not be read and were set aside, with what they may have held.
    pub set_aside: Vec<SetAside>,
    /// Set when the database is older than what was acknowledged, or was rebuilt from its
    /// export: something that is in use may be missing from it.
    pub doubtful: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    pub tree: String,
    pub key: String,
    pub problem: String,
    /// Addresses that the index still gives to the row: they are quarantined.
    pub addresses: BTreeSet<IpAddr>,
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    #[error("address {address} is held by {holder}")]
    AddressTaken { address: IpAddr, holder: AttachmentKey },
    #[error("no space for new records: {free} bytes free in the state directory, {needed} needed")]
    DiskFull { free: u64, needed: u64 },
    /// Memory and disk may differ from here on: the process must end and start again.
    #[error("the store failed")]
    Broken(#[source] std::sync::Arc<dyn StdError + Send + Sync>),
    #[error("record {key} cannot be read: {problem}")]
    BadRow { key: String, problem: String },
    #[error("the store has stopped")]
    Stopped,
}

/// Where a pool's resources come from: a provider. One call per method, no retries inside.
#[async_trait]
pub trait Source: Send + Sync + 'static {
    /// Gives up to `count` resources that nobody holds; fewer is not an error, none is.
    async fn assign(&self, count: NonZeroUsize) -> Result<Vec<Resource>, SourceError>;

    /// Gives the resource with just these addresses; where one family is not named, any of it
    /// goes with it.
    async fn assign_exactly(&self, addresses: AddressSet) -> Result<Resource, SourceError>;

    /// Takes back what is no longer wanted. What it never gave is not an error.
    async fn unassign(&self, resources: Vec<Resource>) -> Result<(), SourceError>;

    /// Whether it could ever give this address; if not, why.
    fn knows(&self, address: IpAddr) -> Result<(), SourceError>;

    /// Told at start what is already out: it is not given again. Answers those that are not of
    /// this source any more (the configuration changed): they may live on but never come back.
    fn adopt(&self, held: &[Resource]) -> Vec<ResourceId>;

    /// As many resources as it could ever have out at once.
    fn capacity(&self) -> usize;
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    #[error("every address of the pod CIDRs is given out")]
    Exhausted,
    #[error("{address} is not an address that this node gives out: {why}")]
    NotOurs { address: IpAddr, why: String },
    #[error("{0} is given out already")]
    Taken(IpAddr),
    #[error("the node gives out no {0} addresses")]
    NoFamily(berth_types::Family),
}

/// The host's side of the network: what a release has to take away.
#[async_trait]
pub trait HostNetwork: Send + Sync + 'static {
    /// Takes attachments off the network at once without waiting for the kernel to free
    /// anything: links down and marked, so that their routes go. Links that are gone are done.
    /// Answers those that were there.
    async fn unhook(&self, links: &[InterfaceName]) -> Result<BTreeSet<InterfaceName>, HostError>;

    /// Deletes the links of `batch` and whatever else belongs to them, waits until they are
    /// gone and forgets connections of their addresses. Safe to repeat. On an error nothing in
    /// `batch` may be taken for gone.
    async fn reap(&self, batch: &[Unwiring]) -> Result<(), HostError>;

    /// All host interfaces that bear our mark, a name of ours or one of `known`, and are not on
    /// their way out.
    async fn links(
        &self,
        known: &BTreeSet<InterfaceName>,
    ) -> Result<BTreeMap<InterfaceName, HostLink>, HostError>;
}

/// A link on the host that bears a name of ours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostLink {
    /// It also bears our mark. One without it may have been changed by somebody: it is there,
    /// and it is not ours to delete.
    pub marked: bool,
    /// The addresses routed to it.
    pub addresses: BTreeSet<IpAddr>,
}

#[derive(Debug, Clone, thiserror::Error)]
#[error("cannot {what}")]
pub struct HostError {
    pub what: String,
    #[source]
    pub source: std::sync::Arc<dyn StdError + Send + Sync>,
}

/// Whether network namespaces live.
pub trait Namespaces: Send + Sync + 'static {
    /// Looks at the path now. `Err` where it is not a network namespace, with the reason.
    fn identify(&self, path: &std::path::Path) -> Result<NetnsId, NetnsError>;

    /// Compares what was recorded with what is there.
    fn look(&self, netns: &Netns) -> NetnsState {
        match self.identify(&netns.path) {
            Ok(id) if id == netns.id => NetnsState::Alive,
            Ok(_) => NetnsState::Gone("its path names another namespace now"),
            Err(NetnsError::Missing { .. }) => NetnsState::Gone("its path is gone"),
            Err(NetnsError::NotANamespace { .. }) => {
                NetnsState::Gone("its path is not a namespace any more")
            }
            Err(NetnsError::Unreadable { .. } | NetnsError::Refused { .. }) => NetnsState::Unknown,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetnsState {
    Alive,
    Gone(&'static str),
    /// It could not be looked at. Never taken for gone.
    Unknown,
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum NetnsError {
    #[error("network namespace {path:?} does not exist")]
    Missing { path: String },
    #[error("{path:?} is not a network namespace")]
    NotANamespace { path: String },
    #[error("{path:?} is refused: {why}")]
    Refused { path: String, why: &'static str },
    #[error("network namespace {path:?} cannot be looked at: {problem}")]
    Unreadable { path: String, problem: String },
}

/// What is known of pods beside what the runtime says. Asked by GC only, never by an ADD.
#[async_trait]
pub trait Pods: Send + Sync + 'static {
    /// The source's opinion of each attachment's pod.
    async fn opinions(&self, attachments: &[Attachment]) -> PodOpinions;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodOpinions {
    /// There is no source: it neither keeps nor condemns.
    NoSource,
    /// The source is there and not in sync: nothing may be collected.
    InDoubt(String),
    /// In sync: these attachments' pods exist, the rest do not.
    Alive(BTreeSet<AttachmentKey>),
}

/// Without Kubernetes: identity comes with the call, liveness from the namespace.
#[derive(Debug, Clone, Copy, Default)]
pub struct StaticPods;

#[async_trait]
impl Pods for StaticPods {
    async fn opinions(&self, _: &[Attachment]) -> PodOpinions {
        PodOpinions::NoSource
    }
}
