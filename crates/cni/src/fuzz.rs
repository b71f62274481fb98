//! What the plugin reads, for the fuzzer in `tests/fuzz`. Each function panics where something
//! does not hold.

use std::{collections::HashMap, ffi::OsString, os::unix::ffi::OsStringExt};

use berth_types::{AddressSet, Bandwidth, InterfaceFacts, MacAddress, NetConf, ResourceKind};
use serde_json::{Value, json};

use crate::{
    cni_args::CniArgs,
    cni_compat,
    config::Document,
    error::Failure,
    invocation::{Command, Invocation},
    layout::{self, Dns, Wired},
    previous::PreviousResult,
    verb::{SpecVersion, Verb},
    wishes::Wishes,
};

/// One execution: the environment in lines `NAME=value`, an empty line, standard input.
pub fn invocation(bytes: &[u8]) {
    let end = bytes.windows(2).position(|pair| pair == b"\n\n");
    let (head, stdin) = end.map_or((bytes, &[][..]), |end| (&bytes[..end], &bytes[end + 2..]));
    let variables: HashMap<&[u8], &[u8]> = head
        .split(|byte| *byte == b'\n')
        .filter_map(|line| {
            let at = line.iter().position(|byte| *byte == b'=')?;
            Some((&line[..at], &line[at + 1..]))
        })
        .collect();
    let variable =
        |name: &str| variables.get(name.as_bytes()).map(|value| OsString::from_vec(value.to_vec()));
    match Invocation::read(variable, stdin) {
        Ok(invocation) => taken(invocation),
        Err(failure) => refused(&failure),
    }
}

fn taken(invocation: Invocation) {
    match invocation.command {
        Command::Add(add) => {
            assert!(!add.netns.is_empty() && add.socket.is_absolute());
            results(&add.previous);
        }
        Command::Del(del) => assert!(del.away.spool_dir.is_absolute()),
        Command::Check(check) => results(&check.previous),
        Command::Gc(gc) => assert!(gc.valid.iter().all(|key| key.network == gc.network)),
        Command::Status(status) => assert!(status.socket.is_absolute()),
        Command::About | Command::Version(_) | Command::Nothing { .. } => {}
    }
}

/// Whatever was wrong, the document about it can be written, and is short.
fn refused(failure: &Failure) {
    assert!(failure.error.code() > 0);
    let (msg, details) = failure.texts();
    if failure.verb == Verb::Del {
        let said = format!("{msg} {details}").to_ascii_lowercase();
        assert!(!said.contains("not found") && !said.contains("no such file"), "{said}");
    }
    let reply = cni_compat::error_reply(failure.version, failure.error.code(), &msg, details);
    let document = serde_json::to_string(&reply).expect("an error is a document");
    assert!(document.len() < 8192, "{document}");
}

pub fn cni_args(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(args) = CniArgs::parse(text) else { return };
    let names = [&args.mac, &args.pod_namespace, &args.pod_name, &args.pod_uid];
    let values = names.into_iter().flatten().chain(&args.ips);
    for value in values {
        assert!(!value.is_empty() && text.contains(value.as_str()), "{value:?} of {text:?}");
    }
}

/// A `prevResult`.
pub fn previous_result(bytes: &[u8]) {
    let Ok(value) = serde_json::from_slice(bytes) else { return };
    if let Ok(previous) = PreviousResult::parse(value) {
        results(&previous);
    }
}

/// In every version's layout: what came is there as it came, and ours follows.
fn results(previous: &PreviousResult) {
    let conf = conf();
    if let Some(found) = previous.pod_interface("eth0", "/run/netns/pod") {
        let _ = previous.missing_addresses(found, &conf.addresses);
    }
    let facts = |name: &str, mac| InterfaceFacts { name: name.parse().expect("a name"), mac };
    let (host, pod) = (facts("bth0", conf.host_mac), facts("eth0", conf.pod_mac));
    let dns = Dns { nameservers: vec!["10.0.0.53".to_owned()], ..Dns::default() };
    let wired = Wired { conf: &conf, host: &host, pod: &pod, netns: "/run/netns/pod", dns: &dns };
    for version in SpecVersion::ALL {
        let before = previous.clone().into_document();
        let after = layout::result(version, &wired, previous.clone());
        serde_json::to_string(&after).expect("a result is a document");
        for (key, value) in &before {
            let kept = match (key.as_str(), value, &after[key]) {
                ("cniVersion", ..) => true,
                ("dns", Value::Object(of_chain), now) => of_chain.is_empty() || value == now,
                ("dns", ..) => true,
                ("interfaces" | "ips" | "routes", Value::Array(was), Value::Array(now)) => {
                    now.starts_with(was)
                }
                ("interfaces" | "ips" | "routes", was, _) => was.is_null(),
                (_, was, now) => was == now,
            };
            assert!(kept, "{key} was {value}, is {}", after[key]);
        }
        let index = after["ips"].as_array().and_then(|ips| ips.last()?["interface"].as_u64());
        let ours = index.and_then(|index| after["interfaces"].get(usize::try_from(index).ok()?));
        assert!(ours.is_some_and(|ours| ours["sandbox"] == "/run/netns/pod"));
    }
}

fn conf() -> NetConf {
    let mac = |last| MacAddress::new([2, 0, 0, 0, 0, last]).expect("unicast");
    NetConf {
        kind: ResourceKind::Veth,
        interface: "eth0".parse().expect("a name"),
        host_interface: "bth0".parse().expect("a name"),
        addresses: AddressSet {
            v4: Some([10, 0, 0, 7].into()),
            v6: Some([0xfd00, 0, 0, 0, 0, 0, 0, 7].into()),
        },
        pod_mac: mac(1),
        host_mac: mac(2),
        mtu: 1500,
        bandwidth: Bandwidth::default(),
        default_route: true,
        extra_routes: Vec::new(),
        alias: String::new(),
    }
}

/// Keys of a configuration that say what a runtime wants: `runtimeConfig`, `args`, `dns`.
pub fn runtime_config(bytes: &[u8]) {
    let Ok(Value::Object(keys)) = serde_json::from_slice(bytes) else { return };
    let mut document = json!({"cniVersion": "1.1.0", "name": "n", "type": "berth"});
    for (key, value) in keys {
        document[key] = value;
    }
    let text = document.to_string();
    let Ok(config) = Document::read(text.as_bytes()).and_then(|it| it.parse(Verb::Add)) else {
        return;
    };
    let Ok(wishes) = Wishes::of(&config, CniArgs::default()) else { return };
    for limit in [wishes.bandwidth.ingress, wishes.bandwidth.egress] {
        assert_ne!(limit, Some(0), "a limit of nothing");
    }
    for name in wishes.annotations.keys() {
        assert!(name.starts_with("berth.dev/") || name.starts_with("k8s.aliyun.com/"), "{name}");
    }
}
