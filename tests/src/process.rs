use std::{
    fs,
    process::{Child, ExitStatus},
    thread,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::Stopwatch;

/// Waits for a child; `None` when it is still running at `limit`.
pub(crate) fn wait_for(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let stopwatch = Stopwatch::start();
    loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            return Some(status);
        }
        if stopwatch.elapsed() > limit {
            return None;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// What a process has used since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Memory it holds, in bytes, with the part of its program that is in memory.
    pub resident: u64,
    /// Of it what is its own data, in bytes.
    pub anonymous: u64,
    pub cpu: Duration,
    /// System calls that write, to files and sockets alike.
    pub write_calls: u64,
    /// Bytes it caused to be written to storage.
    pub written: u64,
}

impl Usage {
    /// # Panics
    /// When there is no such process.
    pub fn of(pid: u32) -> Self {
        let read = |name: &str| {
            fs::read_to_string(format!("/proc/{pid}/{name}"))
                .unwrap_or_else(|err| panic!("process {pid}: {err}"))
        };
        let (status, io, stat) = (read("status"), read("io"), read("stat"));
        let field = |text: &str, name: &str| -> u64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let value = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
            value.unwrap_or_else(|| panic!("no {name} of process {pid}"))
        };
        // Fields 14 and 15 of proc(5), counted after the command's closing bracket (field 2).
        let (_, after) = stat.rsplit_once(") ").expect("stat has the command in brackets");
        let ticks: u64 = after.split(' ').skip(11).take(2).map(|n| n.parse::<u64>().unwrap()).sum();
        // USER_HZ is 100 on every architecture we run on.
        Self {
            resident: field(&status, "VmRSS:") * 1024,
            anonymous: field(&status, "RssAnon:") * 1024,
            cpu: Duration::from_millis(ticks * 10),
            write_calls: field(&io, "syscw: "),
            written: field(&io, "write_bytes: "),
        }
    }
}

/// Whether there is such a process that has not ended: one that nobody has waited for has.
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, after)| !after.starts_with(['Z', 'X']))
}

/// Processes whose command line has every one of these texts in it.
pub(crate) fn with_command_line(texts: &[&str]) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        texts.iter().all(|text| line.contains(text))
    })
    .map(Pid::from_raw)
    .collect()
}

pub(crate) fn children_of(parent: Pid) -> Vec<Pid> {
    let list = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    let list = list.unwrap_or_default();
    list.split_whitespace().filter_map(|pid| pid.parse().ok()).map(Pid::from_raw).collect()
}

/// SIGKILL to each with its children, the children first; returns when all have ended.
pub(crate) fn kill_with_children(parents: &[Pid]) {
    let all: Vec<Pid> = parents
        .iter()
        .flat_map(|&parent| children_of(parent).into_iter().chain([parent]))
        .collect();
    for &pid in &all {
        let _ = kill(pid, Signal::SIGKILL);
    }
    let stopwatch = Stopwatch::start();
    while all.iter().any(|pid| is_alive(pid.as_raw()))
        && stopwatch.elapsed() < Duration::from_secs(10)
    {
        thread::sleep(Duration::from_millis(10));
    }
}
