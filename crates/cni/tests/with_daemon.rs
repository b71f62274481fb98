//! What the plugin asks of a daemon, and what it makes of the answers. No namespace is wired.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::time::Duration;

use berth_proto::{Reason, v1};
use berth_testkit::{in_netns, ip};
use serde_json::{Value, json};
use support::{
    Node,
    model::{Model, status},
};
use tonic::{Code, Status};

const POD: &str = "/run/netns/pod";

#[test]
fn a_refused_add_has_the_code_and_the_words_of_the_refusal() {
    in_netns(|| async {
        ip("netns add pod");
        let node = Node::new();
        let model = Model::serve(&node.socket());
        for (refusal, code) in [
            (status(Code::Aborted, Reason::Busy, "held by another"), 11),
            (status(Code::ResourceExhausted, Reason::NoAddress, "3 cooling"), 11),
            (status(Code::Unavailable, Reason::Stopping, "stopping"), 11),
            (status(Code::FailedPrecondition, Reason::AttachedElsewhere, "in /run/x"), 102),
            (status(Code::FailedPrecondition, Reason::ReleasedMeanwhile, "late"), 102),
            (status(Code::InvalidArgument, Reason::BadRequest, "field `pod.name`"), 7),
            (status(Code::PermissionDenied, Reason::NotAllowed, "root only"), 102),
            (status(Code::Internal, Reason::Internal, "a bug"), 105),
            (Status::unimplemented("an older daemon"), 102),
        ] {
            model.state().refuse.insert("AllocIP", refusal.clone());
            let answer = node.call("ADD", &node.config("1.0.0")).env("CNI_NETNS", POD).run();
            let text = answer.failed(code);
            assert!(text.contains(refusal.message()), "{text}");
            // It holds nothing, so there is nothing to give back.
            assert_eq!(model.state().releases.len(), 0, "{refusal:?}");
        }
    });
}

#[test]
fn the_daemon_is_told_all_that_the_runtime_said() {
    in_netns(|| async {
        ip("netns add pod");
        let node = Node::new();
        let model = Model::serve(&node.socket());
        model.state().refuse.insert("CommitIP", Status::aborted("enough"));
        let mut config = node.config("1.0.0");
        config["runtimeConfig"] = json!({
            "bandwidth": {"IngressRate": 10_000_000, "IngressBurst": 4_294_967_295u32,
                          "EgressRate": 20_000_000, "EgressBurst": 4_294_967_295u32},
        });
        let args = "K8S_POD_UID=u-1;IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;\
                    MAC=02:00:00:00:00:77;IP=10.210.9.9";
        node.call("ADD", &config).env("CNI_NETNS", POD).env("CNI_ARGS", args).run();
        let state = model.state();
        let [asked] = state.allocations.as_slice() else { panic!("asked more than once") };
        let key = asked.key.clone().unwrap();
        assert_eq!(berth_proto::key(Some(key)).unwrap().to_string(), "berth-test/c1/eth0");
        assert_eq!(asked.netns, POD);
        assert_eq!(asked.ips, ["10.210.9.9"]);
        assert_eq!(asked.mac, "02:00:00:00:00:77");
        let pod = asked.pod.clone().unwrap();
        assert_eq!((&*pod.namespace, &*pod.name, &*pod.uid), ("shop", "web-0", "u-1"));
        let bandwidth = asked.bandwidth.unwrap();
        assert_eq!(bandwidth.ingress_bytes_per_second, 1_250_000);
        assert_eq!(bandwidth.egress_bytes_per_second, 2_500_000);
        // The limit of the ADD, as gRPC writes it: up to eight digits and a unit.
        let deadline = state.deadlines[0].clone().unwrap();
        assert!(deadline.starts_with("109") || deadline.starts_with("110"), "{deadline}");
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        assert_eq!(asked.process_start.clone().unwrap().boot_id, boot.trim());
    });
}

#[test]
fn a_del_is_done_by_the_daemon_with_nothing_but_the_key() {
    let node = Node::new();
    let model = Model::serve(&node.socket());
    for netns in ["", "/run/netns/absent", "/etc/passwd"] {
        node.call("DEL", &node.config("1.0.0")).env("CNI_NETNS", netns).run().succeeded_silently();
    }
    assert_eq!(model.state().releases.len(), 3);
    assert!(!node.spool().exists());
}

