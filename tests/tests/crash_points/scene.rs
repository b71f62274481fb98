//! The node of one case, and what must hold on it after the crash.

use std::{
    collections::BTreeSet, fs, net::IpAddr, os::unix::process::ExitStatusExt, thread,
    time::Duration,
};

use berth_testkit::ip;
use berth_tests::{
    Addresses, Answer, Call, Caller, Clocks, Node, NodeOptions, Pod, Snapshot, eventually, ping,
    process_start,
};
use serde_json::{Value, json};

use crate::{
    cases::{Case, Then},
    stories,
};

/// Beside C: a pod that lives through it all, and one whose DEL was answered before.
pub(crate) struct Scene<'a> {
    pub(crate) node: &'a mut Node,
    before: Snapshot,
    kept: Pod,
    kept_address: IpAddr,
    gone: Pod,
}

/// What the runtime knows of C when the crash is over.
pub(crate) enum Told {
    Held(IpAddr),
    Gone,
    /// Its call failed, or was killed.
    Nothing,
    /// Nobody says that it is gone, but its namespace is.
    Dead,
}

pub(crate) struct End {
    pub(crate) pod: Pod,
    pub(crate) told: Told,
    /// Another sandbox of C's pod, dead.
    pub(crate) predecessor: Option<Pod>,
}

pub(crate) fn play(case: Case) {
    let options = NodeOptions::config(json!({
        "pod_cidrs": ["10.77.0.0/28"],
        "cool_down": "1s",
        "gc_interval": "1s",
        "gc_grace": "1s",
    }));
    Node::with(options, move |node| {
        let mut scene = Scene::set(node);
        let end = stories::play(&mut scene, case);
        if !scene.node.is_running() {
            scene.node.start();
        }
        scene.check(end, case.then);
    });
}

pub(crate) fn add(pod: &Pod) -> Call {
    Call::of("ADD", pod).pod("crash", "c")
}

pub(crate) fn v4(answer: &Answer) -> IpAddr {
    Addresses::of_result(&answer.result()).v4().into()
}

impl<'a> Scene<'a> {
    fn set(node: &'a mut Node) -> Self {
        let before = Snapshot::take();
        let (kept, gone) = (Pod::new(), Pod::new());
        let kept_address = v4(&node.add(&kept));
        node.add(&gone).result();
        let link = node.record(&gone.id)["host_interface"].as_str().unwrap().to_owned();
        node.del(&gone).nothing();
        // When it is deleted nothing is left to be done, and no later start passes a point of that.
        let shown = || ip("-br link").contains(&link);
        eventually(Duration::from_secs(10), || if shown() { Err("there") } else { Ok(()) });
        Self { node, before, kept, kept_address, gone }
    }

    /// Starts the daemon anew, to be killed where the case says, and waits until it serves.
    pub(crate) fn arm(&mut self, case: Case) {
        assert!(self.node.stop().success());
        self.set_points(&points(case));
        self.node.start();
    }

    /// Like [`arm`](Self::arm), with a daemon whose clock can be put forward.
    pub(crate) fn arm_with_clock(&mut self, case: Case) -> Clocks {
        let clocks = Clocks::new(self.node.directory());
        assert!(self.node.stop().success());
        let variables = clocks.variables().map(|(name, value)| (name, &*value.leak()));
        let points = ("FAILPOINTS", &*points(case).leak());
        self.node.set_environment(variables.into_iter().chain([points]).collect());
        self.node.start();
        clocks
    }

    /// Starts the daemon, which is to be killed before it serves.
    pub(crate) fn start_and_die(&mut self, case: Case) {
        if self.node.is_running() {
            assert!(self.node.stop().success());
        }
        self.set_points(&points(case));
        self.node.spawn();
        self.died();
    }

    pub(crate) fn set_points(&mut self, points: &str) {
        // One text for each case, for as long as the test runs.
        self.node.set_environment(vec![("FAILPOINTS", points.to_owned().leak())]);
    }

    /// Waits for the daemon to be killed at its point. The next one has none.
    pub(crate) fn died(&mut self) {
        let status = self.node.daemon().wait();
        assert!(matches!(status.signal(), Some(6 | 9)), "not killed at its point: {status}");
        self.node.kill();
        self.node.set_environment(Vec::new());
    }

    fn records(&self) -> Vec<Value> {
        self.node.ctl("pods").as_array().unwrap().clone()
    }

    fn holds(&self, pod: &Pod, address: IpAddr) {
        assert_eq!(self.node.record(&pod.id)["ipv4"], address.to_string());
        assert!(ping(address), "{address} is held and not reached");
    }

    fn check(&self, end: End, then: Then) {
        let node = &*self.node;
        self.holds(&self.kept, self.kept_address);
        assert!(node.records(&self.gone.id).is_empty(), "what was deleted is back");
        let records = self.records();
        let addresses: BTreeSet<&str> =
            records.iter().map(|record| record["ipv4"].as_str().unwrap()).collect();
        assert_eq!(addresses.len(), records.len(), "an address is held twice: {records:?}");

        let pod = &end.pod;
        match end.told {
            Told::Held(address) => self.holds(pod, address),
            Told::Gone => assert!(node.records(&pod.id).is_empty(), "what was deleted is back"),
            Told::Dead => eventually(Duration::from_secs(20), || match node.records(&pod.id) {
                none if none.is_empty() => Ok(()),
                left => Err(format!("not collected: {left:?}")),
            }),
            Told::Nothing if then == Then::AddAgain => {
                let address = v4(&add(pod).run());
                self.holds(pod, address);
            }
            Told::Nothing => (),
        }
        for pod in [Some(pod), end.predecessor.as_ref(), Some(&self.gone)].into_iter().flatten() {
            node.del(pod).nothing();
            assert!(node.records(&pod.id).is_empty());
        }
        self.holds(&self.kept, self.kept_address);
        node.del(&self.kept).nothing();
        node.assert_no_trace_since(&self.before);
        let waiting: Vec<_> =
            fs::read_dir("/var/lib/berth/spool").unwrap().map(|it| it.unwrap().path()).collect();
        assert!(waiting.is_empty(), "{waiting:?}");
        self.everything_can_be_given_out_again();
    }

    fn everything_can_be_given_out_again(&self) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let caller = Caller::connect(&self.node.socket(), Duration::from_secs(10)).await;
            let capacity = loop_until_rested(&caller).await;
            let mut given = BTreeSet::new();
            for number in 0..capacity {
                let container = format!("last-{number}");
                let netns = self.kept.netns_text();
                let answer = caller.allocate(&container, &netns, &container, process_start()).await;
                let address = answer.unwrap_or_else(|status| {
                    panic!("{number} of {capacity} were given out, then: {status}")
                });
                assert!(given.insert(address), "given out twice");
            }
            let netns = self.kept.netns_text();
            let more = caller.allocate("one-more", &netns, "one-more", process_start()).await;
            assert_eq!(more.unwrap_err().code(), tonic::Code::ResourceExhausted);
        });
    }
}

async fn loop_until_rested(caller: &Caller) -> u64 {
    for _ in 0..200 {
        let pool = caller.pool().await.unwrap();
        if pool.available == pool.capacity && pool.capacity > 0 {
            return pool.capacity;
        }
        thread::sleep(Duration::from_millis(50));
    }
    panic!("not every address came back: {:?}", caller.pool().await)
}

/// In the form of the variable `FAILPOINTS`.
pub(crate) fn points(case: Case) -> String {
    let off = if case.passes > 0 { format!("{}*off->", case.passes) } else { String::new() };
    format!("{}={off}return", case.point)
}
