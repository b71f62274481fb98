//! Where addresses come from. So far the `local` provider: no cloud, the node's own pod CIDRs.
//!
//! **Invariant:** a provider gives out what nobody has and takes back what is returned. Who
//! holds what, rest and reservations are the pool's affair.

pub mod local;
