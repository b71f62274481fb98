//! Fixtures shared by several crates' tests. A dev-dependency only.

mod netns;

pub use netns::{in_netns, ip, run};
