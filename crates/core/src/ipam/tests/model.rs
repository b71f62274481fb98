//! Small models of the world: they behave, they do not expect.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use berth_types::{
    AddressSet, Attachment, AttachmentKey, Bandwidth, BootId, BootTime, HostPrefix, NetnsId,
    PodIdentity, ProcessStart, Resource, ResourceId, WiredFacts,
};
use tokio::time;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

mod host;

pub(super) use host::ModelHost;

use super::super::*;
use crate::ports::{
    Change, Clock, Intent, Loaded, Namespaces, NetnsError, PodOpinions, Pods, SetAside, Source,
    SourceError, StaticPods, Store, StoreError,
};

pub(super) fn key(container: &str) -> AttachmentKey {
    AttachmentKey::new("net", container, "eth0").unwrap()
}

pub(super) fn pod(name: &str) -> PodIdentity {
    PodIdentity { namespace: Some("shop".into()), name: Some(name.into()), uid: None }
}

/// The disk: what a restart finds.
#[derive(Default)]
pub(super) struct MemoryStore {
    rows: Mutex<Rows>,
    fail: Mutex<Option<StoreError>>,
}

#[derive(Default, Clone)]
struct Rows {
    loaded: Loaded,
    by_address: BTreeMap<IpAddr, AttachmentKey>,
}

impl Rows {
    fn apply(&mut self, change: Change) -> Result<(), StoreError> {
        let rows = &mut self.loaded;
        match change {
            Change::PutAttachment(new) => {
                for address in new.resource.addresses.iter() {
                    match self.by_address.get(&address) {
                        Some(holder) if *holder != new.key => {
                            return Err(StoreError::AddressTaken {
                                address,
                                holder: holder.clone(),
                            });
                        }
                        Some(_) | None => {
                            self.by_address.insert(address, new.key.clone());
                        }
                    }
                }
                rows.attachments.retain(|it| it.key != new.key);
                rows.attachments.push(*new);
            }
            Change::RemoveAttachment(key) => {
                rows.attachments.retain(|it| it.key != key);
                self.by_address.retain(|_, holder| *holder != key);
            }
            Change::PutTombstone(new) => {
                rows.tombstones.retain(|it| it.key != new.key);
                rows.tombstones.push(new);
            }
            Change::PutCooling(new) => {
                rows.cooling.retain(|it| it.resource.id != new.resource.id);
                rows.cooling.push(new);
            }
            Change::RemoveCooling(id) => rows.cooling.retain(|it| it.resource.id != id),
            Change::PutReservation(new) => {
                rows.reservations.retain(|it| it.resource.id != new.resource.id);
                rows.reservations.push(new);
            }
            Change::RemoveReservation(id) => rows.reservations.retain(|it| it.resource.id != id),
            Change::BeginIntent(new) => {
                rows.intents.retain(|it| it.id != new.id);
                rows.intents.push(new);
            }
            Change::EndIntent(id) => rows.intents.retain(|it| it.id != id),
        }
        Ok(())
    }
}

impl MemoryStore {
    pub(super) fn fail_next(&self, err: StoreError) {
        *self.fail.lock().unwrap() = Some(err);
    }

    /// A record that cannot be read, and the address that the index gives to it.
    pub(super) fn set_aside(&self, key: &str, address: &str) {
        self.rows.lock().unwrap().loaded.set_aside.push(SetAside {
            tree: "attachments".into(),
            key: key.into(),
            problem: "told to".into(),
            addresses: [address.parse().unwrap()].into(),
        });
    }

    pub(super) fn intents(&self) -> Vec<Intent> {
        self.rows.lock().unwrap().loaded.intents.clone()
    }

    fn loaded(&self) -> Loaded {
        self.rows.lock().unwrap().loaded.clone()
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn attachment(&self, key: &AttachmentKey) -> Result<Option<Attachment>, StoreError> {
        Ok(self.loaded().attachments.into_iter().find(|it| it.key == *key))
    }

    fn attachments(&self) -> Result<Vec<Attachment>, StoreError> {
        Ok(self.loaded().attachments)
    }

    async fn commit(&self, changes: Vec<Change>) -> Result<(), StoreError> {
        time::sleep(Duration::from_micros(100)).await;
        if let Some(err) = self.fail.lock().unwrap().take() {
            return Err(err);
        }
        let mut rows = self.rows.lock().unwrap();
        let mut next = rows.clone();
        for change in changes {
            next.apply(change)?;
        }
        *rows = next;
        Ok(())
    }
}

/// Every path is a namespace of its own, unless it was killed.
#[derive(Default)]
pub(super) struct ModelNamespaces {
    there: Mutex<HashMap<PathBuf, u64>>,
    next: Mutex<u64>,
}

impl ModelNamespaces {
    pub(super) fn make(&self, path: &str) {
        let mut next = self.next.lock().unwrap();
        *next += 1;
        self.there.lock().unwrap().entry(path.into()).or_insert(*next);
    }

