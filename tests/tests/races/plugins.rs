//! Plugins of one container at once, some of them killed.

use std::{thread, time::Duration};

use berth_tests::{Call, Node, NodeOptions, Pod, Snapshot, eventually, network_config, ping};
use serde_json::json;

use crate::{number, random::Random};

#[test]
fn after_plugins_that_ran_at_once_record_and_wiring_say_the_same() {
    let rounds = number("BERTH_HISTORIES", 120) / 6;
    Node::with(NodeOptions::config(json!({"cool_down": "1s"})), move |node| {
        let before = Snapshot::take();
        let mut random = Random::new(number("BERTH_SEED", 1));
        for round in 0..rounds {
            play(node, &mut random, round);
            node.assert_no_trace_since(&before);
        }
    });
}

fn play(node: &Node, random: &mut Random, round: u64) {
    let pod = Pod::new();
    let link = |pod: &Pod| pod.runs("ip link show eth0");
    let mut told = Vec::new();
    let mut running = Vec::new();
    let (mut deletes, mut kills) = (0, 0);
    for _ in 0..2 + random.below(3) {
        let verb = random.of(&["ADD", "ADD", "ADD", "DEL", "GC", "CHECK"]);
        let call = match verb {
            "GC" => Call::network("GC"),
            "CHECK" => {
                let mut config = network_config();
                config["prevResult"] =
                    json!({"cniVersion": "1.0.0", "interfaces": [], "ips": [], "routes": []});
                Call::of("CHECK", &pod).input(&config)
            }
            verb => Call::of(verb, &pod),
        };
        deletes += u32::from(verb == "DEL");
        let mut one = call.start();
        thread::sleep(Duration::from_millis(random.below(40u64)));
        if random.one_in(8) {
            one.kill();
            kills += 1;
        }
        running.push((verb, one));
    }
    let mut added = false;
    for (verb, one) in running {
        let answer = one.finish();
        added |= verb == "ADD" && answer.succeeded();
        told.push(format!("{verb}: {:?} {}{}", answer.code, answer.stdout, answer.stderr));
    }
    let case = format!("round {round}, {kills} killed: {told:#?}");
    let records = node.records(&pod.id);
    match records.first() {
        Some(record) if record["state"] == "committed" => {
            let address = record["ipv4"].as_str().unwrap().parse().unwrap();
            assert!(ping(address), "recorded and not reached: {record} {case}");
        }
        // A killed plugin, whose DEL is to come.
        Some(record) => assert!(kills > 0, "never committed: {record} {case}"),
        None => {
            assert!(!added || deletes > 0, "acknowledged and lost: {case}");
            if kills == 0 {
                let gone = || if link(&pod) { Err(&*case) } else { Ok(()) };
                eventually(Duration::from_secs(10), gone);
            }
        }
    }
    node.del(&pod).nothing();
    assert!(node.records(&pod.id).is_empty(), "{case}");
    pod.destroy();
}
