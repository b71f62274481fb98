use std::{fmt, ops::Add, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};

use crate::id::InvalidId;

/// Which boot of the machine: `/proc/sys/kernel/random/boot_id`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BootId(Box<str>);

impl BootId {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for BootId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let valid = (1..=64).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if valid {
            Ok(Self(text.into()))
        } else {
            Err(InvalidId::new("boot id", text, "1 to 64 letters, digits or `-`"))
        }
    }
}

impl TryFrom<String> for BootId {
    type Error = InvalidId;

    fn try_from(text: String) -> Result<Self, InvalidId> {
        text.parse()
    }
}

impl From<BootId> for String {
    fn from(id: BootId) -> Self {
        id.0.into()
    }
}

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Time since the machine booted, in nanoseconds, suspended time included
/// (`CLOCK_BOOTTIME`, clock_gettime(2)). It never jumps and nobody can set it.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct BootTime(u64);

impl BootTime {
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Zero when `earlier` is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for BootTime {
    type Output = Self;

    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// A moment that survives a restart of the daemon and does not depend on the wall clock.
///
/// A reboot starts the boot-time clock at zero, and the time the machine was off is not known.
/// So on another boot the whole length counts again from that boot's first look: a deadline
/// may come late across a reboot, never early.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deadline {
    pub boot_id: BootId,
    pub until: BootTime,
    #[serde(rename = "length_ns")]
    length_nanos: u64,
}

impl Deadline {
    pub fn new(boot_id: BootId, now: BootTime, length: Duration) -> Self {
        let length_nanos = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        Self { boot_id, until: now + length, length_nanos }
    }

    /// The same deadline as a boot sees it that was not there when it was set.
    pub fn rebased(&self, boot: &BootId, now: BootTime) -> Self {
        Self::new(boot.clone(), now, Duration::from_nanos(self.length_nanos))
    }

    /// When it is due, on the clock of `boot`, where it is `now`.
    pub fn due(&self, boot: &BootId, now: BootTime) -> BootTime {
        if self.boot_id == *boot {
            self.until
        } else {
            now + Duration::from_nanos(self.length_nanos)
        }
    }
}

/// When a process began: what tells a late call of an orphaned plugin from a new one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessStart {
    pub boot_id: BootId,
    pub at: BootTime,
}

impl ProcessStart {
    /// Whether this process is known to have begun before `other`. Processes of different
    /// boots never ran side by side, so neither is late for the other.
    pub fn is_before(&self, other: &Self) -> bool {
        self.boot_id == other.boot_id && self.at < other.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boot(name: &str) -> BootId {
        name.parse().unwrap()
    }

    #[test]
    fn a_deadline_holds_within_its_boot_and_starts_again_after_a_reboot() {
        let set = BootTime::from_nanos(1_000_000_000);
        let deadline = Deadline::new(boot("a"), set, Duration::from_secs(30));
        let later = set + Duration::from_secs(20);
        assert_eq!(deadline.due(&boot("a"), later).since(later), Duration::from_secs(10));
        let booted = BootTime::from_nanos(5);
        assert_eq!(deadline.due(&boot("b"), booted).since(booted), Duration::from_secs(30));
    }

    #[test]
    fn only_an_earlier_process_of_the_same_boot_is_late() {
        let start = |id, at| ProcessStart { boot_id: boot(id), at: BootTime::from_nanos(at) };
        assert!(start("a", 1).is_before(&start("a", 2)));
        assert!(!start("a", 2).is_before(&start("a", 2)));
        assert!(!start("a", 1).is_before(&start("b", 2)));
    }
}
