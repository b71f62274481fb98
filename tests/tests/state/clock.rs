use std::process::Command;

use berth_tests::{Call, Clocks, Node, NodeOptions, Pod, Snapshot, ping};
use serde_json::json;

use crate::v4;

const DECADE: i64 = 10 * 365 * 86400;

#[test]
fn a_wall_clock_that_is_set_back_and_forward_changes_nothing() {
    let config = json!({"cool_down": "30s", "gc_interval": "1s", "gc_grace": "5s"});
    Node::stopped(NodeOptions::config(config), |node| {
        let clocks = Clocks::new(node.directory());
        let variables = clocks.variables();
        let year = |node: &Node| {
            let log = node.log();
            let last = log.lines().rfind(|line| line.starts_with("20")).unwrap();
            last[..4].parse::<i64>().unwrap()
        };
        let with_clock = |call: Call| {
            variables.iter().fold(call, |call, (name, value)| call.environment(name, value)).run()
        };
        let call = |verb: &str, pod: &Pod| with_clock(Call::of(verb, pod));
        let this_year: i64 = {
            let output = Command::new("date").arg("+%Y").output().unwrap();
            String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
        };

        let environment = variables.clone().map(|(name, value)| (name, &*value.leak()));
        node.set_environment(environment.to_vec());
        node.start();
        let before = Snapshot::take();
        let (kept, gone) = (Pod::new(), Pod::new());
        let address = v4(&call("ADD", &kept));
        let rests = v4(&call("ADD", &gone));
        call("DEL", &gone).nothing();
        for seconds in [DECADE, -DECADE, 0, DECADE] {
            clocks.shift_wall(seconds);
            let another = Pod::new();
            let other = v4(&call("ADD", &another));
            // The clock that the daemon and its log have is another one, and nothing else is.
            let decades = seconds.signum() * 10;
            assert!((year(node) - this_year - decades).abs() <= 1, "{}", year(node));
            assert!(ping(other));
            call("DEL", &another).nothing();
            node.kill();
            node.start();
            for resting in [rests, other] {
                assert_eq!(node.slot_state(resting).as_deref(), Some("cooling"), "{seconds}");
            }
            // Two looks of garbage collection, past the grace.
            std::thread::sleep(std::time::Duration::from_millis(2500));
            assert_eq!(node.record(&kept.id)["ipv4"], address.to_string());
            assert!(ping(address));
            with_clock(Call::network("STATUS")).nothing();
        }
        call("DEL", &kept).nothing();
        node.assert_no_trace_since(&before);
    });
}
