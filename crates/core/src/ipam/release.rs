use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use berth_types::{AddressSet, Attachment, AttachmentKey, ProcessStart, host_interface};
use tracing::{info, instrument, warn};

use super::{EventKind, Ipam, allocate::unwiring};
use crate::{
    fail_point,
    pool::SlotState,
    pool_task::Cleared,
    ports::{Change, Cooling, Former, HostError, Reserved, StoreError, Tombstone, Unwiring},
    reaper::unwire_intent,
    turn::{Busy, Subject},
};

/// The longest that a resource is kept for a pod that may never come back.
const LONGEST_STICKY: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug, Clone)]
pub struct Release {
    pub key: AttachmentKey,
    /// Start of the process that asks. Without it the present life of the key is meant.
    pub started: Option<ProcessStart>,
    pub reason: String,
    /// Refuse while the namespace is alive.
    pub only_if_dead: bool,
    pub limit: Duration,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Released {
    /// What the key held, if anything.
    pub addresses: Option<AddressSet>,
}

#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    #[error(transparent)]
    Busy(#[from] Busy),
    #[error(
        "{key} is in use: its namespace {netns:?} is alive, there or elsewhere; forced, the release cuts it off"
    )]
    InUse { key: AttachmentKey, netns: PathBuf },
    #[error(
        "{key} has no record and a link on the host: it may be a live pod; forced, the release cuts it off"
    )]
    MayBeInUse { key: AttachmentKey },
    #[error("cannot look at the host's links")]
    Host(#[from] HostError),
    #[error("cannot record the release")]
    Store(#[from] StoreError),
}

impl Ipam {
    /// Takes back what `key` holds. Nothing held is success, and leaves a tombstone all the
    /// same: the ADD that it is meant for may still be on its way.
    ///
    /// **Order matters:** off the network, erase, rest. The erasure, the cool-down and the
    /// intent to delete the links are one commit.
    #[instrument(skip_all, fields(key = %request.key, reason = ?request.reason))]
    pub async fn release(&self, mut request: Release) -> Result<Released, ReleaseError> {
        request.started = request.started.map(|started| self.not_in_the_future(started));
        let subject = Subject::Attachment(request.key.clone());
        let _turn = self.inner.turns.take(subject, "DEL", request.limit).await?;
        fail_point!("core::release::in_turn");
        let Some(attachment) = self.inner.store.attachment(&request.key)? else {
            return self.release_unknown(request).await;
        };
        if let Some(started) = &request.started
            && self.is_late(started, &attachment.started)
        {
            info!("a late release of an earlier life: nothing to do");
            return Ok(Released::default());
        }
        if request.only_if_dead && !self.is_dead(&attachment).await {
            let netns = attachment.netns.path;
            return Err(ReleaseError::InUse { key: request.key, netns });
        }
        self.let_go(&attachment, request.started, &request.reason, EventKind::Released).await?;
        Ok(Released { addresses: Some(attachment.resource.addresses) })
    }

    /// Whether a release is of an earlier life than the one that `life` began: of an earlier
    /// process of this boot, or of a boot that is over.
    fn is_late(&self, release: &ProcessStart, life: &ProcessStart) -> bool {
        let this_boot = self.inner.clock.boot_id();
        let outlived = release.boot_id != *this_boot && life.boot_id == *this_boot;
        outlived || release.is_before(life)
    }

    /// No call of a boot that is over can still come: only one of this boot leaves a tombstone.
    fn tombstone_of(
        &self,
        key: &AttachmentKey,
        started: Option<ProcessStart>,
    ) -> Option<Tombstone> {
        let started = started.filter(|it| it.boot_id == *self.inner.clock.boot_id())?;
        Some(self.tombstone(key, started))
    }

    /// Erases a record whose turn the caller has.
    pub(super) async fn let_go(
        &self,
        attachment: &Attachment,
        started: Option<ProcessStart>,
        reason: &str,
        what: EventKind,
    ) -> Result<(), ReleaseError> {
        let left = unwiring(attachment);
        // It ends the pod's traffic now. If it fails, the reaper still deletes the link, and
        // the address rests until it has.
        if let Err(err) = self.inner.host.unhook(std::slice::from_ref(&left.host_interface)).await {
            warn!(err = %berth_types::chain(&err), "cannot take the pod off the network at once");
        }
        fail_point!("core::release::unhooked");
        let mut changes = vec![
            Change::RemoveAttachment(attachment.key.clone()),
            Change::BeginIntent(unwire_intent(&left)),
        ];
        let tombstone = self.tombstone_of(&attachment.key, started);
        changes.extend(tombstone.clone().map(Change::PutTombstone));
        let (rest, row) = self.rest(attachment);
        changes.push(row);
        self.inner.store.commit(changes).await?;
        fail_point!("core::release::written");
        if let Some(tombstone) = tombstone {
            self.entomb(tombstone);
        }
        self.inner.pool.release(attachment.resource.id.clone(), attachment.key.clone(), rest);
        self.inner.reaper.enqueue(left, attachment.pod.interface_of(&attachment.key));
        self.forget_pod(attachment);
        self.tell(what, attachment, reason);
        info!(addresses = %attachment.resource.addresses, "released");
        Ok(())
    }

    /// How the resource rests, in the pool and on disk.
    fn rest(&self, attachment: &Attachment) -> (SlotState, Change) {
        let (boot, now) = (self.inner.clock.boot_id(), self.inner.clock.now());
        let resource = attachment.resource.clone();
        let pod = attachment.pod.interface_of(&attachment.key);
        if let (Some(pod), Some(seconds)) = (pod.clone(), attachment.sticky_seconds) {
            // However short it is kept, it rests before anyone else gets it.
            let kept =
                Duration::from_secs(seconds).clamp(self.inner.settings.cool_down, LONGEST_STICKY);
            let deadline = self.deadline(kept);
            let until = deadline.due(boot, now);
            let rest = SlotState::Reserved { pod: pod.clone(), until, wired: true };
            return (rest, Change::PutReservation(Reserved { pod, resource, deadline }));
        }
        let former = Some(Former { key: attachment.key.clone(), pod });
        let deadline = self.deadline(self.inner.settings.cool_down);
        let until = deadline.due(boot, now);
        let rest = SlotState::Cooling { until, wired: true, former: former.clone() };
        (rest, Change::PutCooling(Cooling { resource, deadline, former }))
    }

    /// The key has no record. A link of its name may be there all the same, if its record was
    /// lost or its plugin was killed at the wrong moment.
    async fn release_unknown(&self, request: Release) -> Result<Released, ReleaseError> {
        let name = host_interface(&self.inner.settings.host_prefix, &request.key);
        if request.only_if_dead {
            let links = self.inner.host.links(&BTreeSet::from([name.clone()])).await?;
            if links.contains_key(&name) {
                // It may be a live pod whose record was lost.
                return Err(ReleaseError::MayBeInUse { key: request.key });
            }
        }
        // What is being reaped already needs no second hook.
        let was_there = !self.inner.reaper.is_pending(&request.key)
            && self.inner.host.unhook(std::slice::from_ref(&name)).await?.contains(&name);
        fail_point!("core::release::unknown_unhooked");
        let left = Unwiring {
            key: request.key.clone(),
            host_interface: name,
            resource: None,
            addresses: AddressSet::default(),
        };
        // An unreadable record of the key, and what it held, goes with it.
        let mut changes = vec![Change::RemoveAttachment(request.key.clone())];
        if was_there {
            changes.push(Change::BeginIntent(unwire_intent(&left)));
        }
        let tombstone = self.tombstone_of(&request.key, request.started);
        changes.extend(tombstone.clone().map(Change::PutTombstone));
        self.inner.store.commit(changes).await?;
        fail_point!("core::release::unknown_written");
        if let Some(tombstone) = tombstone {
            self.entomb(tombstone);
        }
        let until = self.inner.clock.now() + self.inner.settings.cool_down;
        self.inner.pool.clear(Cleared::RecordOf(request.key), until);
        if was_there {
            warn!(interface = %left.host_interface, "a link without a record goes with its DEL");
            self.inner.reaper.enqueue(left, None);
        }
        Ok(Released::default())
    }
}
