//! What the plugin does when the daemon is away, hangs, or is only restarting.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::{fs, os::unix::net::UnixListener, time::Duration};

use berth_testkit::{in_netns, ip};
use berth_types::SpooledRelease;
use serde_json::{Value, json};
use support::Node;

fn release(spooled: &Value) -> SpooledRelease {
    serde_json::from_value(spooled.clone()).unwrap()
}

#[test]
fn a_del_is_remembered_with_its_key_and_the_time_of_its_process() {
    in_netns(|| async {
        let node = Node::new();
        for container in ["c1", "c2"] {
            let call = node.call("DEL", &node.config("1.0.0")).env("CNI_CONTAINERID", container);
            call.run().succeeded_silently();
        }
        let spooled = node.spooled();
        assert_eq!(spooled.len(), 2);
        let (first, second) = (release(&spooled[0]), release(&spooled[1]));
        assert_eq!(first.key.to_string(), "berth-test/c1/eth0");
        assert_eq!(second.key.to_string(), "berth-test/c2/eth0");
        assert!(first.process_start.at <= second.process_start.at);
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        assert_eq!(first.process_start.boot_id.as_str(), boot.trim());
    });
}

#[test]
fn thirty_two_dels_at_once_are_all_remembered() {
    in_netns(|| async {
        let node = Node::new();
        let node = &node;
        std::thread::scope(|scope| {
            for n in 0..32 {
                scope.spawn(move || {
                    let call = node.call("DEL", &node.config("1.0.0"));
                    call.env("CNI_CONTAINERID", &format!("c{n}")).run().succeeded_silently();
                });
            }
        });
        assert_eq!(node.spooled().len(), 32);
    });
}

#[test]
fn a_del_that_cannot_be_remembered_fails_and_never_speaks_of_absence() {
    in_netns(|| async {
        let node = Node::new();
        // A file where a directory must be; a directory that cannot be made.
        fs::write(node.place.path().join("file"), "").unwrap();
        for spool in ["file", "file/spool"] {
            let mut config = node.config("1.0.0");
            config["spoolDir"] = json!(node.place.path().join(spool));
            let text = node.call("DEL", &config).run().failed(5).to_lowercase();
            assert!(text.contains(spool), "{text}");
            for forbidden in ["not found", "no such file"] {
                assert!(!text.contains(forbidden), "{text}");
            }
        }
        let mut config = node.config("1.0.0");
        config["spoolDir"] = json!("/proc/not found/spool");
        let text = node.call("DEL", &config).run().failed(5).to_lowercase();
        assert!(!text.contains("not found") && !text.contains("no such file"), "{text}");
    });
}

#[test]
fn a_full_spool_is_an_error_to_try_again() {
    in_netns(|| async {
        let node = Node::new();
        fs::create_dir(node.spool()).unwrap();
        for n in 0..SpooledRelease::MOST {
            fs::write(node.spool().join(format!("{n:020}-x.json")), "{}").unwrap();
        }
        let text = node.call("DEL", &node.config("1.0.0")).run().failed(11);
        assert!(text.contains("4096"), "{text}");
    });
}

#[test]
fn status_answers_within_a_second_when_nobody_accepts_and_when_nobody_answers() {
    let node = Node::new();
    let config = node.config("1.1.0");
    let answer = node.call("STATUS", &config).run();
    answer.failed(50);
    assert!(answer.took < Duration::from_secs(1), "{answer:?}");

    // Accepts, and says nothing.
    let listener = UnixListener::bind(node.socket()).unwrap();
    let answer = node.call("STATUS", &config).run();
    let text = answer.failed(50);
    assert!(answer.took < Duration::from_secs(1), "{answer:?}");
    assert!(text.contains("no answer to ListPool"), "{text}");
    drop(listener);
}

#[test]
fn a_daemon_that_only_restarts_keeps_the_node_ready_for_its_grace() {
    let node = Node::new();
    let mut config = node.config("1.1.0");
    config["statusGrace"] = json!(2);
    fs::write(node.place.path().join("served"), "").unwrap();
    node.call("STATUS", &config).run().succeeded_silently();
    assert!(node.place.path().join("away-since").exists());
    node.call("STATUS", &config).run().succeeded_silently();
    std::thread::sleep(Duration::from_millis(2100));
    node.call("STATUS", &config).run().failed(50);
    // It came back and went away again.
    fs::remove_file(node.place.path().join("away-since")).unwrap();
    node.call("STATUS", &config).run().succeeded_silently();
}

#[test]
fn add_gives_up_at_its_limit_on_a_daemon_that_says_nothing() {
    in_netns(|| async {
        let node = Node::new();
        let _listener = UnixListener::bind(node.socket()).unwrap();
        let mut config = node.config("1.0.0");
        config["addTimeout"] = json!(1);
        ip("netns add pod");
        let answer = node.call("ADD", &config).env("CNI_NETNS", "/run/netns/pod").run();
        let text = answer.failed(11);
        assert!(text.contains("no answer to AllocIP"), "{text}");
        // The limit, and what giving back may take.
        assert!(answer.took < Duration::from_secs(8), "{answer:?}");
        // It may have got an address: that is remembered.
        assert_eq!(release(&node.spooled()[0]).key.to_string(), "berth-test/c1/eth0");
    });
}
