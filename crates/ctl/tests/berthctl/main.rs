//! The built `berthctl` against a model of the daemon on a socket, and on real state.
#![allow(clippy::unwrap_used, reason = "a test")]

mod db;
mod exit_status;
mod json;
mod model;
mod run;
mod tables;
