//! Garbage collection by the running daemon with short intervals: nothing that lives is freed, and
//! what is dead is freed in the time that the configuration states.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::{fs, net::IpAddr, path::Path, thread, time::Duration};

use berth_tests::{
    Addresses, Call, Node, NodeOptions, Pod, Snapshot, Stopwatch, eventually, network_config, ping,
};
use serde_json::{Value, json};

const INTERVAL: Duration = Duration::from_secs(1);
const GRACE: Duration = Duration::from_secs(2);
/// For what is older than the grace: the pass that suspects, and the one that condemns.
const STATED: Duration = Duration::from_secs(2);
/// A machine that is busy.
const SLACK: Duration = Duration::from_secs(3);

fn on_a_node(body: impl FnOnce(&mut Node) + Send + 'static) {
    let config = json!({"gc_interval": "1s", "gc_grace": "2s"});
    Node::with(NodeOptions::config(config), body);
}

fn v4(result: &Value) -> IpAddr {
    Addresses::of_result(result).v4().into()
}

/// Long enough for two passes over what is older than the grace, and one more.
fn let_it_collect() {
    thread::sleep(GRACE + INTERVAL * 3);
}

/// Waits until the pod's record is gone; how long it took.
#[track_caller]
fn wait_until_freed(node: &Node, pod: &Pod) -> Duration {
    let stopwatch = Stopwatch::start();
    eventually(STATED + SLACK, || match node.records(&pod.id).as_slice() {
        [] => Ok(()),
        left => Err(format!("{left:?}")),
    });
    stopwatch.elapsed()
}

#[track_caller]
fn lives(node: &Node, pod: &Pod, address: IpAddr) {
    assert_eq!(node.record(&pod.id)["ipv4"], address.to_string());
    assert!(ping(address), "{address} is recorded and cannot be reached");
}

#[test]
fn a_namespace_mounted_elsewhere_lives_until_its_last_mount_is_gone() {
    on_a_node(|node| {
        let before = Snapshot::take();
        let pod = Pod::new();
        let address = v4(&node.add(&pod).result());
        let elsewhere = node.directory().join("elsewhere");
        fs::write(&elsewhere, "").unwrap();
        berth_testkit::run(&format!("mount --bind {} {}", pod.netns_text(), elsewhere.display()));
        pod.destroy();
        let_it_collect();
        lives(node, &pod, address);
        // A runtime whose list lacks it does not kill it either.
        gc(&[]).nothing();
        lives(node, &pod, address);

        berth_testkit::run(&format!("umount {}", elsewhere.display()));
        wait_until_freed(node, &pod);
        node.assert_no_trace_since(&before);
    });
}

#[test]
fn a_namespace_that_only_a_process_holds_lives_as_long_as_the_process() {
    on_a_node(|node| {
        let before = Snapshot::take();
        let pod = Pod::new();
        let address = v4(&node.add(&pod).result());
        // What a container is once its runtime's mount was taken away.
        let (hang_up, waiting) = std::sync::mpsc::channel::<()>();
        let container = pod.enter(move || waiting.recv().is_err());
        thread::sleep(Duration::from_millis(200));
        pod.destroy();
        let_it_collect();
        lives(node, &pod, address);
        drop(hang_up);
        assert!(container.join().unwrap());
        wait_until_freed(node, &pod);
        node.assert_no_trace_since(&before);
    });
}

