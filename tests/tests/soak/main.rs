//! Churn at full speed with restarts under load, for `BERTH_SOAK_SECONDS` (20 where it is not
//! set): nothing may grow, and nothing may be left.

#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(clippy::print_stdout, reason = "figures for `cargo xtask soak`")]

mod churn;
mod sample;

use std::{thread, time::Duration};

use berth_tests::{Node, NodeOptions, Snapshot, Stopwatch};
use churn::Churn;
use sample::Sample;
use serde_json::json;

/// Looks at the daemon in one life of it, at equal distances.
const LOOKS: usize = 4;

/// At least, and at most: a life is long enough for a leak to show, and there are several.
const LIFE: (Duration, Duration) = (Duration::from_secs(6), Duration::from_secs(60));

fn whole() -> Duration {
    let seconds = std::env::var("BERTH_SOAK_SECONDS").map_or(20, |text| text.parse().unwrap());
    Duration::from_secs(seconds)
}

#[test]
fn churn_with_restarts_leaves_nothing_and_nothing_grows() {
    let options = json!({
        "cool_down": "1s",
        "gc_interval": "2s",
        "gc_grace": "5s",
        "log": {"level": "warn", "format": "text"},
    });
    Node::with(NodeOptions::config(options), |node| {
        let before = Snapshot::take();
        let (whole, stopwatch) = (whole(), Stopwatch::start());
        let life = (whole / 10).clamp(LIFE.0, LIFE.1);
        let churn = Churn::new();
        let mut lives = Vec::new();
        thread::scope(|scope| {
            let _ends = churn.begin(scope);
            while stopwatch.elapsed() < whole {
                let mut looks = Vec::new();
                for _ in 0..LOOKS {
                    thread::sleep(life / LOOKS.try_into().unwrap());
                    let _still = churn.pause();
                    before.wait_until_again();
                    assert_eq!(node.ctl("pods"), json!([]));
                    let sample = Sample::take(node);
                    println!("{:>5} s  {sample}", stopwatch.elapsed().as_secs());
                    looks.push(sample);
                }
                // In the middle of it all: killed, and asked to stop, in turns.
                churn.restart(|| {
                    if lives.len() % 2 == 0 {
                        node.kill()
                    } else {
                        assert!(node.stop().success())
                    }
                    node.start();
                });
                lives.push(looks);
            }
        });
        let (cycles, refused) = churn.counts();
        println!(
            "{cycles} pods came and went, {:.0} a second, over {} restarts; {refused} were refused \
             during those",
            cycles as f64 / stopwatch.elapsed().as_secs_f64(),
            lives.len(),
        );
        node.assert_no_trace_since(&before);
        let growth = sample::growth(&lives);
        assert!(growth.is_empty(), "{growth:#?}");
        assert!(cycles > 20, "{cycles}");
    });
}
