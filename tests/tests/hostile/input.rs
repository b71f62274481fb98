//! What the plugin is given: variables, arguments, standard input; and what it cannot write to.

use std::time::Duration;

use berth_tests::{Call, Node, NodeOptions, Pod, Snapshot, StandardOutput, network_config};
use serde_json::{Value, json};

/// A refusal in good form: one JSON object, in time, nothing on the host.
#[track_caller]
fn refused(what: &str, call: &Call, code: u64) {
    let answer = call.run();
    assert_eq!(answer.error_code(), code, "{what}: {answer:?}");
    assert!(answer.took < Duration::from_secs(5), "{what}: {answer:?}");
    assert!(answer.stdout.len() < 16 << 10, "{what}: {} bytes", answer.stdout.len());
    assert!(!answer.stderr.contains("panicked"), "{what}: {answer:?}");
}

fn with(key: &str, value: Value) -> Value {
    let mut config = network_config();
    config[key] = value;
    config
}

#[test]
fn names_that_are_none_are_refused_by_add_and_check_and_nothing_to_del() {
    Node::with(NodeOptions::default(), |node| {
        let (pod, before) = (Pod::new(), Snapshot::take());
        let long = "a".repeat(4096);
        let ids = ["../../etc", "a/b", "a\nb", "a\r", " a", "-a", "ä", "a\u{202e}b", "a;b", &long];
        let interfaces =
            ["..", ".", "a/b", "a:b", "a b", "a\n", "a\u{7f}", "abcdefghijklmnop", &long];
        let cases = ids.map(|bad| ("CNI_CONTAINERID", bad)).into_iter();
        for (name, bad) in cases.chain(interfaces.map(|bad| ("CNI_IFNAME", bad))) {
            for verb in ["ADD", "CHECK"] {
                let call = Call::of(verb, &pod).environment(name, bad);
                let call = call.input(&with("prevResult", json!({"cniVersion": "1.0.0"})));
                refused(&format!("{verb} {name}={bad:?}"), &call, 4);
            }
            Call::of("DEL", &pod).environment(name, bad).run().nothing();
        }
        for bad in ["../x", "a/b", "a\nb", "a\0b", "", "ä", &long] {
            for verb in ["ADD", "CHECK", "DEL"] {
                let call = Call::of(verb, &pod).input(&with("name", json!(bad)));
                refused(&format!("{verb} name={bad:?}"), &call, 7);
            }
        }
        node.assert_no_trace_since(&before);
    });
}

#[test]
fn arguments_that_are_none_are_refused_without_a_trace() {
    Node::with(NodeOptions::default(), |node| {
        let (pod, before) = (Pod::new(), Snapshot::take());
        let long = "a".repeat(100_000);
        for (arguments, code) in [
            ("IP", 4),
            ("=;=;a", 4),
            ("IgnoreUnknown=perhaps", 4),
            ("IP=10.0.0.1,10.0.0.2", 4),
            ("IP=10.0.0.1/99999999999999999999;IP=x", 4),
            ("IP=::ffff:10.0.0.1,::1,::2", 4),
            ("MAC=01:00:00:00:00:00", 4),
            ("MAC=00:00:00:00:00:00", 4),
            // The daemon's to judge, and its answer is passed on.
            ("K8S_POD_NAME=a\nb", 7),
            ("K8S_POD_NAMESPACE=../../x", 7),
            ("K8S_POD_UID=\u{1b}[31m", 7),
            (&format!("K8S_POD_NAME={long}"), 7),
        ] {
            let shown: String = arguments.chars().take(60).collect();
            let call = Call::of("ADD", &pod).environment("CNI_ARGS", arguments);
            refused(&format!("{shown:?}"), &call, code);
        }
        // Any number of what is nobody's.
        let many = format!("{};K8S_POD_NAME=web", "x=y;".repeat(20_000));
        Call::of("ADD", &pod).environment("CNI_ARGS", &many).run().result();
        assert_eq!(node.record(&pod.id)["pod"]["name"], "web");
        node.del(&pod).nothing();
        node.assert_no_trace_since(&before);
    });
}

