//! Whether an attachment is dead, as a decision without I/O.
//!
//! An attachment is collected by a quorum of evidence: it is older than the grace, it was found
//! dead in two looks apart in time, and nobody who could know vouches for it. Whatever cannot
//! be looked at speaks for its life.

use std::{collections::HashMap, fmt, time::Duration};

use berth_types::{AttachmentKey, BootTime, ProcessStart};

use crate::ports::NetnsState;

/// What was found out about one attachment in one look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Evidence {
    pub(crate) age: Duration,
    /// Its ADD has not committed and may still be at work.
    pub(crate) under_way: bool,
    pub(crate) netns: NetnsState,
    /// Whether the host still has its link; `None` where that could not be asked.
    pub(crate) link: Option<bool>,
    pub(crate) pods: PodEvidence,
    /// Whether a runtime that was asked lists it; `None` where none was.
    pub(crate) runtime_lists_it: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PodEvidence {
    NoSource,
    InDoubt,
    Alive,
    Absent,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Keep {
        because: &'static str,
    },
    /// Dead in this look; the next one, `more` later at the earliest, decides.
    Suspect {
        more: Duration,
    },
    Collect,
}

/// Remembers the first look of each suspect.
#[derive(Debug)]
pub(crate) struct Sweeper {
    grace: Duration,
    looks_apart: Duration,
    suspects: HashMap<AttachmentKey, (ProcessStart, BootTime)>,
}

/// Whether a look counts towards the two, or is somebody's question only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    Counts,
    Question,
}

impl Sweeper {
    pub(crate) fn new(grace: Duration, looks_apart: Duration) -> Self {
        Self { grace, looks_apart, suspects: HashMap::new() }
    }

    /// `started` names the life of the key: a new one starts without suspicion.
    pub(crate) fn judge(
        &mut self,
        (key, started): (&AttachmentKey, &ProcessStart),
        evidence: &Evidence,
        now: BootTime,
        look: Look,
    ) -> Verdict {
        if let Some(because) = self.alive(evidence) {
            if look == Look::Counts {
                self.suspects.remove(key);
            }
            return Verdict::Keep { because };
        }
        // The runtime itself says so, and the namespace is dead: its list is the second look.
        if evidence.runtime_lists_it == Some(false) && matches!(evidence.netns, NetnsState::Gone(_))
        {
            return Verdict::Collect;
        }
        let first = match self.suspects.get(key) {
            Some((life, first)) if life == started => *first,
            Some(_) | None => {
                if look == Look::Counts {
                    self.suspects.insert(key.clone(), (started.clone(), now));
                }
                now
            }
        };
        let apart = now.since(first);
        if apart >= self.looks_apart && first != now {
            return Verdict::Collect;
        }
        Verdict::Suspect { more: self.looks_apart.saturating_sub(apart) }
    }

    /// Forgets suspects that have no record any more.
    pub(crate) fn keep_only(&mut self, known: impl Fn(&AttachmentKey) -> bool) {
        self.suspects.retain(|key, _| known(key));
    }

    fn alive(&self, evidence: &Evidence) -> Option<&'static str> {
        if evidence.age < self.grace {
            return Some("it is younger than the grace");
        }
        if evidence.under_way {
            return Some("its ADD may still be under way");
        }
        // A link goes with the namespace of either of its ends. While the host's is there, so is
        // the pod's namespace, be it held open or mounted elsewhere. And without its link a live
        // namespace is a pod no more; a runtime's list is no reason to look that far.
        match (evidence.link, &evidence.netns) {
            (_, NetnsState::Unknown) => return Some("its namespace could not be looked at"),
            (None, _) => return Some("the host's links could not be asked for"),
            (Some(true), NetnsState::Alive) => return Some("its namespace is alive"),
            (Some(true), NetnsState::Gone(_)) => {
                return Some("its host link is there, so its namespace lives somewhere");
            }
            (Some(false), NetnsState::Alive) if evidence.runtime_lists_it.is_some() => {
                return Some("its namespace is alive");
            }
            (Some(false), NetnsState::Alive | NetnsState::Gone(_)) => (),
        }
        match evidence.pods {
            PodEvidence::InDoubt => Some("the source of pods is not in sync"),
            PodEvidence::Alive => Some("the source of pods knows its pod"),
            PodEvidence::NoSource | PodEvidence::Absent => match evidence.runtime_lists_it {
                Some(true) => Some("the runtime lists it"),
                Some(false) | None => None,
            },
        }
    }
}

