use std::{path::PathBuf, time::Duration};

use berth_types::{
    AddressSet, Attachment, AttachmentKey, AttachmentState, Bandwidth, BootId, MacAddress, MacSide,
    Netns, NetnsId, PodIdentity, ProcessStart, chain, host_interface, stable_mac,
};
use tokio::time;
use tracing::{error, info, instrument, warn};

use super::{COMMIT_WITHIN, EventKind, Ipam, ReleasedMeanwhile, Stopping, lock};
use crate::{
    fail_point,
    pool::{Quarantine, Wish},
    pool_task::PoolError,
    ports::{Change, HostError, NetnsError, NetnsState, StoreError, Unwiring},
    reaper::ReapError,
    turn::{Busy, Subject, Turn},
};

#[derive(Debug, Clone)]
pub struct Allocate {
    pub key: AttachmentKey,
    pub netns: PathBuf,
    pub started: ProcessStart,
    pub pod: PodIdentity,
    /// Empty for any.
    pub addresses: AddressSet,
    pub mac: Option<MacAddress>,
    pub bandwidth: Bandwidth,
    /// Keep the resource for the pod for this long after it is released.
    pub sticky: Option<Duration>,
    /// How long the caller waits.
    pub limit: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum AllocateError {
    #[error(transparent)]
    Stopping(#[from] Stopping),
    #[error(transparent)]
    Busy(#[from] Busy),
    #[error(transparent)]
    Late(#[from] ReleasedMeanwhile),
    #[error("the calling process is of boot {boot}, which is not this one")]
    OtherBoot { boot: BootId },
    #[error("the pod's network namespace cannot be used")]
    Netns(#[from] NetnsError),
    #[error("{key} is attached already, in namespace {netns:?}, which is alive")]
    AttachedElsewhere { key: AttachmentKey, netns: PathBuf },
    #[error("{key} has {has} already and cannot change to {wanted}")]
    OtherAddress { key: AttachmentKey, has: AddressSet, wanted: AddressSet },
    #[error("cannot allocate for {key}")]
    Pool {
        key: AttachmentKey,
        #[source]
        source: PoolError,
    },
    #[error("{key} waited for an address until its deadline")]
    TooSlow { key: AttachmentKey },
    #[error("cannot take away what an earlier attachment left")]
    Leftovers(#[from] ReapError),
    #[error("cannot take an earlier attachment off the network")]
    Host(#[from] HostError),
    #[error("cannot record the attachment")]
    Store(#[from] StoreError),
}

impl Ipam {
    /// Gives `key` its addresses; a repeated call gives the same ones.
    ///
    /// **Order matters:** promise, write down, keep. A crash before the write loses a promise
    /// nobody saw; a crash after it leaves a record that the runtime's retry finds, or that its
    /// DEL or GC takes back.
    #[instrument(skip_all, fields(key = %request.key, pod = %request.pod))]
    pub async fn allocate(&self, request: Allocate) -> Result<Attachment, AllocateError> {
        let (key, pod) = (request.key.clone(), request.pod.clone());
        let answer = self.allocate_once(request).await;
        if let Err(err) = &answer {
            self.remember_failure(&key, &pod, chain(err));
        }
        answer
    }

    async fn allocate_once(&self, mut request: Allocate) -> Result<Attachment, AllocateError> {
        // Whether its namespace can be alive is judged by the boot it names.
        if request.started.boot_id != *self.inner.clock.boot_id() {
            return Err(AllocateError::OtherBoot { boot: request.started.boot_id });
        }
        request.started = self.not_in_the_future(request.started);
        if self.inner.stopping.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(Stopping.into());
        }
        let end = time::Instant::now() + request.limit;
        let netns_id = self.inner.namespaces.identify(&request.netns)?;
        let _turns = self.turns(&request.key, &request.pod, "ADD", request.limit).await?;
        self.refuse_late(&request.key, &request.started)?;
        fail_point!("core::allocate::in_turn");
        if let Some(existing) = self.inner.store.attachment(&request.key)? {
            return self.again(existing, request, netns_id).await;
        }
        // Its links have the names that the new ones get.
        self.inner.reaper.settle(&request.key).await?;
        fail_point!("core::allocate::settled");
        self.await_former(&request).await;
        if let Some((predecessor, turn)) = self.predecessor(&request).await? {
            return self.take_over(predecessor, turn, request, netns_id).await;
        }

        let wish = Wish {
            key: request.key.clone(),
            pod: request.pod.interface_of(&request.key),
            addresses: request.addresses,
        };
        // Cut off here, the promise gives itself back.
        let reservation = time::timeout_at(end, self.inner.pool.reserve(wish))
            .await
            .map_err(|_| AllocateError::TooSlow { key: request.key.clone() })?
            .map_err(|source| AllocateError::Pool { key: request.key.clone(), source })?;
        fail_point!("core::allocate::reserved");
        let resource = reservation.resource().clone();
        let attachment = self.attachment_of(request, resource.clone(), netns_id);
        let changes = vec![
            Change::RemoveCooling(resource.id.clone()),
            Change::RemoveReservation(resource.id),
            Change::PutAttachment(Box::new(attachment.clone())),
        ];
        match self.inner.store.commit(changes).await {
            Ok(()) => (),
            Err(StoreError::AddressTaken { address, holder }) => {
                // Given back, it would be promised to the next one, who would fail likewise.
                error!(%address, %holder, "the pool gave out what the store gives to another");
                reservation.condemn(Quarantine::HeldInStore { by: holder.clone() });
                return Err(StoreError::AddressTaken { address, holder }.into());
            }
            Err(err) => return Err(err.into()),
        }
        fail_point!("core::allocate::written");
        reservation.commit();
        self.now_held(&attachment);
        info!(addresses = %attachment.resource.addresses, "allocated");
        Ok(attachment)
    }

    /// The key has a record: the same answer again, or a new life in a new namespace after the
    /// old one died without a DEL (a reboot).
    async fn again(
        &self,
        existing: Attachment,
        request: Allocate,
        netns_id: NetnsId,
    ) -> Result<Attachment, AllocateError> {
        let wanted = request.addresses;
        if !wanted.iter().all(|address| existing.resource.addresses.contains(address)) {
            let has = existing.resource.addresses;
            return Err(AllocateError::OtherAddress { key: request.key, has, wanted });
        }
        let same_netns = existing.netns.id == netns_id && existing.netns.path == request.netns;
        let same_life = same_netns && existing.started.boot_id == request.started.boot_id;
        if !same_life {
            let old_is_dead = matches!(self.netns_state(&existing), NetnsState::Gone(_));
            if !old_is_dead && !same_netns {
                let netns = existing.netns.path;
                return Err(AllocateError::AttachedElsewhere { key: request.key, netns });
            }
            // What the old namespace left on the host has the names that the new links get.
            let left = unwiring(&existing);
            self.inner.host.unhook(std::slice::from_ref(&left.host_interface)).await?;
            fail_point!("core::allocate::old_life_unhooked");
            self.inner.reaper.settle_now(Unwiring { resource: None, ..left }).await?;
            fail_point!("core::allocate::old_life_reaped");
        }
        let resource = existing.resource.clone();
        let mut attachment = self.attachment_of(request, resource, netns_id);
        if same_life {
            // Two calls of one life may come in any order: the record keeps the later start.
            attachment.created = existing.created;
            // What stands already is not the repeated call's to take down when it fails.
            if matches!(existing.state, AttachmentState::Committed { .. }) {
                attachment.state = existing.state.clone();
            }
            if attachment.started.is_before(&existing.started) {
                attachment.started = existing.started.clone();
            }
        }
        self.forget_pod(&existing);
        self.inner.store.commit(vec![Change::PutAttachment(Box::new(attachment.clone()))]).await?;
        fail_point!("core::allocate::rewritten");
        self.now_held(&attachment);
        info!(addresses = %attachment.resource.addresses, same_life, "allocated again");
        Ok(attachment)
    }

    /// The pod's last sandbox was released a moment ago: what it had can be had back once its
    /// links are gone. A link that does not go costs the pod its old address, not its start.
    async fn await_former(&self, request: &Allocate) {
        let pod = request.pod.interface_of(&request.key);
        let Some(former) = pod.and_then(|pod| self.inner.reaper.pending_of(&pod)) else { return };
        if let Err(err) = self.inner.reaper.settle(&former).await {
            warn!(err = %chain(&err), "the pod cannot have its old address back yet");
        }
    }

    /// Another sandbox of the same pod whose namespace is dead, with its turn. Not one that has
    /// addresses which the node does not give out any more.
    async fn predecessor(
        &self,
        request: &Allocate,
    ) -> Result<Option<(Attachment, Turn)>, AllocateError> {
        let Some(pod) = request.pod.interface_of(&request.key) else { return Ok(None) };
        let others: Vec<AttachmentKey> =
            lock(&self.inner.by_pod).get(&pod).into_iter().flatten().cloned().collect();
        for key in others {
            // Whoever has its turn is releasing it: then it is not ours to take. And only under
            // the turn is what is read still so a moment later.
            let subject = Subject::Attachment(key.clone());
            let Some(turn) = self.inner.turns.try_take(subject, "takeover") else { continue };
            let Some(other) = self.inner.store.attachment(&key)? else { continue };
            let has = other.resource.addresses;
            let dead = self.is_dead(&other).await;
            if !dead || !request.addresses.iter().all(|wanted| has.contains(wanted)) {
                continue;
            }
            let foreign = self.inner.pool.is_foreign(other.resource.id.clone()).await;
            if matches!(foreign, Ok(false)) {
                return Ok(Some((other, turn)));
            }
        }
        Ok(None)
    }

    async fn take_over(
        &self,
        predecessor: Attachment,
        _turn: Turn,
        request: Allocate,
        netns_id: NetnsId,
    ) -> Result<Attachment, AllocateError> {
        let left = Unwiring { resource: None, ..unwiring(&predecessor) };
        // Before anything is written: if the dead sandbox's link cannot be deleted, nothing has
        // happened, and its record is as it was.
        self.inner.host.unhook(std::slice::from_ref(&left.host_interface)).await?;
        fail_point!("core::allocate::predecessor_unhooked");
        self.inner.reaper.settle_now(left).await?;
        fail_point!("core::allocate::predecessor_reaped");
        let tombstone = self.tombstone(&predecessor.key, request.started.clone());
        let attachment = self.attachment_of(request, predecessor.resource.clone(), netns_id);
        self.inner
            .store
            .commit(vec![
                Change::RemoveAttachment(predecessor.key.clone()),
                Change::PutTombstone(tombstone.clone()),
                Change::PutAttachment(Box::new(attachment.clone())),
            ])
            .await?;
        fail_point!("core::allocate::taken_over");
        self.entomb(tombstone);
        let id = predecessor.resource.id.clone();
        self.inner.pool.transfer(id, predecessor.key.clone(), attachment.key.clone());
        self.forget_pod(&predecessor);
        self.now_held(&attachment);
        info!(addresses = %attachment.resource.addresses, from = %predecessor.key, "took over");
        Ok(attachment)
    }

    fn now_held(&self, attachment: &Attachment) {
        self.remember_pod(attachment);
        self.tell(EventKind::Allocated, attachment, "");
    }

    fn attachment_of(
        &self,
        request: Allocate,
        resource: berth_types::Resource,
        netns_id: NetnsId,
    ) -> Attachment {
        let now = self.inner.clock.now();
        let settings = &self.inner.settings;
        Attachment {
            state: AttachmentState::Bound { collect_by: now + COMMIT_WITHIN },
            resource,
            pod: request.pod,
            netns: Netns { path: request.netns, id: netns_id },
            started: request.started,
            created: now,
            host_interface: host_interface(&settings.host_prefix, &request.key),
            host_mac: stable_mac(MacSide::Host, &request.key),
            pod_mac: request.mac.unwrap_or_else(|| stable_mac(MacSide::Pod, &request.key)),
            mtu: settings.mtu,
            bandwidth: request.bandwidth,
            sticky_seconds: request.sticky.map(|sticky| sticky.as_secs()),
            key: request.key,
        }
    }
}

/// What a release of `attachment` leaves on the host.
pub(super) fn unwiring(attachment: &Attachment) -> Unwiring {
    Unwiring {
        key: attachment.key.clone(),
        host_interface: attachment.host_interface.clone(),
        resource: Some(attachment.resource.id.clone()),
        addresses: attachment.resource.addresses,
    }
}
