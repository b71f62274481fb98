//! What comes from outside and means no good, or knows no better: the daemon stays up, small and
//! of use to others, the plugin says what is wrong, and nothing is left behind.

#![allow(clippy::unwrap_used, reason = "a test")]

mod configuration;
mod floods;
mod http2;
mod input;
mod mute_daemon;
mod namespaces;
mod peers;
mod spool;
