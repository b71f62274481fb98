//! A random history of one pod's containers, played against the daemon.

use std::{
    collections::{BTreeMap, BTreeSet},
    os::unix::fs::MetadataExt,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use berth_proto::v1::{AttachmentState, ProcessStart};
use berth_tests::{Caller, Node, Pod, ipv4, process_start};
use tokio::time;
use tonic::{Code, Status};

use crate::{
    model::{Answer, CONTAINERS, Call, Namespace, Namespaces, Used, World, explain},
    random::Random,
};

const PHASES: u64 = 8;
const LIMIT: Duration = Duration::from_secs(20);

/// As many calls as are under way at once, at most.
const AT_ONCE: u64 = 4;

pub(crate) struct History<'a> {
    node: &'a mut Node,
    runtime: &'a tokio::runtime::Runtime,
    random: Random,
    pods: Vec<Pod>,
    /// The present namespace of each container, by number.
    present: [usize; CONTAINERS],
    namespaces: Namespaces,
    name: String,
    worlds: BTreeSet<World>,
    /// Starts of processes that may still come.
    starts: Vec<u64>,
    collects: bool,
    /// What this history's pod ever had.
    mine: Used,
    /// Calls whose client went away in the phase before: they may still arrive.
    ghosts: Vec<(Call, Answer)>,
    told: Vec<String>,
}

/// What happens beside the calls of a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stress {
    None,
    /// Some clients go away while they wait.
    HangUps,
    /// That, and the daemon is killed.
    Crash,
}

pub(crate) struct Tally {
    pub(crate) calls: u64,
    pub(crate) lost: u64,
    pub(crate) crashes: u64,
}

static NUMBER: AtomicU64 = AtomicU64::new(0);

impl<'a> History<'a> {
    pub(crate) fn new(
        node: &'a mut Node,
        runtime: &'a tokio::runtime::Runtime,
        seed: u64,
        collects: bool,
    ) -> Self {
        let mut namespaces = Namespaces::default();
        let pods: Vec<Pod> = (0..CONTAINERS).map(|_| Pod::new()).collect();
        namespaces.0.extend(pods.iter().map(namespace));
        let name = format!("web-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        Self {
            node,
            runtime,
            random: Random::new(seed),
            pods,
            present: std::array::from_fn(|who| who),
            namespaces,
            name,
            worlds: BTreeSet::from([World::default()]),
            starts: vec![now()],
            collects,
            mine: Used::new(),
            ghosts: Vec::new(),
            told: vec![format!("seed {seed}")],
        }
    }

    /// # Panics
    /// When no order of the calls explains what was answered.
    pub(crate) fn play(mut self, used: &mut Used, tally: &mut Tally) {
        for _ in 0..PHASES {
            if self.random.one_in(4) {
                self.renew_namespace();
            }
            let calls = self.calls();
            let stress = if self.random.one_in(30) { Stress::Crash } else { Stress::HangUps };
            self.phase(calls, stress, used, tally);
        }
        let last = (0..CONTAINERS).map(|who| Call::Del { who, start: now() }).collect();
        self.phase(last, Stress::None, used, tally);
        let empty = |world: &World| world.records.iter().all(Option::is_none);
        assert!(self.worlds.iter().all(empty), "a DEL left something: {:#?}", self.told);
        used.append(&mut self.mine);
        for who in 0..CONTAINERS {
            if self.namespaces.0[self.present[who]].alive {
                self.pods[who].destroy();
            }
        }
    }

    /// A container's namespace dies, and sometimes there is a new one.
    fn renew_namespace(&mut self) {
        let who = self.random.below(CONTAINERS);
        let present = &mut self.namespaces.0[self.present[who]];
        if present.alive {
            present.alive = false;
            self.pods[who].destroy();
            self.told.push(format!("the namespace of {who} is gone"));
            if self.collects && self.random.one_in(20) {
                // Two looks of the daemon's own.
                std::thread::sleep(Duration::from_millis(2200));
            }
        }
        if !self.random.one_in(3) {
            self.pods[who] = Pod::of(&self.pods[who].id);
            self.present[who] = self.namespaces.0.len();
            self.namespaces.0.push(namespace(&self.pods[who]));
            self.told.push(format!("{who} has a new namespace"));
        }
    }

