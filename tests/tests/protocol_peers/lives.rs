//! A whole life in every version: ADD, CHECK, DEL, and the DELs that follow.

use berth_tests::{Node, NodeOptions, Pod, Snapshot};
use serde_json::{Value, json};

use crate::{
    Subject,
    judge::{Expected, Verdict},
    peers,
};

/// Those of the peers that attach by themselves; the rest are called by others or come later in a chain.
const ATTACHING: [&str; 3] = ["ptp", "bridge", "loopback"];

/// loopback 1.1.1 leaves `ips[].version` out where the spec asks for it.
const BREAKS_THE_RULE: (&str, [&str; 3]) = ("loopback", ["0.3.0", "0.3.1", "0.4.0"]);

fn live(subject: &Subject, version: &str) -> Result<(), String> {
    let pod = Pod::new();
    let interface = if subject.name == "loopback" { "lo" } else { "eth0" };
    let call = |verb: &str, config: &Value| {
        subject
            .call(verb)
            .environment("CNI_CONTAINERID", &pod.id)
            .environment("CNI_NETNS", &pod.netns_text())
            .environment("CNI_IFNAME", interface)
            .environment("CNI_PATH", "/usr/lib/cni")
            .input(config)
    };
    let mut config = subject.config(version);
    let answer = call("ADD", &config).run();
    if let Some(fault) = Verdict::on(&answer, "ADD", &config, Expected::Understood).fault() {
        return Err(format!("ADD: {fault}"));
    }
    if !answer.succeeded() {
        return Err(format!("ADD: {answer:?}"));
    }
    if Expected::by_version(version, "CHECK", &[version.to_owned()]) == Expected::Understood {
        config["prevResult"] = answer.json();
        let checked = call("CHECK", &config).run();
        if !checked.succeeded() {
            return Err(format!("CHECK: {checked:?}"));
        }
        sandboxes_are_verbatim(&answer.json(), &pod)?;
    }
    for (netns, previous) in [(pod.netns_text(), true), (pod.netns_text(), false)]
        .into_iter()
        .chain([(String::new(), false)])
    {
        if !previous {
            config.as_object_mut().unwrap().remove("prevResult");
        }
        let deleted = call("DEL", &config).environment("CNI_NETNS", &netns).run();
        if !deleted.succeeded() {
            return Err(format!("DEL with netns {netns:?}: {deleted:?}"));
        }
    }
    pod.destroy();
    let deleted = call("DEL", &config).run();
    match deleted.succeeded() {
        true => Ok(()),
        false => Err(format!("DEL with a namespace that is gone: {deleted:?}")),
    }
}

fn sandboxes_are_verbatim(result: &Value, pod: &Pod) -> Result<(), String> {
    for interface in result["interfaces"].as_array().into_iter().flatten() {
        let sandbox = interface["sandbox"].as_str().unwrap_or_default();
        if !sandbox.is_empty() && sandbox != pod.netns_text() {
            return Err(format!("sandbox {sandbox} is not CNI_NETNS"));
        }
    }
    Ok(())
}

#[test]
fn a_life_in_every_version_goes_by_the_same_rules_for_ours_and_for_the_reference_plugins() {
    Node::with(NodeOptions::default(), |node| {
        let mut faults = Vec::new();
        let mut live_in_all = |subject: &Subject| {
            for version in subject.listed() {
                let (name, versions) = BREAKS_THE_RULE;
                let breaks = subject.name == name && versions.contains(&version.as_str());
                match live(subject, &version) {
                    Err(fault) if !breaks => {
                        faults.push(format!("{} in {version}: {fault}", subject.name));
                    }
                    Ok(()) if breaks => {
                        faults.push(format!("{name} in {version} keeps the rule after all"));
                    }
                    Ok(()) | Err(_) => (),
                }
            }
        };
        let before = Snapshot::take();
        live_in_all(&Subject::ours());
        node.assert_no_trace_since(&before);
        // What these leave, such as the reference bridge, is theirs.
        let peers = peers(node);
        peers.iter().filter(|peer| ATTACHING.contains(&peer.name)).for_each(live_in_all);
        assert!(faults.is_empty(), "{} faults: {faults:#?}", faults.len());
    });
}

/// The 1.1.0 verbs, which none of Debian's plugins has: GC lists in every state, STATUS in every
/// state of the daemon.
#[test]
fn gc_and_status_of_1_1_0_are_answered_in_every_state_of_list_and_daemon() {
    Node::with(NodeOptions::config(json!({"gc_grace": "1s", "gc_interval": "1h"})), |node| {
        let ours = Subject::ours();
        let call = |verb: &str, keys: Value| {
            let mut config = ours.config("1.1.0");
            crate::overlay(&mut config, &keys);
            // libcni sets what belongs to an attachment to nothing.
            let call = ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS"]
                .into_iter()
                .fold(ours.call(verb), |call, name| call.environment(name, ""));
            call.environment("CNI_PATH", "/usr/lib/cni").input(&config).run()
        };
        let entry = |pod: &Pod| json!([{"containerID": pod.id, "ifname": "eth0"}]);
        let other = json!([{"containerID": "other", "ifname": "eth0"}]);
        for (name, list) in [
            ("array", json!({"cni.dev/valid-attachments": other})),
            ("empty array", json!({"cni.dev/valid-attachments": []})),
            ("null", json!({"cni.dev/valid-attachments": null})),
            ("fallback key", json!({"cni.dev/attachments": other})),
            ("fallback key, null", json!({"cni.dev/attachments": null})),
        ] {
            let (live, dead) = (Pod::new(), Pod::new());
            node.add(&live).result();
            node.add(&dead).result();
            dead.destroy();
            std::thread::sleep(std::time::Duration::from_millis(1200));
            call("GC", json!({})).nothing();
            node.record(&dead.id);
            call("GC", json!({"cni.dev/valid-attachments": entry(&dead)})).nothing();
            node.record(&dead.id);
            // The newer key counts where both are there.
            let both = json!({
                "cni.dev/valid-attachments": entry(&dead), "cni.dev/attachments": other,
            });
            call("GC", both).nothing();
            node.record(&dead.id);
            call("GC", list).nothing();
            assert!(node.records(&dead.id).is_empty(), "{name}: the dead one is kept");
            node.record(&live.id);
            node.del(&live).nothing();
        }
        call("STATUS", json!({})).nothing();
        node.kill();
        call("STATUS", json!({})).nothing();
        let without_grace = call("STATUS", json!({"statusGrace": 0}));
        assert_eq!(without_grace.error_code(), 50, "{without_grace:?}");
        let gone = call("GC", json!({"cni.dev/valid-attachments": []}));
        assert_eq!(gone.error_code(), 11, "{gone:?}");
    });
}
