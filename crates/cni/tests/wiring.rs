//! ADD, CHECK and DEL for real: a namespace is wired, and the kernel is asked what came of it.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use berth_proto::Reason;
use berth_testkit::{in_netns, ip};
use serde_json::{Value, json};
use support::{
    Answer, Node,
    model::{Model, status},
};
use tonic::{Code, Status};

const POD: &str = "/run/netns/pod";

/// A node with a daemon and a pod's namespace, of which the kernel's state was noted.
struct Bed {
    node: Node,
    model: Model,
    before: String,
}

impl Bed {
    fn new() -> Self {
        ip("netns add pod");
        // As runtimes do before they call.
        ip("-n pod link set lo up");
        let node = Node::new();
        let model = Model::serve(&node.socket());
        Self { node, model, before: kernel() }
    }

    fn add(&self, config: &Value) -> Answer {
        self.node.call("ADD", config).env("CNI_NETNS", POD).run()
    }

    fn check(&self, config: &Value, result: Value) -> Answer {
        let mut config = config.clone();
        config["prevResult"] = result;
        self.node.call("CHECK", &config).env("CNI_NETNS", POD).run()
    }

    /// Nothing of the ADD is there: in the kernel, at the daemon.
    #[track_caller]
    fn assert_nothing_left(&self) {
        assert_eq!(kernel(), self.before);
        assert!(self.model.state().records.is_empty());
    }
}

/// Links, addresses and routes of both sides, without what counts by itself.
fn kernel() -> String {
    ["", "-n pod "]
        .iter()
        .flat_map(|side| {
            ["-o link", "-o addr", "route show table all", "-6 route show table all", "neigh"]
                .iter()
                .map(move |what| ip(&format!("{side}{what}")))
        })
        .collect()
}

#[test]
fn a_pod_is_wired_as_the_result_says_in_every_version() {
    in_netns(|| async {
        let bed = Bed::new();
        for (n, version) in ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"].into_iter().enumerate() {
            let interface = format!("eth{n}");
            let config = bed.node.config(version);
            let call = bed.node.call("ADD", &config).env("CNI_NETNS", POD);
            let result = call.env("CNI_IFNAME", &interface).run().succeeded();
            assert_eq!(result["cniVersion"], json!(version));
            let [host, pod] = result["interfaces"].as_array().unwrap().as_slice() else {
                panic!("{result}");
            };
            assert_eq!((&pod["name"], &pod["sandbox"]), (&json!(interface), &json!(POD)));
            assert!(host.get("sandbox").is_none());
            for (side, entry) in [("", host), ("-n pod ", pod)] {
                let name = entry["name"].as_str().unwrap();
                let link = ip(&format!("{side}-o link show {name}"));
                assert!(link.contains(entry["mac"].as_str().unwrap()), "{link} {entry}");
                assert_eq!(entry.get("mtu").is_some(), version == "1.1.0");
            }
            let held = ip(&format!("-n pod -o addr show {interface}"));
            for address in result["ips"].as_array().unwrap() {
                assert!(held.contains(address["address"].as_str().unwrap()), "{held} {address}");
                assert_eq!(address["interface"], json!(1));
                assert_eq!(address.get("version").is_some(), version < "1");
            }
            assert_eq!(result.get("dns").is_some(), version < "1");
            // One default route at a time.
            let host = host["name"].as_str().unwrap().to_owned();
            ip(&format!("link del {host}"));
        }
        let state = bed.model.state();
        assert!(state.records.values().all(|record| record.committed));
        let commit = &state.commits[0];
        assert_eq!(commit.pod.as_ref().unwrap().name, "eth0");
        let phases: Vec<&str> = commit.phases.iter().map(|phase| &*phase.name).collect();
        assert_eq!(phases, ["netns", "connect", "alloc", "attach"]);
    });
}

#[test]
fn a_second_add_of_the_same_attachment_gives_the_same_answer() {
    in_netns(|| async {
        let bed = Bed::new();
        let config = bed.node.config("1.1.0");
        let first = bed.add(&config).succeeded();
        let wired = kernel();
        // Whatever the runtime's environment says about logging.
        let again = bed.node.call("ADD", &config).env("CNI_NETNS", POD);
        let again = again.env("RUST_LOG", "trace").env("RUST_BACKTRACE", "full").run();
        assert_eq!(again.succeeded(), first);
        assert_eq!(again.stderr, "");
        assert_eq!(kernel(), wired);
    });
}