    fn calls(&mut self) -> Vec<Call> {
        let count = 1 + self.random.below(AT_ONCE);
        (0..count).map(|_| self.any_call()).collect()
    }

    fn any_call(&mut self) -> Call {
        let who = self.random.below(CONTAINERS);
        let netns = self.present[who];
        // Most calls are of a process that starts now; some have been on their way for long.
        let start = if self.random.one_in(4) { self.random.of(&self.starts) } else { now() };
        self.starts.push(start);
        match self.random.below(12) {
            0..=4 => Call::Add { who, start, netns },
            5 | 6 => Call::Commit { who, start, netns },
            7..=9 => Call::Del { who, start },
            10 => Call::Look { who },
            _ => Call::Gc,
        }
    }

    fn phase(&mut self, calls: Vec<Call>, stress: Stress, used: &Used, tally: &mut Tally) {
        tally.calls += calls.len() as u64;
        let crash = stress == Stress::Crash;
        let hangs_up = |random: &mut Random| stress != Stress::None && random.one_in(6);
        let patience: Vec<Option<Duration>> = calls
            .iter()
            .map(|_| {
                let hangs_up = hangs_up(&mut self.random);
                hangs_up.then(|| Duration::from_micros(self.random.below(3000u64)))
            })
            .collect();
        let answers = if crash {
            tally.crashes += 1;
            self.crash(&calls, &patience)
        } else {
            let caller = self.caller();
            self.runtime.block_on(self.ask_all(&caller, &calls, &patience))
        };
        let mut phase: Vec<(Call, Answer)> = calls.into_iter().zip(answers).collect();
        self.told.push(format!("{phase:?}{}", if crash { ", crash" } else { "" }));
        let lost: Vec<_> =
            phase.iter().filter(|(_, answer)| *answer == Answer::Lost).cloned().collect();
        tally.lost += lost.len() as u64;
        let shown = self.look(!lost.is_empty());
        self.told.push(format!("then {shown:?}"));
        phase.append(&mut self.ghosts);
        if self.collects {
            let each = (0..CONTAINERS).map(|who| (Call::Collect { who }, Answer::Lost));
            phase.extend(each);
        }
        let after = explain(&self.worlds, &phase, &self.namespaces, &shown, used);
        assert!(
            !after.is_empty(),
            "no order of these calls has these answers: {:#?}\nbefore: {:#?}",
            self.told,
            self.worlds
        );
        self.worlds = after;
        // What was lost in a crash is lost for good.
        self.ghosts = if crash { Vec::new() } else { lost };
        for (_, answer) in &phase {
            if let Answer::Done(Some(address)) = answer {
                self.mine.insert(address.clone());
            }
        }
        self.mine.extend(shown.into_values().map(|(address, _)| address));
    }

    fn caller(&self) -> Caller {
        self.runtime.block_on(Caller::connect(&self.node.socket(), LIMIT))
    }

    /// The daemon is killed while the calls are under way, and started again.
    fn crash(&mut self, calls: &[Call], patience: &[Option<Duration>]) -> Vec<Answer> {
        let caller = self.caller();
        let after = Duration::from_micros(self.random.below(8000u64));
        let pid = nix::unistd::Pid::from_raw(self.node.daemon().pid().try_into().unwrap());
        let (answers, ()) = self.runtime.block_on(async {
            tokio::join!(self.ask_all(&caller, calls, patience), async {
                time::sleep(after).await;
                nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
            })
        });
        self.node.kill();
        self.node.start();
        answers
    }

