use std::io::{BufRead, BufReader};

use crate::{
    model::{Model, Node},
    run::{command, fine},
};

#[test]
fn status_says_what_the_daemon_is_and_has() {
    let model = Model::start(Node::default());
    assert_eq!(
        fine(model.socket(), "status"),
        "\
serving      yes
version      0.1.0
mode         VPC
ip stack     dual
pool         VPCIP: 4090 of 4093 available; 2 leased, 0 idle, 1 cooling
attachments  2
config       generation 4
"
    );
}

#[test]
fn pods_are_listed_by_name_with_short_container_ids() {
    let model = Model::start(Node::default());
    assert_eq!(
        fine(model.socket(), "pods"),
        "\
POD         IPV4          IPV6               STATE      TYPE   HOST             CONTAINER      IF    NETWORK  AGE
alone       172.16.240.3  -                  bound      VPCIP  bth000000000003  77aa00         eth0  podnet   7s
shop/web-0  172.16.240.2  fd62:6572:7468::2  committed  VPCIP  bth000000000002  3f009190ae68b  eth0  berth    3h3m
"
    );
    assert_eq!(fine(model.socket(), "pods --network berth").lines().count(), 2);
}

#[test]
fn no_pods_are_a_header_alone() {
    let model = Model::start(Node { attachments: Vec::new(), ..Node::default() });
    assert_eq!(fine(model.socket(), "pods").lines().count(), 1);
}

#[test]
fn the_pool_says_why_an_address_is_not_given_out() {
    let model = Model::start(Node::default());
    assert_eq!(
        fine(model.socket(), "pool"),
        "\
VPCIP: 4090 of 4093 available; 2 leased, 0 idle, 1 cooling

STATE    IPV4          IPV6               LEFT  OWNER                          WHY
leased   172.16.240.2  fd62:6572:7468::2  -     berth/3f009190ae68b15441/eth0  -
leased   172.16.240.3  -                  -     podnet/77aa00/eth0             -
cooling  172.16.240.9  fd62:6572:7468::9  17s   -                              released
"
    );
    model.node().capacity = 3;
    assert_eq!(
        fine(model.socket(), "pool --summary"),
        "VPCIP: 0 of 3 available (all given out); 2 leased, 0 idle, 1 cooling\n"
    );
}

#[test]
fn an_explanation_is_a_verdict_and_facts_that_cannot_break_the_line() {
    let model = Model::start(Node::default());
    let expected = "\
berth/3f009190ae68b15441/eth0 holds it
  - its namespace is /run/netns/web-0
  - it is\u{fffd}alive
";
    assert_eq!(fine(model.socket(), "explain pod shop/web-0"), expected);
    // However the address is written.
    assert_eq!(fine(model.socket(), "explain ip FD62:6572:7468:0::2"), expected);
    assert!(fine(model.socket(), "explain pod alone").starts_with("podnet/77aa00/eth0"));
}

#[test]
fn a_dry_run_of_gc_changes_nothing_and_a_run_does() {
    let model = Model::start(Node { dead: vec!["77aa00".into()], ..Node::default() });
    assert_eq!(
        fine(model.socket(), "gc --dry-run"),
        "\
VERDICT        CONTAINER      IF    NETWORK  EVIDENCE
kept           3f009190ae68b  eth0  berth    its netns is alive
would-collect  77aa00         eth0  podnet   its netns is gone

would collect 1, kept 1
"
    );
    assert_eq!(model.node().attachments.len(), 2);
    assert!(fine(model.socket(), "gc").ends_with("\ncollected 1, kept 1\n"));
    assert_eq!(model.node().attachments.len(), 1);
    assert_eq!(fine(model.socket(), "gc").lines().count(), 4);
}

#[test]
fn release_takes_the_start_of_a_container_id() {
    let model = Model::start(Node { dead: vec!["77aa00".into()], ..Node::default() });
    let said = fine(model.socket(), "release 77 --reason stuck");
    assert_eq!(said, "released 172.16.240.3 of podnet/77aa00/eth0\n");
    assert_eq!(model.node().attachments.len(), 1);
}

#[test]
fn the_configuration_is_shown_field_by_field_with_its_source() {
    let model = Model::start(Node::default());
    assert_eq!(
        fine(model.socket(), "config show"),
        "\
generation 4

FIELD        VALUE  FROM
daemon_mode  VPC    default
ip_stack     dual   -
log.level    info   environment
"
    );
}

#[test]
fn watch_prints_a_change_when_it_happens() {
    let model = Model::start(Node::default());
    let mut watch = command(model.socket())
        .arg("watch")
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    wait_until(|| model.watchers() == 1);
    fine(model.socket(), "release 77aa00 --force --reason stuck");
    let mut line = String::new();
    BufReader::new(watch.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "released   alone  172.16.240.3  podnet/77aa00/eth0  (by hand)\n");
    // The daemon goes away: that ends the watch, and is an error.
    drop(model);
    assert_eq!(watch.wait().unwrap().code(), Some(3));
}

#[test]
fn completion_knows_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let script = fine("/nonexistent".as_ref(), &format!("completion {shell}"));
        assert!(script.contains("explain") && script.contains("dry-run"), "{shell}");
    }
}

/// Ten seconds are long enough for a process to start on a busy machine.
#[track_caller]
fn wait_until(condition: impl Fn() -> bool) {
    for _ in 0..1000 {
        if condition() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("waited ten seconds in vain");
}
