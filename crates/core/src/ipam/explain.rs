use std::{net::IpAddr, time::Duration};

use berth_types::{Attachment, AttachmentKey, BootTime, PodIdentity};

use super::{Ipam, lock};
use crate::{
    pool::Slot,
    pool_task::PoolError,
    ports::{NetnsState, StoreError},
};

/// As many refused allocations as are remembered, for whoever asks why.
const FAILURES_KEPT: usize = 256;

#[derive(Debug, Clone)]
pub enum Question {
    Pod(PodIdentity),
    Address(IpAddr),
    Key(AttachmentKey),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// Whether what was asked for is held, rests or is known otherwise.
    pub found: bool,
    pub verdict: String,
    pub facts: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    #[error("cannot read the records")]
    Store(#[from] StoreError),
    #[error("cannot look at the pool")]
    Pool(#[from] PoolError),
}

/// An allocation that was refused.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    at: BootTime,
    key: AttachmentKey,
    pod: PodIdentity,
    text: String,
}

impl Ipam {
    pub async fn explain(&self, question: Question) -> Result<Explanation, ExplainError> {
        match question {
            Question::Pod(pod) => self.explain_pod(&pod).await,
            Question::Address(address) => self.explain_address(address).await,
            Question::Key(key) => match self.inner.store.attachment(&key)? {
                Some(attachment) => Ok(self.explain_held(&[attachment])),
                None => self.explain_missing(|failure| failure.key == key, key.to_string()).await,
            },
        }
    }

    pub(super) fn remember_failure(&self, key: &AttachmentKey, pod: &PodIdentity, text: String) {
        let mut failures = lock(&self.inner.failures);
        if failures.len() == FAILURES_KEPT {
            failures.pop_front();
        }
        let at = self.inner.clock.now();
        failures.push_back(Failure { at, key: key.clone(), pod: pod.clone(), text });
    }

    async fn explain_pod(&self, pod: &PodIdentity) -> Result<Explanation, ExplainError> {
        let matches = |it: &PodIdentity| {
            it.name == pod.name && (pod.namespace.is_none() || it.namespace == pod.namespace)
        };
        let mut held = self.inner.store.attachments()?;
        held.retain(|attachment| matches(&attachment.pod));
        if held.is_empty() {
            return self.explain_missing(|it| matches(&it.pod), format!("pod {pod}")).await;
        }
        Ok(self.explain_held(&held))
    }

    fn explain_held(&self, held: &[Attachment]) -> Explanation {
        let all: Vec<String> =
            held.iter().map(|attachment| attachment.resource.addresses.to_string()).collect();
        let facts = held.iter().flat_map(|attachment| self.facts(attachment)).collect();
        Explanation { found: true, verdict: format!("it has {}", all.join(" and ")), facts }
    }

    fn facts(&self, attachment: &Attachment) -> Vec<String> {
        let key = &attachment.key;
        let state = match attachment.state {
            berth_types::AttachmentState::Bound { .. } => {
                "its plugin has not said yet that the wiring stands"
            }
            berth_types::AttachmentState::Committed { .. } => "its plugin said the wiring stands",
        };
        let path = attachment.netns.path.display();
        let netns = match self.netns_state(attachment) {
            NetnsState::Alive => format!("its namespace {path} is alive"),
            NetnsState::Gone(how) => format!("its namespace {path} is gone: {how}"),
            NetnsState::Unknown => format!("its namespace {path} could not be looked at"),
        };
        let age = self.age(attachment).as_secs();
        vec![
            format!("attachment {key} of pod {}, {age} s old", attachment.pod),
            format!("host link {}: {state}", attachment.host_interface),
            netns,
        ]
    }

    async fn explain_missing(
        &self,
        is_about: impl Fn(&Failure) -> bool,
        what: String,
    ) -> Result<Explanation, ExplainError> {
        let now = self.inner.clock.now();
        let failures: Vec<Failure> =
            lock(&self.inner.failures).iter().filter(|it| is_about(it)).cloned().collect();
        let told = |failure: &Failure| {
            let ago = now.since(failure.at).as_secs();
            format!("{ago} s ago an ADD for {} failed: {}", failure.key, failure.text)
        };
        let mut facts: Vec<String> = failures.iter().rev().take(5).map(told).collect();
        let verdict = match failures.last() {
            Some(failure) => format!("{what} has no address: {}", failure.text),
            None => {
                facts.push(
                    "no ADD for it has failed lately: the runtime has not asked, \
                            or it was released"
                        .into(),
                );
                format!("{what} has no address and there is no record of it")
            }
        };
        facts.push(format!("the pool: {}", self.inner.pool.count().await?));
        Ok(Explanation { found: false, verdict, facts })
    }

    async fn explain_address(&self, address: IpAddr) -> Result<Explanation, ExplainError> {
        let view = self.inner.pool.view().await?;
        let Some(slot) = view.slots.iter().find(|slot| slot.resource.addresses.contains(address))
        else {
            let verdict = match self.inner.source.knows(address) {
                Ok(()) => format!("{address} is free: nobody has had it since the start"),
                Err(why) => why.to_string(),
            };
            let facts = vec![format!("the pool: {}", view.shortage)];
            return Ok(Explanation { found: false, verdict, facts });
        };
        let mut facts = slot_facts(slot, view.now);
        for attachment in self.inner.store.attachments()? {
            if attachment.resource.addresses.contains(address) {
                facts.extend(self.facts(&attachment));
            }
        }
        Ok(Explanation { found: true, verdict: format!("{address} is {}", slot.state), facts })
    }
}

fn slot_facts(slot: &Slot, now: BootTime) -> Vec<String> {
    let mut facts = Vec::new();
    facts.extend(slot.state.why());
    if let Some(left) = slot.state.ends().map(|at| at.since(now)).filter(|it| *it > Duration::ZERO)
    {
        facts.push(format!("for {} s more", left.as_secs_f64().ceil()));
    }
    if slot.foreign {
        facts.push("it is not of the configured pod CIDRs: it is not given out again".into());
    }
    facts
}