#[test]
fn a_del_that_the_daemon_cannot_do_now_goes_to_the_spool_and_one_it_refuses_does_not() {
    in_netns(|| async {
        let node = Node::new();
        let model = Model::serve(&node.socket());
        let transient = [
            status(Code::Unavailable, Reason::Stopping, "stopping"),
            status(Code::Aborted, Reason::Busy, "busy"),
        ];
        for (n, refusal) in transient.into_iter().enumerate() {
            model.state().refuse.insert("ReleaseIP", refusal);
            node.call("DEL", &node.config("1.0.0")).run().succeeded_silently();
            assert_eq!(node.spooled().len(), n + 1);
        }
        let refusal = status(Code::Internal, Reason::Internal, "record not found: no such file");
        model.state().refuse.insert("ReleaseIP", refusal);
        let text = node.call("DEL", &node.config("1.0.0")).run().failed(105);
        assert!(text.contains("record missing: ENOENT"), "{text}");
        assert_eq!(node.spooled().len(), 2);
    });
}

#[test]
fn gc_hands_on_the_list_of_the_runtime_for_its_network_alone() {
    let node = Node::new();
    let model = Model::serve(&node.socket());
    let collect = |extra: Value| {
        let mut config = node.config("1.1.0");
        config.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        node.call("GC", &config).run().succeeded_silently();
        model.state().collections.drain(..).collect::<Vec<_>>()
    };
    let valid = |requests: &[v1::RunGcRequest]| {
        let [v1::RunGcRequest { dry_run: false, runtime: Some(runtime) }] = requests else {
            panic!("{requests:?}");
        };
        assert_eq!(runtime.network, "berth-test");
        let ids = |key: &v1::AttachmentKey| format!("{}/{}", key.container_id, key.interface);
        runtime.valid.iter().map(ids).collect::<Vec<_>>()
    };
    let list =
        json!([{"containerID": "a", "ifname": "eth0"}, {"containerID": "../x", "ifname": "eth0"}]);
    assert_eq!(valid(&collect(json!({"cni.dev/valid-attachments": list}))), ["a/eth0"]);
    assert_eq!(valid(&collect(json!({"cni.dev/attachments": list}))), ["a/eth0"]);
    assert!(valid(&collect(json!({"cni.dev/valid-attachments": null}))).is_empty());
    assert!(valid(&collect(json!({"cni.dev/valid-attachments": []}))).is_empty());
    // No list is no statement.
    assert!(collect(json!({})).is_empty());
}

#[test]
fn status_is_what_the_pool_says() {
    let node = Node::new();
    let model = Model::serve(&node.socket());
    node.call("STATUS", &node.config("1.1.0")).run().succeeded_silently();
    model.state().unavailable_reason = "all 254 addresses are given out".to_owned();
    // That the daemon served a while ago is no excuse for a pool that is empty.
    std::fs::write(node.place.path().join("served"), "").unwrap();
    let answer = node.call("STATUS", &node.config("1.1.0")).run();
    let text = answer.failed(50);
    assert!(text.contains("all 254 addresses are given out"), "{text}");
    // Nor is it one for a daemon that is there and fails.
    let refusal = status(Code::Internal, Reason::Internal, "a bug");
    model.state().refuse.insert("ListPool", refusal);
    node.call("STATUS", &node.config("1.1.0")).run().failed(50);
    assert!(answer.took < Duration::from_secs(1), "{answer:?}");
}

#[test]
fn check_of_what_the_daemon_does_not_know_says_so() {
    in_netns(|| async {
        ip("netns add pod");
        let node = Node::new();
        let _model = Model::serve(&node.socket());
        let mut config = node.config("1.0.0");
        config["prevResult"] = json!({"interfaces": []});
        let text = node.call("CHECK", &config).env("CNI_NETNS", POD).run().failed(101);
        assert!(text.contains("berth-test/c1/eth0"), "{text}");
    });
}
