//! System calls of one call, counted by strace on a small sample of its own: tracing slows what is
//! traced, so it never runs beside a timing.

use std::{
    fs::{self, File},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use berth_tests::{Pod, eventually};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{cell::Operation, subject::Plugin};

const SAMPLE: usize = 4;

/// Counts of a plugin with all processes it starts, one for each of [`Operation::CALLS`].
pub(crate) fn of_plugin(plugin: &mut Plugin, pods: &[Pod], directory: &Path) -> Vec<f64> {
    plugin.next_generation();
    Operation::CALLS
        .map(|operation| {
            let mut sum = 0;
            for (index, pod) in pods.iter().take(SAMPLE).enumerate() {
                let log = directory.join("strace");
                let output = Command::new("strace")
                    .args(["-f", "-c", "-qq", "-U", "calls", "-o"])
                    .arg(&log)
                    .arg(&plugin.program)
                    .env_clear()
                    .envs(plugin.environment(operation, index, pod))
                    .stdin(File::open(plugin.input(operation, index)).unwrap())
                    .stderr(Stdio::null())
                    .output()
                    .unwrap();
                let text = String::from_utf8_lossy(&output.stdout);
                assert!(output.status.success(), "strace: {}: {text}", output.status);
                if operation == Operation::Add {
                    plugin.keep_result(index, &text);
                }
                sum += total(&fs::read_to_string(&log).unwrap());
            }
            sum as f64 / SAMPLE as f64
        })
        .to_vec()
}

/// Counts of a process that runs, while this lives.
#[derive(Debug)]
pub(crate) struct Attached {
    strace: Child,
    log: std::path::PathBuf,
}

impl Attached {
    pub(crate) fn to(pid: u32, directory: &Path) -> Self {
        let log = directory.join("strace-daemon");
        let strace = Command::new("strace")
            .args(["-f", "-c", "-q", "-U", "calls", "-o"])
            .arg(&log)
            .args(["-p", &pid.to_string()])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        eventually(Duration::from_secs(5), || {
            let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
            let traced = text.lines().any(|line| {
                line.strip_prefix("TracerPid:").is_some_and(|tracer| tracer.trim() != "0")
            });
            if traced { Ok(()) } else { Err("strace does not attach".to_owned()) }
        });
        // The other threads come a moment after the first.
        thread::sleep(Duration::from_millis(100));
        Self { strace, log }
    }

    /// The number of calls since, in all.
    pub(crate) fn finish(mut self) -> u64 {
        let pid = Pid::from_raw(self.strace.id().try_into().expect("a pid fits"));
        kill(pid, Signal::SIGINT).unwrap();
        self.strace.wait().unwrap();
        // A process that made no call has no summary.
        match fs::read_to_string(&self.log).unwrap() {
            summary if summary.trim().is_empty() => 0,
            summary => total(&summary),
        }
    }
}

/// The last line of `strace -c -U calls`: `123 total`.
fn total(summary: &str) -> u64 {
    let line = summary.lines().find(|line| line.trim_end().ends_with(" total"));
    let count = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    count.unwrap_or_else(|| panic!("strace gave no total: {summary}"))
}
