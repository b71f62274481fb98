//! The protocol of the CNI spec against the built plugin, where no daemon runs.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::{
    io::Read,
    process::{Command, Stdio},
    time::Duration,
};

use berth_testkit::{in_netns, ip};
use serde_json::{Map, Value, json};
use support::Node;

fn data() -> Value {
    serde_json::from_str(include_str!("data/protocol.json")).unwrap()
}

/// The answer to a DEL is exit 0, to all else an error.
#[track_caller]
fn expect(answer: &support::Answer, code: i64, name: &str) -> String {
    if code == 0 {
        answer.succeeded_silently();
        return String::new();
    }
    assert_eq!(answer.exit, Some(1), "{name}: {answer:?}");
    assert_eq!(answer.document()["code"], json!(code), "{name}: {answer:?}");
    answer.failed(code)
}

#[test]
fn each_verb_is_answered_by_the_rules_of_each_version() {
    in_netns(|| async {
        for (version, verbs) in data()["versions"].as_object().unwrap() {
            for (verb, code) in verbs.as_object().unwrap() {
                let node = Node::new();
                let mut config = node.config(version);
                if verb == "CHECK" {
                    config["prevResult"] = json!({"ips": []});
                }
                if verb == "GC" {
                    config["cni.dev/valid-attachments"] = json!([]);
                }
                let answer = node.call(verb, &config).run();
                let code = code.as_i64().unwrap();
                let name = format!("{verb} in {version}");
                expect(&answer, code, &name);
                if code > 1 {
                    // An answer is in the version of the question.
                    assert_eq!(answer.document()["cniVersion"], json!(version), "{name}");
                }
                if code == 1 {
                    assert_eq!(node.spooled().len(), 0, "{name}");
                }
            }
        }
    });
}

#[test]
fn whatever_a_runtime_sends_has_its_answer() {
    in_netns(|| async {
        for case in data()["cases"].as_array().unwrap() {
            run_case(case);
        }
    });
}

fn run_case(case: &Value) {
    let name = case["name"].as_str().unwrap();
    let node = Node::new();
    let mut config = node.config("1.0.0");
    for (key, value) in case["config"].as_object().unwrap_or(&Map::new()) {
        // Here null takes a required key away; elsewhere it is what runtimes send.
        if value.is_null() && ["name", "type"].contains(&key.as_str()) {
            config.as_object_mut().unwrap().remove(key);
        } else {
            config[key] = value.clone();
        }
    }
    let mut call = node.call(case["verb"].as_str().unwrap(), &config);
    for (key, value) in case["env"].as_object().unwrap_or(&Map::new()) {
        call = match value.as_str() {
            Some(value) => call.env(key, value),
            None => call.without(key),
        };
    }
    if let Some(text) = case["stdin"].as_str() {
        call = call.stdin(text.as_bytes());
    }
    let answer = call.run();
    if case.get("exit").is_some() {
        assert_eq!((answer.exit, answer.stdout.as_str()), (Some(0), ""), "{name}: {answer:?}");
    } else {
        let text = expect(&answer, case["code"].as_i64().unwrap(), name);
        for word in case["names"].as_array().unwrap_or(&Vec::new()) {
            assert!(text.contains(word.as_str().unwrap()), "{name}: {text}");
        }
    }
    let spooled = case["spooled"].as_u64().unwrap_or(0);
    assert_eq!(node.spooled().len() as u64, spooled, "{name}");
}

#[test]
fn bytes_that_are_no_text_and_depth_without_end_are_refused() {
    let node = Node::new();
    let config = node.config("1.0.0");
    let not_text = b"{\"cniVersion\":\"1.0.0\",\"name\":\"n\",\"type\":\"\xff\"}";
    node.call("ADD", &config).stdin(not_text).run().failed(6);
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(200_000), "]".repeat(200_000));
    node.call("ADD", &config).stdin(deep.as_bytes()).run().failed(6);
    let zeros = vec![0; 4096];
    node.call("ADD", &config).stdin(&zeros).run().failed(6);
}

#[test]
fn a_configuration_of_a_megabyte_is_read() {
    let node = Node::new();
    let mut config = node.config("1.0.0");
    config["labels"] = json!("x".repeat(1 << 20));
    let text = node.call("ADD", &config).run().failed(5);
    assert!(text.starts_with("CNI_NETNS"), "{text}");
}

#[test]
fn version_lists_what_we_speak_in_order_with_no_daemon_and_no_stdin() {
    for (stdin, version) in [
        (r#"{"cniVersion":"1.0.0"}"#, "1.0.0"),
        (r#"{"cniVersion":"0.3.1"}"#, "0.3.1"),
        (r#"{"cniVersion":"7.0.0"}"#, "1.1.0"),
        ("{}", "1.1.0"),
        ("", "1.1.0"),
    ] {
        let node = Node::new();
        // podman and CRI-O ask like this.
        let call = node
            .call("VERSION", &json!({}))
            .stdin(stdin.as_bytes())
            .env("CNI_NETNS", "dummy")
            .env("CNI_IFNAME", "dummy")
            .env("CNI_PATH", "dummy")
            .env("CNI_CONTAINERID", "")
            .env("CNI_ARGS", "");
        let expected = json!({
            "cniVersion": version,
            "supportedVersions": ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"],
        });
        assert_eq!(call.run().succeeded(), expected, "{stdin}");
    }
}

#[test]
fn with_no_command_it_says_what_it_is_and_does_not_wait_for_stdin() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_berth"))
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Held open: a plugin that read it would wait.
    let stdin = child.stdin.take().unwrap();
    let (mut out, mut err) = (String::new(), String::new());
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert!(child.wait().unwrap().success());
    drop(stdin);
    assert_eq!(out, "");
    assert!(err.contains("0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0"), "{err}");
}

#[test]
fn the_environment_of_the_runtime_does_not_reach_stdout() {
    let node = Node::new();
    let answer = node
        .call("ADD", &node.config("1.0.0"))
        .env("RUST_LOG", "trace")
        .env("RUST_BACKTRACE", "full")
        .env("LD_LIBRARY_PATH", "/opt/containerd/lib")
        .env("HTTP_PROXY", "http://127.0.0.1:1")
        .env("TRACEPARENT", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        .run();
    answer.failed(5);
    assert_eq!(answer.stderr, "");
}

#[test]
fn an_answer_that_cannot_be_written_is_no_success() {
    let node = Node::new();
    let answer = node.call("VERSION", &json!({})).run_to("/dev/full");
    assert_eq!(answer.exit, Some(1), "{answer:?}");
    assert!(answer.stderr.contains("stdout"), "{answer:?}");
}

#[test]
fn add_into_our_own_namespace_touches_nothing() {
    let node = Node::new();
    let call = node.call("ADD", &node.config("1.0.0")).env("CNI_NETNS", "/proc/self/ns/net");
    call.run().failed(8);
    assert!(!node.spool().exists());
}

#[test]
fn an_answer_does_not_wait_for_a_daemon_that_is_not_there() {
    in_netns(|| async {
        let node = Node::new();
        ip("netns add pod");
        for verb in ["ADD", "DEL"] {
            let call = node.call(verb, &node.config("1.0.0")).env("CNI_NETNS", "/run/netns/pod");
            let answer = call.run();
            assert!(answer.took < Duration::from_secs(2), "{verb}: {answer:?}");
            if verb == "ADD" {
                let text = answer.failed(11);
                assert!(text.contains(&node.socket().display().to_string()), "{text}");
            } else {
                answer.succeeded_silently();
            }
        }
        assert_eq!(node.spooled().len(), 1);
    });
}
