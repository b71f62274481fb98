//! A full node: everybody comes at once, and then nobody.

#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(clippy::print_stdout, reason = "figures for `cargo xtask density`")]

use std::{
    collections::BTreeSet,
    net::IpAddr,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use berth_tests::{
    Addresses, Answer, Call, Node, NodeOptions, Pod, Snapshot, Stopwatch, Usage, ping,
};
use serde_json::json;

const PODS: usize = 250;
const AT_ONCE: usize = 32;
/// What ships is to stay below 20 MiB in all. A debug build has that much code alone, so here its
/// data is looked at.
const MOST_DATA: u64 = 10 << 20;

/// Calls the plugin for every pod, 32 at a time; the answers in the pods' order.
fn call_all(verb: &str, pods: &[Pod]) -> Vec<Answer> {
    let next = AtomicUsize::new(0);
    let mut answers: Vec<(usize, Answer)> = thread::scope(|scope| {
        let worker = || {
            let mut mine = Vec::new();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(pod) = pods.get(index) else { return mine };
                mine.push((index, Call::of(verb, pod).run()));
            }
        };
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    answers.sort_by_key(|(index, _)| *index);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

fn median(answers: &[Answer]) -> Duration {
    let mut took: Vec<Duration> = answers.iter().map(|answer| answer.took).collect();
    took.sort();
    took[took.len() / 2]
}

fn mebibytes(bytes: u64) -> String {
    format!("{}.{} MiB", bytes >> 20, ((bytes % (1 << 20)) * 10) >> 20)
}

fn memory(usage: Usage) -> String {
    format!("{} resident, {} of it data", mebibytes(usage.resident), mebibytes(usage.anonymous))
}

/// Ten seconds in every run; `cargo xtask density` looks for a minute.
fn idle_time() -> Duration {
    let seconds = std::env::var("BERTH_IDLE_SECONDS").map_or(10, |text| text.parse().unwrap());
    Duration::from_secs(seconds)
}

#[test]
fn two_hundred_and_fifty_pods_come_at_once_rest_and_go() {
    let options = NodeOptions::config(json!({"log": {"level": "info", "format": "text"}}));
    Node::with(options, |node| {
        let before = Snapshot::take();
        let pods: Vec<Pod> = (0..PODS).map(|_| Pod::new()).collect();
        let at_start = node.daemon().usage();

        let stopwatch = Stopwatch::start();
        let answers = call_all("ADD", &pods);
        let took = stopwatch.elapsed();
        let addresses: BTreeSet<IpAddr> =
            answers.iter().flat_map(|answer| Addresses::of_result(&answer.result()).0).collect();
        assert_eq!(addresses.len(), 2 * PODS, "an address was given twice");
        assert_eq!(node.ctl("pods").as_array().unwrap().len(), PODS);
        for pod in addresses.iter().step_by(50) {
            assert!(ping(*pod), "{pod}");
        }
        let after_add = node.daemon().usage();
        println!("daemon before any pod: {}", memory(at_start));
        println!(
            "{PODS} ADD, {AT_ONCE} at once: {:.2} s, median {:.1} ms, {:.0} a second",
            took.as_secs_f64(),
            median(&answers).as_secs_f64() * 1e3,
            PODS as f64 / took.as_secs_f64()
        );
        println!(
            "daemon: {}; {:.1} ms CPU, {} writing calls and {} KiB written for each pod",
            memory(after_add),
            (after_add.cpu - at_start.cpu).as_secs_f64() * 1e3 / PODS as f64,
            (after_add.write_calls - at_start.write_calls) / PODS as u64,
            (after_add.written - at_start.written) / PODS as u64 / 1024,
        );
        assert!(after_add.anonymous < MOST_DATA, "{after_add:?}");

        node.wait_for_export();
        idle(node);

        let stopwatch = Stopwatch::start();
        let answers = call_all("DEL", &pods);
        let took = stopwatch.elapsed();
        answers.iter().for_each(Answer::nothing);
        println!(
            "{PODS} DEL, {AT_ONCE} at once: {:.2} s, median {:.1} ms",
            took.as_secs_f64(),
            median(&answers).as_secs_f64() * 1e3
        );
        node.assert_no_trace_since(&before);
        println!("daemon at the end: {}", memory(node.daemon().usage()));
    });
}

/// Nobody comes: nothing is written and nothing computed. A last checkpoint on a busy disk may still
/// write, so one look of three may see that; two would be a habit.
fn idle(node: &mut Node) {
    // The pool's growth comes shortly after the last call.
    thread::sleep(Duration::from_secs(5));
    let mut writing = 0;
    for look in 1..=3 {
        let before = node.daemon().usage();
        thread::sleep(idle_time());
        let after = node.daemon().usage();
        println!(
            "idle for {:?}: {:?} CPU, {} writing calls, {} bytes written",
            idle_time(),
            after.cpu - before.cpu,
            after.write_calls - before.write_calls,
            after.written - before.written
        );
        // In a debug build the collector's look at 250 namespaces, once a minute, takes 80 ms and
        // some fourteen wake-ups of other threads.
        assert!(after.cpu - before.cpu <= Duration::from_millis(150), "{before:?} {after:?}");
        assert!(after.write_calls - before.write_calls <= 40, "{before:?} {after:?}");
        writing += usize::from(after.written != before.written);
        assert!(writing <= 1, "the daemon writes though nobody comes: {before:?} {after:?}");
        if look > 2 * writing {
            return;
        }
    }
}
