//! Fixtures shared by several crates' tests. A dev-dependency only.
//!
//! **Invariant:** what a fixture makes ends with the test: namespaces, mounts and links belong to a
//! thread of the test, never to the machine.

mod netns;

pub use netns::{in_namespaces, in_netns, ip, run};
