//! Alone in its process, since it measures the process.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::{fs, time::Duration};

use berth_core::ports::Store;
use common::{allocate, open};

/// Written bytes and write calls (proc(5), `/proc/[pid]/io`), and processor time in clock ticks.
fn used() -> (Vec<u64>, u64) {
    let io = fs::read_to_string("/proc/self/io").unwrap();
    let writes = io
        .lines()
        .filter(|line| ["wchar", "syscw", "write_bytes"].iter().any(|name| line.starts_with(name)))
        .map(|line| line.split(' ').nth(1).unwrap().parse().unwrap())
        .collect();
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    (writes, fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap())
}

/// Times that a thread of this process went to sleep, sled's pool of writers aside: those look
/// for work once a second each, and nobody can tell them not to.
fn sleeps() -> u64 {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    tasks
        .map(|task| {
            let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
            if status.starts_with("Name:\tsled-io") {
                return 0;
            }
            let line = status.lines().find(|line| line.starts_with("voluntary_ctxt")).unwrap();
            line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
        })
        .sum()
}

#[test]
fn an_idle_store_neither_writes_nor_works() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(store.commit(allocate(1, 1))).unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    let (writes, ticks) = used();
    assert_eq!(writes.len(), 3);
    let before = sleeps();
    std::thread::sleep(Duration::from_secs(4));
    let sleeps = sleeps() - before;
    let (writes_after, ticks_after) = used();
    assert_eq!(writes_after, writes);
    // This thread's own, and at most one pass of sled's.
    assert!(sleeps <= 4, "{sleeps}");
    assert!(ticks_after - ticks <= 1, "{ticks} {ticks_after}");
}
