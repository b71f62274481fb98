//! The built `berthctl` against a model of the daemon on a socket.
#![allow(clippy::unwrap_used, reason = "a test")]

mod exit_status;
mod json;
mod model;
mod run;
mod tables;
