//! The wire: generated code, and the only place where it meets domain types.
//!
//! **Invariant:** what comes from outside becomes a domain type here or is refused with the
//! name of its field ([`BadRequest`]). Nothing behind this crate sees an unchecked string.

mod convert;
mod error;

#[allow(missing_debug_implementations, unreachable_pub, clippy::all, clippy::pedantic)]
pub mod v1 {
    tonic::include_proto!("berth.v1");
}

pub use convert::{
    address_set, attachment, interface_facts, ip_set, key, net_conf, optional_mac, pod_identity,
    prefix_set, process_start,
};
pub use error::{BadRequest, DOMAIN, Reason};

/// The descriptors, for server reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/berth.v1.bin"));
