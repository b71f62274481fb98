use berth_types::Bandwidth;
use serde_json::{Value, json};

use super::*;

const ID: &str = "3f009190ae68b15441390fc87a9a1c63f4cd14e7567ed0ab0362c9c5e04d2f7f";

fn read(variables: &[(&str, &str)], stdin: &[u8]) -> Result<Command, Failure> {
    let env = |name: &str| {
        variables.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
    };
    Invocation::read(env, stdin).map(|it| it.command)
}

fn given<'a>(variables: &[(&'a str, &'a str)], document: &Value) -> Result<Command, Failure> {
    read(variables, document.to_string().as_bytes())
}

fn conf() -> Value {
    json!({"cniVersion": "1.0.0", "name": "berth-test", "type": "berth"})
}

#[test]
fn without_a_command_stdin_is_not_touched() {
    struct Untouchable;
    impl Read for Untouchable {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            panic!("stdin was read");
        }
    }
    for command in [None, Some("")] {
        let invocation = Invocation::read(|_| command.map(OsString::from), Untouchable);
        assert!(matches!(invocation.unwrap().command, Command::About));
    }
}

#[test]
fn an_add_of_containerd_is_understood() {
    let args = format!(
        "K8S_POD_UID=11111111-2222-3333-4444-555555555555;IgnoreUnknown=1;\
         K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID={ID}"
    );
    let variables = [
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", ID),
        ("CNI_NETNS", "/var/run/netns/cni-f56c9771"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_PATH", "/opt/cni/bin"),
        ("CNI_ARGS", &args),
    ];
    let document = json!({
        "cniVersion": "1.0.0", "name": "podnet", "type": "berth",
        "capabilities": {"bandwidth": true},
        "runtimeConfig": {
            "bandwidth": {"IngressRate": 10000000, "IngressBurst": 4294967295u32,
                          "EgressRate": 20000000, "EgressBurst": 4294967295u32},
            "io.kubernetes.cri.pod-annotations": {"kubernetes.io/egress-bandwidth": "20M"},
        },
    });
    let Command::Add(add) = given(&variables, &document).unwrap() else { panic!("not an ADD") };
    assert_eq!(add.key.to_string(), format!("podnet/{ID}/eth0"));
    assert_eq!(add.netns, "/var/run/netns/cni-f56c9771");
    assert_eq!(add.wishes.pod.to_string(), "shop/web-0");
    assert_eq!(
        add.wishes.bandwidth,
        Bandwidth { ingress: Some(1_250_000), egress: Some(2_500_000) }
    );
    assert_eq!(add.timeout, Duration::from_secs(110));
}

#[test]
fn an_add_of_podman_has_a_name_and_no_namespace() {
    let variables = [
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", ID),
        ("CNI_NETNS", "/run/netns/netns-1"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAME=w1;MAC=02:00:00:00:00:77;IP=10.212.0.77"),
    ];
    let mut document = conf();
    document["capabilities"] = json!({"ips": true});
    let Command::Add(add) = given(&variables, &document).unwrap() else { panic!("not an ADD") };
    assert_eq!(add.wishes.pod.namespace, None);
    assert_eq!(add.wishes.pod.name.as_deref(), Some("w1"));
    assert_eq!(add.wishes.addresses.to_string(), "10.212.0.77");
    assert_eq!(add.wishes.mac.unwrap().to_string(), "02:00:00:00:00:77");
}

#[test]
fn a_del_needs_neither_namespace_nor_result_and_ignores_what_concerns_add() {
    let variables = [
        ("CNI_COMMAND", "DEL"),
        ("CNI_CONTAINERID", ID),
        ("CNI_NETNS", ""),
        ("CNI_IFNAME", "eth0"),
        ("CNI_ARGS", "IgnoreUnknown=perhaps"),
    ];
    let mut document = conf();
    document["addTimeout"] = json!("never");
    document["runtimeConfig"] = json!({"bandwidth": 7});
    document["dns"] = json!({"nameservers": "x"});
    document["prevResult"] = json!("nonsense");
    let command = given(&variables, &document).unwrap();
    assert!(matches!(command, Command::Del(_)), "{command:?}");
    document["spoolDir"] = json!("relative");
    assert_eq!(given(&variables, &document).unwrap_err().error.code(), 7);
}

#[test]
fn a_del_of_what_cannot_be_a_key_is_done_and_of_nothing_is_refused() {
    let del = |container, interface| {
        let variables =
            [("CNI_COMMAND", "DEL"), ("CNI_CONTAINERID", container), ("CNI_IFNAME", interface)];
        given(&variables, &conf())
    };
    let long = "a".repeat(201);
    for (container, interface) in
        [("../x", "eth0"), ("a\n", "eth0"), (long.as_str(), "eth0"), ("a", "abcdefghijklmnop")]
    {
        let command = del(container, interface).unwrap();
        assert!(matches!(command, Command::Nothing { .. }), "{container} {interface}");
    }
    assert_eq!(del("", "eth0").unwrap_err().error.code(), 4);
    assert_eq!(del("a", "").unwrap_err().error.code(), 4);
}

#[test]
fn missing_variables_are_all_named_in_the_version_asked_for() {
    let mut document = conf();
    document["cniVersion"] = json!("0.4.0");
    let failure = given(&[("CNI_COMMAND", "ADD"), ("CNI_NETNS", "")], &document).unwrap_err();
    assert_eq!(failure.version, SpecVersion::V0_4_0);
    assert_eq!(
        failure.error.to_string(),
        "CNI_CONTAINERID, CNI_NETNS, CNI_IFNAME must be set and not empty"
    );
}

#[test]
fn status_and_gc_do_not_look_at_the_attachment() {
    let mut document = conf();
    document["cniVersion"] = json!("1.1.0");
    for verb in ["STATUS", "GC"] {
        let variables =
            [("CNI_COMMAND", verb), ("CNI_CONTAINERID", "../x"), ("CNI_ARGS", "nonsense")];
        assert!(given(&variables, &document).is_ok(), "{verb}");
    }
}

#[test]
fn version_is_answered_whatever_stdin_holds() {
    for (stdin, version) in [
        ("", SpecVersion::V1_1_0),
        ("{", SpecVersion::V1_1_0),
        (r#"{"cniVersion":"0.3.1"}"#, SpecVersion::V0_3_1),
        (r#"{"cniVersion":"9.9.9"}"#, SpecVersion::V1_1_0),
    ] {
        let command = read(&[("CNI_COMMAND", "VERSION")], stdin.as_bytes()).unwrap();
        assert!(matches!(command, Command::Version(it) if it == version), "{stdin}");
    }
}

#[test]
fn a_variable_that_is_not_text_is_named() {
    use std::os::unix::ffi::OsStringExt;
    let env = |name: &str| match name {
        "CNI_COMMAND" => Some(OsString::from("ADD")),
        "CNI_NETNS" => Some(OsString::from_vec(vec![b'/', 0xff])),
        _ => Some(OsString::from("a")),
    };
    let failure = Invocation::read(env, conf().to_string().as_bytes()).unwrap_err();
    assert_eq!(failure.error.code(), 4);
    assert!(failure.error.to_string().starts_with("CNI_NETNS"), "{}", failure.error);
}

#[test]
fn check_without_the_result_of_add_is_refused() {
    let variables = [
        ("CNI_COMMAND", "CHECK"),
        ("CNI_CONTAINERID", ID),
        ("CNI_NETNS", "/run/netns/x"),
        ("CNI_IFNAME", "eth0"),
    ];
    assert_eq!(given(&variables, &conf()).unwrap_err().error.code(), 103);
}
