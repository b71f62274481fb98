#![allow(clippy::unwrap_used, reason = "a test")]
//! Against the real kernel, in namespaces that each test makes and that end with it.

mod attach;
mod check;
mod host;
mod reap;
mod traffic;
mod world;