    pub(super) fn kill(&self, path: &str) {
        self.there.lock().unwrap().remove(Path::new(path));
    }
}

impl Namespaces for ModelNamespaces {
    fn identify(&self, path: &Path) -> Result<NetnsId, NetnsError> {
        let inode = self.there.lock().unwrap().get(path).copied();
        inode
            .map(|inode| NetnsId { device: 4, inode })
            .ok_or_else(|| NetnsError::Missing { path: path.display().to_string() })
    }
}

/// 10.0.0.1, 10.0.0.2 and so on.
pub(super) struct Counting {
    free: Mutex<Vec<u8>>,
    capacity: usize,
}

fn last(resource: &Resource) -> u8 {
    resource.addresses.v4.unwrap().octets()[3]
}

#[async_trait]
impl Source for Counting {
    async fn assign(&self, count: NonZeroUsize) -> Result<Vec<Resource>, SourceError> {
        let mut free = self.free.lock().unwrap();
        let some = count.get().min(free.len());
        if some == 0 {
            return Err(SourceError::Exhausted);
        }
        let make = |n| Resource::veth(AddressSet { v4: Some([10, 0, 0, n].into()), v6: None });
        Ok(free.drain(..some).map(make).collect())
    }

    async fn assign_exactly(&self, addresses: AddressSet) -> Result<Resource, SourceError> {
        let resource = Resource::veth(addresses);
        let mut free = self.free.lock().unwrap();
        let at = free.iter().position(|n| *n == last(&resource));
        let at = at.ok_or(SourceError::Exhausted)?;
        free.remove(at);
        Ok(resource)
    }

    async fn unassign(&self, resources: Vec<Resource>) -> Result<(), SourceError> {
        self.free.lock().unwrap().extend(resources.iter().map(last));
        Ok(())
    }

    fn knows(&self, _: IpAddr) -> Result<(), SourceError> {
        Ok(())
    }

    fn adopt(&self, held: &[Resource]) -> Vec<ResourceId> {
        let held: Vec<u8> = held.iter().map(last).collect();
        self.free.lock().unwrap().retain(|n| !held.contains(n));
        Vec::new()
    }

    fn capacity(&self) -> usize {
        self.capacity
    }
}

struct ModelClock(time::Instant, BootId);

impl Clock for ModelClock {
    /// The world begins 1,000 s after the boot, later than any process start of the tests.
    fn now(&self) -> BootTime {
        BootTime::default() + Duration::from_secs(1000) + self.0.elapsed()
    }

    fn boot_id(&self) -> &BootId {
        &self.1
    }
}

/// A source of pods that never answers, as an API server behind a dead link.
pub(super) struct SilentPods;

#[async_trait]
impl Pods for SilentPods {
    async fn opinions(&self, _: &[Attachment]) -> PodOpinions {
        std::future::pending().await
    }
}

/// A world to start a daemon's heart in.
pub(super) struct Setting {
    pub(super) host: Arc<ModelHost>,
    pub(super) store: Arc<MemoryStore>,
    namespaces: Arc<ModelNamespaces>,
    clock: Arc<ModelClock>,
    pods: Arc<dyn Pods>,
    capacity: usize,
}

pub(super) struct World {
    pub(super) ipam: Ipam,
    pub(super) host: Arc<ModelHost>,
    pub(super) store: Arc<MemoryStore>,
    pub(super) namespaces: Arc<ModelNamespaces>,
    clock: Arc<ModelClock>,
    pods: Arc<dyn Pods>,
    capacity: usize,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Setting {
    pub(super) fn capacity(mut self, capacity: usize) -> Self {
        self.capacity = capacity;
        self
    }

    pub(super) fn pods(mut self, pods: impl Pods) -> Self {
        self.pods = Arc::new(pods);
        self
    }

    pub(super) async fn start(self) -> World {
        let Self { host, store, namespaces, clock, pods, capacity } = self;
        let source = Counting {
            free: Mutex::new((1..=u8::try_from(capacity).unwrap()).collect()),
            capacity,
        };
        let settings = Settings {
            host_prefix: HostPrefix::default(),
            mtu: 1500,
            cool_down: Duration::from_secs(30),
            gc_grace: Duration::from_secs(120),
            gc_looks_apart: Duration::from_secs(55),
        };
        let parts = Parts {
            store: Arc::clone(&store) as _,
            source: Arc::new(source),
            host: Arc::clone(&host) as _,
            namespaces: Arc::clone(&namespaces) as _,
            pods: Arc::clone(&pods),
            clock: Arc::clone(&clock) as _,
            settings,
            min_idle: 0,
            max_idle: 4,
            warm_up: 0,
        };
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let ipam = start(parts, store.loaded(), &tasks, &stop).await.unwrap();
        World { ipam, host, store, namespaces, clock, pods, capacity, stop, tasks }
    }
}

impl World {
    #[allow(clippy::new_ret_no_self, reason = "a world begins with its setting")]
    pub(super) fn new() -> Setting {
        Setting {
            host: Arc::default(),
            store: Arc::default(),
            namespaces: Arc::default(),
            clock: Arc::new(ModelClock(time::Instant::now(), "boot".parse().unwrap())),
            pods: Arc::new(StaticPods),
            capacity: 8,
        }
    }

