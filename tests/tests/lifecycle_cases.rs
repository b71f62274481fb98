//! Sequences of calls with crashes between: `data/lifecycle.json`, one test a case. The file is the
//! list of what was reported; the last test holds it and this file together.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::{collections::BTreeSet, fs, net::IpAddr, thread, time::Duration};

use berth_tests::{
    Addresses, Answer, Call, Node, NodeOptions, Pod, Running, Snapshot, eventually, network_config,
    ping,
};
use serde_json::{Value, json};

const COVERED: &[&str] = &[
    "reboot, then the same container id again with no DEL between",
    "plugin killed in the middle of ADD, DEL at once",
    "orphaned plugin finishes its ADD after the DEL",
    "ADD that started before the DEL reaches the daemon after it",
    "the next plugin in the chain fails, and the runtime's DEL fails too",
    "crash between ADD and the runtime saving the result; DEL never comes",
    "daemon killed right after it answered",
    "daemon killed right after it answered a release",
    "two ADDs for one container at once",
    "StatefulSet pod recreated before the old sandbox is gone",
    "disk full during ADD, space again later",
    "conflist replaced while pods run",
    "stop and start of one container",
    "network disconnect and connect",
];

fn v4(answer: &Answer) -> IpAddr {
    Addresses::of_result(&answer.result()).v4().into()
}

/// An ADD that rests for `milliseconds` at a fail point of the plugin.
fn add_resting_at(point: &str, milliseconds: u32, pod: &Pod) -> Running {
    let points = format!("{point}=sleep({milliseconds})");
    let running = Call::of("ADD", pod).environment("FAILPOINTS", &points).start();
    // Until it is at the point, whatever the machine is busy with.
    thread::sleep(Duration::from_millis(700));
    running
}

/// GC that is quick enough for a test, by the same rules.
fn quick_gc() -> NodeOptions {
    NodeOptions::config(json!({"gc_interval": "1s", "gc_grace": "2s"}))
}

#[test]
fn every_reported_lifecycle_is_covered_here() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("../data/lifecycle.json")).unwrap();
    let reported: BTreeSet<&str> =
        cases.iter().map(|case| case["name"].as_str().unwrap()).collect();
    assert_eq!(reported, COVERED.iter().copied().collect());
}

#[test]
fn after_a_reboot_the_same_container_id_gets_its_address_in_the_new_namespace() {
    Node::with(NodeOptions::default(), |node| {
        let before = Snapshot::take();
        let first = Pod::new();
        let address = v4(&node.add(&first));
        // Every namespace is gone and with it every link, and the daemon had no chance to notice.
        node.kill();
        first.destroy();
        before.wait_until_again();
        node.take_another_boot_id();
        node.start();
        let second = Pod::of(&first.id);
        assert_eq!(v4(&node.add(&second)), address);
        assert_eq!(node.record(&first.id)["netns"], second.netns_text());
        assert!(ping(address));
        node.del(&second).nothing();
        node.assert_no_trace_since(&before);
    });
}

#[test]
fn a_plugin_killed_anywhere_in_its_add_leaves_nothing_after_the_delete() {
    Node::with(NodeOptions::default(), |node| {
        let before = Snapshot::take();
        for point in ["before_connect", "after_alloc", "after_attach", "after_commit"] {
            let pod = Pod::new();
            let answer = Call::of("ADD", &pod)
                .environment("FAILPOINTS", &format!("cni::{point}=return"))
                .run();
            assert_eq!(answer.signal, Some(9), "{point}: {answer:?}");
            let record = node.records(&pod.id);
            assert_eq!(record.is_empty(), point == "before_connect", "{point}: {record:?}");
            node.del(&pod).nothing();
            node.del_without_netns(&pod.id).nothing();
            if let Some(record) = record.first() {
                node.wait_for_slot(record["ipv4"].as_str().unwrap().parse().unwrap(), "cooling");
            }
            node.assert_no_trace_since(&before);
        }
    });
}

#[test]
fn an_orphaned_plugin_that_finishes_its_add_after_the_delete_takes_everything_back() {
    Node::with(NodeOptions::default(), |node| {
        let before = Snapshot::take();
        let pod = Pod::new();
        let late = add_resting_at("cni::after_alloc", 2500, &pod);
        assert_eq!(node.record(&pod.id)["state"], "bound");
        node.del(&pod).nothing();
        let answer = late.finish();
        assert!(answer.error_code() > 0, "{answer:?}");
        assert!(!pod.runs("ip link show eth0"));
        node.assert_no_trace_since(&before);
    });
}

