//! Debian's containerd, driven through its CRI socket as kubelet does.

#![allow(clippy::unwrap_used, reason = "a test")]

mod capabilities;
mod failures;
mod lists;
mod restarts;
mod six_pods;

use std::time::Duration;

use berth_tests::{Containerd, Node, NodeOptions, Recorder, Snapshot, eventually};
use serde_json::{Value, json};

/// A node with containerd on it, and nothing on its network yet.
struct Scene<'node> {
    node: &'node mut Node,
    containerd: Containerd,
    /// Of our plugin.
    recorder: Recorder,
    before: Snapshot,
}

/// How the node is set up.
#[derive(Default)]
struct Setting {
    options: NodeOptions,
    /// The plugins that follow ours in the network list, of Debian's.
    chain: Vec<Value>,
}

/// Garbage collection that is quick enough for a test, by the same rules.
fn quick() -> Setting {
    let options = NodeOptions::config(json!({"gc_interval": "1s", "gc_grace": "2s"}));
    Setting { options, chain: Vec::new() }
}

fn chained(plugin: Value) -> Setting {
    Setting { chain: vec![plugin], ..quick() }
}

fn list(chain: &[Value]) -> Value {
    let ours = json!({"type": "berth", "capabilities": {"bandwidth": true}});
    let plugins: Vec<&Value> = std::iter::once(&ours).chain(chain).collect();
    json!({"cniVersion": "1.0.0", "name": "berth", "plugins": plugins})
}

fn with_containerd(setting: Setting, body: impl FnOnce(&mut Scene<'_>) + Send + 'static) {
    Node::stopped(setting.options, move |node| {
        let own = (!setting.chain.is_empty()).then(|| {
            let path = node.directory().join("chain.conflist");
            std::fs::write(&path, list(&setting.chain).to_string()).unwrap();
            path
        });
        // The daemon puts its list there in a way that containerd notices.
        let (containerd, recorder) = Containerd::beside(node, own.as_deref());
        let before = Snapshot::take();
        body(&mut Scene { node, containerd, recorder, before });
    });
}

impl Scene<'_> {
    #[track_caller]
    fn assert_no_trace(&self) {
        self.node.assert_no_trace_since(&self.before);
    }

    /// Waits until one attachment is recorded, in this state; its container.
    #[track_caller]
    fn wait_for_the_one_record(&self, state: &str) -> String {
        eventually(Duration::from_secs(20), || {
            let pods = self.node.ctl("pods");
            match pods.as_array().unwrap().as_slice() {
                [one] if one["state"] == state => {
                    Ok(one["container_id"].as_str().unwrap().to_owned())
                }
                _ => Err(format!("not one record that is {state}: {pods}")),
            }
        })
    }

    /// Waits until nothing is recorded.
    #[track_caller]
    fn wait_until_nothing_is_recorded(&self, limit: Duration) {
        eventually(limit, || match self.node.ctl("pods") {
            pods if pods == json!([]) => Ok(()),
            pods => Err(format!("recorded: {pods}")),
        });
    }

    /// StopPodSandbox and RemovePodSandbox, as kubelet does for a pod that is to go.
    #[track_caller]
    fn stop_and_remove(&self, id: &str) {
        self.containerd.stop_pod(id);
        self.containerd.remove_pod(id);
    }
}
