//! A program that no one here wrote speaks to the socket: Python's grpcio, by reflection.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use berth_tests::{Addresses, Node, NodeOptions, Pod, binary};
use serde_json::Value;

/// Not yet installed: it takes PyPI, in a virtual environment below the target directory. The
/// versions belong together.
const PACKAGES: &[&str] =
    &["grpcio==1.76.0", "grpcio-reflection==1.76.0", "grpcio-health-checking==1.76.0"];

fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|err| panic!("{command:?}: {err}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// The interpreter that has the packages. Nothing here runs in the node's namespace, which has no
/// way to PyPI.
fn python() -> PathBuf {
    let environment = binary("berthd").with_file_name("outsider-venv");
    let python = environment.join("bin/python3");
    let has =
        |module: &str| Command::new(&python).args(["-c", &format!("import {module}")]).output();
    let ready = has("grpc_reflection, grpc_health").is_ok_and(|output| output.status.success());
    if !ready {
        succeed(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment));
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        succeed(pip.args(PACKAGES));
    }
    python
}

#[test]
fn a_foreign_grpc_client_finds_the_services_and_asks_them() {
    let python = python();
    Node::with(NodeOptions::default(), move |node| {
        let pod = Pod::new();
        let addresses = Addresses::of_result(&node.add(&pod).result());
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/outsider.py");
        let printed = succeed(Command::new(python).arg(script).arg(node.socket()).arg(&pod.id));
        let seen: Value = serde_json::from_str(&printed).unwrap();

        let services = seen["services"].as_array().unwrap();
        for service in
            ["berth.v1.Ipam", "berth.v1.Inspect", "berth.v1.Admin", "grpc.health.v1.Health"]
        {
            assert!(services.iter().any(|listed| listed == service), "{service}: {services:?}");
        }
        assert_eq!(seen["health"], "SERVING");
        assert_eq!(seen["of_an_unknown_key"], "NOT_FOUND");
        let listed = &seen["attachments"]["attachments"];
        assert_eq!(listed.as_array().unwrap().len(), 1, "{seen}");
        assert_eq!(listed, &seen["info"]["attachments"]);
        assert_eq!(listed[0]["key"]["container_id"], pod.id);
        let ip = &listed[0]["net_conf"]["pod_ip"];
        assert_eq!(ip["ipv4"], addresses.v4().to_string());
        assert_eq!(ip["ipv6"], addresses.v6().to_string());
    });
}
