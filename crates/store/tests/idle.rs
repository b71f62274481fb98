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

#[test]
fn an_idle_store_neither_writes_nor_works() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(store.commit(allocate(1, 1))).unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    let (writes, ticks) = used();
    assert_eq!(writes.len(), 3);
    std::thread::sleep(Duration::from_secs(4));
    let (writes_after, ticks_after) = used();
    assert_eq!(writes_after, writes);
    assert!(ticks_after - ticks <= 1, "{ticks} {ticks_after}");
}
