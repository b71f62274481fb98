//! What the daemon may have done: every order of the calls that were under way at once.

use std::collections::{BTreeMap, BTreeSet};

/// Containers of one history. All are sandboxes of one pod.
pub(crate) const CONTAINERS: usize = 3;

/// The address of a record, unknown until somebody has seen it.
type Address = Option<String>;

/// What an answer names where the model does not know the address.
const SOME_ADDRESS: &str = "some address";

fn named(address: &Address) -> Answer {
    Answer::Done(Some(address.clone().unwrap_or_else(|| SOME_ADDRESS.to_owned())))
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Record {
    pub(crate) address: Address,
    pub(crate) committed: bool,
    started: u64,
    netns: usize,
}

/// One possible state of the daemon.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct World {
    pub(crate) records: [Option<Record>; CONTAINERS],
    /// The start of the latest DEL of each.
    stones: [u64; CONTAINERS],
}

/// Namespaces of a history by number.
#[derive(Debug, Default)]
pub(crate) struct Namespaces(pub(crate) Vec<Namespace>);

#[derive(Debug)]
pub(crate) struct Namespace {
    pub(crate) path: String,
    pub(crate) inode: u64,
    pub(crate) alive: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Call {
    Add {
        who: usize,
        start: u64,
        netns: usize,
    },
    Commit {
        who: usize,
        start: u64,
        netns: usize,
    },
    Del {
        who: usize,
        start: u64,
    },
    Look {
        who: usize,
    },
    Gc,
    /// The daemon's own loop: without a link, as all are here, nothing counts as alive.
    Collect {
        who: usize,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Success, with the address that it named.
    Done(Option<String>),
    Refused,
    /// Nobody heard it: the call may have been carried out, or not.
    Lost,
}

/// What was asked and answered at the same time.
pub(crate) type Phase = [(Call, Answer)];

/// Addresses that other pods ever had: they rest for longer than a test takes. A pod may have
/// its own again at once.
pub(crate) type Used = BTreeSet<String>;

impl World {
    /// Every state that can follow when `call` is carried out now, with its answer.
    fn carry_out(&self, call: &Call, namespaces: &Namespaces) -> Vec<(Self, Answer)> {
        let netns = |number: usize| &namespaces.0[number];
        let same = |answer| vec![(self.clone(), answer)];
        match *call {
            Call::Add { who, start, netns: number } => {
                if !netns(number).alive || start < self.stones[who] {
                    return same(Answer::Refused);
                }
                self.add(who, start, number, namespaces)
            }
            Call::Commit { who, start, netns: number } => {
                let mut next = self.clone();
                match &mut next.records[who] {
                    Some(record)
                        if start >= self.stones[who]
                            && netns(record.netns).inode == netns(number).inode =>
                    {
                        record.committed = true;
                    }
                    Some(_) | None => return same(Answer::Refused),
                }
                vec![(next, Answer::Done(None))]
            }
            Call::Del { who, start } => {
                let late = self.records[who].as_ref().is_some_and(|it| start < it.started);
                if late { same(Answer::Done(None)) } else { vec![self.del(who, start)] }
            }
            Call::Look { who } => {
                let held = self.records[who].as_ref();
                same(held.map_or(Answer::Done(None), |it| named(&it.address)))
            }
            Call::Gc => same(Answer::Done(None)),
            Call::Collect { who } => vec![self.del(who, 0)],
        }
    }

    fn del(&self, who: usize, start: u64) -> (Self, Answer) {
        let mut next = self.clone();
        next.stones[who] = next.stones[who].max(start);
        let Some(record) = next.records[who].take() else { return (next, Answer::Done(None)) };
        (next, named(&record.address))
    }

    fn add(
        &self,
        who: usize,
        start: u64,
        netns: usize,
        namespaces: &Namespaces,
    ) -> Vec<(Self, Answer)> {
        let new = |address| Record { address, committed: false, started: start, netns };
        let with = |record: Record| {
            let mut next = self.clone();
            let answer = named(&record.address);
            next.records[who] = Some(record);
            (next, answer)
        };
        if let Some(record) = &self.records[who] {
            if record.netns == netns {
                return vec![with(Record { started: record.started.max(start), ..record.clone() })];
            }
            // A new namespace is made only when the one before is dead.
            return vec![with(new(record.address.clone()))];
        }
        let mut outcomes = vec![with(new(None))];
        // A dead sandbox's address is taken over, unless somebody is at that sandbox just then.
        for other in 0..CONTAINERS {
            let Some(record) = &self.records[other] else { continue };
            if namespaces.0[record.netns].alive {
                continue;
            }
            let (mut next, answer) = with(new(record.address.clone()));
            next.records[other] = None;
            next.stones[other] = next.stones[other].max(start);
            outcomes.push((next, answer));
        }
        outcomes
    }

    /// Takes notice of an address that a call or a list named. `false`: it cannot be.
    fn learn(&mut self, who: usize, address: &str, used: &Used) -> bool {
        let elsewhere = self.records.iter().enumerate().any(|(other, record)| {
            other != who && record.as_ref().is_some_and(|it| it.address.as_deref() == Some(address))
        });
        if elsewhere {
            return false;
        }
        match &mut self.records[who] {
            Some(record) => match &record.address {
                Some(known) => known == address,
                None => {
                    record.address = Some(address.to_owned());
                    !used.contains(address)
                }
            },
            None => false,
        }
    }

    /// Whether `answer` was possible, where the model says `expected`.
    fn agrees(&mut self, call: &Call, expected: &Answer, answer: &Answer, used: &Used) -> bool {
        match (expected, answer) {
            (_, Answer::Lost) => true,
            (Answer::Done(Some(known)), Answer::Done(Some(address))) => match *call {
                Call::Add { who, .. } | Call::Look { who } => self.learn(who, address, used),
                // An address that nobody had seen before it was released.
                Call::Del { .. } if known == SOME_ADDRESS => !used.contains(address),
                Call::Del { .. } | Call::Commit { .. } | Call::Gc | Call::Collect { .. } => {
                    known == address
                }
            },
            _ => expected == answer,
        }
    }

    /// Whether this is the state that the daemon shows: address and commitment by container.
    fn shows(&mut self, shown: &BTreeMap<usize, (String, bool)>, used: &Used) -> bool {
        (0..CONTAINERS).all(|who| match (shown.get(&who), &self.records[who]) {
            (None, None) => true,
            (Some((address, committed)), Some(record)) => {
                record.committed == *committed && self.learn(who, address, used)
            }
            (Some(_), None) | (None, Some(_)) => false,
        })
    }
}

/// The states that explain all answers of `phase` and what the daemon shows after it.
pub(crate) fn explain(
    before: &BTreeSet<World>,
    phase: &Phase,
    namespaces: &Namespaces,
    shown: &BTreeMap<usize, (String, bool)>,
    used: &Used,
) -> BTreeSet<World> {
    let mut after = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let mut open: Vec<(usize, World)> = before.iter().map(|world| (0, world.clone())).collect();
    while let Some((done, world)) = open.pop() {
        if !seen.insert((done, world.clone())) {
            continue;
        }
        let left = phase.iter().enumerate().filter(|(number, _)| done & (1 << number) == 0);
        let mut all = true;
        for (number, (call, answer)) in left {
            // What was lost need not have happened.
            all &= *answer == Answer::Lost;
            for (mut next, expected) in world.carry_out(call, namespaces) {
                if next.agrees(call, &expected, answer, used) {
                    open.push((done | 1 << number, next));
                }
            }
        }
        let mut end = world;
        if all && end.shows(shown, used) {
            after.insert(end);
        }
    }
    after
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespaces() -> Namespaces {
        let alive = |path: &str, inode| Namespace { path: path.to_owned(), inode, alive: true };
        Namespaces(vec![alive("a", 1), alive("b", 2), alive("c", 3)])
    }

    fn add(who: usize, start: u64) -> Call {
        Call::Add { who, start, netns: who }
    }

    fn got(address: &str) -> Answer {
        Answer::Done(Some(address.to_owned()))
    }

    fn held(address: &str) -> BTreeMap<usize, (String, bool)> {
        BTreeMap::from([(0, (address.to_owned(), false))])
    }

    fn possible(phase: &Phase, shown: &BTreeMap<usize, (String, bool)>, used: &[&str]) -> bool {
        let used = used.iter().map(|it| (*it).to_owned()).collect();
        let start = BTreeSet::from([World::default()]);
        !explain(&start, phase, &namespaces(), shown, &used).is_empty()
    }

    #[test]
    fn what_cannot_be_is_told_from_what_can() {
        let nothing = BTreeMap::new();
        let del = |start| Call::Del { who: 0, start };
        let refused = Answer::Refused;
        let look = || Call::Look { who: 0 };
        for (phase, shown, used, can) in [
            (vec![(add(0, 5), got("x"))], held("x"), vec![], true),
            // It is not what was answered; it rests; it is lost.
            (vec![(add(0, 5), got("x"))], held("y"), vec![], false),
            (vec![(add(0, 5), got("x"))], held("x"), vec!["x"], false),
            (vec![(add(0, 5), got("x"))], nothing.clone(), vec![], false),
            (vec![(add(0, 5), Answer::Lost)], nothing.clone(), vec![], true),
            (vec![(add(0, 5), Answer::Lost)], held("x"), vec![], true),
            // Two holders.
            (vec![(add(0, 5), got("x")), (add(1, 5), got("x"))], held("x"), vec![], false),
            // Either order of an ADD and a later DEL, and none of an earlier one.
            (vec![(add(0, 5), got("x")), (del(6), got("x"))], nothing.clone(), vec![], true),
            (
                vec![(add(0, 5), refused.clone()), (del(6), Answer::Done(None))],
                nothing.clone(),
                vec![],
                true,
            ),
            (vec![(add(0, 5), got("x")), (del(6), Answer::Done(None))], held("x"), vec![], false),
            (vec![(add(0, 7), got("x")), (del(6), Answer::Done(None))], held("x"), vec![], true),
            (vec![(add(0, 7), got("x")), (del(6), got("x"))], nothing, vec![], false),
            (vec![(add(0, 7), refused), (del(6), Answer::Done(None))], held("x"), vec![], false),
            (vec![(add(0, 5), Answer::Lost), (look(), got("x"))], held("x"), vec![], true),
            (vec![(add(0, 5), got("x")), (look(), got("y"))], held("x"), vec![], false),
        ] {
            assert_eq!(possible(&phase, &shown, &used), can, "{phase:?} {shown:?} {used:?}");
        }
    }
}
