use berth_tests::{Call, NODE_V4, NodeOptions, Pod, network_config, ping};
use serde_json::json;

use crate::scene::{FREE_IP, Scene};

const DEAD_AND_LIVE: &[&str] = &[
    "one attachment whose namespace is gone and which is older than the grace, one live",
    "as above",
];

/// How the daemon must be set up for what is given.
pub(crate) fn options(given: Option<&str>) -> NodeOptions {
    match given {
        // The loop stays away: what is collected is what the call asked for.
        Some(given) if DEAD_AND_LIVE.contains(&given) => {
            NodeOptions::config(json!({"gc_grace": "1s", "gc_interval": "1h"}))
        }
        Some("pool exhausted") => {
            NodeOptions::config(json!({"ip_stack": "ipv4", "pod_cidrs": ["10.99.0.0/29"]}))
        }
        _ => NodeOptions::default(),
    }
}

pub(crate) fn prepare(scene: &mut Scene<'_>, given: Option<&str>) {
    let Some(given) = given else { return };
    match given {
        "{FREE_IP} is held by another attachment" => {
            let holder = Pod::new();
            let arguments = format!("IgnoreUnknown=1;IP={FREE_IP}");
            let call = Call::of("ADD", &holder).environment("CNI_ARGS", &arguments);
            scene.result = Some(call.run().result());
            scene.others.insert("HOLDER", holder);
        }
        "ADD done" => drop(scene.add()),
        "ADD and one DEL done" => {
            scene.add();
            scene.node.del(&scene.pod).nothing();
        }
        "ADD done, the namespace is gone" => {
            scene.add();
            scene.pod.destroy();
        }
        "ADD id1 (pod ns/web-0), ADD id2 (same pod) with another netns" => {
            let (first, second) = (Pod::new(), Pod::new());
            Call::of("ADD", &first).pod("ns", "web-0").run().result();
            let result = Call::of("ADD", &second).pod("ns", "web-0").run().result();
            scene.result = Some(result);
            scene.others.insert("ID1", first);
            scene.others.insert("ID2", second);
        }
        "ADD done, daemon stopped" => {
            scene.add();
            assert!(scene.node.stop().success());
        }
        "daemon stopped" => assert!(scene.node.stop().success()),
        "daemon away and the spool directory not writable" => {
            scene.node.kill();
            let spool = scene.node.directory().join("read-only");
            std::fs::create_dir(&spool).unwrap();
            berth_testkit::run(&format!("mount -t tmpfs -o ro tmpfs {}", spool.display()));
            scene.spool = Some(spool.join("spool"));
        }
        "ADD done with cniVersion 0.4.0" => {
            let mut config = network_config();
            config["cniVersion"] = json!("0.4.0");
            let answer = Call::of("ADD", &scene.pod).input(&config).run();
            scene.result = Some(answer.result());
        }
        "ADD done in a chain with tuning that sets a MAC" => {
            let result = scene.add();
            let tuning = json!({
                "cniVersion": "1.0.0", "name": "berth-test", "type": "tuning",
                "mac": "02:00:00:00:00:99", "prevResult": result, "dataDir": "/run/tuning",
            });
            let call = Call::of("ADD", &scene.pod).program("/usr/lib/cni/tuning".as_ref());
            scene.result = Some(call.input(&tuning).run().result());
            let link = scene.pod.run("ip link show eth0");
            assert!(link.contains("02:00:00:00:00:99"), "{link}");
            // A changed MAC makes the kernel forget the pod's neighbours, the permanent ones too.
            let node = NODE_V4.into();
            let reached = scene.pod.enter(move || ping(node)).join().unwrap();
            assert!(reached, "the pod is cut off: {}", scene.pod.run("ip neigh"));
        }
        "ADD done, default route of the pod deleted" => {
            scene.add();
            scene.pod.run("ip route del default");
        }
        "pool exhausted" => exhaust(scene),
        "the namespace has a link eth0 that is not ours" => {
            scene.pod.run("ip link add eth0 type bridge");
            scene.pod.run("ip addr add 192.0.2.9/24 dev eth0");
            scene.foreign_link = Some(scene.pod.run("ip addr show eth0"));
        }
        given if DEAD_AND_LIVE.contains(&given) => dead_and_live(scene),
        other => panic!("nobody made this true yet: {other}"),
    }
}

fn exhaust(scene: &mut Scene<'_>) {
    for _ in 0..8 {
        let pod = Pod::new();
        let answer = scene.node.add(&pod);
        if !answer.succeeded() {
            assert_eq!(answer.error_code(), 11, "{answer:?}");
            return;
        }
    }
    panic!("a /29 has given out eight addresses");
}

fn dead_and_live(scene: &mut Scene<'_>) {
    let (dead, live) = (Pod::new(), Pod::new());
    scene.node.add(&dead).result();
    scene.node.add(&live).result();
    dead.destroy();
    scene.others.insert("DEAD_ID", dead);
    scene.others.insert("LIVE_ID", live);
    // Older than the grace of a second.
    std::thread::sleep(std::time::Duration::from_millis(1500));
}
