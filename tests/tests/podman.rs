//! Debian's podman 4 with its CNI backend.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::{net::IpAddr, time::Duration};

use berth_tests::{Node, NodeOptions, Podman, Recorder, Snapshot, binary, eventually, ping};
use serde_json::{Value, json};

fn with_podman(body: impl FnOnce(&mut Node, &Podman, &Recorder) + Send + 'static) {
    Node::stopped(NodeOptions::default(), |node| {
        let (podman, recorder) = Podman::set_up(node.directory(), &binary("berth"));
        let conflist = podman.conf_directory().join("10-berth.conflist");
        node.set_config("cni_conf", json!({"path": conflist}));
        node.start();
        body(node, &podman, &recorder);
    });
}

fn address(record: &Value) -> IpAddr {
    record["ipv4"].as_str().unwrap().parse().unwrap()
}

#[test]
fn a_container_of_podman_runs_stops_starts_again_and_is_removed() {
    with_podman(|node, podman, recorder| {
        let before = Snapshot::take();
        let id = podman.run_server("web", "");
        let first = node.record(&id);
        assert_eq!(first["pod"]["name"], "web");
        assert!(ping(address(&first)));
        let inspected =
            podman.run("inspect --format {{.NetworkSettings.Networks.berth.IPAddress}} web");
        assert_eq!(inspected.trim(), address(&first).to_string());

        podman.run("stop --time 1 web");
        assert_eq!(node.records(&id), Vec::<Value>::new());

        // The same container id, at once, in a new namespace.
        podman.run("start web");
        let second = node.record(&id);
        assert_ne!(second["netns"], first["netns"]);
        assert!(ping(address(&second)));

        podman.run("rm --force --time 0 web");
        let calls = recorder.calls_of(&id);
        let verbs: Vec<&str> = calls.iter().map(|call| call.verb.as_str()).collect();
        assert_eq!(verbs, ["ADD", "DEL", "ADD", "DEL"]);
        node.assert_no_trace_since(&before);
    });
}

#[test]
fn podman_gets_the_address_and_the_mac_that_it_asks_for() {
    with_podman(|node, podman, _| {
        let before = Snapshot::take();
        let asked = "172.16.240.77";
        let id =
            podman.run_server("fixed", &format!("--ip {asked} --mac-address 02:00:00:00:00:77"));
        assert_eq!(node.record(&id)["ipv4"], asked);
        assert!(ping(asked.parse().unwrap()));
        let link = podman.run("exec fixed cat /sys/class/net/eth0/address");
        assert_eq!(link.trim(), "02:00:00:00:00:77");
        podman.run("rm --force --time 0 fixed");
        node.assert_no_trace_since(&before);
    });
}

#[test]
fn after_a_reboot_a_container_of_podman_starts_with_its_old_address() {
    with_podman(|node, podman, recorder| {
        let before = Snapshot::take();
        let id = podman.run_server("web", "");
        let first = node.record(&id);
        node.kill();
        podman.wipe();
        before.wait_until_again();
        node.take_another_boot_id();
        node.start();
        // podman knows of no DEL that it owes: it adds the same id once more.
        podman.run("start web");
        let second = node.record(&id);
        assert_eq!(second["ipv4"], first["ipv4"]);
        assert_ne!(second["netns"], first["netns"]);
        assert!(ping(address(&second)));
        podman.run("rm --force --time 0 web");
        let verbs: Vec<String> = recorder.calls_of(&id).into_iter().map(|it| it.verb).collect();
        assert_eq!(verbs, ["ADD", "ADD", "DEL"]);
        node.assert_no_trace_since(&before);
    });
}

#[test]
fn a_container_of_podman_that_never_starts_after_a_reboot_gives_its_address_back() {
    with_podman(|node, podman, _| {
        node.set_config("gc_interval", json!("1s"));
        node.set_config("gc_grace", json!("2s"));
        let before = Snapshot::take();
        let id = podman.run_server("web", "");
        node.kill();
        podman.wipe();
        node.take_another_boot_id();
        node.start();
        eventually(Duration::from_secs(15), || match node.records(&id).as_slice() {
            [] => Ok(()),
            left => Err(format!("{left:?}")),
        });
        podman.run("rm --force --time 0 web");
        node.assert_no_trace_since(&before);
    });
}

#[test]
fn a_container_of_podman_is_disconnected_and_connected_again_where_it_is() {
    with_podman(|node, podman, recorder| {
        let before = Snapshot::take();
        let id = podman.run_server("web", "");
        for _ in 0..3 {
            let held = address(&node.record(&id));
            assert!(ping(held));
            podman.run("network disconnect berth web");
            assert_eq!(node.records(&id), Vec::<Value>::new());
            assert!(!ping(held));
            podman.run("network connect berth web");
        }
        assert!(ping(address(&node.record(&id))));
        podman.run("rm --force --time 0 web");
        let calls = recorder.calls_of(&id);
        let verbs: Vec<&str> = calls.iter().map(|call| call.verb.as_str()).collect();
        assert_eq!(verbs, ["ADD", "DEL", "ADD", "DEL", "ADD", "DEL", "ADD", "DEL"]);
        assert!(calls.iter().all(|call| call.netns == calls[0].netns), "{calls:?}");
        node.assert_no_trace_since(&before);
    });
}