#[test]
fn what_was_asked_for_is_in_the_result() {
    in_netns(|| async {
        let bed = Bed::new();
        let mut config = bed.node.config("1.0.0");
        config["runtimeConfig"] =
            json!({"dns": {"Servers": ["10.210.0.1"], "Searches": null, "Options": null}});
        let call = bed.node.call("ADD", &config).env("CNI_NETNS", POD);
        let podman = "IgnoreUnknown=1;K8S_POD_NAME=w1;MAC=02:00:00:00:00:AB;IP=10.210.9.9";
        let result = call.env("CNI_ARGS", podman).run().succeeded();
        assert_eq!(result["dns"], json!({"nameservers": ["10.210.0.1"]}));
        assert_eq!(result["ips"].as_array().unwrap().len(), 1);
        assert_eq!(result["ips"][0]["address"], json!("10.210.9.9/32"));
        assert_eq!(result["interfaces"][1]["mac"], json!("02:00:00:00:00:ab"));
        assert!(ip("-n pod link show eth0").contains("02:00:00:00:00:ab"));
    });
}

#[test]
fn a_chain_gets_back_all_that_it_made_and_ours_behind_it() {
    in_netns(|| async {
        let bed = Bed::new();
        let mut config = bed.node.config("1.1.0");
        config["prevResult"] = json!({
            "cniVersion": "1.1.0",
            "interfaces": [{"name": "eth9", "mac": "02:00:00:00:00:01", "sandbox": POD,
                            "mtu": 1400, "socketPath": "/s", "x-vendor": {"a": 1}}],
            "ips": [{"interface": 0, "address": "10.1.2.3/24"}],
            "routes": [{"dst": "0.0.0.0/0", "gw": "10.1.2.1", "priority": 7, "x": true}],
            "x-top": [1],
        });
        let result = bed.add(&config).succeeded();
        for key in ["interfaces", "ips", "routes"] {
            assert_eq!(result[key][0], config["prevResult"][key][0], "{key}");
        }
        assert_eq!(result["x-top"], json!([1]));
        assert_eq!(result["interfaces"][2]["name"], json!("eth0"));
        assert_eq!(result["ips"][1]["interface"], json!(2));
    });
}

#[test]
fn a_foreign_interface_of_that_name_is_left_alone_and_nothing_is_kept() {
    in_netns(|| async {
        ip("netns add pod");
        ip("-n pod link add eth0 type veth peer name other");
        let node = Node::new();
        let model = Model::serve(&node.socket());
        let before = kernel();
        let text = node.call("ADD", &node.config("1.0.0")).env("CNI_NETNS", POD).run().failed(104);
        assert!(text.contains("eth0"), "{text}");
        assert_eq!(kernel(), before);
        assert!(model.state().records.is_empty());
        assert!(model.state().releases[0].reason.contains("eth0"));
    });
}

#[test]
fn a_failed_add_does_not_take_what_an_earlier_one_owns() {
    in_netns(|| async {
        let bed = Bed::new();
        let config = bed.node.config("1.0.0");
        let result = bed.add(&config).succeeded();
        let host = result["interfaces"][0]["name"].as_str().unwrap();
        // Somebody replaces the interface with one of his own.
        ip(&format!("link del {host}"));
        ip("-n pod link add eth0 type veth peer name other");
        bed.add(&config).failed(104);
        assert_eq!(bed.model.state().records.len(), 1);
        assert!(bed.model.state().releases.is_empty());
    });
}

#[test]
fn a_commit_that_is_refused_takes_everything_down() {
    in_netns(|| async {
        let bed = Bed::new();
        let late = status(Code::FailedPrecondition, Reason::ReleasedMeanwhile, "a DEL came");
        bed.model.state().refuse.insert("CommitIP", late);
        let text = bed.add(&bed.node.config("1.0.0")).failed(102);
        assert!(text.contains("a DEL came (RELEASED_MEANWHILE)"), "{text}");
        bed.assert_nothing_left();
    });
}

#[test]
fn a_result_that_cannot_be_written_takes_everything_down() {
    in_netns(|| async {
        let bed = Bed::new();
        let call = bed.node.call("ADD", &bed.node.config("1.0.0")).env("CNI_NETNS", POD);
        let answer = call.run_to("/dev/full");
        assert_eq!(answer.exit, Some(1), "{answer:?}");
        bed.assert_nothing_left();
    });
}