#[test]
fn an_add_that_began_before_the_delete_is_refused_after_it() {
    Node::with(NodeOptions::default(), |node| {
        let before = Snapshot::take();
        let pod = Pod::new();
        let late = add_resting_at("cni::before_connect", 2500, &pod);
        node.del(&pod).nothing();
        let answer = late.finish();
        assert!(answer.error_text().contains("released"), "{answer:?}");
        assert!(!pod.runs("ip link show eth0"));
        node.assert_no_trace_since(&before);
        // What begins after the delete is a new life, and served at once.
        node.add(&pod).result();
    });
}

#[test]
fn when_no_delete_succeeds_collection_takes_all_back_once_the_namespace_is_gone() {
    Node::with(quick_gc(), |node| {
        let before = Snapshot::take();
        let pod = Pod::new();
        let result = node.add(&pod).result();
        // The next of the chain fails ADD and DEL alike, so berth hears nothing more.
        for verb in ["ADD", "DEL"] {
            let mut config =
                json!({"cniVersion": "1.0.0", "name": "berth-test", "type": "failing"});
            config["prevResult"] = result.clone();
            let failing = Call::of(verb, &pod).program("/bin/false".as_ref()).input(&config).run();
            assert!(!failing.succeeded());
        }
        // While the namespace lives, so does the attachment, older than the grace as it is.
        thread::sleep(Duration::from_secs(5));
        node.record(&pod.id);
        pod.destroy();
        eventually(Duration::from_secs(20), || match node.records(&pod.id).as_slice() {
            [] => Ok(()),
            left => Err(format!("{left:?}")),
        });
        node.assert_no_trace_since(&before);
    });
}

#[test]
fn when_the_delete_never_comes_collection_says_on_what_evidence_it_released() {
    Node::with(quick_gc(), |node| {
        let before = Snapshot::take();
        let pod = Pod::new();
        let address = v4(&node.add(&pod));
        pod.destroy();
        eventually(Duration::from_secs(20), || match node.records(&pod.id).as_slice() {
            [] => Ok(()),
            left => Err(format!("{left:?}")),
        });
        node.wait_for_slot(address, "cooling");
        let log = node.log();
        let told = log.lines().find(|line| line.contains(" collecting ") && line.contains(&pod.id));
        let told = told.unwrap_or_else(|| panic!("no word of the collection:\n{log}"));
        assert!(told.contains("its namespace is gone"), "{told}");
        node.assert_no_trace_since(&before);
    });
}

#[test]
fn what_was_answered_survives_a_daemon_killed_at_that_moment() {
    Node::with(NodeOptions::default(), |node| {
        let before = Snapshot::take();
        for _ in 0..5 {
            let pod = Pod::new();
            let address = v4(&node.add(&pod));
            node.kill();
            node.start();
            assert_eq!(node.record(&pod.id)["ipv4"], address.to_string());
            assert!(ping(address));
            node.del(&pod).nothing();
        }
        node.assert_no_trace_since(&before);
    });
}

#[test]
fn what_was_released_does_not_come_back_and_rests_for_what_is_left_of_its_time() {
    Node::with(NodeOptions::config(json!({"cool_down": "20s"})), |node| {
        let pod = Pod::new();
        let address = v4(&node.add(&pod));
        node.del(&pod).nothing();
        node.kill();
        thread::sleep(Duration::from_secs(1));
        node.start();
        assert!(node.records(&pod.id).is_empty());
        node.wait_for_slot(address, "cooling");
        let pool = node.ctl("pool");
        let slots = pool["slots"].as_array().unwrap();
        let slot = slots.iter().find(|slot| slot["ipv4"] == address.to_string()).unwrap();
        let left = slot["seconds_left"].as_u64().unwrap();
        assert!((1..20).contains(&left), "{slot}");
    });
}

#[test]
fn two_adds_for_one_container_at_once_hold_one_address() {
    Node::with(NodeOptions::default(), |node| {
        let before = Snapshot::take();
        let pod = Pod::new();
        let calls = [Call::of("ADD", &pod).start(), Call::of("ADD", &pod).start()];
        let answers = calls.map(Running::finish);
        let held = node.record(&pod.id);
        assert!(answers.iter().any(Answer::succeeded), "{answers:?}");
        for answer in answers {
            if answer.succeeded() {
                assert_eq!(held["ipv4"], v4(&answer).to_string());
            } else {
                assert_eq!(answer.error_code(), 11, "{answer:?}");
            }
        }
        assert_eq!(node.ctl("pool")["summary"]["leased"], 1);
        assert!(ping(held["ipv4"].as_str().unwrap().parse().unwrap()));
        node.del(&pod).nothing();
        node.assert_no_trace_since(&before);
    });
}

