//! Wires the crates into one process. The only crate that knows them all.
//!
//! **Invariant:** nothing is decided here about who gets which address. Handlers parse, call
//! and translate; loops observe and call the ordinary use case.

mod aside;
mod clock;
mod config;
mod conflist;
mod connections;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod gc;
mod host;
mod namespaces;
mod process;
mod rpc;
mod socket;
mod spool;
mod watchdog;

pub use config::{Config, ConfigError, Environment, Loaded as LoadedConfig};
pub use process::{RunError, run};
