use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use berth_testkit::run;
use berth_tests::{Node, NodeOptions, Pod, Snapshot, eventually, ping};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{STATE, v4};

/// strace at the daemon: the `number`th call of `calls` on a file of the state, and each after it,
/// fails.
struct Fault {
    tracer: Child,
    output: std::path::PathBuf,
}

impl Fault {
    fn at(node: &mut Node, calls: &str, error: &str, number: u32) -> Self {
        let pid = node.daemon().pid();
        let output = node.directory().join("strace");
        let files = ["commits", "db/db", "sequence", "export.json"];
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-e", &format!("trace={calls}")]);
        strace.args(["-e", &format!("inject={calls}:error={error}:when={number}+")]);
        for file in files {
            strace.args(["-P", &format!("{STATE}/{file}")]);
        }
        strace.arg("-o").arg(&output).args(["-p", &pid.to_string()]);
        let tracer = strace.stderr(Stdio::null()).spawn().unwrap();
        eventually(Duration::from_secs(20), || {
            let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
            let traced = |status: String| !status.contains("TracerPid:\t0\n");
            let all = tasks.into_iter().all(|task| {
                fs::read_to_string(task.unwrap().path().join("status")).is_ok_and(traced)
            });
            if all { Ok(()) } else { Err("not every thread is traced") }
        });
        Self { tracer, output }
    }

    /// Whether anything failed.
    fn end(mut self) -> bool {
        let pid = Pid::from_raw(self.tracer.id().try_into().unwrap());
        // It may have ended with the daemon.
        let _ = kill(pid, Signal::SIGINT);
        self.tracer.wait().unwrap();
        fs::read_to_string(&self.output).unwrap_or_default().contains("INJECTED")
    }
}

/// The calls during which the disk fails one write later each time, until none fails any more.
fn at_every(calls: &'static str, error: &'static str) {
    Node::with(NodeOptions::default(), move |node| {
        let before = Snapshot::take();
        let kept = Pod::new();
        let address = v4(&node.add(&kept));
        let mut failed = 0;
        for number in 1.. {
            let pod = Pod::new();
            let fault = Fault::at(node, calls, error, number);
            let added = node.add(&pod);
            let deleted = node.del(&pod);
            // The database and the export are written a second later.
            thread::sleep(Duration::from_millis(1300));
            let hit = fault.end();
            failed += u32::from(hit);
            // As systemd does; where the daemon has not ended, all is as before.
            node.kill();
            node.start();
            let case = format!("{error} from the {number}. of {calls}: {added:?} {deleted:?}");
            assert_eq!(node.record(&kept.id)["ipv4"], address.to_string(), "{case}");
            assert!(ping(address), "{case}");
            if deleted.succeeded() {
                assert!(node.records(&pod.id).is_empty(), "{case}");
            } else if added.succeeded() {
                assert_eq!(node.record(&pod.id)["ipv4"], v4(&added).to_string(), "{case}");
            }
            node.del(&pod).nothing();
            assert!(node.records(&pod.id).is_empty(), "{case}");
            if !hit {
                assert!(added.succeeded() && deleted.succeeded(), "{case}");
                break;
            }
            assert!(number < 40, "it never ends: {case}");
        }
        println!("{calls}: {error} from each of the first {failed} on");
        assert!(failed >= 3, "{failed}");
        node.del(&kept).nothing();
        node.assert_no_trace_since(&before);
    });
}

#[test]
fn a_disk_that_is_full_from_any_write_on_loses_nothing_acknowledged() {
    at_every("pwrite64", "ENOSPC");
}

#[test]
fn a_disk_that_fails_from_any_sync_on_has_nothing_acknowledged_that_is_not_there() {
    at_every("fdatasync", "EIO");
}

#[test]
fn a_read_only_disk_refuses_calls_without_harm_and_is_over_when_it_can_be_written() {
    Node::stopped(NodeOptions::default(), |node| {
        let image = node.directory().join("image").display().to_string();
        run(&format!("truncate -s 64M {image}"));
        run(&format!("mkfs.ext4 -q {image}"));
        run(&format!("mount -o loop {image} {STATE}"));
        node.start();
        let before = Snapshot::take();
        let (kept, refused) = (Pod::new(), Pod::new());
        let address = v4(&node.add(&kept));

        // What a file system does to itself when its device fails.
        run(&format!("mount -o remount,abort {STATE}"));
        assert!(fs::write(Path::new(STATE).join("probe"), "x").is_err());
        let answer = node.add(&refused);
        assert!(answer.error_code() > 0, "{answer:?}");
        assert!(!refused.runs("ip link show eth0"));
        // Neither recorded nor spooled: the runtime must hear that.
        let answer = node.del(&kept);
        assert!(answer.error_code() > 0, "{answer:?}");
        node.kill();
        node.spawn();
        assert!(!node.daemon().wait().success());
        let log = node.log();
        let last = log.lines().rfind(|line| line.contains("berthd ends")).unwrap();
        assert!(last.contains(STATE), "{last}");
        node.kill();

        run(&format!("umount {STATE}"));
        run(&format!("mount -o loop {image} {STATE}"));
        node.start();
        assert_eq!(node.record(&kept.id)["ipv4"], address.to_string());
        assert!(node.records(&refused.id).is_empty());
        node.del(&kept).nothing();
        node.assert_no_trace_since(&before);
        node.stop();
        run(&format!("umount {STATE}"));
    });
}
