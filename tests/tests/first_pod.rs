//! The main job: a pod gets its addresses and a working network, and gives them back.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::{
    net::{IpAddr, SocketAddr, TcpListener},
    time::Duration,
};

use berth_tests::{
    Addresses, Call, NODE_V4, NODE_V6, Node, NodeOptions, OUTSIDE_V4, OUTSIDE_V6, Pod, Snapshot,
    network_config, ping, receive, send,
};
use serde_json::json;

#[test]
fn a_pod_is_added_reached_checked_and_deleted_without_a_trace() {
    Node::with(NodeOptions::default(), |node| {
        let before = Snapshot::take();
        let pod = Pod::new();
        let result = Call::of("ADD", &pod).pod("shop", "web-0").run().result();
        let addresses = Addresses::of_result(&result);
        // At once, in both families: nothing waits for the detection of doubled addresses.
        assert!(ping(addresses.v4().into()), "{}", Snapshot::take());
        assert!(ping(addresses.v6().into()), "{}", Snapshot::take());

        let record = node.record(&pod.id);
        assert_eq!(record["state"], "committed", "{record}");
        assert_eq!(record["ipv4"], addresses.v4().to_string());
        assert_eq!(record["ipv6"], addresses.v6().to_string());
        assert_eq!(record["pod"]["namespace"], "shop");
        assert_eq!(record["pod"]["name"], "web-0");
        assert_eq!(record["netns"], pod.netns_text());
        let link = record["host_interface"].as_str().unwrap();
        let shown = berth_testkit::ip(&format!("-d link show dev {link}"));
        assert!(shown.contains("alias shop/web-0"), "{shown}");

        let mut config = network_config();
        config["prevResult"] = result;
        Call::of("CHECK", &pod).input(&config).run().nothing();

        node.del(&pod).nothing();
        assert!(!ping(addresses.v4().into()));
        node.wait_for_slot(addresses.v4().into(), "cooling");
        node.assert_no_trace_since(&before);
        // The pod's own namespace is clean too.
        assert!(!pod.run("ip -br link").contains("eth0"));
    });
}

#[test]
fn pods_reach_each_other_the_node_and_through_it_the_outside() {
    Node::with(NodeOptions::default(), |node| {
        let (first, second) = (Pod::new(), Pod::new());
        let addresses = Addresses::of_result(&node.add(&first).result());
        node.add(&second).result();
        let targets: [IpAddr; 6] = [
            addresses.v4().into(),
            addresses.v6().into(),
            NODE_V4.into(),
            NODE_V6.into(),
            OUTSIDE_V4.into(),
            OUTSIDE_V6.into(),
        ];
        for target in targets {
            let reached = second.enter(move || ping(target)).join().unwrap();
            assert!(reached, "the pod does not reach {target}");
        }
    });
}

/// Who the receiver in `to` sees when `from` connects to `address`.
fn sender_seen(from: &Pod, to: &Pod, address: SocketAddr) -> IpAddr {
    let listening = to.enter(move || TcpListener::bind(address).unwrap()).join().unwrap();
    let receiving = to.enter(move || receive(&listening, Duration::from_millis(100)));
    from.enter(move || send(address, Duration::from_millis(300))).join().unwrap();
    receiving.join().unwrap().1.ip()
}

#[test]
fn the_outside_sees_the_node_and_pods_see_each_other() {
    Node::with(NodeOptions::default(), |node| {
        let (first, second) = (Pod::new(), Pod::new());
        let mine = Addresses::of_result(&node.add(&first).result());
        let other = Addresses::of_result(&node.add(&second).result());
        let outside = node.outside();
        assert_eq!(sender_seen(&first, outside, (OUTSIDE_V4, 9000).into()), IpAddr::from(NODE_V4));
        assert_eq!(sender_seen(&first, outside, (OUTSIDE_V6, 9000).into()), IpAddr::from(NODE_V6));
        assert_eq!(
            sender_seen(&first, &second, (other.v4(), 9000).into()),
            IpAddr::from(mine.v4())
        );
        assert_eq!(
            sender_seen(&first, &second, (other.v6(), 9000).into()),
            IpAddr::from(mine.v6())
        );
    });
}

#[test]
fn an_ipv4_only_node_gives_no_ipv6_address() {
    Node::with(NodeOptions::config(json!({"ip_stack": "ipv4"})), |node| {
        let before = Snapshot::take();
        let pod = Pod::new();
        let addresses = Addresses::of_result(&node.add(&pod).result());
        assert_eq!(addresses.0.len(), 1, "{addresses:?}");
        assert!(ping(addresses.v4().into()));
        node.del(&pod).nothing();
        node.assert_no_trace_since(&before);
    });
}

#[test]
fn an_ipv6_only_node_gives_no_ipv4_address() {
    Node::with(NodeOptions::config(json!({"ip_stack": "ipv6"})), |node| {
        let before = Snapshot::take();
        let pod = Pod::new();
        let addresses = Addresses::of_result(&node.add(&pod).result());
        assert_eq!(addresses.0.len(), 1, "{addresses:?}");
        assert!(ping(addresses.v6().into()));
        node.del(&pod).nothing();
        node.assert_no_trace_since(&before);
    });
}

#[test]
fn a_repeated_add_gives_the_same_answer_and_changes_nothing() {
    Node::with(NodeOptions::default(), |node| {
        let pod = Pod::new();
        let first = node.add(&pod).result();
        let wired = Snapshot::take();
        let inside = pod.run("ip -o addr");
        assert_eq!(node.add(&pod).result(), first);
        wired.wait_until_again();
        assert_eq!(pod.run("ip -o addr"), inside);
        assert_eq!(node.records(&pod.id).len(), 1);
    });
}