/// As the log says it, one sentence for each piece.
impl Evidence {
    pub(crate) fn sentences(&self) -> Vec<String> {
        let mut all = vec![format!("it is {} s old", self.age.as_secs())];
        all.push(match self.netns {
            NetnsState::Alive => "its namespace is alive".into(),
            NetnsState::Gone(how) => format!("its namespace is gone: {how}"),
            NetnsState::Unknown => "its namespace could not be looked at".into(),
        });
        match self.link {
            Some(true) => all.push("its host link is there".into()),
            Some(false) => all.push("its host link is gone".into()),
            None => all.push("the host's links could not be asked for".into()),
        }
        match self.pods {
            PodEvidence::NoSource => (),
            PodEvidence::InDoubt => all.push("the source of pods is not in sync".into()),
            PodEvidence::Alive => all.push("the source of pods knows its pod".into()),
            PodEvidence::Absent => all.push("the source of pods does not know its pod".into()),
        }
        match self.runtime_lists_it {
            Some(true) => all.push("the runtime lists it as valid".into()),
            Some(false) => all.push("the runtime does not list it as valid".into()),
            None => (),
        }
        all
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keep { because } => write!(f, "kept: {because}"),
            Self::Suspect { more } => {
                write!(f, "suspect: another look in {} s or more decides", more.as_secs())
            }
            Self::Collect => f.write_str("dead"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GRACE: Duration = Duration::from_secs(120);
    const APART: Duration = Duration::from_secs(30);

    fn key() -> AttachmentKey {
        AttachmentKey::new("net", "c1", "eth0").unwrap()
    }

    fn life(at: u64) -> ProcessStart {
        ProcessStart { boot_id: "b".parse().unwrap(), at: BootTime::from_nanos(at) }
    }

    fn dead() -> Evidence {
        Evidence {
            age: GRACE,
            under_way: false,
            netns: NetnsState::Gone("its path is gone"),
            link: Some(false),
            pods: PodEvidence::NoSource,
            runtime_lists_it: None,
        }
    }

    fn now(seconds: u64) -> BootTime {
        BootTime::default() + Duration::from_secs(1000 + seconds)
    }

    fn judge(sweeper: &mut Sweeper, evidence: &Evidence, at: u64) -> Verdict {
        sweeper.judge((&key(), &life(1)), evidence, now(at), Look::Counts)
    }

    #[test]
    fn the_dead_are_collected_at_the_second_look_and_not_before_its_time() {
        let mut sweeper = Sweeper::new(GRACE, APART);
        assert_eq!(judge(&mut sweeper, &dead(), 0), Verdict::Suspect { more: APART });
        assert!(matches!(judge(&mut sweeper, &dead(), 29), Verdict::Suspect { .. }));
        assert_eq!(judge(&mut sweeper, &dead(), 30), Verdict::Collect);
    }

    #[test]
    fn a_look_that_finds_life_starts_the_count_again() {
        let mut sweeper = Sweeper::new(GRACE, APART);
        judge(&mut sweeper, &dead(), 0);
        judge(&mut sweeper, &Evidence { netns: NetnsState::Alive, link: Some(true), ..dead() }, 20);
        assert!(matches!(judge(&mut sweeper, &dead(), 40), Verdict::Suspect { .. }));
    }

    #[test]
    fn a_new_life_of_the_key_is_not_condemned_by_the_old_ones_look() {
        let mut sweeper = Sweeper::new(GRACE, APART);
        judge(&mut sweeper, &dead(), 0);
        let verdict = sweeper.judge((&key(), &life(2)), &dead(), now(60), Look::Counts);
        assert!(matches!(verdict, Verdict::Suspect { .. }));
    }

    #[test]
    fn a_question_does_not_count_as_a_look() {
        let mut sweeper = Sweeper::new(GRACE, APART);
        sweeper.judge((&key(), &life(1)), &dead(), now(0), Look::Question);
        assert!(matches!(judge(&mut sweeper, &dead(), 60), Verdict::Suspect { .. }));
    }

    #[test]
    fn a_runtimes_list_is_the_second_look_for_what_has_no_namespace() {
        let mut sweeper = Sweeper::new(GRACE, APART);
        let listed = |it| Evidence { runtime_lists_it: Some(it), ..dead() };
        assert_eq!(judge(&mut sweeper, &listed(false), 0), Verdict::Collect);
        assert!(matches!(judge(&mut sweeper, &listed(true), 0), Verdict::Keep { .. }));
        let alive = Evidence { netns: NetnsState::Alive, ..listed(false) };
        for at in [0, 60] {
            let verdict = judge(&mut sweeper, &alive, at);
            assert_eq!(verdict, Verdict::Keep { because: "its namespace is alive" });
        }
    }

    #[test]
    fn a_pod_source_in_doubt_keeps_everything() {
        let mut sweeper = Sweeper::new(GRACE, APART);
        for at in [0, 100, 200] {
            let evidence = Evidence { pods: PodEvidence::InDoubt, ..dead() };
            assert!(matches!(judge(&mut sweeper, &evidence, at), Verdict::Keep { .. }));
        }
    }

    #[test]
    fn a_namespace_whose_path_is_gone_lives_while_the_hosts_end_of_its_link_is_there() {
        let mut sweeper = Sweeper::new(GRACE, APART);
        for (link, at) in [(Some(true), 0), (None, 60), (Some(true), 120)] {
            for listed in [None, Some(false)] {
                let evidence = Evidence { link, runtime_lists_it: listed, ..dead() };
                let verdict = judge(&mut sweeper, &evidence, at);
                assert!(matches!(verdict, Verdict::Keep { .. }), "{evidence:?}: {verdict:?}");
            }
        }
        assert_eq!(judge(&mut sweeper, &dead(), 180), Verdict::Suspect { more: APART });
    }

    fn any_evidence() -> impl Strategy<Value = Evidence> {
        let netns = prop_oneof![
            Just(NetnsState::Alive),
            Just(NetnsState::Gone("its path is gone")),
            Just(NetnsState::Unknown)
        ];
        let pods = prop_oneof![
            Just(PodEvidence::NoSource),
            Just(PodEvidence::InDoubt),
            Just(PodEvidence::Alive),
            Just(PodEvidence::Absent)
        ];
        (0..300u64, netns, prop::option::of(any::<bool>()), pods, prop::option::of(any::<bool>()))
            .prop_map(|(age, netns, link, pods, runtime_lists_it)| Evidence {
                age: Duration::from_secs(age),
                under_way: false,
                netns,
                link,
                pods,
                runtime_lists_it,
            })
    }

    proptest! {
        /// Whatever is seen in whatever order: nothing young, vouched for, unclear or alive with
        /// its link is ever collected, and nobody on a single look of ours.
        #[test]
        fn nothing_that_may_live_is_collected(
            looks in prop::collection::vec((any_evidence(), 0..60u64, any::<bool>(), any::<bool>()), 1..60),
        ) {
            let mut sweeper = Sweeper::new(GRACE, APART);
            let mut at = 0;
            let mut dead_since: Option<u64> = None;
            let mut current = 1;
            for (evidence, later, question, reborn) in looks {
                at += later;
                if reborn {
                    current += 1;
                    dead_since = None;
                }
                let look = if question { Look::Question } else { Look::Counts };
                let verdict = sweeper.judge((&key(), &life(current)), &evidence, now(at), look);
                let may_live = evidence.age < GRACE
                    || evidence.netns == NetnsState::Unknown
                || evidence.link != Some(false)
                || (evidence.netns == NetnsState::Alive && evidence.runtime_lists_it.is_some())
                    || matches!(evidence.pods, PodEvidence::InDoubt | PodEvidence::Alive)
                    || evidence.runtime_lists_it == Some(true);
                if verdict == Verdict::Collect {
                    prop_assert!(!may_live);
                    let by_list = evidence.runtime_lists_it == Some(false)
                        && matches!(evidence.netns, NetnsState::Gone(_));
                    prop_assert!(by_list || dead_since.is_some_and(|since| at - since >= 30));
                }
                if look == Look::Counts {
                    dead_since = if may_live { None } else { dead_since.or(Some(at)) };
                }
            }
        }
    }
}
