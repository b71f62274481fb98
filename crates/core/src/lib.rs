//! Pools, allocation, release and garbage collection; the ports they need.
//!
//! **Invariant:** no technology. No tonic, sled, netlink, file system or real clock: the
//! outside world is a trait in [`ports`], and time is handed in.
//!
//! Data flows one way: a request takes its turn, the pool promises, the store writes down, the
//! promise is kept, the answer goes out. A release goes the other way: off the network, erase,
//! rest, and the reaper deletes the links behind it.

mod failpoint;
mod ipam;
pub mod pool;
mod pool_task;
pub mod ports;
mod reaper;
mod sweep;
mod turn;
mod vital;

pub use ipam::{
    Allocate, AllocateError, Commit, CommitError, Event, EventKind, ExplainError, Explanation,
    Finding, GcError, GcRequest, Ipam, Parts, Question, Release, ReleaseError, Released,
    ReleasedMeanwhile, Settings, StartError, Stopping, start,
};
pub use pool_task::{PoolError, PoolHandle, PoolView, Reservation, Shortage, pool_task};
pub use reaper::ReapError;
pub use turn::Busy;
pub use vital::vital;
