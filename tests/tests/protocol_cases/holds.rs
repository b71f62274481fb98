use std::{
    net::{IpAddr, SocketAddr, TcpListener},
    time::Duration,
};

use berth_tests::{Answer, Call, NODE_V4, Pod, ping, receive, send, shapers};
use serde_json::{Value, json};

use crate::scene::{FREE_IP, Scene};

/// Fails unless the sentence is true.
pub(crate) fn check(scene: &mut Scene<'_>, call: &Call, answer: &Answer, sentence: &str) {
    let node = &scene.node;
    match sentence {
        "answered within 2 s" => assert!(answer.took < Duration::from_secs(2), "{answer:?}"),
        "answered in under a second" | "returns at once with stdin left open" => {
            assert!(answer.took < Duration::from_secs(1), "{answer:?}");
        }

        "result dns has nameserver 10.210.0.1" => {
            assert_eq!(answer.json()["dns"]["nameservers"], json!(["10.210.0.1"]));
        }
        "every entry of ips has version 4 or 6" | "every ips entry has its version" => {
            versions_are_right(&answer.json());
        }
        "ips[].interface points at the interface whose sandbox is CNI_NETNS verbatim" => {
            indexes_are_right(&answer.json(), &scene.pod, 0);
        }
        "supportedVersions lists 0.3.0 0.3.1 0.4.0 1.0.0 1.1.0 in that order" => {
            let versions = json!(["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]);
            assert_eq!(answer.json()["supportedVersions"], versions);
        }
        "works with no daemon" => {
            assert!(scene.node.stop().success());
            assert_eq!(call.run().stdout, answer.stdout);
        }
        "msg names CNI_CONTAINERID, CNI_NETNS and CNI_IFNAME" => {
            let error = answer.json();
            for name in ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"] {
                assert!(error["msg"].as_str().unwrap().contains(name), "{error}");
            }
        }
        "neither msg nor details contains 'not found' or 'no such file or directory'" => {
            let text = answer.error_text().to_lowercase();
            assert!(!text.contains("not found") && !text.contains("no such file"), "{text}");
        }
        "the message says which route is missing" => {
            let text = answer.error_text();
            assert!(text.contains("route") && text.contains("default"), "{text}");
        }
        "the first interface, address and route are there as given, unknown fields too, and ours follow with right indexes" =>
        {
            previous_is_whole(&answer.json(), &scene.pod);
        }

        "tbf towards the pod at 10 Mbit/s and from the pod at 20 Mbit/s" => {
            let rates: Vec<u64> =
                shapers().iter().map(|tbf| tbf["rate"].as_u64().unwrap()).collect();
            assert_eq!(rates, [1_250_000, 2_500_000]);
        }
        "the shaper's burst is a sane size (not 512 MB, not wrapped)" => {
            for tbf in shapers() {
                let burst = tbf["burst"].as_u64().unwrap();
                assert!((15_000..1_000_000).contains(&burst), "{tbf}");
            }
        }
        "traffic in the first second does not exceed twice the rate" => first_second(scene, answer),

        "the pod has exactly {FREE_IP}" => {
            let shown = scene.pod.run("ip -4 -o addr show dev eth0");
            assert_eq!(shown.lines().count(), 1, "{shown}");
            assert!(shown.contains(&format!("inet {FREE_IP}/32 ")), "{shown}");
        }
        "eth0 has MAC 02:00:00:00:00:77, lower case in the result" => {
            let mac = "02:00:00:00:00:77";
            assert!(scene.pod.run("ip link show eth0").contains(mac));
            assert_eq!(pod_interface(&answer.json(), &scene.pod)["mac"], mac);
        }
        "the record has pod name web" => {
            assert_eq!(node.record(&scene.pod.id)["pod"]["name"], "web");
        }

        "no interface eth0 in the namespace, no record, no host link" => {
            assert!(!scene.pod.runs("ip link show eth0"));
            assert!(node.records(&scene.pod.id).is_empty());
            only_the_holder_is_wired(scene);
        }
        "no record, no host link, the address is back"
        | "the address is released and nothing is wired" => {
            assert!(node.records(&scene.pod.id).is_empty());
            assert_eq!(node.ctl("pool")["summary"]["leased"], 0);
            scene.before.wait_until_again();
        }
        "nothing was touched" => node.assert_no_trace_since(&scene.before),
        "the foreign link is untouched" => {
            let now = scene.pod.run("ip addr show eth0");
            assert_eq!(Some(now), scene.foreign_link);
        }
        "the file is untouched" => {
            assert_eq!(std::fs::read_to_string(&scene.file).unwrap(), "untouched");
        }

        "the address is cooling, not held" => {
            assert!(node.records(&scene.pod.id).is_empty());
            node.wait_for_slot(scene.addresses().v4().into(), "cooling");
            node.wait_for_slot(scene.addresses().v6().into(), "cooling");
        }
        "no host link, route or rule of it is left" => scene.before.wait_until_again(),
        "after the daemon's start and before it serves, the address is cooling" => {
            scene.node.start();
            let state = scene.node.slot_state(scene.addresses().v4().into());
            assert_eq!(state.as_deref(), Some("cooling"));
        }
        "id2 keeps its address, link, routes and still answers a ping" => {
            let second = &scene.others["ID2"];
            let addresses = scene.addresses();
            assert_eq!(node.record(&second.id)["ipv4"], addresses.v4().to_string());
            assert!(second.run("ip route").contains("default via 169.254.1.1"));
            assert!(ping(addresses.v4().into()) && ping(addresses.v6().into()));
            assert!(node.records(&scene.others["ID1"].id).is_empty());
        }

        "the dead one is released" => {
            assert!(node.records(&scene.others["DEAD_ID"].id).is_empty());
        }
        "the live one is not" => drop(node.record(&scene.others["LIVE_ID"].id)),
        "nothing changed" => {
            node.record(&scene.others["DEAD_ID"].id);
            node.record(&scene.others["LIVE_ID"].id);
        }
        other => panic!("nobody checks this yet: {other}"),
    }
}

fn versions_are_right(result: &Value) {
    let ips = result["ips"].as_array().unwrap();
    assert!(!ips.is_empty(), "{result}");
    for ip in ips {
        let six = ip["address"].as_str().unwrap().contains(':');
        assert_eq!(ip["version"], if six { "6" } else { "4" }, "{ip}");
    }
}

fn pod_interface<'a>(result: &'a Value, pod: &Pod) -> &'a Value {
    let interfaces = result["interfaces"].as_array().unwrap();
    let inside = interfaces.iter().rfind(|interface| interface["sandbox"] == pod.netns_text());
    inside.unwrap_or_else(|| panic!("no interface in {}: {result}", pod.netns_text()))
}

