//! The configurations that are shipped, read as libcni reads them.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::{collections::BTreeMap, fs, path::Path};

use berth_types::NetworkName;
use serde_json::{Value, json};
use support::Node;

fn shipped() -> BTreeMap<String, Value> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cni-conf");
    let mut shipped = BTreeMap::new();
    for entry in directory.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "conflist") {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            shipped.insert(name, serde_json::from_slice(&fs::read(path).unwrap()).unwrap());
        }
    }
    shipped
}

fn versions(list: &Value) -> Vec<&str> {
    list["cniVersions"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect()
}

#[test]
fn every_list_has_what_libcni_asks_of_one() {
    let shipped = shipped();
    assert_eq!(shipped.len(), 4);
    for (file, list) in &shipped {
        assert_eq!(
            list["name"].as_str().unwrap().parse::<NetworkName>().unwrap().as_str(),
            "berth"
        );
        // An old libcni knows one version only and must know that one; a new one chooses.
        assert_eq!(list["cniVersion"], json!("1.0.0"), "{file}");
        assert!(versions(list).contains(&"1.0.0"), "{file}");
        let plugins = list["plugins"].as_array().unwrap();
        assert_eq!(plugins[0]["type"], json!("berth"), "{file}");
        let mut declared: Vec<&str> = Vec::new();
        for plugin in plugins {
            let name = plugin["type"].as_str().unwrap();
            assert!(!name.is_empty() && !name.contains('/'), "{file}");
            for (capability, on) in plugin["capabilities"].as_object().into_iter().flatten() {
                assert_eq!(on, &json!(true), "{file}");
                // Two that shape one pod, or map one port, would do it twice.
                assert!(!declared.contains(&capability.as_str()), "{file}: {capability} twice");
                declared.push(capability);
            }
        }
        // Debian's reference plugins end at 1.0.0.
        assert_eq!(versions(list).contains(&"1.1.0"), plugins.len() == 1, "{file}");
    }
}

#[test]
fn our_plugin_takes_its_part_of_every_list_in_every_version_of_it() {
    for (file, list) in shipped() {
        for version in versions(&list) {
            // What libcni hands to the first plugin.
            let mut config = list["plugins"][0].clone();
            config["cniVersion"] = json!(version);
            config["name"] = list["name"].clone();
            config["runtimeConfig"] = json!({"bandwidth": {"IngressRate": 1_000_000}});
            let node = Node::new();
            let text = node.call("ADD", &config).run().failed(5);
            assert!(text.starts_with("CNI_NETNS"), "{file} {version}: {text}");
        }
    }
}