#[test]
fn a_recreated_pod_works_before_while_and_after_its_predecessor_is_deleted() {
    Node::with(NodeOptions::default(), |node| {
        let before = Snapshot::take();
        let (old, new) = (Pod::new(), Pod::new());
        let old_address = v4(&Call::of("ADD", &old).pod("ns", "db-0").run());
        let address = v4(&Call::of("ADD", &new).pod("ns", "db-0").run());
        assert_ne!(address, old_address);
        let link = |pod: &Pod| node.record(&pod.id)["host_interface"].clone();
        assert_ne!(link(&old), link(&new));
        assert!(ping(address));
        Call::of("DEL", &old).pod("ns", "db-0").run().nothing();
        assert!(ping(address));
        node.del_without_netns(&old.id).nothing();
        assert!(ping(address));
        assert!(node.records(&old.id).is_empty());
        assert_eq!(node.ctl("pool")["summary"]["leased"], 1);
        node.del(&new).nothing();
        node.assert_no_trace_since(&before);
    });
}

#[test]
fn a_full_disk_refuses_adds_records_deletes_and_is_over_when_there_is_room() {
    Node::stopped(NodeOptions::default(), |node| {
        berth_testkit::run("mount -t tmpfs -o size=48m tmpfs /var/lib/berth");
        node.start();
        let before = Snapshot::take();
        let (older, newer) = (Pod::new(), Pod::new());
        node.add(&older).result();

        let filler = "/var/lib/berth/filler";
        let mut file = fs::File::create(filler).unwrap();
        let full = std::io::copy(&mut std::io::repeat(0), &mut file).unwrap_err();
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
        let refused = node.add(&newer);
        let text = refused.error_text().to_lowercase();
        assert!(text.contains("space") || text.contains("room"), "{text}");
        assert!(node.records(&newer.id).is_empty());
        assert!(!newer.runs("ip link show eth0"));
        node.del(&older).nothing();
        assert!(node.records(&older.id).is_empty());

        drop(file);
        fs::remove_file(filler).unwrap();
        // A process that another test is just starting may hold the file for a moment longer.
        eventually(Duration::from_secs(10), || {
            let found = nix::sys::statvfs::statvfs("/var/lib/berth").unwrap();
            match found.blocks_available() * found.fragment_size() {
                free if free > 24 << 20 => Ok(()),
                free => Err(format!("{free} bytes are free")),
            }
        });
        let address = v4(&node.add(&newer));
        assert!(ping(address));
        node.del(&newer).nothing();
        node.assert_no_trace_since(&before);
    });
}

#[test]
fn a_replaced_conflist_loses_nothing_that_berth_made() {
    Node::with(NodeOptions::default(), |node| {
        let before = Snapshot::take();
        let pod = Pod::new();
        let result = node.add(&pod).result();
        let ports = json!([{"hostPort": 18080, "containerPort": 80, "protocol": "tcp"}]);
        let mut portmap = json!({"cniVersion": "1.0.0", "name": "berth-test", "type": "portmap"});
        portmap["runtimeConfig"] = json!({"portMappings": ports});
        portmap["prevResult"] = result;
        let plugin = "/usr/lib/cni/portmap".as_ref();
        Call::of("ADD", &pod).program(plugin).input(&portmap).run().result();
        // The new list has berth alone: portmap hears nothing of the end, and what it made stays.
        node.del(&pod).nothing();
        assert_eq!(node.ctl("pods"), json!([]));
        eventually(Duration::from_secs(10), || {
            let left = Snapshot::take().added_since(&before);
            let ours: Vec<_> = left.iter().filter(|fact| !fact.starts_with("nft ")).collect();
            if ours.is_empty() { Ok(()) } else { Err(format!("{ours:#?}")) }
        });
        Call::of("DEL", &pod).program(plugin).input(&portmap).run();
    });
}

#[test]
fn a_stopped_and_started_container_is_wired_in_its_new_namespace_at_once() {
    Node::with(NodeOptions::default(), |node| {
        let before = Snapshot::take();
        let first = Pod::new();
        node.add(&first).result();
        node.del(&first).nothing();
        let second = Pod::of(&first.id);
        let address = v4(&node.add(&second));
        assert_eq!(node.record(&first.id)["netns"], second.netns_text());
        assert!(ping(address));
        assert!(!first.runs("ip link show eth0"));
        node.del(&second).nothing();
        node.assert_no_trace_since(&before);
    });
}

#[test]
fn a_network_disconnected_and_connected_works_at_once_in_the_same_namespace() {
    Node::with(NodeOptions::default(), |node| {
        let before = Snapshot::take();
        let pod = Pod::new();
        for _ in 0..5 {
            let result = node.add(&pod).result();
            assert!(ping(Addresses::of_result(&result).v4().into()));
            let mut config = network_config();
            config["prevResult"] = result;
            Call::of("CHECK", &pod).input(&config).run().nothing();
            node.del(&pod).nothing();
        }
        node.assert_no_trace_since(&before);
    });
}
