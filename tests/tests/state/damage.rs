use std::{
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
};

use berth_tests::{Node, NodeOptions, Pod, ping};
use serde_json::json;

use crate::{STATE, given_out, v4};

#[derive(Debug, Clone, Copy)]
enum Damage {
    Flip(usize),
    Truncate,
    Empty,
    Remove,
}

const DAMAGES: [Damage; 6] = [
    Damage::Flip(1),
    Damage::Flip(5),
    Damage::Flip(9),
    Damage::Truncate,
    Damage::Empty,
    Damage::Remove,
];

impl Damage {
    fn of(self, path: &Path) {
        let mut bytes = fs::read(path).unwrap();
        // Of a file that is mostly holes, the part that is used.
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        match self {
            Self::Flip(tenth) if used > 0 => bytes[used * tenth / 10] ^= 0x04,
            Self::Flip(_) => return,
            Self::Truncate => bytes.truncate(used / 2),
            Self::Empty => bytes.clear(),
            Self::Remove => return fs::remove_file(path).unwrap(),
        }
        fs::write(path, bytes).unwrap();
    }
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn replace(with: &Path) {
    berth_testkit::run(&format!("find {STATE} -mindepth 1 -delete"));
    berth_testkit::run(&format!("cp -a --sparse=always {}/. {STATE}", with.display()));
}

struct Pods {
    live: Vec<(Pod, IpAddr)>,
    deleted: Pod,
    spooled: Pod,
}

/// A state with a snapshot, live pods, one that was deleted, and a DEL in the spool. The daemon
/// is stopped.
fn history(node: &mut Node) -> Pods {
    let live = (0..3).map(|_| {
        let pod = Pod::new();
        let address = v4(&node.add(&pod));
        (pod, address)
    });
    let live = live.collect();
    let (deleted, spooled) = (Pod::new(), Pod::new());
    node.add(&spooled).result();
    node.add(&deleted).result();
    // sled writes a snapshot when it is opened.
    assert!(node.stop().success());
    node.start();
    node.del(&deleted).nothing();
    assert!(node.stop().success());
    node.del(&spooled).nothing();
    Pods { live, deleted, spooled }
}

fn small() -> NodeOptions {
    NodeOptions::config(json!({"pod_cidrs": ["10.77.0.0/28"], "cool_down": "1h"}))
}

#[test]
fn damage_to_any_one_file_of_the_state_is_noticed_and_costs_no_live_pod_its_address() {
    Node::with(small(), |node| {
        let pods = history(node);
        let whole = node.directory().join("whole");
        berth_testkit::run(&format!("cp -a --sparse=always {STATE} {}", whole.display()));
        let all = files(Path::new(STATE));
        let named = |part: &str| all.iter().any(|path| path.to_string_lossy().contains(part));
        let parts =
            ["commits", "db/db", "db/conf", "db/snap.", "sequence", "export.json", "spool/"];
        for part in parts {
            assert!(named(part), "{part} is not there: {all:?}");
        }
        for path in &all {
            for damage in DAMAGES {
                replace(&whole);
                damage.of(path);
                let log = node.log().len();
                node.start();
                let case = format!("{} {damage:?}", path.strip_prefix(STATE).unwrap().display());
                let noticed = check(node, &pods, &case, &node.log()[log..]);
                println!("{case:<60} {noticed}");
                node.kill();
            }
        }
    });
}

/// What came of it, in words.
fn check(node: &Node, pods: &Pods, case: &str, log: &str) -> &'static str {
    for (pod, address) in &pods.live {
        assert_eq!(node.record(&pod.id)["ipv4"], address.to_string(), "{case}");
        assert!(ping(*address), "{case}");
    }
    assert!(node.records(&pods.deleted.id).is_empty(), "{case}: what was deleted is back");
    let given = given_out(node, &pods.live[0].0);
    let live = pods.live.iter().map(|(_, address)| address);
    let doubled: Vec<_> = live.filter(|address| given.contains(address)).collect();
    assert!(doubled.is_empty(), "{case}: {doubled:?} given out");
    let aside =
        |part: &str| files(Path::new(STATE)).iter().any(|it| it.to_string_lossy().contains(part));
    if case.starts_with("spool/") {
        let released = node.records(&pods.spooled.id).is_empty();
        let kept = aside(".unreadable") && log.contains("set aside");
        assert!(released || kept || case.ends_with("Remove"), "{case}: lost and not noticed");
        return if released {
            "harmless"
        } else if kept {
            "set aside"
        } else {
            "gone"
        };
    }
    assert!(node.records(&pods.spooled.id).is_empty(), "{case}: the DEL in the spool was lost");
    let doubted = log.contains("is not what was acknowledged");
    // Any bit of an export counts; elsewhere there are bytes that say nothing.
    let told = doubted || log.contains("export is damaged") || log.contains("export cannot be");
    assert!(told || !case.starts_with("export.json") || case.ends_with("Remove"), "{case}");
    if aside("corrupt-") {
        assert!(doubted, "{case}: moved aside without a word");
        "moved aside, rebuilt from the export"
    } else if doubted {
        "doubted"
    } else if log.contains("export cannot be read") || log.contains("export is damaged") {
        "told, written anew"
    } else {
        "harmless"
    }
}

#[test]
fn with_database_log_and_export_lost_no_live_pods_address_is_given_out_until_its_delete() {
    Node::with(small(), |node| {
        let pods = history(node);
        for path in files(Path::new(STATE)) {
            let name = path.to_string_lossy();
            if name.contains("db/") || name.contains("export.json") {
                Damage::Truncate.of(&path);
            } else if name.contains("commits") {
                Damage::Empty.of(&path);
            }
        }
        node.start();
        let given = given_out(node, &pods.live[0].0);
        assert!(!given.is_empty());
        for (pod, address) in &pods.live {
            assert!(!given.contains(address), "{address} is in use");
            assert!(ping(*address));
            assert_eq!(node.slot_state(*address).as_deref(), Some("quarantined"));
            node.del(pod).nothing();
            assert!(!ping(*address));
        }
        let left = || berth_testkit::ip("-br link").matches("bth").count();
        let gone = || if left() == 0 { Ok(()) } else { Err("links are left") };
        berth_tests::eventually(std::time::Duration::from_secs(10), gone);
    });
}
