//! The words of the domain: ids, addresses, records, times. Valid by construction.
//!
//! **Invariant:** no I/O but [`durable`] (one file operation, its fsyncs in order),
//! no async, no wire format. Everything here may be used by every crate, so nothing
//! here may know one.

pub mod durable;

mod address;
mod attachment;
mod bandwidth;
mod error_chain;
mod id;
mod mac;
mod name;
mod netconf;
mod one_line;
mod resource;
mod spool;
mod time;

pub use address::{AddressSet, Family};
pub use attachment::{
    Attachment, AttachmentState, InterfaceFacts, Netns, NetnsId, PodIdentity, PodInterface,
    WiredFacts,
};
pub use bandwidth::Bandwidth;
pub use error_chain::chain;
pub use id::{AttachmentKey, ContainerId, InterfaceName, InvalidId, NetworkName};
pub use mac::{InvalidMac, MacAddress};
pub use name::{DEFAULT_HOST_PREFIX, HostPrefix, MacSide, host_interface, ifb_name, stable_mac};
pub use netconf::{LINK_GATEWAY_V4, LINK_GATEWAY_V6, NetConf};
pub use one_line::one_line;
pub use resource::{Resource, ResourceId, ResourceKind};
pub use spool::SpooledRelease;
pub use time::{BootId, BootTime, Deadline, ProcessStart};