#[test]
fn a_path_that_another_pod_took_over_keeps_the_new_pod_and_frees_the_old_one() {
    on_a_node(|node| {
        let before = Snapshot::take();
        let old = Pod::new();
        let old_address = v4(&node.add(&old).result());
        let path = old.netns();
        old.destroy();
        let (new, new_address) = pod_at(&path);
        wait_until_freed(node, &old);
        node.wait_for_slot(old_address, "cooling");
        let_it_collect();
        assert_ne!(new_address, old_address);
        assert_eq!(node.record(&new)["ipv4"], new_address.to_string());
        assert!(ping(new_address));
        node.del_without_netns(&new).nothing();
        berth_testkit::run(&format!("ip netns delete {}", name_of(&path)));
        node.assert_no_trace_since(&before);
    });
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

/// Another container with a new namespace at `path`; its id and address.
fn pod_at(path: &Path) -> (String, IpAddr) {
    berth_testkit::run(&format!("ip netns add {}", name_of(path)));
    let id = berth_tests::fresh_id();
    let answer = Call::bare()
        .environment("CNI_COMMAND", "ADD")
        .environment("CNI_CONTAINERID", &id)
        .environment("CNI_NETNS", &path.display().to_string())
        .environment("CNI_IFNAME", "eth0")
        .environment("CNI_PATH", "/usr/lib/cni")
        .input(&network_config())
        .run();
    let address = v4(&answer.result());
    (id, address)
}

/// GC by a runtime that knows just these pods.
fn gc(valid: &[&Pod]) -> berth_tests::Answer {
    let mut config = network_config();
    config["cniVersion"] = json!("1.1.0");
    config["cni.dev/valid-attachments"] =
        valid.iter().map(|pod| json!({"containerID": pod.id, "ifname": "eth0"})).collect();
    Call::network("GC").input(&config).run()
}

#[test]
fn of_two_runtimes_with_one_network_name_neither_collects_the_others_pods() {
    on_a_node(|node| {
        let before = Snapshot::take();
        // One runtime's, the other's, and one whose runtime is gone for good.
        let (first, second, dead) = (Pod::new(), Pod::new(), Pod::new());
        let [one, other] = [&first, &second].map(|pod| v4(&node.add(pod).result()));
        node.add(&dead).result();
        let stays = Pod::new();
        node.add(&stays).result();
        thread::sleep(GRACE + Duration::from_millis(500));
        dead.destroy();
        for _ in 0..4 {
            gc(&[&first]).nothing();
            gc(&[&second]).nothing();
            gc(&[]).nothing();
        }
        // Either list was enough for the one that is dead, and none for those that live.
        assert!(node.records(&dead.id).is_empty());
        lives(node, &first, one);
        lives(node, &second, other);
        let_it_collect();
        lives(node, &first, one);
        lives(node, &second, other);
        // A list of another network says nothing about this one.
        stays.destroy();
        let mut elsewhere = network_config();
        elsewhere["cniVersion"] = json!("1.1.0");
        elsewhere["name"] = json!("another");
        elsewhere["cni.dev/valid-attachments"] = json!([]);
        Call::network("GC").input(&elsewhere).run().nothing();
        wait_until_freed(node, &stays);
        for pod in [&first, &second] {
            node.del(pod).nothing();
        }
        node.assert_no_trace_since(&before);
    });
}

#[test]
fn the_young_are_spared_by_every_list_and_the_dead_are_freed_in_the_stated_time() {
    on_a_node(|node| {
        let before = Snapshot::take();
        let young = Pod::new();
        let stopwatch = Stopwatch::start();
        node.add(&young).result();
        young.destroy();
        gc(&[]).nothing();
        if stopwatch.elapsed() < GRACE {
            node.record(&young.id);
        }
        let pods: Vec<Pod> = (0..8).map(|_| Pod::new()).collect();
        for pod in &pods {
            node.add(pod).result();
        }
        thread::sleep(GRACE);
        let live = pods.iter().skip(1).step_by(2);
        for pod in pods.iter().step_by(2) {
            pod.destroy();
        }
        let took = pods.iter().step_by(2).map(|pod| wait_until_freed(node, pod)).sum::<Duration>();
        assert!(took <= STATED + SLACK, "{took:?}");
        let_it_collect();
        for pod in live {
            node.record(&pod.id);
            node.del(pod).nothing();
        }
        assert!(node.records(&young.id).is_empty());
        node.assert_no_trace_since(&before);
    });
}
