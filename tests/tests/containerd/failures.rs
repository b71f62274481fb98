//! Calls that fail, late or for ever, and namespaces that vanish.

use std::{thread, time::Duration};

use berth_tests::{PodWishes, eventually};
use serde_json::json;

use crate::{Scene, chained, quick, with_containerd};

#[test]
fn a_namespace_removed_by_hand_before_the_stop_leaves_nothing() {
    with_containerd(quick(), |scene| {
        let pod = scene.containerd.run_pod("shop", "web").unwrap();
        let netns = scene.node.record(&pod.id)["netns"].as_str().unwrap().to_owned();
        berth_testkit::run(&format!("umount {netns}"));
        std::fs::remove_file(&netns).unwrap();
        scene.stop_and_remove(&pod.id);
        let calls = scene.recorder.verbs_of(&pod.id);
        let dels = calls.iter().filter(|(verb, _)| verb == "DEL");
        assert!(dels.clone().count() > 0 && dels.clone().all(|(_, netns)| !netns), "{calls:?}");
        scene.assert_no_trace();
    });
}

#[test]
fn an_add_that_fails_late_in_the_chain_is_taken_back_at_once() {
    with_containerd(chained(json!({"type": "tuning"})), |scene| {
        let late = scene.containerd.install_reference("tuning");
        late.fail("ADD", "no luck");
        let err = scene.containerd.run_pod("shop", "web").unwrap_err();
        assert!(err.contains("no luck"), "{err}");
        let verbs: Vec<String> = scene.recorder.calls().into_iter().map(|it| it.verb).collect();
        assert_eq!(verbs, ["ADD", "DEL"]);
        scene.assert_no_trace();

        late.as_usual("ADD");
        let pod = scene.containerd.run_pod("shop", "web").unwrap();
        scene.stop_and_remove(&pod.id);
        scene.assert_no_trace();
    });
}

#[test]
fn what_no_delete_ever_reaches_is_collected_when_its_namespace_is_gone() {
    with_containerd(chained(json!({"type": "tuning"})), |scene| {
        let late = scene.containerd.install_reference("tuning");
        late.fail("ADD", "no luck");
        // libcni deletes from the end of the chain, and stops at the first error.
        late.fail("DEL", "nor here");
        scene.containerd.run_pod("shop", "web").unwrap_err();
        let verbs: Vec<String> = scene.recorder.calls().into_iter().map(|it| it.verb).collect();
        assert_eq!(verbs, ["ADD"]);
        late.as_usual("DEL");
        for (id, _) in scene.containerd.pods() {
            scene.stop_and_remove(&id);
        }
        scene.wait_until_nothing_is_recorded(Duration::from_secs(15));
        scene.assert_no_trace();
    });
}

#[test]
fn a_delete_that_fails_is_told_to_kubelet_and_the_next_one_does_it() {
    with_containerd(quick(), |scene| {
        let pod = scene.containerd.run_pod("shop", "web").unwrap();
        scene.recorder.fail("DEL", "come back later");
        for _ in 0..2 {
            let err = scene.containerd.try_stop_pod(&pod.id).unwrap_err();
            assert!(err.contains("come back later"), "{err}");
        }
        // Stopped as the pod is, its namespace lives, so its address is nobody else's.
        thread::sleep(Duration::from_secs(5));
        scene.node.record(&pod.id);
        scene.recorder.as_usual("DEL");
        scene.stop_and_remove(&pod.id);
        scene.assert_no_trace();
    });
}

/// The fail points of ADD, and whether the daemon has a record by then.
const POINTS: [(&str, Option<&str>); 4] = [
    ("cni::before_connect", None),
    ("cni::after_alloc", Some("bound")),
    ("cni::after_attach", Some("bound")),
    ("cni::after_commit", Some("committed")),
];

#[test]
fn an_add_killed_at_the_callers_deadline_is_taken_back_wherever_it_was() {
    with_containerd(quick(), |scene| {
        for (point, state) in POINTS {
            scene.recorder.rest_at("ADD", point, 60_000);
            let calls_before = scene.recorder.calls().len();
            add_until_the_deadline(scene, state);
            scene.recorder.as_usual("ADD");
            let calls = eventually(Duration::from_secs(20), || {
                match scene.recorder.calls().split_off(calls_before) {
                    calls if calls.iter().any(|call| call.verb == "DEL") => Ok(calls),
                    calls => Err(format!("{point}: no DEL came: {calls:?}")),
                }
            });
            assert_eq!(calls[0].verb, "ADD", "{point}: {calls:?}");
            assert!(!calls[0].is_running(), "{point}: the plugin outlived its deadline");
            scene.wait_until_nothing_is_recorded(Duration::from_secs(5));
            for (id, _) in scene.containerd.pods() {
                scene.stop_and_remove(&id);
            }
            scene.assert_no_trace();
        }
    });
}

fn add_until_the_deadline(scene: &Scene<'_>, state: Option<&str>) {
    thread::scope(|scope| {
        let wishes = PodWishes { limit: Some(Duration::from_secs(6)), ..PodWishes::default() };
        let containerd = &scene.containerd;
        let adding = scope.spawn(move || containerd.run_pod_with("shop", "web", &wishes));
        if let Some(state) = state {
            scene.wait_for_the_one_record(state);
        }
        adding.join().unwrap().unwrap_err();
    });
}