#[test]
fn an_address_that_cannot_be_given_back_now_waits_in_the_spool() {
    in_netns(|| async {
        let bed = Bed::new();
        for method in ["CommitIP", "ReleaseIP"] {
            bed.model.state().refuse.insert(method, Status::unavailable("gone"));
        }
        bed.add(&bed.node.config("1.0.0")).failed(11);
        assert_eq!(kernel(), bed.before);
        assert_eq!(bed.node.spooled()[0]["key"]["container_id"], json!("c1"));
    });
}

#[test]
fn check_right_after_add_passes_as_cri_o_makes_it() {
    in_netns(|| async {
        for version in ["0.4.0", "1.0.0", "1.1.0"] {
            let bed = Bed::new();
            let config = bed.node.config(version);
            let result = bed.add(&config).succeeded();
            bed.check(&config, result).succeeded_silently();
            ip("netns del pod");
        }
    });
}

#[test]
fn check_says_what_differs() {
    in_netns(|| async {
        let bed = Bed::new();
        let config = bed.node.config("1.0.0");
        let result = bed.add(&config).succeeded();

        let mut other = result.clone();
        other["ips"][0]["address"] = json!("10.9.9.9/32");
        let text = bed.check(&config, other).failed(100);
        assert!(text.contains("prevResult does not give 10.210.0.1 to eth0"), "{text}");
        let text = bed.check(&config, json!({})).failed(100);
        assert!(text.contains("prevResult has no interface eth0"), "{text}");

        ip("-n pod route del default");
        let text = bed.check(&config, result).failed(100);
        assert!(text.contains("default"), "{text}");
        // It repairs nothing.
        assert!(!ip("-n pod route").contains("default"));
    });
}

#[test]
fn check_believes_a_mac_that_a_later_plugin_wrote_into_the_result() {
    in_netns(|| async {
        let bed = Bed::new();
        let config = bed.node.config("1.0.0");
        let mut result = bed.add(&config).succeeded();
        ip("-n pod link set eth0 address 02:00:00:00:00:99");
        // With the address the kernel drops the link's neighbours, permanent ones too.
        let host = result["interfaces"][0]["mac"].as_str().unwrap().to_owned();
        for gateway in ["169.254.1.1", "fe80::1"] {
            ip(&format!("-n pod neigh replace {gateway} lladdr {host} dev eth0 nud permanent"));
        }
        let text = bed.check(&config, result.clone()).failed(100);
        assert!(text.contains("02:00:00:00:00:99"), "{text}");
        result["interfaces"][1]["mac"] = json!("02:00:00:00:00:99");
        bed.check(&config, result).succeeded_silently();
    });
}

#[test]
fn a_del_without_the_daemon_takes_the_pod_off_the_network_at_once() {
    in_netns(|| async {
        let Bed { node, model, .. } = Bed::new();
        let config = node.config("1.0.0");
        let call = node.call("ADD", &config).env("CNI_NETNS", POD);
        call.run().succeeded();
        assert!(ip("route").contains("10.210.0.1"));
        drop(model);
        node.call("DEL", &config).env("CNI_NETNS", "").run().succeeded_silently();
        assert!(!ip("route").contains("10.210.0.1"), "{}", ip("route"));
        assert!(!ip("-6 route").contains("fd00:210::1"), "{}", ip("-6 route"));
        assert_eq!(node.spooled().len(), 1);
    });
}

/// Behind a socket that systemd holds, the next daemon is there as soon as it is connected to.
#[test]
fn an_add_that_meets_a_daemon_on_its_way_out_is_served_by_the_next() {
    in_netns(|| async {
        ip("netns add pod");
        let node = Node::new();
        let model = Model::serve(&node.socket());
        let stopping = || status(Code::Unavailable, Reason::Stopping, "stopping");
        model.state().refuse_once.insert("AllocIP", stopping());
        // A connection that breaks looks like this: a status that is not the daemon's.
        model.state().refuse_once.insert("CommitIP", tonic::Status::unavailable("broken pipe"));
        node.call("ADD", &node.config("1.0.0")).env("CNI_NETNS", POD).run().succeeded();
        assert_eq!(model.state().allocations.len(), 1);
        assert_eq!(model.state().releases.len(), 0);
    });
}
