use std::{net::IpAddr, thread};

use berth_tests::{Containerd, Sandbox, fetch};

use crate::{quick, with_containerd};

const PODS: usize = 6;

fn run_pods(containerd: &Containerd) -> Vec<Sandbox> {
    thread::scope(|scope| {
        let start = |index| {
            scope.spawn(move || {
                let sandbox = containerd.run_pod("shop", &format!("web-{index}")).unwrap();
                containerd.run_server(&sandbox);
                sandbox
            })
        };
        let pods: Vec<_> = (0..PODS).map(start).collect();
        pods.into_iter().map(|pod| pod.join().unwrap()).collect()
    })
}

#[test]
fn six_pods_of_containerd_run_are_reached_and_leave_nothing() {
    with_containerd(quick(), |scene| {
        let (node, containerd, recorder) = (&scene.node, &scene.containerd, &scene.recorder);
        let sandboxes = run_pods(containerd);
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
                let reply = fetch((address.parse::<IpAddr>().unwrap(), 80).into());
                assert!(
                    reply.contains("200 OK") && reply.ends_with("served from a pod\n"),
                    "{reply}"
                );
            }
        }

        for sandbox in &sandboxes {
            containerd.stop_pod(&sandbox.id);
            containerd.stop_pod(&sandbox.id);
            containerd.remove_pod(&sandbox.id);
            let calls = recorder.verbs_of(&sandbox.id);
            let expected = [("ADD", true), ("DEL", true), ("DEL", false), ("DEL", false)];
            assert_eq!(calls, expected.map(|(verb, netns)| (verb.to_owned(), netns)));
        }
        scene.assert_no_trace();
    });
}
