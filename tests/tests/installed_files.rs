//! What gets installed by hand is right: the units, and the snippets of the README.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(file: &str) -> String {
    fs::read_to_string(repository().join(file)).unwrap_or_else(|err| panic!("{file}: {err}"))
}

#[track_caller]
fn systemd_analyze(arguments: &[&str], unit: &Path) -> Output {
    // It leaves a file below /run, so that is one of its own.
    let in_own_run = "mount -t tmpfs tmpfs /run && exec systemd-analyze \"$@\"";
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", in_own_run, "systemd-analyze"])
        .args(arguments)
        .arg(unit)
        .output();
    let output = output.expect("unshare is of util-linux, which every Debian has");
    let missing = output.status.code() == Some(127);
    assert!(!missing, "systemd-analyze must be there: apt-get install systemd");
    output
}

/// The units in a directory of their own, with a program that is there in place of the daemon.
fn units() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for unit in ["berthd.service", "berthd.socket"] {
        let text = read(&format!("systemd/{unit}"));
        let text = text.replace("ExecStart=/usr/local/bin/berthd", "ExecStart=/bin/true");
        fs::write(directory.path().join(unit), text).unwrap();
    }
    directory
}

#[test]
fn systemd_understands_every_line_of_the_units() {
    let units = units();
    for unit in ["berthd.service", "berthd.socket"] {
        let output = systemd_analyze(&["verify", "--man=no"], &units.path().join(unit));
        let said = String::from_utf8_lossy(&output.stderr);
        // Complaints about other units of the machine are not ours; a bad line of ours is no
        // error to systemd but a warning with the unit's name.
        let ours: Vec<&str> = said.lines().filter(|line| line.contains("berthd")).collect();
        assert!(ours.is_empty() && output.status.success(), "{unit}: {said}");
    }
}

#[test]
fn the_service_is_exposed_no_more_than_it_must() {
    let units = units();
    // In tenths: fails above 2.0.
    let arguments = ["security", "--offline=yes", "--no-pager", "--threshold=20"];
    let output = systemd_analyze(&arguments, &units.path().join("berthd.service"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn socket_service_and_plugin_agree_on_the_paths() {
    let socket = read("systemd/berthd.socket");
    assert!(socket.contains("\nListenStream=/run/berth/berth.sock\n"));
    assert!(socket.contains("\nSocketMode=0600\n"));
    let service = read("systemd/berthd.service");
    for line in ["RuntimeDirectory=berth", "StateDirectory=berth", "ReadWritePaths=/etc/cni/net.d"]
    {
        assert!(service.contains(&format!("\n{line}\n")), "{line}");
    }
}

/// The JSON blocks of the README, in order.
fn snippets() -> Vec<Value> {
    let readme = read("README.md");
    let blocks = readme.split("```json\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks
        .map(|block| serde_json::from_str(block).unwrap_or_else(|err| panic!("{err}: {block}")))
        .collect()
}

#[test]
fn every_field_in_the_readme_s_configuration_is_in_its_table() {
    let snippets = snippets();
    let [config, list] = snippets.as_slice() else {
        panic!("one configuration and one network list, not {}", snippets.len())
    };
    let readme = read("README.md");
    for (name, value) in config.as_object().unwrap() {
        let rows = match value.as_object() {
            Some(inner) => inner.keys().map(|inner| format!("| `{name}.{inner}` |")).collect(),
            None => vec![format!("| `{name}` |")],
        };
        for row in rows {
            assert!(readme.contains(&row), "{row}");
        }
    }
    let plugin = &list["plugins"][0];
    assert_eq!(plugin["type"], "berth");
    for name in plugin.as_object().unwrap().keys() {
        let known = ["type", "capabilities"].contains(&name.as_str());
        assert!(known || readme.contains(&format!("| `{name}` |")), "{name}");
    }
}

/// The documents name one another; a link to nowhere is worse than none.
#[test]
fn the_links_between_the_documents_lead_somewhere() {
    for file in ["README.md", "ARCHITECTURE.md", "CHANGELOG.md"] {
        let text = read(file);
        for target in text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            let outside = target.starts_with("https://");
            let path = target.split('#').next().unwrap();
            assert!(outside || repository().join(path).exists(), "{file}: {target}");
        }
    }
}
