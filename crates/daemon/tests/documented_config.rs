//! The README's table of the configuration is the configuration.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::{collections::BTreeSet, fs, process::Command};

use serde_json::Value;

const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");

/// Every field in force, by its path.
fn effective(configuration: &str) -> BTreeSet<String> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("berth.json");
    fs::write(&file, configuration).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_berthd"))
        .env_clear()
        .arg("--check-config")
        .arg("--config")
        .arg(&file)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut paths = BTreeSet::new();
    collect("", &document["config"], &mut paths);
    paths
}

fn collect(path: &str, value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let dot = if path.is_empty() { "" } else { "." };
                collect(&format!("{path}{dot}{name}"), value, into);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            into.insert(path.to_owned());
        }
    }
}

/// The fields of the table under "Configuration", which ends at the plugin's keys.
fn documented() -> BTreeSet<String> {
    let readme = fs::read_to_string(README).unwrap();
    let section = readme.split("\n## Configuration\n").nth(1).unwrap();
    let table = section.split("The plugin reads").next().unwrap();
    let cells = table.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    cells.flat_map(|cell| cell.split(" / ")).map(|name| name.replace('`', "")).collect()
}

#[test]
fn every_field_is_in_the_readme_and_no_other() {
    assert_eq!(effective("{}"), documented());
}

#[test]
fn the_readme_s_example_is_taken() {
    let readme = fs::read_to_string(README).unwrap();
    let example = readme.split("```json\n").nth(1).unwrap().split("```").next().unwrap();
    assert!(!effective(example).is_empty());
}

#[test]
fn the_sample_file_is_the_readme_s_example_and_is_taken() {
    let sample = include_str!("../../../deploy/berth.json");
    let readme = fs::read_to_string(README).unwrap();
    assert!(readme.contains(sample.trim_end()), "README.md shows another one");
    assert!(!effective(sample).is_empty());
}
