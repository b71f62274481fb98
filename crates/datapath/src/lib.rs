//! What an attachment means to the kernel: a plan, and its execution.
//!
//! **Invariant:** [`plan`] decides and never acts; what executes it acts and never decides. The
//! plan that ADD runs is the plan that CHECK compares with.
//!
//! The pod's side belongs to the plugin ([`attach`], [`check`]), the host's to the daemon
//! ([`Host`]). Everything ours on the host can be told from everything foreign: links are in
//! [`LINK_GROUP`] or, once unhooked, in [`UNHOOKED_GROUP`]; routes carry [`ROUTE_PROTOCOL`]; nft
//! rules are in one table of ours.

#[cfg(feature = "fuzz")]
pub mod fuzz;
pub mod plan;

mod attach;
mod bandwidth;
mod check;
mod direct;
mod exec;
mod host;
mod kernel;
mod message;
mod netlink;
mod netns;
mod op;
mod seen;
mod sysctl;
mod tc;

pub use attach::{AttachError, Attached, attach};
pub use bandwidth::Shape;
pub use check::check;
pub use exec::PlanError;
pub use host::{Host, HostError, Wired};
pub use message::{LINK_GROUP, ROUTE_PROTOCOL, UNHOOKED_GROUP};
pub use netlink::NetError;
pub use netns::{NetnsError, PodNetns, identify};
pub use op::{Op, Side, Thing, Verb, Veth};
