//! The CNI plugin that a container runtime executes: one request in, one document out.
//!
//! **Invariant:** stdout holds one JSON document or nothing, whatever happens; all else goes to
//! stderr. What a pod's network is, the daemon decides: the plugin asks, wires and reports.

mod add;
mod check;
mod clock;
mod cni_args;
mod cni_compat;
mod config;
mod daemon;
mod del;
mod error;
mod fail_point;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod gc;
mod invocation;
mod layout;
mod output;
mod previous;
mod process;
mod settings;
mod spool;
mod status;
mod stdin;
mod variables;
mod verb;
mod wishes;

pub use process::main;
