//! Pools, allocation, release and garbage collection; the ports they need.
//!
//! **Invariant:** no technology. No tonic, sled, netlink, file system or real clock: the
//! outside world is a trait in [`ports`], and time is handed in.

pub mod ports;
