//! Callers that come at once, late, twice, or go away: `BERTH_HISTORIES` random histories, 120
//! where it is not set.

#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(clippy::print_stdout, reason = "figures for `cargo xtask races`")]

mod history;
mod model;
mod plugins;
mod random;

use std::time::Duration;

use berth_tests::{Node, NodeOptions, Stopwatch};
use history::{History, Tally};
use model::Used;
use serde_json::json;

/// Histories on one node.
const TOGETHER: u64 = 50;

pub(crate) fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

/// Addresses rest for longer than the test, so that no other pod may have one again. Collection is
/// as quick as can be, or never comes.
fn options(collects: bool) -> NodeOptions {
    NodeOptions::config(json!({
        "pod_cidrs": ["10.64.0.0/14"],
        "cool_down": "1h",
        "gc_interval": "1s",
        "gc_grace": if collects { "1ms" } else { "1h" },
        "log": {"level": "warn", "format": "text"},
    }))
}

#[test]
fn in_every_random_history_some_order_of_the_calls_explains_all_answers() {
    let (histories, seed) = (number("BERTH_HISTORIES", 120), number("BERTH_SEED", 1));
    let stopwatch = Stopwatch::start();
    let (mut calls, mut lost, mut crashes) = (0, 0, 0);
    let mut first = 0;
    while first < histories {
        let last = (first + TOGETHER).min(histories);
        let (sender, receiver) = std::sync::mpsc::channel();
        let collects = first / TOGETHER % 2 == 1;
        Node::with(options(collects), move |node| {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
            let runtime = runtime.unwrap();
            let mut used = Used::new();
            let mut tally = Tally { calls: 0, lost: 0, crashes: 0 };
            for number in first..last {
                let seed = seed.wrapping_mul(1 << 20).wrapping_add(number);
                History::new(node, &runtime, seed, collects).play(&mut used, &mut tally);
            }
            sender.send(tally).unwrap();
        });
        let tally = receiver.recv_timeout(Duration::from_secs(1)).unwrap();
        calls += tally.calls;
        lost += tally.lost;
        crashes += tally.crashes;
        first = last;
    }
    println!(
        "{histories} histories, {calls} calls, {lost} without an answer, {crashes} crashes: {:.1} s",
        stopwatch.elapsed().as_secs_f64()
    );
    // By chance a few may have none.
    assert!(histories < 100 || (lost > 0 && crashes > 0), "{lost} {crashes}");
}
