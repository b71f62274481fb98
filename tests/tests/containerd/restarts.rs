//! containerd killed, with and without its pods, and a reboot.

use std::{net::IpAddr, thread, time::Duration};

use berth_tests::{eventually, ping};

use crate::{Scene, quick, with_containerd};

/// Kills containerd while the plugin rests in the middle of an ADD; the container.
fn kill_in_the_middle_of_add(scene: &mut Scene<'_>, rest: u32) -> String {
    scene.recorder.rest_at("ADD", "cni::after_alloc", rest);
    let id = thread::scope(|scope| {
        let containerd = &scene.containerd;
        let adding = scope.spawn(|| containerd.run_pod("shop", "web"));
        let id = scene.wait_for_the_one_record("bound");
        containerd.kill_while_asked();
        adding.join().unwrap().unwrap_err();
        id
    });
    scene.containerd.kill();
    scene.recorder.as_usual("ADD");
    assert!(scene.recorder.calls()[0].is_running(), "the plugin should have outlived containerd");
    id
}

#[test]
fn an_add_that_outlives_its_containerd_takes_itself_back_since_nobody_reads_its_answer() {
    with_containerd(quick(), |scene| {
        let id = kill_in_the_middle_of_add(scene, 2500);
        scene.wait_until_nothing_is_recorded(Duration::from_secs(10));
        scene.containerd.restart();
        assert_eq!(scene.containerd.pods(), [(id.clone(), false)]);
        scene.stop_and_remove(&id);
        scene.assert_no_trace();
    });
}

#[test]
fn an_add_killed_with_its_containerd_is_undone_by_the_stop_after_the_restart() {
    with_containerd(quick(), |scene| {
        let id = kill_in_the_middle_of_add(scene, 60_000);
        scene.recorder.calls()[0].kill();
        scene.containerd.restart();
        assert_eq!(scene.containerd.pods(), [(id.clone(), false)]);
        scene.stop_and_remove(&id);
        // Its DEL has a namespace and no result, since none was ever saved.
        let calls = scene.recorder.verbs_of(&id);
        assert_eq!(calls[1], ("DEL".to_owned(), true), "{calls:?}");
        scene.assert_no_trace();
    });
}

#[test]
fn an_add_that_outlives_its_containerd_and_the_stop_too_leaves_nothing() {
    with_containerd(quick(), |scene| {
        let id = kill_in_the_middle_of_add(scene, 12_000);
        scene.containerd.restart();
        scene.stop_and_remove(&id);
        let orphan = scene.recorder.calls()[0].clone();
        assert!(orphan.is_running(), "it ended before the stop: nothing was tried");
        scene.wait_until_nothing_is_recorded(Duration::from_secs(1));
        eventually(Duration::from_secs(20), || match orphan.is_running() {
            true => Err("the orphan still runs"),
            false => Ok(()),
        });
        scene.assert_no_trace();
    });
}

#[test]
fn a_containerd_that_restarts_disturbs_no_pod() {
    with_containerd(quick(), |scene| {
        let pod = scene.containerd.run_pod("shop", "web").unwrap();
        let address: IpAddr = scene.containerd.addresses(&pod)[0].parse().unwrap();
        scene.containerd.kill();
        scene.containerd.restart();
        assert_eq!(scene.containerd.pods(), [(pod.id.clone(), true)]);
        assert_eq!(scene.containerd.addresses(&pod)[0], address.to_string());
        assert!(ping(address));
        assert_eq!(scene.recorder.calls().len(), 1);
        scene.stop_and_remove(&pod.id);
        scene.assert_no_trace();
    });
}

#[test]
fn after_everything_was_killed_nothing_is_freed_before_kubelet_stops_the_pod() {
    with_containerd(quick(), |scene| {
        let pod = scene.containerd.run_pod("shop", "web").unwrap();
        let held = scene.node.record(&pod.id);
        scene.node.kill();
        scene.containerd.kill_with_pods();
        scene.node.start();
        scene.containerd.restart();
        assert_eq!(scene.containerd.pods(), [(pod.id.clone(), false)]);
        // Grace and two looks; the namespace is a file on the node, and outlives its processes.
        thread::sleep(Duration::from_secs(6));
        assert_eq!(scene.node.record(&pod.id)["ipv4"], held["ipv4"]);
        scene.stop_and_remove(&pod.id);
        scene.assert_no_trace();
    });
}

#[test]
fn after_a_reboot_deletes_without_a_namespace_and_collection_give_everything_back() {
    with_containerd(quick(), |scene| {
        let stopped = scene.containerd.run_pod("shop", "stopped").unwrap();
        let forgotten = scene.containerd.run_pod("shop", "forgotten").unwrap();
        scene.node.kill();
        scene.containerd.kill_with_pods();
        scene.containerd.wipe();
        scene.before.wait_until_again();
        scene.node.take_another_boot_id();
        scene.node.start();
        scene.containerd.restart();
        scene.stop_and_remove(&stopped.id);
        assert_eq!(scene.node.records(&stopped.id).len(), 0);
        let calls = scene.recorder.verbs_of(&stopped.id);
        assert!(calls[1..].iter().all(|(verb, netns)| verb == "DEL" && !netns), "{calls:?}");
        assert!(calls.len() > 1, "{calls:?}");

        scene.wait_until_nothing_is_recorded(Duration::from_secs(15));
        assert_eq!(scene.recorder.calls_of(&forgotten.id).len(), 1, "nobody deleted it");
        // The DEL that comes after all finds nothing to do.
        scene.stop_and_remove(&forgotten.id);
        scene.assert_no_trace();
    });
}
