//! The network list changes or goes while pods run: containerd deletes by the list of the day.

use std::{fs, time::Duration};

use berth_tests::eventually;
use serde_json::json;

use crate::{list, quick, with_containerd};

#[test]
fn a_pod_of_the_list_before_is_deleted_by_the_list_of_now() {
    with_containerd(quick(), |scene| {
        let portmap = scene.containerd.install_reference("portmap");
        let old = scene.containerd.run_pod("shop", "old").unwrap();
        let new_list = list(&[json!({"type": "portmap", "capabilities": {"portMappings": true}})]);
        fs::write(scene.containerd.conflist(), new_list.to_string()).unwrap();
        // Until a pod shows that the list was read.
        eventually(Duration::from_secs(20), || {
            let probe = scene.containerd.run_pod("shop", "probe").unwrap();
            scene.stop_and_remove(&probe.id);
            match portmap.calls_of(&probe.id).is_empty() {
                true => Err("containerd has not read the new list"),
                false => Ok(()),
            }
        });
        scene.stop_and_remove(&old.id);
        let verbs: Vec<String> =
            portmap.calls_of(&old.id).into_iter().map(|call| call.verb).collect();
        assert_eq!(verbs.first().map(String::as_str), Some("DEL"), "{verbs:?}");
        scene.assert_no_trace();
    });
}

#[test]
fn while_there_is_no_list_a_pod_keeps_its_address_and_after_it_is_deleted() {
    with_containerd(quick(), |scene| {
        let pod = scene.containerd.run_pod("shop", "web").unwrap();
        let place = scene.containerd.conflist();
        let text = fs::read_to_string(&place).unwrap();
        fs::remove_file(&place).unwrap();
        eventually(Duration::from_secs(20), || match scene.containerd.network_ready().unwrap() {
            Ok(()) => Err("containerd still has its list"),
            Err(_) => Ok(()),
        });
        let err = scene.containerd.try_stop_pod(&pod.id).unwrap_err();
        assert!(err.contains("not initialized"), "{err}");
        scene.node.record(&pod.id);
        // The daemon's own start brings the list back, once it serves.
        assert!(scene.node.stop().success());
        scene.node.start();
        scene.containerd.wait_until_network_is_ready();
        assert_eq!(fs::read_to_string(&place).unwrap(), text);
        scene.stop_and_remove(&pod.id);
        scene.assert_no_trace();
    });
}
