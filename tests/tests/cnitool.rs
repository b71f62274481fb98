//! The shipped network lists in the hands of libcni 1.3, alone and chained with Debian's plugins.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::{net::IpAddr, path::PathBuf};

use berth_tests::{Addresses, Cnitool, Node, NodeOptions, Pod, Snapshot, ping, shapers};
use serde_json::{Value, json};

fn shipped(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../cni-conf").join(name)
}

fn result(stdout: &str) -> Value {
    serde_json::from_str(stdout).unwrap_or_else(|err| panic!("{err}: {stdout}"))
}

fn v4(result: &Value) -> IpAddr {
    Addresses::of_result(result).v4().into()
}

#[test]
fn the_list_alone_goes_through_every_verb_at_1_1_0() {
    Node::with(NodeOptions::default(), |node| {
        let cnitool = Cnitool::beside(node, &shipped("10-berth.conflist"));
        let before = Snapshot::take();
        let none = json!({});
        let pod = Pod::new();
        cnitool.run("status", &pod, &none);
        let added = result(&cnitool.run("add", &pod, &none));
        // Of the versions that the list offers, libcni takes the newest.
        assert_eq!(added["cniVersion"], "1.1.0");
        assert!(ping(v4(&added)));
        cnitool.run("check", &pod, &none);
        pod.run("ip route del default");
        let broken = cnitool.output("check", &pod, &none);
        let said = String::from_utf8_lossy(&broken.stderr).into_owned();
        assert!(!broken.status.success() && said.contains("default"), "{broken:?}");
        cnitool.run("del", &pod, &none);
        cnitool.run("del", &pod, &none);
        node.assert_no_trace_since(&before);
    });
}

#[test]
fn gc_deletes_what_libcni_remembers_and_leaves_what_another_runtime_attached() {
    Node::with(NodeOptions::default(), |node| {
        let cnitool = Cnitool::beside(node, &shipped("10-berth.conflist"));
        let before = Snapshot::take();
        let none = json!({});
        let (remembered, foreign) = (Pod::new(), Pod::new());
        let added = result(&cnitool.run("add", &remembered, &none));
        // Of the same network, by a runtime that has another memory.
        let mut config = berth_tests::network_config();
        config["name"] = json!("berth");
        let call = berth_tests::Call::of("ADD", &foreign).input(&config);
        let address = v4(&call.run().result());
        // cnitool passes no list on, and so libcni takes nothing for valid.
        cnitool.run("gc", &remembered, &none);
        node.wait_for_slot(v4(&added), "cooling");
        assert_eq!(node.record(&foreign.id)["ipv4"], address.to_string());
        assert!(ping(address));
        call.environment("CNI_COMMAND", "DEL").run().nothing();
        node.assert_no_trace_since(&before);
    });
}

#[test]
fn status_by_libcni_is_bad_once_the_daemon_is_away_for_longer_than_a_restart() {
    Node::with(NodeOptions::default(), |node| {
        let mut list: Value =
            serde_json::from_slice(&std::fs::read(shipped("10-berth.conflist")).unwrap()).unwrap();
        list["plugins"][0]["statusGrace"] = json!(1);
        let own = node.directory().join("own.conflist");
        std::fs::write(&own, list.to_string()).unwrap();
        let cnitool = Cnitool::beside(node, &own);
        let pod = Pod::new();
        node.kill();
        cnitool.run("status", &pod, &json!({}));
        std::thread::sleep(std::time::Duration::from_millis(1500));
        let away = cnitool.output("status", &pod, &json!({}));
        assert!(!away.status.success(), "{away:?}");
        node.start();
        cnitool.run("status", &pod, &json!({}));
    });
}

/// A chain, and what its last plugin says of CHECK where it is wrong about it.
struct Chain {
    list: &'static str,
    capabilities: Value,
    check_fails: Option<&'static str>,
}

/// A life in a chain; `look` sees it while it stands.
fn chained(chain: Chain, look: impl FnOnce(&Pod, &Value) + Send + 'static) {
    Node::with(NodeOptions::default(), move |node| {
        let Chain { list, capabilities, check_fails } = chain;
        let cnitool = Cnitool::beside(node, &shipped(list));
        // What a plugin of Debian's leaves after its first use is its own.
        let warm = Pod::new();
        cnitool.run("add", &warm, &capabilities);
        cnitool.run("del", &warm, &capabilities);
        std::thread::sleep(std::time::Duration::from_millis(500));
        let before = Snapshot::take();
        let pod = Pod::new();
        let added = result(&cnitool.run("add", &pod, &capabilities));
        assert_eq!(added["cniVersion"], "1.0.0");
        assert!(ping(v4(&added)));
        let checked = cnitool.output("check", &pod, &capabilities);
        let said = String::from_utf8_lossy(&checked.stderr).into_owned();
        match check_fails {
            // The chain is asked from its beginning, so ours has passed.
            Some(text) => assert!(said.contains(text), "{checked:?}"),
            None => assert!(checked.status.success(), "{checked:?}"),
        }
        look(&pod, &added);
        cnitool.run("status", &pod, &capabilities);
        cnitool.run("del", &pod, &capabilities);
        cnitool.run("del", &pod, &capabilities);
        // Below 1.1.0 libcni's gc deletes what it remembers, and calls no plugin's GC.
        cnitool.run("add", &pod, &capabilities);
        cnitool.run("gc", &pod, &capabilities);
        node.assert_no_trace_since(&before);
    });
}

#[test]
fn the_chain_with_portmap_maps_the_port() {
    let ports = json!([{"hostPort": 18_090, "containerPort": 80, "protocol": "tcp"}]);
    let chain = Chain {
        list: "10-berth-portmap.conflist",
        capabilities: json!({"portMappings": ports}),
        // portmap 1.1.1 looks for its rules in the wrong family, behind ptp as well.
        check_fails: Some("could not check ipv6 dnat"),
    };
    chained(chain, |_, added| {
        let rules = berth_testkit::run("iptables-save -t nat");
        let target = format!("--to-destination {}:80", v4(added));
        assert!(rules.contains(&target), "{rules}");
    });
}

#[test]
fn the_chain_with_bandwidth_shapes_once() {
    let limits = json!({
        "ingressRate": 8_000_000, "ingressBurst": 800_000,
        "egressRate": 16_000_000, "egressBurst": 800_000,
    });
    let list = "10-berth-bandwidth.conflist";
    let capabilities = json!({"bandwidth": limits});
    chained(Chain { list, capabilities, check_fails: None }, |_, _| {
        let rates: Vec<u64> =
            shapers().iter().map(|options| options["rate"].as_u64().unwrap()).collect();
        assert_eq!(rates, [1_000_000, 2_000_000], "bytes per second, one shaper each way");
    });
}

#[test]
fn the_chain_with_tuning_sets_the_sysctl() {
    let list = "10-berth-tuning.conflist";
    chained(Chain { list, capabilities: json!({}), check_fails: None }, |pod, _| {
        assert_eq!(pod.run("sysctl -n net.core.somaxconn").trim(), "4096");
    });
}
