//! The daemon's configuration file.

use std::{
    fs,
    io::Write,
    process::{Command, Output, Stdio},
};

use berth_tests::{Node, NodeOptions, Pod, Stopwatch, binary};
use serde_json::{Value, json};

fn check(bytes: &[u8]) -> Output {
    let mut child = Command::new(binary("berthd"))
        .args(["--check-config", "--config", "/dev/stdin"])
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may have enough before the end.
    let _ = child.stdin.take().unwrap().write_all(bytes);
    child.wait_with_output().unwrap()
}

#[test]
fn a_configuration_that_is_none_is_refused_in_one_line() {
    let deep = format!("{{\"log\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    let long = format!("{{\"exclude\":[\"{}\"]}}", "9".repeat(2 << 20));
    let documents: [&[u8]; 17] = [
        b"",
        b"\0",
        b"\xff\xfe{}",
        b"nonsense",
        b"{} {}",
        b"{\"mtu\":1e400}",
        b"{\"mtu\":-1}",
        b"{\"max_pool_size\":18446744073709551616}",
        b"{\"cool_down\":\"99999999999999999999y\"}",
        b"{\"cool_down\":\"\"}",
        b"{\"gc_interval\":\"18446744073709551615s\"}",
        b"{\"socket\":\"/a\\u0000b\"}",
        b"{\"state_dir\":\"/a\\u0000b\"}",
        b"{\"log\":{\"level\":\"\\u001b[31m,=,=[\"}}",
        b"{\"socket\":\"/a\",\"socket\":7}",
        deep.as_bytes(),
        long.as_bytes(),
    ];
    for document in documents {
        let shown = String::from_utf8_lossy(&document[..document.len().min(80)]).into_owned();
        let output = check(document);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{shown}: {said}");
        assert!(output.stdout.is_empty(), "{shown}");
        assert!(said.starts_with("berthd: ") && said.lines().count() == 1, "{shown}: {said}");
        assert!(said.len() < 2000, "{shown}: {} bytes", said.len());
    }
}

/// What is allowed must work, however odd.
#[test]
fn values_at_the_ends_of_what_is_allowed_are_lived_with() {
    let most = u64::MAX;
    let longest = "10y";
    let cases = [
        json!({"cool_down": longest, "gc_interval": longest, "gc_grace": longest,
               "stop_grace": longest}),
        json!({"cool_down": "0s", "gc_grace": "0s", "gc_interval": "1s", "stop_grace": "1ms"}),
        json!({"min_pool_size": most, "max_pool_size": most, "ip_warm_up_size": most}),
        json!({"min_pool_size": 0, "max_pool_size": 0, "ip_warm_up_size": 0}),
        json!({"ip_stack": "ipv4", "pod_cidrs": ["10.99.0.0/31"]}),
        json!({"ip_stack": "ipv4", "pod_cidrs": ["11.0.0.0/8"], "exclude": ["11.0.0.0/9"]}),
        json!({"ip_stack": "ipv6", "pod_cidrs": ["fd00::/8"]}),
        json!({"ip_stack": "ipv6", "pod_cidrs": ["fd00::/127"]}),
        json!({"mtu": 65535}),
    ];
    for config in cases {
        Node::with(NodeOptions::config(config.clone()), move |node| {
            let pod = Pod::new();
            let answer = node.add(&pod);
            // A prefix may be too small for any pod; that is said, and no more.
            let tiny = config["pod_cidrs"][0].as_str().is_some_and(|cidr| cidr.ends_with("/31"));
            assert!(
                answer.succeeded() || tiny && answer.error_code() == 11,
                "{config}: {answer:?}"
            );
            node.del(&pod).nothing();
            let resident = node.daemon().usage().anonymous;
            assert!(resident < 64 << 20, "{config}: {resident} bytes");
            let stopwatch = Stopwatch::start();
            assert!(node.stop().success(), "{config}");
            assert!(stopwatch.elapsed().as_secs() < 10, "{config}: {:?}", stopwatch.elapsed());
            assert!(!node.log().contains("panicked"), "{config}: {}", node.log());
        });
    }
}

/// Before anything is served: a runtime would never know of the node.
#[test]
fn a_network_list_that_is_none_is_refused_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let deep = format!("{{\"plugins\":{}{}}}", "[".repeat(1000), "]".repeat(1000));
    let documents: [&[u8]; 5] = [b"", b"[]", b"{\"plugins\":{}}", b"\xff", deep.as_bytes()];
    let mut sources: Vec<_> = documents
        .iter()
        .enumerate()
        .map(|(number, bytes)| {
            let path = directory.path().join(number.to_string());
            fs::write(&path, bytes).unwrap();
            path
        })
        .collect();
    sources.extend(["/dev/zero".into(), "/proc/self/mem".into(), directory.path().to_owned()]);
    for source in sources {
        let target = directory.path().join("10-berth.conflist");
        let list: Value = json!({"path": target, "source": source});
        Node::stopped(NodeOptions::config(json!({"cni_conf": list})), move |node| {
            assert!(!node.spawn().wait().success(), "{source:?}");
            assert!(!target.exists(), "{source:?} was installed");
            assert!(node.log().contains("`cni_conf.source`: "), "{source:?}: {}", node.log());
        });
    }
}
