//! CNI_NETNS: whatever else is at the path than the pod's network namespace.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use berth_tests::{
    Addresses, Call, Node, NodeOptions, Pod, Snapshot, binary, eventually, network_config, ping,
};
use nix::{sys::stat::Mode, unistd::mkfifo};
use serde_json::json;

#[test]
fn a_path_to_something_else_is_refused_untouched_and_no_hindrance_to_del() {
    Node::with(NodeOptions::default(), |node| {
        let (pod, before) = (Pod::new(), Snapshot::take());
        let place = Path::new("/run/places");
        fs::create_dir(place).unwrap();
        let at = |name: &str| place.join(name).display().to_string();
        fs::write(at("file"), "mine").unwrap();
        mkfifo(&place.join("fifo"), Mode::S_IRWXU).unwrap();
        let link = |to: &str, name: &str| symlink(to, at(name)).unwrap();
        link("/etc/passwd", "link-out");
        link("/nowhere", "link-nowhere");
        link("link-round", "link-round");
        link("/proc/self/ns/net", "link-own");
        let long = format!("/run/{}", "a/".repeat(3000));
        for (path, code) in [
            (at("file"), 4),
            (at("fifo"), 4),
            (at(""), 4),
            (at("link-out"), 4),
            ("/proc/self/ns/mnt".into(), 4),
            ("/proc/thread-self/ns/pid".into(), 4),
            ("/proc/self/ns/user".into(), 4),
            ("/proc/self/mem".into(), 4),
            ("/dev/zero".into(), 4),
            ("/dev/tty".into(), 4),
            (at("link-nowhere"), 5),
            (at("file/below"), 5),
            ("/proc/0/ns/net".into(), 5),
            ("\n".into(), 5),
            ("pod".into(), 5),
            (at("link-round"), 5),
            (long, 5),
            ("/proc/self/ns/net".into(), 8),
            (at("link-own"), 8),
        ] {
            let shown: String = path.chars().take(60).collect();
            let call = |verb| Call::of(verb, &pod).environment("CNI_NETNS", &path);
            let answer = call("ADD").run();
            assert_eq!(answer.error_code(), code, "{shown:?}: {answer:?}");
            assert!(answer.took < Duration::from_secs(3), "{shown:?}: {answer:?}");
            let mut config = network_config();
            config["prevResult"] = json!({});
            assert!(!call("CHECK").input(&config).run().succeeded(), "{shown:?}");
            call("DEL").run().nothing();
        }
        assert_eq!(fs::read_to_string(at("file")).unwrap(), "mine");
        // Another's, which one may not even look at, depending on the machine.
        let answer = Call::of("ADD", &pod).environment("CNI_NETNS", "/proc/1/ns/mnt").run();
        assert!([4, 5].contains(&answer.error_code()), "{answer:?}");
        node.assert_no_trace_since(&before);
    });
}

#[test]
fn a_link_to_the_pods_namespace_is_as_good_as_its_path() {
    Node::with(NodeOptions::default(), |node| {
        let (pod, before) = (Pod::new(), Snapshot::take());
        symlink(pod.netns(), "/run/link").unwrap();
        let call = |verb| Call::of(verb, &pod).environment("CNI_NETNS", "/run/link");
        let result = call("ADD").run().result();
        assert_eq!(result["interfaces"][1]["sandbox"], "/run/link");
        assert!(ping(Addresses::of_result(&result).v4().into()));
        call("DEL").run().nothing();
        node.assert_no_trace_since(&before);
    });
}

/// A process that sleeps in a user and a network namespace of its own, ended when dropped.
struct Elsewhere(Child);

impl Elsewhere {
    fn start() -> Self {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--net", "sleep", "600"]);
        let child = command.stdin(Stdio::null()).spawn().unwrap();
        let this = Self(child);
        // It is there once it is another one than ours.
        eventually(Duration::from_secs(5), || {
            let ours = fs::read_link("/proc/thread-self/ns/net").unwrap();
            match fs::read_link(this.netns()) {
                Ok(theirs) if theirs != ours => Ok(()),
                other => Err(format!("{other:?}")),
            }
        });
        this
    }

    fn netns(&self) -> String {
        format!("/proc/{}/ns/net", self.0.id())
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A pod with a user namespace of its own owns its network namespace, and gets its network.
#[test]
fn a_namespace_of_another_user_is_wired_and_taken_down_like_any_other() {
    Node::with(NodeOptions::default(), |node| {
        let (pod, before) = (Pod::new(), Snapshot::take());
        let elsewhere = Elsewhere::start();
        let call = |verb| Call::of(verb, &pod).environment("CNI_NETNS", &elsewhere.netns());
        let result = call("ADD").run().result();
        assert!(ping(Addresses::of_result(&result).v4().into()));
        // Its owner may do in it as it likes, and spoils no one else's DEL.
        let inside = Command::new("nsenter")
            .args(["-U", "-n", "-t", &elsewhere.0.id().to_string()])
            .args(["ip", "link", "set", "eth0", "down", "name", "mine"])
            .status();
        assert!(inside.unwrap().success());
        call("DEL").run().nothing();
        node.assert_no_trace_since(&before);
    });
}

#[test]
fn a_namespace_that_vanishes_during_add_leaves_nothing() {
    Node::with(NodeOptions::default(), |node| {
        let before = Snapshot::take();
        for point in ["cni::before_connect", "cni::after_alloc", "cni::after_attach"] {
            let pod = Pod::new();
            let call =
                Call::of("ADD", &pod).environment("FAILPOINTS", &format!("{point}=sleep(1500)"));
            let running = call.start();
            thread::sleep(Duration::from_millis(700));
            pod.destroy();
            let answer = running.finish();
            // The plugin holds the namespace open, so ADD may well succeed; what it may not is
            // leave something that DEL does not find.
            if point == "cni::before_connect" {
                assert_eq!(answer.error_code(), 7, "{answer:?}");
            }
            node.del(&pod).nothing();
            node.assert_no_trace_since(&before);
        }
    });
}

#[test]
fn a_plugin_that_may_not_enter_the_namespace_says_so_and_gives_the_address_back() {
    Node::with(NodeOptions::default(), |node| {
        let before = Snapshot::take();
        let weak = node.directory().join("weak-berth");
        let berth = binary("berth");
        let script = format!(
            "#!/bin/sh\nexec setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin {}\n",
            berth.display()
        );
        fs::write(&weak, script).unwrap();
        fs::set_permissions(&weak, Permissions::from_mode(0o755)).unwrap();
        let pod = Pod::new();
        let answer = Call::of("ADD", &pod).program(&weak).run();
        assert_eq!(answer.signal, None, "{answer:?}");
        assert!(answer.error_code() > 0, "{answer:?}");
        assert!(answer.stdout.contains("cannot enter the pod's network namespace"), "{answer:?}");
        assert!(node.records(&pod.id).is_empty());
        node.add(&pod).result();
        let answer = Call::of("CHECK", &pod).program(&weak).run();
        assert_eq!(answer.signal, None, "{answer:?}");
        node.del(&pod).nothing();
        node.assert_no_trace_since(&before);
    });
}
