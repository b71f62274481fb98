//! The shape of the workspace, held by tests: who may use whom, and what every file keeps to.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Which crate may use which, beside `testkit` as a dev-dependency. A new arrow is a decision:
/// make it here.
const MAY_USE: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("proto", &["types"]),
    ("datapath", &["types"]),
    ("core", &["types"]),
    ("store", &["core", "types"]),
    ("cloud", &["core", "types"]),
    ("cni", &["datapath", "proto", "types"]),
    ("ctl", &["core", "proto", "store", "types"]),
    ("daemon", &["cloud", "core", "datapath", "proto", "store", "types"]),
    ("testkit", &[]),
    ("tests", &["proto", "types", "testkit"]),
];

/// Crates that know a technology, and who alone may name it. (`tests` asks over the wire.)
const ONLY: &[(&str, &[&str])] = &[
    ("sled", &["store"]),
    ("rtnetlink", &["datapath"]),
    ("netlink-packet-route", &["datapath"]),
    ("tonic", &["proto", "cni", "ctl", "daemon", "tests"]),
    ("anyhow", &[]),
];

/// The most lines a source file may have: far above the 120 we aim at, where splitting is due.
const MOST_LINES: usize = 450;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Every package of the workspace with its direct dependencies: name, kind.
fn packages() -> BTreeMap<String, Vec<(String, Option<String>)>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|package| {
            let dependencies = package["dependencies"].as_array().unwrap();
            let dependencies = dependencies
                .iter()
                .map(|dependency| (text(&dependency["name"]).unwrap(), text(&dependency["kind"])))
                .collect();
            (text(&package["name"]).unwrap(), dependencies)
        })
        .collect()
}

fn short(name: &str) -> Option<&str> {
    name.strip_prefix("berth-")
}

#[test]
fn every_arrow_between_crates_was_decided() {
    let packages = packages();
    let decided: BTreeMap<&str, &[&str]> = MAY_USE.iter().copied().collect();
    let there: BTreeSet<&str> = packages.keys().filter_map(|name| short(name)).collect();
    assert_eq!(there, decided.keys().copied().collect(), "crates and MAY_USE differ");
    for (name, dependencies) in &packages {
        let Some(name) = short(name) else { continue };
        for (dependency, kind) in dependencies {
            let Some(dependency) = short(dependency) else { continue };
            // Also for tests: a fake that lives beside the real thing (features) names its crate.
            let fixture = kind.as_deref() == Some("dev") && dependency == "testkit";
            assert!(
                fixture || decided[name].contains(&dependency),
                "{name} may not use {dependency}"
            );
        }
    }
}

#[test]
fn each_technology_is_known_to_its_own_crate_only() {
    for (name, dependencies) in packages() {
        let Some(name) = short(&name) else { continue };
        for (technology, owners) in ONLY {
            let used = dependencies
                .iter()
                .any(|(name, kind)| name == technology && kind.as_deref() != Some("dev"));
            assert!(!used || owners.contains(&name), "{name} may not use {technology}");
        }
    }
}

fn rust_files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            rust_files(&path, found);
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
}

fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for part in ["crates", "tests", "xtask"] {
        rust_files(&root().join(part), &mut found);
    }
    assert!(found.len() > 40, "only {} source files found", found.len());
    found
}

#[test]
fn no_source_file_is_too_long_to_be_read_at_one_go() {
    let long: Vec<String> = sources()
        .iter()
        .map(|path| (path, fs::read_to_string(path).unwrap().lines().count()))
        .filter(|(_, lines)| *lines > MOST_LINES)
        .map(|(path, lines)| format!("{}: {lines} lines", path.display()))
        .collect();
    assert!(long.is_empty(), "split by noun: {long:#?}");
}

#[test]
fn every_library_states_its_invariant() {
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let library = entry.unwrap().path().join("src/lib.rs");
        if library.exists() {
            let text = fs::read_to_string(&library).unwrap();
            assert!(
                text.lines().any(|line| line.starts_with("//! **Invariant")),
                "{} states no **Invariant**",
                library.display()
            );
        }
    }
}

/// What a test skips looks like what passed, and a stub like what is done.
#[test]
fn nothing_is_ignored_and_nothing_is_left_to_do() {
    // Put together here, so that this file does not find itself.
    let banned = [["#[ig", "nore"], ["todo", "!("], ["unimplemented", "!("], ["anyhow", "::"]]
        .map(|parts| parts.concat());
    for path in sources().iter().filter(|path| !path.starts_with(root().join("xtask"))) {
        let text = fs::read_to_string(path).unwrap();
        for word in &banned {
            assert!(!text.contains(word.as_str()), "{} has `{word}`", path.display());
        }
    }
}
