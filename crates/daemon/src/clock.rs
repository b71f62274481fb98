use std::time::Duration;

use berth_core::ports::Clock;
use berth_types::{BootId, BootTime, InvalidId};
use nix::time::{ClockId, clock_gettime};

/// CLOCK_BOOTTIME and the kernel's boot id.
#[derive(Debug)]
pub(crate) struct BootClock {
    boot_id: BootId,
}

#[derive(Debug, thiserror::Error)]
pub enum ClockError {
    #[error("cannot read /proc/sys/kernel/random/boot_id")]
    Read(#[from] std::io::Error),
    #[error("the kernel's boot id is odd")]
    BootId(#[from] InvalidId),
}

impl BootClock {
    pub(crate) fn open() -> Result<Self, ClockError> {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        Ok(Self { boot_id: text.trim().parse()? })
    }
}

impl Clock for BootClock {
    fn now(&self) -> BootTime {
        let time = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("Linux has had it since 2.6.39");
        BootTime::default() + Duration::from(time)
    }

    fn boot_id(&self) -> &BootId {
        &self.boot_id
    }
}
