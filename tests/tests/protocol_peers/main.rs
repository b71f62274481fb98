//! The common part of the protocol's table, put to our plugin and to Debian's reference plugins by
//! one judge. What they do not pass is not the protocol, and such a case says so (`ours_alone`).

#![allow(clippy::unwrap_used, reason = "a test")]

mod judge;
mod lives;

use std::{fs, path::PathBuf};

use berth_tests::{Call, Node, NodeOptions, binary};
use judge::{Expected, Verdict};
use serde_json::{Value, json};

/// A plugin, and what its configuration needs beside name, type and version.
pub(crate) struct Subject {
    name: &'static str,
    needs: Value,
}

impl Subject {
    fn ours() -> Self {
        Self { name: "berth", needs: json!({}) }
    }

    fn program(&self) -> PathBuf {
        match self.name {
            "berth" => binary("berth"),
            name => PathBuf::from("/usr/lib/cni").join(name),
        }
    }

    pub(crate) fn call(&self, verb: &str) -> Call {
        Call::bare().program(&self.program()).environment("CNI_COMMAND", verb)
    }

    pub(crate) fn config(&self, version: &str) -> Value {
        let mut config = json!({"cniVersion": version, "name": "berth-test", "type": self.name});
        overlay(&mut config, &self.needs);
        config
    }

    /// The versions that it says it speaks.
    pub(crate) fn listed(&self) -> Vec<String> {
        // libcni's way to ask.
        let answer = self
            .call("VERSION")
            .environment("CNI_NETNS", "dummy")
            .environment("CNI_IFNAME", "dummy")
            .environment("CNI_PATH", "dummy")
            .input(&json!({"cniVersion": "1.0.0"}))
            .run();
        let listed = answer.result()["supportedVersions"].take();
        serde_json::from_value(listed).unwrap()
    }
}

/// Debian's. `bandwidth` is not among them: 1.1.1 panics where it is not chained.
pub(crate) fn peers(node: &Node) -> Vec<Subject> {
    let data = node.directory().join("host-local");
    fs::create_dir_all(&data).unwrap();
    let host_local = json!({"ipam": {
        "type": "host-local", "dataDir": data, "ranges": [[{"subnet": "10.77.0.0/16"}]],
    }});
    let fixed = json!({"ipam": {"type": "static", "addresses": [{"address": "10.78.0.5/24"}]}});
    vec![
        Subject { name: "host-local", needs: host_local.clone() },
        Subject { name: "static", needs: fixed },
        Subject { name: "ptp", needs: host_local.clone() },
        Subject { name: "bridge", needs: host_local.clone() },
        Subject { name: "macvlan", needs: host_local },
        Subject { name: "loopback", needs: json!({}) },
        Subject { name: "portmap", needs: json!({}) },
        Subject { name: "tuning", needs: json!({}) },
    ]
}

fn overlay(config: &mut Value, over: &Value) {
    for (key, value) in over.as_object().into_iter().flatten() {
        config[key] = value.clone();
    }
}

fn table() -> Value {
    serde_json::from_str(include_str!("../../../crates/cni/tests/data/protocol.json")).unwrap()
}

/// `verb` for a container whose namespace does not exist.
fn base_call(subject: &Subject, verb: &str) -> Call {
    subject
        .call(verb)
        .environment("CNI_CONTAINERID", "c1")
        .environment("CNI_NETNS", "/run/netns/absent")
        .environment("CNI_IFNAME", "eth0")
        .environment("CNI_PATH", "/usr/lib/cni")
        .environment("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0")
}

/// Cases that the subject's versions leave out are `None`.
fn run_case(subject: &Subject, listed: &[String], case: &Value) -> Option<Verdict> {
    let verb = case["verb"].as_str().unwrap();
    let mut config = subject.config("1.0.0");
    for (key, value) in case["config"].as_object().into_iter().flatten() {
        if value.is_null() && ["name", "type"].contains(&key.as_str()) {
            config.as_object_mut().unwrap().remove(key);
        } else {
            config[key] = value.clone();
        }
    }
    let version = config["cniVersion"].as_str().unwrap_or_default().to_owned();
    if !listed.contains(&version) {
        return None;
    }
    let mut call = base_call(subject, verb).input(&config);
    for (key, value) in case["env"].as_object().into_iter().flatten() {
        call = match value.as_str() {
            Some(value) => call.environment(key, value),
            None => call.without(key),
        };
    }
    if let Some(text) = case["stdin"].as_str() {
        call = call.input_text(Some(text));
    }
    let expected = Expected::of_our_code(case["code"].as_i64());
    Some(Verdict::on(&call.run(), verb, &config, expected))
}

#[test]
fn the_common_cases_are_answered_alike_by_our_plugin_and_by_every_reference_plugin() {
    Node::stopped(NodeOptions::default(), |node| {
        let mut faults = Vec::new();
        for subject in peers(node).into_iter().chain([Subject::ours()]) {
            let listed = subject.listed();
            let mut judged = 0;
            for case in table()["cases"].as_array().unwrap() {
                if case.get("ours_alone").is_some() {
                    continue;
                }
                let Some(verdict) = run_case(&subject, &listed, case) else { continue };
                judged += 1;
                if let Some(fault) = verdict.fault() {
                    faults.push(format!("{}: {}: {fault}", subject.name, case["name"]));
                }
            }
            assert!(judged >= 45, "{}: only {judged} cases were common", subject.name);
        }
        assert!(faults.is_empty(), "{} faults: {faults:#?}", faults.len());
    });
}

#[test]
fn each_verb_of_each_version_follows_one_rule_for_our_plugin_and_every_reference_plugin() {
    Node::stopped(NodeOptions::default(), |node| {
        let mut faults = Vec::new();
        for subject in peers(node).into_iter().chain([Subject::ours()]) {
            let listed = subject.listed();
            for version in table()["versions"].as_object().unwrap().keys() {
                for verb in ["ADD", "DEL", "CHECK", "GC", "STATUS"] {
                    let mut config = subject.config(version);
                    config["prevResult"] = json!({"cniVersion": version, "ips": []});
                    let answer = base_call(&subject, verb).input(&config).run();
                    let expected = Expected::by_version(version, verb, &listed);
                    if let Some(fault) = Verdict::on(&answer, verb, &config, expected).fault() {
                        faults.push(format!("{}: {verb} in {version:?}: {fault}", subject.name));
                    }
                }
            }
        }
        assert!(faults.is_empty(), "{} faults: {faults:#?}", faults.len());
    });
}
