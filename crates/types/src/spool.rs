use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

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
    /// Of the rest: a file that was damaged must not pass for the release of somebody else.
    /// Plugins before it was there write none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
}

impl SpooledRelease {
    pub const VERSION: u32 = 1;
    /// As many files as may wait before the plugin gives an error instead: a node has some
    /// 250 pods, and each is deleted up to three times.
    pub const MOST: usize = 4096;

    pub fn new(key: AttachmentKey, process_start: ProcessStart, reason: String) -> Self {
        let digest = Some(digest(&key, &process_start, &reason));
        Self { version: Self::VERSION, key, process_start, reason, digest }
    }

    /// Whether it is as it was written.
    pub fn is_whole(&self) -> bool {
        let found = digest(&self.key, &self.process_start, &self.reason);
        self.digest.as_ref().is_none_or(|written| *written == found)
    }
}

/// The first 64 bits of SHA-256, in hex: against accidents, not against people.
fn digest(key: &AttachmentKey, start: &ProcessStart, reason: &str) -> String {
    let text = format!("{key}\n{}\n{}\n{reason}", start.boot_id, start.at.as_nanos());
    Sha256::digest(text).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release() -> SpooledRelease {
        let key = AttachmentKey::new("net", "c1", "eth0").unwrap();
        let start = ProcessStart {
            boot_id: "b".parse().unwrap(),
            at: crate::BootTime::from_nanos(1_000_007),
        };
        SpooledRelease::new(key, start, "CNI DEL".to_owned())
    }

    #[test]
    fn no_flipped_bit_makes_it_another_release() {
        let written = serde_json::to_vec(&release()).unwrap();
        for bit in 0..written.len() * 8 {
            let mut bytes = written.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            if let Ok(read) = serde_json::from_slice::<SpooledRelease>(&bytes) {
                let same = read.version == 1 && read == release();
                let noticed = read.version != 1 || !read.is_whole();
                assert!(same || noticed, "bit {bit}: {read:?}");
            }
        }
    }

    #[test]
    fn what_an_earlier_plugin_wrote_is_read() {
        let text = r#"{"version":1,"key":{"network":"net","container_id":"c1","interface":"eth0"},
            "process_start":{"boot_id":"b","at":1000007},"reason":"CNI DEL"}"#;
        let mut value: serde_json::Value = serde_json::to_value(release()).unwrap();
        value.as_object_mut().unwrap().remove("digest");
        let given: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(given, value);
        assert!(serde_json::from_value::<SpooledRelease>(given).unwrap().is_whole());
    }
}
