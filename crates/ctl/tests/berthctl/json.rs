use serde_json::{Value, json};

use crate::{
    model::{Model, Node},
    run::{berthctl, fine},
};

#[track_caller]
fn ask(model: &Model, words: &str) -> Value {
    serde_json::from_str(&fine(model.socket(), &format!("{words} -o json"))).unwrap()
}

/// What scripts are promised: fields may come, these stay as they are.
#[test]
fn pods_keep_their_promised_fields() {
    let model = Model::start(Node::default());
    assert_eq!(
        ask(&model, "pods"),
        json!([
            {
                "network": "podnet", "container_id": "77aa00", "interface": "eth0",
                "pod": {"namespace": null, "name": "alone", "uid": null},
                "state": "bound", "ip_type": "VPCIP", "ipv4": "172.16.240.3", "ipv6": null,
                "host_interface": "bth000000000003", "netns": "/run/netns/alone",
                "age_seconds": 7, "mtu": 1500,
                "host_mac": "02:00:00:00:01:03", "pod_mac": "02:00:00:00:00:03",
                "ingress_bytes_per_second": 1_250_000, "egress_bytes_per_second": null,
            },
            {
                "network": "berth", "container_id": "3f009190ae68b15441", "interface": "eth0",
                "pod": {"namespace": "shop", "name": "web-0", "uid": null},
                "state": "committed", "ip_type": "VPCIP",
                "ipv4": "172.16.240.2", "ipv6": "fd62:6572:7468::2",
                "host_interface": "bth000000000002", "netns": "/run/netns/web-0",
                "age_seconds": 11_000, "mtu": 1500,
                "host_mac": "02:00:00:00:01:02", "pod_mac": "02:00:00:00:00:02",
                "ingress_bytes_per_second": 1_250_000, "egress_bytes_per_second": null,
            },
        ])
    );
}

#[test]
fn the_pool_keeps_its_promised_fields() {
    let model = Model::start(Node { attachments: Vec::new(), ..Node::default() });
    assert_eq!(
        ask(&model, "pool"),
        json!({
            "summary": {
                "ip_type": "VPCIP", "capacity": 4093, "available": 4092,
                "unavailable_reason": null, "idle": 0, "promised": 0, "leased": 0, "cooling": 1,
                "reserved": 0, "quarantined": 0, "draining": 0, "invalid": 0,
            },
            "slots": [{
                "id": "172.16.240.9,fd62:6572:7468::9",
                "ipv4": "172.16.240.9", "ipv6": "fd62:6572:7468::9",
                "state": "cooling", "owner": null, "seconds_left": 17, "why": "released",
            }],
        })
    );
}

#[test]
fn the_other_answers_keep_their_promised_fields() {
    let model = Model::start(Node { dead: vec!["77aa00".into()], ..Node::default() });
    let status = ask(&model, "status");
    assert_eq!(status["pool"]["leased"], 2);
    assert_eq!(
        {
            let mut status = status;
            status["pool"] = Value::Null;
            status
        },
        json!({
            "serving": true, "health": "SERVING", "version": "0.1.0", "mode": "VPC",
            "ip_stack": "dual", "config_generation": 4, "attachments": 2, "pool": null,
        })
    );
    assert_eq!(
        ask(&model, "explain ip 172.16.240.3"),
        json!({
            "found": true,
            "verdict": "podnet/77aa00/eth0 holds it",
            "facts": ["its namespace is /run/netns/alone", "it is\nalive"],
        })
    );
    assert_eq!(
        ask(&model, "gc --dry-run")["findings"][1],
        json!({
            "network": "podnet", "container_id": "77aa00", "interface": "eth0",
            "collected": true, "evidence": ["its netns is gone"],
        })
    );
    assert_eq!(
        ask(&model, "release 77aa00 --reason stuck"),
        json!({
            "network": "podnet", "container_id": "77aa00", "interface": "eth0",
            "released": true, "ipv4": "172.16.240.3", "ipv6": null,
        })
    );
    assert_eq!(
        ask(&model, "config show"),
        json!({
            "version": "0.1.0", "generation": 4,
            "config": {"daemon_mode": "VPC", "ip_stack": "dual", "log": {"level": "info"}},
            "sources": {"daemon_mode": "default", "log": "environment"},
        })
    );
}

#[test]
fn a_daemon_that_does_not_serve_is_told_in_json_too() {
    let model = Model::start(Node { serving: false, ..Node::default() });
    let outcome = berthctl(model.socket(), "-o json status");
    let status: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!((&status["serving"], &status["health"]), (&json!(false), &json!("NOT_SERVING")));
    assert_eq!(outcome.status, 1);
}
