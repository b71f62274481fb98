//! The use cases behind the RPCs and the loops.

mod allocate;
mod collect;
mod commit;
mod explain;
mod release;
mod start;

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use berth_types::{
    AddressSet, Attachment, AttachmentKey, BootTime, Deadline, HostPrefix, InterfaceName,
    PodIdentity, PodInterface, ProcessStart,
};
use tokio::{sync::broadcast, time};

pub use allocate::{Allocate, AllocateError};
pub use collect::{Finding, GcError, GcRequest};
pub use commit::{Commit, CommitError};
pub use explain::{ExplainError, Explanation, Question};
pub use release::{Release, ReleaseError, Released};
pub use start::{Parts, StartError, start};

use crate::{
    pool_task::{PoolError, PoolHandle, PoolView, Shortage},
    ports::{Clock, HostNetwork, Namespaces, Pods, Source, Store, StoreError, Tombstone},
    reaper::Reaper,
    sweep::Sweeper,
    turn::{Busy, Subject, Turn, Turns},
};

/// What the configuration decides about allocation.
#[derive(Debug, Clone)]
pub struct Settings {
    pub host_prefix: HostPrefix,
    /// MTU of pods' interfaces, in bytes.
    pub mtu: u32,
    /// How long a released address rests.
    pub cool_down: Duration,
    /// Attachments younger than this are never collected.
    pub gc_grace: Duration,
    /// How far apart the two looks are that condemn an attachment.
    pub gc_looks_apart: Duration,
}

/// An allocation that nobody committed by then is GC's, once its namespace is dead: as long as
/// the plugin ever takes for an ADD.
const COMMIT_WITHIN: Duration = Duration::from_secs(110);

/// How long a tombstone stands: longer than any plugin that could still come late. The plugin
/// ends itself after 110 s; one that was stopped (SIGSTOP) may be later than that.
const TOMBSTONE_LIFE: Duration = Duration::from_secs(600);

/// Watchers that lag further behind than this start again.
const CHANGES_KEPT: usize = 1024;

/// One change of the world, for whoever watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub what: EventKind,
    pub key: AttachmentKey,
    pub addresses: AddressSet,
    pub pod: PodIdentity,
    pub reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    Allocated,
    Committed,
    Released,
    Collected,
}

/// Shared by all calls and loops; cheap to clone.
#[derive(Clone)]
pub struct Ipam {
    inner: Arc<Inner>,
}

struct Inner {
    settings: Settings,
    store: Arc<dyn Store>,
    pool: PoolHandle,
    source: Arc<dyn Source>,
    host: Arc<dyn HostNetwork>,
    namespaces: Arc<dyn Namespaces>,
    pods: Arc<dyn Pods>,
    clock: Arc<dyn Clock>,
    turns: Turns,
    reaper: Reaper,
    tombstones: Mutex<HashMap<AttachmentKey, Tombstone>>,
    by_pod: Mutex<HashMap<PodInterface, BTreeSet<AttachmentKey>>>,
    sweeper: Mutex<Sweeper>,
    /// Host links that were there at the start without a record. They may be live pods whose
    /// records were lost, so nothing takes them down.
    unaccounted: Mutex<BTreeSet<InterfaceName>>,
    /// Links that no record explains, with the first look at each.
    orphans: Mutex<HashMap<InterfaceName, BootTime>>,
    failures: Mutex<VecDeque<explain::Failure>>,
    events: broadcast::Sender<Event>,
    stopping: AtomicBool,
}

/// The daemon refuses new work because it is about to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the daemon is stopping")]
pub struct Stopping;

/// A call that began before its attachment was deleted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key} was released by a process that started after this one")]
pub struct ReleasedMeanwhile {
    pub key: AttachmentKey,
}

