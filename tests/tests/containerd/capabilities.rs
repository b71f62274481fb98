//! What containerd hands on of a pod's annotations and ports.

use std::net::{IpAddr, SocketAddr};

use berth_tests::{NODE_V4, PodWishes, Snapshot, fetch, shapers};
use serde_json::json;

use crate::{chained, quick, with_containerd};

#[test]
fn bandwidth_annotations_become_limits_of_a_sane_burst() {
    with_containerd(quick(), |scene| {
        let annotations = vec![
            ("kubernetes.io/ingress-bandwidth", "10M"),
            ("kubernetes.io/egress-bandwidth", "20M"),
        ];
        let wishes = PodWishes { annotations, ..PodWishes::default() };
        let pod = scene.containerd.run_pod_with("shop", "web", &wishes).unwrap();
        let shapers = shapers();
        let rates: Vec<u64> = shapers.iter().map(|tbf| tbf["rate"].as_u64().unwrap()).collect();
        assert_eq!(rates, [1_250_000, 2_500_000], "bytes per second");
        // containerd's burst of 4,294,967,295 bits would let two seconds' worth of Gbit/s through.
        for tbf in shapers {
            let burst = tbf["burst"].as_u64().unwrap();
            assert!((15_000..1_000_000).contains(&burst), "{tbf}");
        }
        scene.stop_and_remove(&pod.id);
        scene.assert_no_trace();
    });
}

#[test]
fn a_host_port_by_the_chained_portmap_reaches_the_pod_from_outside_and_ends_with_it() {
    let portmap = json!({"type": "portmap", "capabilities": {"portMappings": true}});
    with_containerd(chained(portmap), |scene| {
        scene.containerd.install_reference("portmap");
        let run = |port: u16| {
            let wishes = PodWishes { ports: vec![(port, 80)], ..PodWishes::default() };
            let pod = scene.containerd.run_pod_with("shop", "web", &wishes).unwrap();
            scene.containerd.run_server(&pod);
            let server = SocketAddr::new(IpAddr::V4(NODE_V4), port);
            let reply = scene.node.outside().enter(move || fetch(server)).join().unwrap();
            assert!(reply.ends_with("served from a pod\n"), "{reply}");
            scene.stop_and_remove(&pod.id);
        };
        // The first use leaves portmap's own empty chains behind, for ever.
        run(18_080);
        let used = Snapshot::take();
        run(18_081);
        scene.node.assert_no_trace_since(&used);
    });
}
