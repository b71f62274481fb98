//! A node full of pods: what the daemon holds in memory, and what it does while nobody asks.

use std::{thread, time::Duration};

use berth_tests::{Node, Pod};

use crate::{cell::Operation, run::at_once, subject::Plugin};

/// Of the design's goal.
pub(crate) const PODS: usize = 250;

/// Callers at once.
const PARALLEL: usize = 32;

/// Until the last ADD has left nothing to do.
const SETTLED: Duration = Duration::from_secs(3);

const IDLE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Density {
    /// Bytes.
    pub(crate) resident: u64,
    /// Of one processor.
    pub(crate) idle_cpu: f64,
    /// Bytes, over [`IDLE`].
    pub(crate) idle_written: u64,
}

impl Density {
    pub(crate) fn measure(node: &mut Node, plugin: &Plugin) -> Self {
        println!("{PODS} pods, {PARALLEL} at once, then none");
        let pods: Vec<Pod> = (0..PODS).map(|_| Pod::new()).collect();
        at_once(
            PARALLEL,
            PODS,
            |_| (),
            |(), index| plugin.call(Operation::Add, index, &pods[index]),
        );
        node.wait_for_export();
        thread::sleep(SETTLED);
        let before = node.daemon().usage();
        thread::sleep(IDLE);
        let after = node.daemon().usage();
        Self {
            resident: after.resident,
            idle_cpu: (after.cpu - before.cpu).as_secs_f64() / IDLE.as_secs_f64(),
            idle_written: after.written - before.written,
        }
    }
}
