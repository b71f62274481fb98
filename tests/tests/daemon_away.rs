//! What the plugin does while the daemon is not there.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::{fs, thread, time::Duration};

use berth_tests::{Addresses, Call, Node, NodeOptions, Pod, Snapshot, eventually, network_config};
use serde_json::json;

fn spooled() -> usize {
    fs::read_dir("/var/lib/berth/spool").map_or(0, Iterator::count)
}

#[test]
fn a_delete_while_the_daemon_is_away_is_carried_out_before_it_serves_again() {
    Node::with(NodeOptions::default(), |node| {
        let before = Snapshot::take();
        let (gone, kept) = (Pod::new(), Pod::new());
        let addresses = Addresses::of_result(&node.add(&gone).result());
        let stays = node.add(&kept).result();
        node.kill();

        node.del(&gone).nothing();
        assert_eq!(spooled(), 1);
        // The pod is off the network already, whoever is there to record it.
        assert!(!berth_tests::ping(addresses.v4().into()));

        node.start();
        assert!(node.records(&gone.id).is_empty());
        assert_eq!(node.slot_state(addresses.v4().into()).as_deref(), Some("cooling"));
        assert_eq!(node.record(&kept.id)["ipv4"], Addresses::of_result(&stays).v4().to_string());
        assert!(berth_tests::ping(Addresses::of_result(&stays).v4().into()));
        eventually(Duration::from_secs(5), || match spooled() {
            0 => Ok(()),
            left => Err(format!("{left} files are still in the spool")),
        });
        node.del(&kept).nothing();
        node.assert_no_trace_since(&before);
    });
}

#[test]
fn a_spooled_delete_does_not_hurt_the_containers_next_life() {
    Node::with(NodeOptions::default(), |node| {
        let pod = Pod::new();
        node.add(&pod).result();
        node.kill();
        node.del(&pod).nothing();
        // A copy that comes once more, after the container has begun anew.
        let name = fs::read_dir("/var/lib/berth/spool").unwrap().next().unwrap().unwrap().path();
        let copy = fs::read(&name).unwrap();
        node.start();
        let again = Pod::of(&pod.id);
        let result = node.add(&again).result();
        node.kill();
        fs::write(&name, copy).unwrap();
        node.start();
        assert_eq!(node.record(&pod.id)["netns"], again.netns_text());
        assert!(berth_tests::ping(Addresses::of_result(&result).v4().into()));
    });
}

#[test]
fn an_add_without_a_daemon_fails_at_once_and_says_try_again() {
    Node::stopped(NodeOptions::default(), |_| {
        let pod = Pod::new();
        let before = Snapshot::take();
        let answer = Call::of("ADD", &pod).run();
        assert_eq!(answer.error_code(), 11, "{answer:?}");
        assert!(answer.took < Duration::from_secs(2), "{answer:?}");
        assert!(answer.error_text().contains("berth.sock"), "{answer:?}");
        before.wait_until_again();
    });
}

#[test]
fn status_stays_ready_while_a_daemon_restarts_and_not_for_ever() {
    Node::with(NodeOptions::default(), |node| {
        let mut config = network_config();
        config["cniVersion"] = json!("1.1.0");
        config["statusGrace"] = json!(2);
        let status = || Call::network("STATUS").input(&config).run();
        status().nothing();
        node.kill();
        let during = status();
        during.nothing();
        assert!(during.took < Duration::from_secs(1), "{during:?}");
        thread::sleep(Duration::from_secs(3));
        let after = status();
        assert!([50, 51].contains(&after.error_code()), "{after:?}");
        assert!(after.took < Duration::from_secs(1), "{after:?}");
        node.start();
        status().nothing();
    });
}

#[test]
fn pods_keep_their_network_through_stop_kill_and_start() {
    Node::with(NodeOptions::default(), |node| {
        let pod = Pod::new();
        let address = Addresses::of_result(&node.add(&pod).result()).v4();
        let wired = Snapshot::take();
        let reached = || berth_tests::ping(address.into());
        assert!(node.stop().success());
        assert!(reached());
        node.start();
        assert!(reached());
        node.kill();
        assert!(reached());
        node.start();
        assert!(reached());
        assert_eq!(node.record(&pod.id)["ipv4"], address.to_string());
        wired.wait_until_again();
    });
}

#[test]
fn a_second_daemon_is_refused_and_told_who_is_there() {
    Node::with(NodeOptions::default(), |node| {
        let holder = node.daemon().pid();
        let second = std::process::Command::new(berth_tests::binary("berthd"))
            .arg("--config")
            .arg(node.directory().join("berth.json"))
            .output()
            .unwrap();
        assert!(!second.status.success(), "{second:?}");
        let text = String::from_utf8_lossy(&second.stderr).into_owned();
        assert!(text.contains(&holder.to_string()), "{holder} is not named: {text}");
        node.add(&Pod::new()).result();
    });
}
