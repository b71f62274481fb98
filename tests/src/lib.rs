//! Harness of the end-to-end tests: the built daemon and plugin on a node of its own.
//!
//! A [`Node`] is a private network and mount namespace with everything at its default path:
//! socket under `/run/berth`, state under `/var/lib/berth`. Pods are named namespaces in it. What
//! a test looks at, it asks of programs that are not ours (`ip`, `tc`, `nft`, `ping`), of
//! `berthctl`, or over gRPC.
//!
//! **Invariant:** nothing outlives its [`Node`], and nothing of the machine itself is touched: no
//! link, route, rule or file of its own, no process that the node did not start.

#![allow(clippy::unwrap_used, reason = "a test harness: what goes wrong ends the test")]
#![allow(clippy::print_stderr, reason = "logs of the programs under test, where one failed")]

mod address;
mod binaries;
mod caller;
mod clocks;
mod cnitool;
mod containerd;
mod daemon;
mod image;
mod kernel;
mod mounts;
mod node;
mod plugin;
mod pod;
mod podman;
mod process;
mod recorder;
mod time;
mod traffic;

pub use address::Addresses;
pub use binaries::binary;
pub use caller::{Caller, attachment_key, ipv4, process_start};
pub use clocks::Clocks;
pub use cnitool::Cnitool;
pub use containerd::{Containerd, PodWishes, Sandbox};
pub use daemon::Daemon;
pub use kernel::{Snapshot, shapers};
pub use node::{Node, NodeOptions};
pub use plugin::{Answer, Call, Running, StandardOutput, network_config};
pub use pod::{NODE_V4, NODE_V6, OUTSIDE_V4, OUTSIDE_V6, Pod, fresh_id};
pub use podman::Podman;
pub use process::Usage;
pub use recorder::{Recorded, Recorder};
pub use time::{Stopwatch, eventually};
pub use traffic::{fetch, ping, receive, send};