#[test]
fn a_document_that_is_none_is_refused_and_a_large_one_read() {
    Node::with(NodeOptions::default(), |node| {
        let (pod, before) = (Pod::new(), Snapshot::take());
        let plain = network_config().to_string();
        let nested = |depth: usize| {
            let deep = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
            format!("{}{deep}}}", with("x", json!(0)).to_string().trim_end_matches("0}"))
        };
        let documents = [
            String::new(),
            "\0".into(),
            "{".repeat(1 << 20),
            format!("{plain}{plain}"),
            format!("\u{feff}{plain}"),
            plain.replace("1.0.0", "\\ud800"),
            nested(1000),
            nested(200_000),
            format!("{}\"", plain.trim_end_matches('}')),
            " ".repeat((16 << 20) + 1),
        ];
        for (number, document) in documents.iter().enumerate() {
            let call = Call::of("ADD", &pod).input_text(Some(document));
            refused(&format!("document {number}"), &call, 6);
        }
        for (key, bad) in [
            ("cniVersion", json!({})),
            ("name", json!(["n"])),
            ("runtimeConfig", json!([])),
            ("runtimeConfig", json!({"bandwidth": 5})),
            ("runtimeConfig", json!({"bandwidth": {"ingressRate": -1}})),
            ("runtimeConfig", json!({"bandwidth": {"egressRate": 1e300}})),
            ("runtimeConfig", json!({"ips": "10.0.0.1"})),
            ("runtimeConfig", json!({"ips": ["10.0.0.1", "10.0.0.2"]})),
            ("runtimeConfig", json!({"mac": "x"})),
            ("runtimeConfig", json!({"dns": {"servers": {}}})),
            ("prevResult", json!("x")),
            ("prevResult", json!([])),
            ("prevResult", json!({"interfaces": {}})),
            ("prevResult", json!({"ips": 1})),
            ("prevResult", json!({"routes": "all"})),
            ("socket", json!("relative")),
            ("socket", json!(format!("/{}", "a".repeat(4096)))),
            ("spoolDir", json!("/a\0b")),
            ("hostPrefix", json!("../")),
            ("addTimeout", json!(u64::MAX)),
        ] {
            let call = Call::of("ADD", &pod).input(&with(key, bad.clone()));
            refused(&format!("{key}: {bad}"), &call, 7);
        }
        // Larger than a message to the daemon may be, and asked for by the pod.
        let annotations = json!({"berth.dev/note": "n".repeat(400 << 10)});
        let runtime = json!({"io.kubernetes.cri.pod-annotations": annotations});
        let call = Call::of("ADD", &pod).input(&with("runtimeConfig", runtime));
        refused("huge annotations", &call, 7);
        node.assert_no_trace_since(&before);

        // One mebibyte of what is not ours, among it what the chain made before.
        let vendor: Vec<Value> = (0..10_000)
            .map(|n| json!({"name": format!("if{n}"), "mac": null, "x-vendor": {"a": [n, "b".repeat(80)]}}))
            .collect();
        let config = with("prevResult", json!({"cniVersion": "1.0.0", "interfaces": vendor}));
        assert!(config.to_string().len() > 1 << 20);
        let result = Call::of("ADD", &pod).input(&config).run().result();
        assert_eq!(result["interfaces"].as_array().unwrap().len(), 10_002);
        assert_eq!(result["ips"][0]["interface"], 10_001);
        node.del(&pod).nothing();
        node.assert_no_trace_since(&before);
    });
}

/// Numbers that index what is not there, addresses that are none: CHECK says what it misses.
#[test]
fn a_previous_result_that_makes_no_sense_fails_the_check_and_nothing_else() {
    Node::with(NodeOptions::default(), |node| {
        let pod = Pod::new();
        let result = node.add(&pod).result();
        let sandbox = pod.netns_text();
        let interface = json!([{"name": "eth0", "sandbox": sandbox}]);
        for (bad, code) in [
            (json!(null), 103),
            (json!({}), 100),
            (json!({"interfaces": [null, 7, "x", {}]}), 100),
            (json!({"interfaces": [{"name": 5, "sandbox": [1]}]}), 100),
            (json!({"interfaces": interface, "ips": [{"interface": -1, "address": 7}]}), 100),
            (json!({"interfaces": interface, "ips": [{"interface": u64::MAX}]}), 100),
            (json!({"interfaces": interface, "ips": [{"address": "////"}, null]}), 100),
            (json!({"interfaces": [[]], "ips": {}}), 7),
        ] {
            let call = Call::of("CHECK", &pod).input(&with("prevResult", bad.clone()));
            refused(&format!("{bad}"), &call, code);
        }
        Call::of("CHECK", &pod).input(&with("prevResult", result)).run().nothing();
    });
}

#[test]
fn a_gc_list_of_a_mebibyte_of_nonsense_frees_nothing_that_lives() {
    Node::with(NodeOptions::default(), |node| {
        let pod = Pod::new();
        node.add(&pod).result();
        let gc = |list: Value| {
            let mut config = with("cni.dev/valid-attachments", list);
            config["cniVersion"] = json!("1.1.0");
            Call::network("GC").input(&config)
        };
        let entry = |n: usize| json!({"containerID": format!("../{n}"), "ifname": "\n"});
        gc((0..30_000).map(entry).collect()).run().nothing();
        // More than the daemon takes in one message: an error, not a shorter list.
        let entry = |n: usize| json!({"containerID": format!("{n:0>100}"), "ifname": "eth0"});
        refused("a long list", &gc((0..30_000).map(entry).collect()), 7);
        refused("not a list", &gc(json!({"a": {}})), 7);
        assert_eq!(node.record(&pod.id)["state"], "committed");
    });
}

#[test]
fn an_add_whose_result_nobody_can_read_is_undone() {
    Node::with(NodeOptions::default(), |node| {
        let (pod, before) = (Pod::new(), Snapshot::take());
        for output in [StandardOutput::Unread, StandardOutput::To("/dev/full".into())] {
            let answer = Call::of("ADD", &pod).output(output.clone()).run();
            assert_eq!(answer.code, Some(1), "{output:?}: {answer:?}");
            assert!(answer.stderr.contains("stdout"), "{output:?}: {answer:?}");
            node.assert_no_trace_since(&before);
        }
    });
}
