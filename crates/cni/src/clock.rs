//! The boot-time clock, and when this process began on it.

use std::{fs, io, io::Read};

use berth_types::{BootId, BootTime, ProcessStart};
use nix::{
    time::{ClockId, clock_gettime},
    unistd::{SysconfVar, sysconf},
};

use crate::error::CniError;

pub(crate) fn now() -> BootTime {
    let time = clock_gettime(ClockId::CLOCK_BOOTTIME)
        .expect("Linux has had this clock since 2.6.39 and it needs no right");
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec()).unwrap_or(0);
    BootTime::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// When this process began: the kernel's word for it, or `in_main` (taken first thing in main)
/// where that is earlier, since the kernel's counts in whole ticks.
pub(crate) fn process_start(in_main: BootTime) -> Result<ProcessStart, CniError> {
    let io = |source| CniError::Io { what: "cannot read /proc of this process", source };
    let boot_id = read_short("/proc/sys/kernel/random/boot_id").map_err(io)?;
    let boot_id: BootId = boot_id.trim_end().parse().map_err(|err| io(io::Error::other(err)))?;
    let stat = read_short("/proc/self/stat").map_err(io)?;
    let ticks_per_second =
        sysconf(SysconfVar::CLK_TCK).ok().flatten().and_then(|ticks| u64::try_from(ticks).ok());
    let began = began(&stat, ticks_per_second.unwrap_or(100))
        .ok_or_else(|| io(io::Error::other("/proc/self/stat has no start time")))?;
    Ok(ProcessStart { boot_id, at: began.min(in_main) })
}

/// A file of /proc that is one line: it comes whole with the first read.
fn read_short(path: &str) -> io::Result<String> {
    let mut line = [0; 1024];
    let length = fs::File::open(path)?.read(&mut line)?;
    str::from_utf8(&line[..length]).map(str::to_owned).map_err(io::Error::other)
}

/// Field 22 of proc_pid_stat(5), rounded up to the next tick: never before the true start, or a
/// DEL that came just before this process would not be older.
fn began(stat: &str, ticks_per_second: u64) -> Option<BootTime> {
    // The second field is the program's name in brackets and may hold anything.
    let (_, rest) = stat.rsplit_once(')')?;
    let ticks: u64 = rest.split_ascii_whitespace().nth(19)?.parse().ok()?;
    let nanos_per_tick = 1_000_000_000 / ticks_per_second.max(1);
    Some(BootTime::from_nanos(ticks.saturating_add(1).saturating_mul(nanos_per_tick)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_time_is_found_behind_any_program_name() {
        let stat = "7 (a) (b ) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1 1";
        assert_eq!(began(stat, 100), Some(BootTime::from_nanos(42_430_000_000)));
        assert_eq!(began("7 no brackets", 100), None);
        assert_eq!(began("7 (a) S 1", 100), None);
    }

    #[test]
    fn this_process_began_before_now_and_not_long_ago() {
        let now = now();
        let start = process_start(now).unwrap();
        assert!(start.at <= now);
        assert!(now.since(start.at) < std::time::Duration::from_secs(3600));
    }
}