    async fn ask_all(
        &self,
        caller: &Caller,
        calls: &[Call],
        patience: &[Option<Duration>],
    ) -> Vec<Answer> {
        let asked: Vec<_> = calls
            .iter()
            .zip(patience)
            .map(|(call, patience)| {
                let (caller, call) = (caller.clone(), self.wire(call));
                let patience = patience.unwrap_or(LIMIT);
                tokio::spawn(async move {
                    time::timeout(patience, ask(&caller, call)).await.unwrap_or(Answer::Lost)
                })
            })
            .collect();
        let mut answers = Vec::new();
        for one in asked {
            answers.push(one.await.unwrap());
        }
        answers
    }

    fn wire(&self, call: &Call) -> Wire {
        let id = |who: usize| self.pods[who].id.clone();
        match *call {
            Call::Add { who, start, netns } => {
                Wire::Add(id(who), self.namespaces.0[netns].path.clone(), self.name.clone(), start)
            }
            Call::Commit { who, start, netns } => {
                Wire::Commit(id(who), self.namespaces.0[netns].inode, start)
            }
            Call::Del { who, start } => Wire::Del(id(who), start),
            Call::Look { who } => Wire::Look(id(who)),
            Call::Gc | Call::Collect { .. } => Wire::Gc,
        }
    }

    /// What the daemon shows once nothing is under way any more.
    fn look(&self, some_were_lost: bool) -> BTreeMap<usize, (String, bool)> {
        let caller = self.caller();
        self.runtime.block_on(async {
            if some_were_lost {
                time::sleep(Duration::from_millis(25)).await;
                // Waits for its turn, and does nothing: it is older than everything.
                for pod in &self.pods {
                    caller.release(&pod.id, start_at(0)).await.unwrap();
                }
            }
            let mut shown = BTreeMap::new();
            for attachment in caller.attachments().await.unwrap() {
                let id = attachment.key.as_ref().unwrap().container_id.clone();
                let who = self.pods.iter().position(|pod| pod.id == id);
                let who = who.unwrap_or_else(|| panic!("{id} is of no container of ours"));
                let committed = attachment.state() == AttachmentState::Committed;
                shown.insert(who, (ipv4(&attachment), committed));
            }
            shown
        })
    }
}

enum Wire {
    Add(String, String, String, u64),
    Commit(String, u64, u64),
    Del(String, u64),
    Look(String),
    Gc,
}

async fn ask(caller: &Caller, call: Wire) -> Answer {
    let answer = match call {
        Wire::Add(id, netns, pod, start) => {
            caller.allocate(&id, &netns, &pod, start_at(start)).await.map(Some)
        }
        Wire::Commit(id, inode, start) => {
            caller.commit(&id, inode, start_at(start)).await.map(|()| None)
        }
        Wire::Del(id, start) => caller.release(&id, start_at(start)).await,
        Wire::Look(id) => caller.held(&id).await,
        Wire::Gc => caller.collect().await.map(|_| None),
    };
    match answer {
        Ok(address) => Answer::Done(address),
        Err(status) if is_refusal(&status) => Answer::Refused,
        // The daemon was killed.
        Err(status) if matches!(status.code(), Code::Unavailable | Code::Unknown) => Answer::Lost,
        Err(status) => panic!("an answer that no call should get: {status:?}"),
    }
}

fn is_refusal(status: &Status) -> bool {
    matches!(status.code(), Code::FailedPrecondition | Code::InvalidArgument)
}

fn now() -> u64 {
    process_start().boottime_nanoseconds
}

fn start_at(boottime_nanoseconds: u64) -> ProcessStart {
    ProcessStart { boottime_nanoseconds, ..process_start() }
}

fn namespace(pod: &Pod) -> Namespace {
    let inode = std::fs::metadata(pod.netns()).unwrap().ino();
    Namespace { path: pod.netns_text(), inode, alive: true }
}
