use serde::{Deserialize, Serialize};

use crate::{AttachmentKey, ProcessStart};

/// A release that the plugin wrote down because the daemon was away. One file in `spool/`,
/// named so that the names sort by time: `<boot-time nanoseconds, 20 digits>-<host link>.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpooledRelease {
    /// 1. Another number is refused by a daemon that does not know it, and the file kept.
    pub version: u32,
    pub key: AttachmentKey,
    pub process_start: ProcessStart,
    pub reason: String,
}

impl SpooledRelease {
    pub const VERSION: u32 = 1;
    /// As many files as may wait before the plugin gives an error instead: a node has some
    /// 250 pods, and each is deleted up to three times.
    pub const MOST: usize = 4096;
}
