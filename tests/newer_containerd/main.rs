//! Whether a containerd that asks plugins for their STATUS keeps the node ready while the daemon
//! restarts: `cargo xtask newer-containerd`, which hands over the program.

#![allow(clippy::print_stdout, reason = "a program for people at a terminal")]
#![allow(clippy::unwrap_used, reason = "what goes wrong ends it with its reason")]

use std::{
    path::PathBuf,
    process::{Command, ExitCode},
    thread,
    time::Duration,
};

use berth_tests::{Containerd, Node, NodeOptions, Stopwatch, binary};
use serde_json::json;

/// kubelet asks every 5 s; asked more often, a shorter flip would be seen too.
const EVERY: Duration = Duration::from_millis(100);

/// `statusGrace` of the built-in network list.
const GRACE: Duration = Duration::from_secs(15);

/// The slowest that an answer may be.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let Some(program) = std::env::args_os().nth(1).map(PathBuf::from) else {
        println!("usage: berth-newer-containerd CONTAINERD");
        return ExitCode::from(2);
    };
    let watched = std::panic::catch_unwind(|| {
        Node::stopped(NodeOptions::default(), move |node| watch(node, program));
    });
    match watched {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// What one stretch of asking saw.
#[derive(Debug, Default)]
struct Seen {
    ready: u32,
    not_ready: u32,
    slowest: Duration,
}

impl Seen {
    fn ask(&mut self, containerd: &Containerd) -> bool {
        let stopwatch = Stopwatch::start();
        let ready = containerd.network_ready().unwrap().is_ok();
        self.slowest = self.slowest.max(stopwatch.elapsed());
        if ready {
            self.ready += 1
        } else {
            self.not_ready += 1
        }
        ready
    }

    fn ask_for(&mut self, containerd: &Containerd, length: Duration) {
        let stopwatch = Stopwatch::start();
        while stopwatch.elapsed() < length {
            self.ask(containerd);
            thread::sleep(EVERY);
        }
    }

    fn told(&self, what: &str) {
        let Self { ready, not_ready, slowest } = self;
        println!("{what}: ready {ready} times, not ready {not_ready}, slowest answer {slowest:?}");
        assert!(*slowest < ANSWER_WITHIN, "an answer took {slowest:?}");
    }
}

fn watch(node: &mut Node, program: PathBuf) {
    let version = Command::new(&program).arg("--version").output().unwrap();
    print!("{}", String::from_utf8_lossy(&version.stdout));
    let (containerd, recorder) =
        Containerd::start_program(&program, node.directory(), &binary("berth"));
    node.set_config("cni_conf", json!({"path": containerd.conflist()}));
    node.start();
    containerd.wait_until_network_is_ready();

    for (what, away, kindly) in [
        ("killed and started at once", Duration::ZERO, false),
        ("stopped and started at once", Duration::ZERO, true),
        ("stopped, 5 s away", Duration::from_secs(5), true),
        ("killed, 12 s away", Duration::from_secs(12), false),
    ] {
        let mut seen = Seen::default();
        seen.ask_for(&containerd, Duration::from_secs(1));
        if kindly {
            assert!(node.stop().success())
        } else {
            node.kill()
        }
        seen.ask_for(&containerd, away);
        node.spawn();
        seen.ask_for(&containerd, Duration::from_secs(3));
        node.daemon().wait_until_it_serves();
        seen.told(what);
        assert_eq!(seen.not_ready, 0, "the node flipped: {what}");
    }

    // That it is our STATUS which was asked: past the grace it says no, and yes again after.
    node.kill();
    let (mut seen, stopwatch) = (Seen::default(), Stopwatch::start());
    while seen.ask(&containerd) {
        assert!(stopwatch.elapsed() < GRACE * 2, "a dead daemon is ready for ever");
        thread::sleep(EVERY);
    }
    let flipped = stopwatch.elapsed();
    assert!(flipped >= GRACE - Duration::from_secs(1), "flipped after {flipped:?}");
    seen.told("killed for good");
    println!("not ready {flipped:?} after the kill");
    node.start();
    let stopwatch = Stopwatch::start();
    containerd.wait_until_network_is_ready();
    println!("ready again {:?} after it serves", stopwatch.elapsed());
    let asked = recorder.calls().iter().filter(|call| call.verb == "STATUS").count();
    println!("{asked} STATUS calls");
    assert!(asked > 100, "only {asked} STATUS calls");
}
