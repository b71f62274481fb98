//! Who used the processors.

use std::{fs, time::Duration};

use nix::{
    sys::{
        resource::{UsageWho, getrusage},
        time::TimeValLike,
    },
    time::{ClockId, clock_getcpuclockid, clock_gettime},
    unistd::Pid,
};

/// User and system time of all threads of a process, those that have ended among them.
pub(crate) fn cpu_of(pid: u32) -> Duration {
    let pid = Pid::from_raw(pid.try_into().expect("a pid fits"));
    clock_getcpuclockid(pid).and_then(clock_gettime).unwrap().into()
}

pub(crate) fn cpu_of_this_thread() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

/// Time that the machine has spent, and of it that of this program, its children and the daemon.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Meter {
    machine: Duration,
    ours: Duration,
}

impl Meter {
    pub(crate) fn read(daemon: u32) -> Self {
        Self { machine: machine(), ours: ours() + cpu_of(daemon) }
    }

    /// What others used since then, in processors: 0.5 is half of one.
    pub(crate) fn others_since(self, then: Self, elapsed: Duration) -> f64 {
        let machine = self.machine.saturating_sub(then.machine);
        let others = machine.saturating_sub(self.ours.saturating_sub(then.ours));
        others.as_secs_f64() / elapsed.as_secs_f64().max(1e-9)
    }
}

/// /proc/stat counts in ticks of 10 ms (USER_HZ).
fn machine() -> Duration {
    let text = fs::read_to_string("/proc/stat").unwrap();
    let first = text.lines().next().unwrap_or_default();
    let fields: Vec<u64> =
        first.split_whitespace().skip(1).map(|field| field.parse().unwrap()).collect();
    // Everything but idle and iowait: user, nice, system, irq, softirq, steal.
    let busy = [0, 1, 2, 5, 6, 7].map(|index| fields[index]).iter().sum::<u64>();
    Duration::from_millis(busy * 10)
}

fn ours() -> Duration {
    [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN]
        .map(|who| {
            let usage = getrusage(who).unwrap();
            let microseconds =
                usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
            Duration::from_micros(microseconds.try_into().unwrap_or(0))
        })
        .iter()
        .sum()
}
