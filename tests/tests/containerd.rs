//! Debian's containerd, driven through its CRI socket as kubelet does.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::{
    io::{Read, Write},
    net::{IpAddr, TcpStream},
    thread,
    time::Duration,
};

use berth_tests::{Containerd, Node, NodeOptions, Recorded, Sandbox, Snapshot, binary, eventually};
use serde_json::json;

const PODS: usize = 6;

/// What the HTTP server in the pod answers to a client on the node.
fn fetch(address: IpAddr) -> String {
    let mut stream = eventually(Duration::from_secs(10), || {
        TcpStream::connect_timeout(&(address, 80).into(), Duration::from_secs(1))
            .map_err(|err| format!("{address}: {err}"))
    });
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream.write_all(b"GET /index.html HTTP/1.0\r\n\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

fn run_pods(containerd: &Containerd) -> Vec<Sandbox> {
    thread::scope(|scope| {
        let start = |index| {
            scope.spawn(move || {
                let sandbox = containerd.run_pod("shop", &format!("web-{index}")).unwrap();
                let server = ["/bin/httpd", "-f", "-p", "80", "-h", "/www"];
                containerd.run_container(&sandbox, "web", &server);
                sandbox
            })
        };
        let pods: Vec<_> = (0..PODS).map(start).collect();
        pods.into_iter().map(|pod| pod.join().unwrap()).collect()
    })
}

#[test]
fn six_pods_of_containerd_run_are_reached_and_leave_nothing() {
    Node::stopped(NodeOptions::default(), |node| {
        let (containerd, recorder) = Containerd::start(node.directory(), &binary("berth"));
        let conflist = containerd.conf_directory().join("10-berth.conflist");
        node.set_config("cni_conf", json!({"path": conflist}));
        node.start();
        // The daemon put its conflist there in a way that containerd notices.
        containerd.wait_until_network_is_ready();
        let before = Snapshot::take();

        let sandboxes = run_pods(&containerd);
        for (index, sandbox) in sandboxes.iter().enumerate() {
            let addresses = containerd.addresses(sandbox);
            let record = node.record(&sandbox.id);
            assert_eq!(
                addresses,
                [record["ipv4"].as_str().unwrap(), record["ipv6"].as_str().unwrap()]
            );
            assert_eq!(record["state"], "committed", "{record}");
            assert_eq!(record["pod"]["namespace"], "shop");
            assert_eq!(record["pod"]["name"], format!("web-{index}"));
            assert_eq!(record["pod"]["uid"], format!("uid-of-shop-web-{index}"));
            for address in addresses {
                let reply = fetch(address.parse().unwrap());
                assert!(
                    reply.contains("200 OK") && reply.ends_with("served from a pod\n"),
                    "{reply}"
                );
            }
        }

        for sandbox in &sandboxes {
            containerd.stop_pod(sandbox);
            containerd.stop_pod(sandbox);
            containerd.remove_pod(sandbox);
            let calls = recorder.calls_of(&sandbox.id);
            let verbs: Vec<&str> = calls.iter().map(|call| call.verb.as_str()).collect();
            assert_eq!(verbs, ["ADD", "DEL", "DEL", "DEL"]);
            let with_netns: Vec<bool> = calls.iter().map(has_netns).collect();
            assert_eq!(with_netns, [true, true, false, false], "{calls:?}");
        }
        node.assert_no_trace_since(&before);
    });
}

fn has_netns(call: &Recorded) -> bool {
    !call.netns.is_empty()
}
