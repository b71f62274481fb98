use std::fmt;

use berth_types::{AttachmentKey, BootTime, InterfaceName, PodInterface, Resource};

use super::Wish;
use crate::ports::Former;

/// Who may have a resting resource back before its time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FormerHolder {
    Key(AttachmentKey),
    Pod(PodInterface),
}

/// One resource and where it is in its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    pub resource: Resource,
    pub state: SlotState,
    /// The provider does not know it (any more): it is given to nobody again.
    pub foreign: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SlotState {
    /// Free; zero for one that was never used.
    Idle { since: BootTime },
    /// Promised to a caller who has not written it down yet.
    Promised { by: AttachmentKey, before: Box<SlotState> },
    /// Written down: a pod may be using it.
    Leased { to: AttachmentKey },
    /// Given back a moment ago: peers may still have it cached, and while `wired` the kernel
    /// still has its last holder's links.
    Cooling { until: BootTime, wired: bool, former: Option<Former> },
    /// Kept for a pod that will come back.
    Reserved { pod: PodInterface, until: BootTime, wired: bool },
    /// Something speaks against giving it out.
    Quarantined { cause: Quarantine },
    /// On its way back to the provider.
    Draining,
    /// The provider says that it is not what it was.
    Invalid { why: String },
}

/// What speaks against giving a resource out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Quarantine {
    /// The kernel routes it to this link of ours, and there is no record of it.
    Wired(InterfaceName),
    /// Its record could not be read and was set aside.
    SetAside { row: String },
    /// The store says that another attachment holds it.
    HeldInStore { by: AttachmentKey },
}

impl fmt::Display for Quarantine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wired(interface) => {
                write!(f, "the kernel routes it to {interface} and there is no record of it")
            }
            Self::SetAside { row } => write!(f, "its record {row} was set aside as unreadable"),
            Self::HeldInStore { by } => write!(f, "the store says that {by} holds it"),
        }
    }
}

impl SlotState {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Idle { .. } => "idle",
            Self::Promised { .. } => "promised",
            Self::Leased { .. } => "leased",
            Self::Cooling { .. } => "cooling",
            Self::Reserved { .. } => "reserved",
            Self::Quarantined { .. } => "quarantined",
            Self::Draining => "draining",
            Self::Invalid { .. } => "invalid",
        }
    }

    pub(crate) fn idle_since(&self) -> Option<BootTime> {
        if let Self::Idle { since } = self { Some(*since) } else { None }
    }

    /// Whether it rests and this asker may have it back: its last holder's links are gone.
    pub(super) fn is_for(&self, wish: &Wish) -> bool {
        match self {
            Self::Cooling { former: Some(former), wired: false, .. } => {
                former.key == wish.key || (former.pod.is_some() && former.pod == wish.pod)
            }
            Self::Reserved { pod, wired: false, .. } => wish.pod.as_ref() == Some(pod),
            Self::Cooling { .. }
            | Self::Reserved { .. }
            | Self::Idle { .. }
            | Self::Promised { .. }
            | Self::Leased { .. }
            | Self::Quarantined { .. }
            | Self::Draining
            | Self::Invalid { .. } => false,
        }
    }

    pub(super) fn former_holders(&self) -> Vec<FormerHolder> {
        match self {
            Self::Cooling { former: Some(former), .. } => {
                let pod = former.pod.clone().map(FormerHolder::Pod);
                std::iter::once(FormerHolder::Key(former.key.clone())).chain(pod).collect()
            }
            Self::Reserved { pod, .. } => vec![FormerHolder::Pod(pod.clone())],
            Self::Cooling { former: None, .. }
            | Self::Idle { .. }
            | Self::Promised { .. }
            | Self::Leased { .. }
            | Self::Quarantined { .. }
            | Self::Draining
            | Self::Invalid { .. } => Vec::new(),
        }
    }

    /// When the state ends by itself, its links permitting.
    pub fn ends(&self) -> Option<BootTime> {
        match self {
            Self::Cooling { until, .. } | Self::Reserved { until, .. } => Some(*until),
            Self::Idle { .. }
            | Self::Promised { .. }
            | Self::Leased { .. }
            | Self::Quarantined { .. }
            | Self::Draining
            | Self::Invalid { .. } => None,
        }
    }

    /// Who has it or had it.
    pub fn owner(&self) -> Option<String> {
        match self {
            Self::Promised { by, .. } => Some(by.to_string()),
            Self::Leased { to } => Some(to.to_string()),
            Self::Reserved { pod, .. } => Some(pod.to_string()),
            Self::Cooling { former, .. } => former.as_ref().map(|former| former.key.to_string()),
            Self::Idle { .. }
            | Self::Quarantined { .. }
            | Self::Draining
            | Self::Invalid { .. } => None,
        }
    }

    /// Why nobody gets it, where that is not plain from the state.
    pub fn why(&self) -> Option<String> {
        match self {
            Self::Quarantined { cause } => Some(cause.to_string()),
            Self::Invalid { why } => Some(why.clone()),
            Self::Cooling { wired: true, .. } | Self::Reserved { wired: true, .. } => {
                Some("the links of its last holder are not gone yet".into())
            }
            Self::Cooling { .. } => Some("released a moment ago".into()),
            Self::Reserved { .. } => Some("kept for a pod that will come back".into()),
            Self::Idle { .. } | Self::Promised { .. } | Self::Leased { .. } | Self::Draining => {
                None
            }
        }
    }
}

/// As an error says it: `leased to net/c1/eth0`.
impl fmt::Display for SlotState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Idle { .. } => f.write_str("idle"),
            Self::Promised { by, .. } => write!(f, "promised to {by}"),
            Self::Leased { to } => write!(f, "leased to {to}"),
            Self::Cooling { former: Some(former), .. } => {
                write!(f, "cooling down after {}", former.key)
            }
            Self::Cooling { former: None, .. } => f.write_str("cooling down"),
            Self::Reserved { pod, .. } => write!(f, "reserved for pod {pod}"),
            Self::Quarantined { cause } => write!(f, "in quarantine: {cause}"),
            Self::Draining => f.write_str("on its way back to the provider"),
            Self::Invalid { why } => write!(f, "invalid: {why}"),
        }
    }
}

/// How many slots are in each state. Always counted from the slots, never kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub idle: usize,
    pub promised: usize,
    pub leased: usize,
    pub cooling: usize,
    pub reserved: usize,
    pub quarantined: usize,
    pub draining: usize,
    pub invalid: usize,
}

impl Counts {
    pub(crate) fn of<'a>(slots: impl Iterator<Item = &'a Slot>) -> Self {
        let mut counts = Self::default();
        for slot in slots {
            *(match slot.state {
                SlotState::Idle { .. } => &mut counts.idle,
                SlotState::Promised { .. } => &mut counts.promised,
                SlotState::Leased { .. } => &mut counts.leased,
                SlotState::Cooling { .. } => &mut counts.cooling,
                SlotState::Reserved { .. } => &mut counts.reserved,
                SlotState::Quarantined { .. } => &mut counts.quarantined,
                SlotState::Draining => &mut counts.draining,
                SlotState::Invalid { .. } => &mut counts.invalid,
            }) += 1;
        }
        counts
    }

    pub fn total(&self) -> usize {
        self.idle
            + self.promised
            + self.leased
            + self.cooling
            + self.reserved
            + self.quarantined
            + self.draining
            + self.invalid
    }
}
