use std::{collections::BTreeSet, fmt, process::Command, time::Duration};

use serde_json::Value;

use crate::eventually;

/// Everything the kernel holds of the network in this thread's namespace, one fact a line, as
/// `ip`, `tc` and `nft` tell it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot(BTreeSet<String>);

/// What to ask, and by which word its facts are marked. Entries that come and go by themselves
/// (neighbours that were looked up, the multicast routes of a link) are not asked for.
const QUESTIONS: &[(&str, &str)] = &[
    ("link", "ip -br link"),
    ("address", "ip -o addr"),
    ("route", "ip -4 route show table all"),
    ("route", "ip -6 route show table all"),
    ("rule", "ip -4 rule"),
    ("rule", "ip -6 rule"),
    ("neighbour", "ip neigh show nud permanent"),
    ("qdisc", "tc qdisc"),
    ("nft", "nft list ruleset"),
];

impl Snapshot {
    /// # Panics
    /// When one of the programs cannot be asked.
    pub fn take() -> Self {
        let mut facts = BTreeSet::new();
        for (kind, question) in QUESTIONS {
            for line in berth_testkit::run(question).lines() {
                // The number of a link is new with each link, and says nothing.
                let line = match *kind {
                    "link" => line.split('@').next(),
                    "address" => line.split_once(": ").map(|(_, fact)| fact),
                    _ => Some(line),
                };
                let fact = without_counts(line.unwrap_or_default().trim());
                if !fact.is_empty() {
                    facts.insert(format!("{kind} {fact}"));
                }
            }
        }
        facts.extend(filters());
        Self(facts)
    }

    /// Facts that were not there `before`.
    pub fn added_since(&self, before: &Self) -> Vec<String> {
        self.0.difference(&before.0).cloned().collect()
    }

    /// Facts of `before` that are gone.
    pub fn gone_since(&self, before: &Self) -> Vec<String> {
        before.0.difference(&self.0).cloned().collect()
    }

    /// Facts that mention `text`.
    pub fn about(&self, text: &str) -> Vec<&str> {
        self.0.iter().map(String::as_str).filter(|fact| fact.contains(text)).collect()
    }

    /// Waits until the kernel is as it was when this was taken: links are freed by a reaper, some
    /// time after the DEL was answered.
    ///
    /// # Panics
    /// When it is not within 10 s, with every difference.
    #[track_caller]
    pub fn wait_until_again(&self) {
        eventually(Duration::from_secs(10), || {
            let now = Self::take();
            let (added, gone) = (now.added_since(self), now.gone_since(self));
            if added.is_empty() && gone.is_empty() {
                Ok(())
            } else {
                Err(format!("left behind: {added:#?}, lost: {gone:#?}"))
            }
        });
    }
}

/// A rule of nft without what passed it so far: `counter packets 2 bytes 120`.
fn without_counts(fact: &str) -> String {
    let Some((before, after)) = fact.split_once("counter packets ") else {
        return fact.to_owned();
    };
    let rest: Vec<&str> = after.split(' ').skip(3).collect();
    format!("{before}counter {}", rest.join(" "))
}

/// The filters of every link. One that is deleted meanwhile has none.
fn filters() -> Vec<String> {
    let mut facts = Vec::new();
    for line in berth_testkit::run("ip -br link").lines() {
        let link = line.split_whitespace().next().unwrap_or_default();
        let link = link.split('@').next().unwrap_or_default();
        for part in [&["root"][..], &["parent", "ffff:"]] {
            let shown =
                Command::new("tc").args(["filter", "show", "dev", link]).args(part).output();
            let shown =
                String::from_utf8_lossy(&shown.expect("tc is iproute2's").stdout).into_owned();
            facts.extend(shown.lines().map(|filter| format!("filter {link} {filter}")));
        }
    }
    facts
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|fact| writeln!(f, "{fact}"))
    }
}

/// The options of every tbf on the node, the slowest first.
pub fn shapers() -> Vec<Value> {
    let qdiscs: Vec<Value> = serde_json::from_str(&berth_testkit::run("tc -j qdisc")).unwrap();
    let mut shapers: Vec<Value> = qdiscs
        .into_iter()
        .filter(|qdisc| qdisc["kind"] == "tbf")
        .map(|mut qdisc| qdisc["options"].take())
        .collect();
    shapers.sort_by_key(|options| options["rate"].as_u64());
    shapers
}