/// Every address from the one at `first` on is on the last interface of the pod.
fn indexes_are_right(result: &Value, pod: &Pod, first: usize) {
    let ours = &result["ips"].as_array().unwrap()[first..];
    assert!(!ours.is_empty(), "{result}");
    for ip in ours {
        let index = usize::try_from(ip["interface"].as_u64().unwrap()).unwrap();
        assert!(std::ptr::eq(&result["interfaces"][index], pod_interface(result, pod)), "{result}");
    }
}

fn previous_is_whole(result: &Value, pod: &Pod) {
    let netns = pod.netns_text();
    let interface = json!({"name": "eth0", "mac": "02:00:00:00:00:01", "sandbox": netns,
        "mtu": 1400, "socketPath": "/s", "x-vendor": {"a": 1}});
    assert_eq!(result["interfaces"][0], interface);
    assert_eq!(result["ips"][0], json!({"interface": 0, "address": "10.1.2.3/24"}));
    let route = json!({"dst": "0.0.0.0/0", "gw": "10.1.2.1", "priority": 7, "x": true});
    assert_eq!(result["routes"][0], route);
    assert_eq!(result["x-top"], json!([1]));
    assert_eq!(pod_interface(result, pod)["name"], "net1");
    indexes_are_right(result, pod, 1);
}

fn first_second(scene: &Scene<'_>, answer: &Answer) {
    let pod: IpAddr = berth_tests::Addresses::of_result(&answer.json()).v4().into();
    let second = Duration::from_secs(1);
    let towards = SocketAddr::new(pod, 9000);
    let listener = scene.pod.enter(move || TcpListener::bind(towards).unwrap()).join().unwrap();
    let receiving = scene.pod.enter(move || receive(&listener, second));
    send(towards, second * 2);
    let (bytes, _) = receiving.join().unwrap();
    assert!((100_000..2_500_000).contains(&bytes), "{bytes} bytes towards the pod");

    let from = SocketAddr::new(NODE_V4.into(), 9001);
    let listener = TcpListener::bind(from).unwrap();
    let sending = scene.pod.enter(move || send(from, second * 2));
    let (bytes, _) = receive(&listener, second);
    sending.join().unwrap();
    assert!((200_000..5_000_000).contains(&bytes), "{bytes} bytes from the pod");
}

fn only_the_holder_is_wired(scene: &Scene<'_>) {
    let holder = scene.node.record(&scene.others["HOLDER"].id);
    let link = holder["host_interface"].as_str().unwrap();
    let now = berth_tests::Snapshot::take();
    for fact in now.added_since(&scene.before) {
        let belongs = fact.contains(link) || fact.contains(FREE_IP);
        assert!(belongs || fact.contains(holder["ipv6"].as_str().unwrap()), "left behind: {fact}");
    }
}