impl Ipam {
    /// New allocations are refused from here on; the rest goes on.
    pub fn begin_stop(&self) {
        self.inner.stopping.store(true, Ordering::Relaxed);
    }

    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.inner.events.subscribe()
    }

    pub fn attachment(&self, key: &AttachmentKey) -> Result<Option<Attachment>, StoreError> {
        self.inner.store.attachment(key)
    }

    pub fn attachments(&self) -> Result<Vec<Attachment>, StoreError> {
        self.inner.store.attachments()
    }

    pub async fn pool(&self) -> Result<PoolView, PoolError> {
        self.inner.pool.view().await
    }

    pub async fn shortage(&self) -> Result<Shortage, PoolError> {
        self.inner.pool.count().await
    }

    /// Whether every host link of ours that was there at the start has a record, or is gone.
    pub fn is_accounted(&self) -> bool {
        lock(&self.inner.unaccounted).is_empty()
    }

    /// How long ago the record was made. One of another boot is at least as old as this boot.
    pub fn age(&self, attachment: &Attachment) -> Duration {
        if attachment.started.boot_id == *self.inner.clock.boot_id() {
            self.inner.clock.now().since(attachment.created)
        } else {
            self.inner.clock.now().since(BootTime::default())
        }
    }

    /// The turn of an attachment, and of its pod where one is named.
    async fn turns(
        &self,
        key: &AttachmentKey,
        pod: &PodIdentity,
        who: &'static str,
        limit: Duration,
    ) -> Result<(Turn, Option<Turn>), Busy> {
        let end = time::Instant::now() + limit;
        let attachment =
            self.inner.turns.take(Subject::Attachment(key.clone()), who, limit).await?;
        // Always in this order, so that two calls cannot wait for each other.
        let pod = match pod.interface_of(key) {
            Some(pod) => {
                let left = end.saturating_duration_since(time::Instant::now());
                Some(self.inner.turns.take(Subject::Pod(pod), who, left).await?)
            }
            None => None,
        };
        Ok((attachment, pod))
    }

    /// Whether `started` is late: the key was deleted by a process that started after it.
    fn refuse_late(
        &self,
        key: &AttachmentKey,
        started: &ProcessStart,
    ) -> Result<(), ReleasedMeanwhile> {
        let tombstones = lock(&self.inner.tombstones);
        match tombstones.get(key) {
            Some(stone) if started.is_before(&stone.deleted_by) => {
                Err(ReleasedMeanwhile { key: key.clone() })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// A start later than now would outrank every call to come.
    fn not_in_the_future(&self, started: ProcessStart) -> ProcessStart {
        let now = self.inner.clock.now();
        let at = if started.boot_id == *self.inner.clock.boot_id() {
            started.at.min(now)
        } else {
            started.at
        };
        ProcessStart { at, ..started }
    }

    /// A tombstone stands until it expires, even when the key lives again, and never goes back
    /// to an earlier DEL than it knows of.
    fn tombstone(&self, key: &AttachmentKey, deleted_by: ProcessStart) -> Tombstone {
        let known = lock(&self.inner.tombstones).get(key).map(|stone| stone.deleted_by.clone());
        let deleted_by = known.filter(|it| deleted_by.is_before(it)).unwrap_or(deleted_by);
        Tombstone { key: key.clone(), deleted_by, expires: self.deadline(TOMBSTONE_LIFE) }
    }

    /// Remembers a tombstone that is on disk, and forgets those whose time is over.
    fn entomb(&self, tombstone: Tombstone) {
        let (boot, now) = (self.inner.clock.boot_id(), self.inner.clock.now());
        let mut tombstones = lock(&self.inner.tombstones);
        if tombstones.len() >= 1024 && tombstones.len().is_power_of_two() {
            tombstones.retain(|_, stone| stone.expires.due(boot, now) > now);
        }
        tombstones.insert(tombstone.key.clone(), tombstone);
    }

    fn deadline(&self, length: Duration) -> Deadline {
        Deadline::new(self.inner.clock.boot_id().clone(), self.inner.clock.now(), length)
    }

    fn remember_pod(&self, attachment: &Attachment) {
        if let Some(pod) = attachment.pod.interface_of(&attachment.key) {
            lock(&self.inner.by_pod).entry(pod).or_default().insert(attachment.key.clone());
        }
    }

    fn forget_pod(&self, attachment: &Attachment) {
        let Some(pod) = attachment.pod.interface_of(&attachment.key) else { return };
        let mut by_pod = lock(&self.inner.by_pod);
        if let Some(keys) = by_pod.get_mut(&pod) {
            keys.remove(&attachment.key);
            if keys.is_empty() {
                by_pod.remove(&pod);
            }
        }
    }

    fn tell(&self, what: EventKind, attachment: &Attachment, reason: &str) {
        // Nobody watching is the usual case.
        let _ = self.inner.events.send(Event {
            what,
            key: attachment.key.clone(),
            addresses: attachment.resource.addresses,
            pod: attachment.pod.clone(),
            reason: reason.to_owned(),
        });
    }
}

impl std::fmt::Debug for Ipam {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ipam").field("settings", &self.inner.settings).finish_non_exhaustive()
    }
}

/// These locks are held for a few lines and never across an await.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
