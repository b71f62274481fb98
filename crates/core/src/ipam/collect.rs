use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use berth_types::{
    AddressSet, Attachment, AttachmentKey, AttachmentState, BootTime, InterfaceName, NetworkName,
    Resource, chain,
};
use tracing::{error, info, instrument, warn};

use super::{EventKind, Ipam, lock, start::address_set};
use crate::{
    fail_point,
    pool::Quarantine,
    pool_task::Cleared,
    ports::{HostError, HostLink, NetnsState, PodOpinions, StoreError, Unwiring},
    sweep::{Evidence, Look, PodEvidence, Verdict},
    turn::Subject,
};

/// One pass of garbage collection.
#[derive(Debug, Clone, Default)]
pub struct GcRequest {
    /// Judge and report only.
    pub dry_run: bool,
    /// What a runtime says is valid on its network. Only that network is looked at then.
    pub runtime: Option<(NetworkName, BTreeSet<AttachmentKey>)>,
}

/// What was found out about one attachment; of those that are simply alive in a dry run only.
#[derive(Debug, Clone)]
pub struct Finding {
    pub key: AttachmentKey,
    /// Collected; in a dry run: would be.
    pub collected: bool,
    pub evidence: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum GcError {
    #[error("cannot list the attachments")]
    Store(#[from] StoreError),
}

/// A link without a record is removed after two looks this far apart: as long as an ADD may take.
const ORPHAN_AGE: Duration = Duration::from_secs(110);

/// The source of pods answers from memory, or with one question to an API server. CRI-O gives a
/// whole GC 30 s, and the plugin waits 25 s for it.
const PODS_ANSWER_WITHIN: Duration = Duration::from_secs(10);

type Links = BTreeMap<InterfaceName, HostLink>;

impl Ipam {
    /// Looks at every attachment and takes back what is dead. It holds no turn while it looks,
    /// goes on after a failure, and looks again under the turn before it collects.
    #[instrument(skip_all, fields(dry_run = request.dry_run))]
    pub async fn collect(&self, request: GcRequest) -> Result<Vec<Finding>, GcError> {
        let mut attachments = self.inner.store.attachments()?;
        if let Some((network, _)) = &request.runtime {
            attachments.retain(|attachment| attachment.key.network == *network);
        }
        let opinions = self.opinions(&attachments).await;
        let known = attachments.iter().map(|it| it.host_interface.clone()).collect();
        let links = match self.inner.host.links(&known).await {
            Ok(links) => Some(links),
            Err(err) => {
                warn!(err = %chain(&err), "cannot list the host's links; they count as there");
                None
            }
        };
        let look = if request.dry_run { Look::Question } else { Look::Counts };
        let mut findings = Vec::new();
        for attachment in &attachments {
            let evidence = self.evidence(attachment, &opinions, links.as_ref(), &request);
            let verdict = self.judge(attachment, &evidence, look);
            if matches!(verdict, Verdict::Keep { .. }) && !request.dry_run {
                continue;
            }
            let mut sentences = evidence.sentences();
            let collected = verdict == Verdict::Collect
                && (request.dry_run
                    || self.collect_one(attachment, evidence.netns, &sentences).await);
            sentences.push(verdict.to_string());
            findings.push(Finding { key: attachment.key.clone(), collected, evidence: sentences });
        }
        if request.runtime.is_none() && !request.dry_run {
            let known: BTreeSet<_> = attachments.iter().map(|it| it.key.clone()).collect();
            lock(&self.inner.sweeper).keep_only(|key| known.contains(key));
            self.sweep_links().await;
        }
        Ok(findings)
    }

    /// What the source of pods says. Whatever it does, a pass comes to its end.
    async fn opinions(&self, attachments: &[Attachment]) -> PodOpinions {
        let asked = self.inner.pods.opinions(attachments);
        let opinions = tokio::time::timeout(PODS_ANSWER_WITHIN, asked).await.unwrap_or_else(|_| {
            let limit = PODS_ANSWER_WITHIN.as_secs();
            PodOpinions::InDoubt(format!("it has not answered within {limit} s"))
        });
        if let PodOpinions::InDoubt(why) = &opinions {
            warn!(why, "the source of pods is in doubt; nothing is collected");
        }
        opinions
    }

    fn evidence(
        &self,
        attachment: &Attachment,
        opinions: &PodOpinions,
        links: Option<&Links>,
        request: &GcRequest,
    ) -> Evidence {
        Evidence {
            age: self.age(attachment),
            under_way: self.is_under_way(attachment),
            netns: self.netns_state(attachment),
            link: links.map(|links| links.contains_key(&attachment.host_interface)),
            pods: match opinions {
                PodOpinions::NoSource => PodEvidence::NoSource,
                PodOpinions::InDoubt(_) => PodEvidence::InDoubt,
                PodOpinions::Alive(alive) if alive.contains(&attachment.key) => PodEvidence::Alive,
                PodOpinions::Alive(_) => PodEvidence::Absent,
            },
            runtime_lists_it: request
                .runtime
                .as_ref()
                .map(|(_, valid)| valid.contains(&attachment.key)),
        }
    }

    /// Not committed, and its plugin may still be at work.
    fn is_under_way(&self, attachment: &Attachment) -> bool {
        let this_boot = attachment.started.boot_id == *self.inner.clock.boot_id();
        match attachment.state {
            AttachmentState::Bound { collect_by } => {
                this_boot && self.inner.clock.now() < collect_by
            }
            AttachmentState::Committed { .. } => false,
        }
    }

    fn judge(&self, attachment: &Attachment, evidence: &Evidence, look: Look) -> Verdict {
        let life = (&attachment.key, &attachment.started);
        lock(&self.inner.sweeper).judge(life, evidence, self.inner.clock.now(), look)
    }

    /// Under its turn, and only if it is still the life that was judged.
    async fn collect_one(
        &self,
        judged: &Attachment,
        netns: NetnsState,
        evidence: &[String],
    ) -> bool {
        let subject = Subject::Attachment(judged.key.clone());
        let Some(_turn) = self.inner.turns.try_take(subject, "GC") else { return false };
        match self.inner.store.attachment(&judged.key) {
            Ok(Some(now)) if now.started == judged.started && now.netns == judged.netns => (),
            Ok(_) => return false,
            Err(err) => {
                error!(key = %judged.key, err = %chain(&err), "cannot read a record to collect");
                return false;
            }
        }
        // Whatever it was judged by: a namespace that is there now, with its link, is a live pod.
        if self.netns_state(judged) != netns {
            return false;
        }
        fail_point!("core::collect::before_release");
        info!(key = %judged.key, pod = %judged.pod, ?evidence, "collecting");
        match self.let_go(judged, None, "garbage collection", EventKind::Collected).await {
            Ok(()) => true,
            Err(err) => {
                error!(key = %judged.key, err = %chain(&err), "cannot collect, will try again");
                false
            }
        }
    }

    /// Links of ours without a record: those that were there at the start may be live pods whose
    /// records were lost and are left alone; the rest is what a killed plugin left.
    async fn sweep_links(&self) {
        // Asked anew, and before the records: what was collected a moment ago is unhooked by now,
        // and what an ADD makes from here on is not seen.
        let Ok(links) = self.inner.host.links(&BTreeSet::new()).await else { return };
        let Some(accounted) = self.accounted() else { return };
        let marked: BTreeSet<InterfaceName> =
            links.iter().filter(|(_, link)| link.marked).map(|(name, _)| name.clone()).collect();
        let present: BTreeSet<InterfaceName> = links.keys().cloned().collect();
        let orphans: Vec<InterfaceName> = {
            let mut unaccounted = lock(&self.inner.unaccounted);
            unaccounted.retain(|name| present.contains(name) && !accounted.contains(name));
            let strangers = marked.iter().filter(|name| !accounted.contains(*name));
            strangers.filter(|name| !unaccounted.contains(*name)).cloned().collect()
        };
        for name in &orphans {
            // Until it is gone, nobody else gets what is routed to it.
            let addresses = links.get(name).map(|link| address_set(&link.addresses));
            if let Some(addresses) = addresses.filter(|it| !it.is_empty()) {
                let cause = Quarantine::Wired(name.clone());
                self.inner.pool.quarantine(Resource::veth(addresses), cause);
            }
        }
        let until = self.inner.clock.now() + self.inner.settings.cool_down;
        self.inner.pool.clear(Cleared::AllButWired(present), until);
        let due = self.orphans_due(orphans);
        if due.is_empty() {
            return;
        }
        let names: Vec<String> = due.iter().map(ToString::to_string).collect();
        info!(links = ?names, "collecting links that no record knows");
        if let Err(err) = self.remove_links(&due).await {
            warn!(err = %chain(&err), "cannot remove links, will try again");
        }
    }

    /// The host links that records explain.
    fn accounted(&self) -> Option<BTreeSet<InterfaceName>> {
        let attachments = self.inner.store.attachments().ok()?;
        Some(attachments.into_iter().map(|it| it.host_interface).collect())
    }

    /// Those that were orphans in an earlier look, far enough apart.
    fn orphans_due(&self, orphans: Vec<InterfaceName>) -> Vec<InterfaceName> {
        let now = self.inner.clock.now();
        let mut seen = lock(&self.inner.orphans);
        let before: HashMap<InterfaceName, BootTime> = std::mem::take(&mut *seen);
        let mut due = Vec::new();
        for name in orphans {
            let first = before.get(&name).copied().unwrap_or(now);
            if now.since(first) >= ORPHAN_AGE {
                due.push(name.clone());
            }
            seen.insert(name, first);
        }
        due
    }

    async fn remove_links(&self, names: &[InterfaceName]) -> Result<(), HostError> {
        // An ADD may have come for one of them since.
        let Some(accounted) = self.accounted() else { return Ok(()) };
        let names: Vec<InterfaceName> =
            names.iter().filter(|name| !accounted.contains(*name)).cloned().collect();
        self.inner.host.unhook(&names).await?;
        fail_point!("core::collect::orphans_unhooked");
        let batch: Vec<Unwiring> = names.iter().filter_map(orphan).collect();
        self.inner.host.reap(&batch).await?;
        fail_point!("core::collect::orphans_reaped");
        Ok(())
    }

    /// Whether nothing of the attachment can be alive. Its path may be gone while the namespace is
    /// mounted elsewhere or held open: then the host's end of its link is still there.
    pub(super) async fn is_dead(&self, attachment: &Attachment) -> bool {
        if !matches!(self.netns_state(attachment), NetnsState::Gone(_)) {
            return false;
        }
        let known = BTreeSet::from([attachment.host_interface.clone()]);
        match self.inner.host.links(&known).await {
            Ok(links) => !links.contains_key(&attachment.host_interface),
            Err(err) => {
                warn!(err = %chain(&err), "cannot list the host's links; they count as there");
                false
            }
        }
    }

    /// A namespace does not outlive its boot, whatever its path and inode say.
    pub(super) fn netns_state(&self, attachment: &Attachment) -> NetnsState {
        if attachment.started.boot_id == *self.inner.clock.boot_id() {
            self.inner.namespaces.look(&attachment.netns)
        } else {
            NetnsState::Gone("the machine has rebooted since")
        }
    }
}

/// A link whose attachment is not known stands for itself.
fn orphan(name: &InterfaceName) -> Option<Unwiring> {
    let key = AttachmentKey::new("orphan", name.as_str(), name.as_str()).ok()?;
    let addresses = AddressSet::default();
    Some(Unwiring { key, host_interface: name.clone(), resource: None, addresses })
}
