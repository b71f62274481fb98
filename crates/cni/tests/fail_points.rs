//! The plugin killed at each of its steps, and overtaken by a DEL.

#![cfg(feature = "failpoints")]
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::time::Duration;

use berth_testkit::{in_netns, ip};
use support::{Answer, Node, model::Model};

const POD: &str = "/run/netns/pod";

fn killed_add(node: &Node, point: &str) -> Answer {
    let call = node.call("ADD", &node.config("1.0.0")).env("CNI_NETNS", POD);
    let answer = call.env("FAILPOINTS", &format!("{point}=return")).run();
    // By a signal, and with nothing said.
    assert_eq!((answer.exit, answer.stdout.as_str()), (None, ""), "{point}: {answer:?}");
    answer
}

#[test]
fn a_killed_add_is_mended_by_the_del_that_follows_or_by_another_add() {
    for (point, held, committed) in [
        ("cni::before_connect", 0, 0),
        ("cni::after_alloc", 1, 0),
        ("cni::after_attach", 1, 0),
        ("cni::after_commit", 1, 1),
    ] {
        in_netns(move || async move {
            ip("netns add pod");
            let node = Node::new();
            let model = Model::serve(&node.socket());
            killed_add(&node, point);
            {
                let state = model.state();
                assert_eq!(state.records.len(), held, "{point}");
                let commits = state.records.values().filter(|record| record.committed).count();
                assert_eq!(commits, committed, "{point}");
            }
            // A runtime that tries again in the same namespace.
            node.call("ADD", &node.config("1.0.0")).env("CNI_NETNS", POD).run().succeeded();
            assert!(ip("-n pod addr show eth0").contains("10.210.0."), "{point}");
            assert!(model.state().records.values().all(|record| record.committed), "{point}");
            node.call("DEL", &node.config("1.0.0")).run().succeeded_silently();
            assert!(model.state().records.is_empty(), "{point}");
        });
    }
}

#[test]
fn an_add_overtaken_by_a_del_takes_its_wiring_down() {
    in_netns(|| async {
        ip("netns add pod");
        let node = Node::new();
        let model = Model::serve(&node.socket());
        let links = || ip("-o link").lines().count();
        let before = links();
        let slow = node.call("ADD", &node.config("1.0.0")).env("CNI_NETNS", POD);
        let slow = slow.env("FAILPOINTS", "cni::after_attach=sleep(600)");
        let del = node.call("DEL", &node.config("1.0.0"));
        let (add, del) = std::thread::scope(|scope| {
            let add = scope.spawn(|| slow.run());
            std::thread::sleep(Duration::from_millis(300));
            let del = del.run();
            (add.join().unwrap(), del)
        });
        del.succeeded_silently();
        let text = add.failed(102);
        assert!(text.contains("RELEASED_MEANWHILE"), "{text}");
        assert_eq!(links(), before);
        assert!(model.state().records.is_empty());
    });
}

#[test]
fn a_del_killed_before_it_is_written_down_left_nothing_and_after_it_everything() {
    for (point, spooled) in [("cni::before_spool", 0), ("cni::after_spool", 1)] {
        in_netns(move || async move {
            let node = Node::new();
            let call = node.call("DEL", &node.config("1.0.0"));
            let answer = call.env("FAILPOINTS", &format!("{point}=return")).run();
            assert_eq!((answer.exit, answer.stdout.as_str()), (None, ""), "{point}");
            assert_eq!(node.spooled().len(), spooled, "{point}");
        });
    }
}