    /// Nothing but what is on disk and in the kernel is left, and a new process starts.
    pub(super) async fn restart(self) -> World {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        let Self { host, store, namespaces, clock, pods, capacity, .. } = self;
        Setting { host, store, namespaces, clock, pods, capacity }.start().await
    }

    pub(super) fn started(&self, at: u64) -> ProcessStart {
        ProcessStart { boot_id: "boot".parse().unwrap(), at: BootTime::from_nanos(at) }
    }

    fn request(&self, container: &str, name: &str, at: u64, netns: &str) -> Allocate {
        Allocate {
            key: key(container),
            netns: netns.into(),
            started: self.started(at),
            pod: pod(name),
            addresses: AddressSet::default(),
            mac: None,
            bandwidth: Bandwidth::default(),
            sticky: None,
            limit: Duration::from_secs(5),
        }
    }

    pub(super) async fn add(
        &self,
        container: &str,
        name: &str,
        at: u64,
    ) -> Result<Attachment, AllocateError> {
        let netns = format!("/run/netns/{container}");
        self.namespaces.make(&netns);
        self.add_in(container, name, at, &netns).await
    }

    pub(super) async fn add_in(
        &self,
        container: &str,
        name: &str,
        at: u64,
        netns: &str,
    ) -> Result<Attachment, AllocateError> {
        self.ipam.allocate(self.request(container, name, at, netns)).await
    }

    pub(super) async fn add_of_boot(
        &self,
        container: &str,
        boot: &str,
    ) -> Result<Attachment, AllocateError> {
        let netns = format!("/run/netns/{container}");
        let mut request = self.request(container, "web-0", 1, &netns);
        request.started.boot_id = boot.parse().unwrap();
        self.ipam.allocate(request).await
    }

    pub(super) async fn add_sticky(
        &self,
        container: &str,
        name: &str,
        at: u64,
        seconds: u64,
    ) -> Result<Attachment, AllocateError> {
        let netns = format!("/run/netns/{container}");
        self.namespaces.make(&netns);
        let sticky = Some(Duration::from_secs(seconds));
        let request = Allocate { sticky, ..self.request(container, name, at, &netns) };
        self.ipam.allocate(request).await
    }

    pub(super) async fn del(&self, container: &str, at: u64) -> Result<Released, ReleaseError> {
        let release = Release {
            key: key(container),
            started: Some(self.started(at)),
            reason: "DEL".into(),
            only_if_dead: false,
            limit: Duration::from_secs(5),
        };
        self.ipam.release(release).await
    }

    pub(super) async fn commit(&self, container: &str, at: u64) -> Result<(), CommitError> {
        let netns = PathBuf::from(format!("/run/netns/{container}"));
        let inode = self.namespaces.identify(&netns).map_or(0, |id| id.inode);
        let commit = Commit {
            key: key(container),
            started: self.started(at),
            wired: WiredFacts::default(),
            netns_inode: inode,
            limit: Duration::from_secs(5),
        };
        self.ipam.commit(commit).await
    }

    /// The namespace ends, and as in the kernel its links with it.
    pub(super) fn end_netns(&self, container: &str) {
        self.namespaces.kill(&format!("/run/netns/{container}"));
        for record in self.records().iter().filter(|it| it.key == key(container)) {
            self.host.unwire(record.host_interface.as_str());
        }
    }

    pub(super) async fn gc(&self) -> Vec<Finding> {
        self.ipam.collect(GcRequest::default()).await.unwrap()
    }

    pub(super) fn records(&self) -> Vec<Attachment> {
        self.store.loaded().attachments
    }

    pub(super) async fn advance(&self, seconds: u64) {
        time::sleep(Duration::from_secs(seconds)).await;
    }
}
