//! One execution of a program, timed.

use std::{
    fs::File,
    io::Read,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use berth_tests::Stopwatch;
use nix::libc;

#[derive(Debug)]
pub(crate) struct Timed {
    /// From before the start of the process until it was waited for.
    pub(crate) wall: Duration,
    /// User and system time of the process and of those it waited for (wait4(2)).
    pub(crate) cpu: Duration,
    pub(crate) stdout: String,
}

/// `input` is what the program reads; `None` leaves it nothing.
///
/// # Panics
/// When the program ends with anything but success: then there is nothing to measure.
#[expect(clippy::zombie_processes, reason = "wait4 waits for it, and tells what it used")]
pub(crate) fn execute(
    program: &Path,
    environment: &[(&str, String)],
    input: Option<&Path>,
) -> Timed {
    let mut command = Command::new(program);
    command.env_clear().envs(environment.iter().map(|(name, value)| (name, value.as_str())));
    command.stdin(input.map_or_else(Stdio::null, |path| File::open(path).unwrap().into()));
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let stopwatch = Stopwatch::start();
    let mut child = command.spawn().unwrap_or_else(|err| panic!("{}: {err}", program.display()));
    let mut stdout = String::new();
    child.stdout.take().expect("stdout is a pipe").read_to_string(&mut stdout).unwrap();
    let (status, cpu) = wait(child.id());
    let wall = stopwatch.elapsed();
    assert!(status == 0, "{} ended with status {status:#x}: {stdout}", program.display());
    Timed { wall, cpu, stdout }
}

fn wait(pid: u32) -> (libc::c_int, Duration) {
    let pid = libc::pid_t::try_from(pid).expect("a pid fits");
    let mut status = 0;
    // SAFETY: `rusage` is plain numbers, for which zeros are a value.
    #[expect(unsafe_code, reason = "a C structure to be filled by the kernel")]
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to locals that outlive the call.
    #[expect(unsafe_code, reason = "only wait4 tells what exactly this child has used")]
    let waited = unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) };
    assert_eq!(waited, pid, "wait4: {}", std::io::Error::last_os_error());
    (status, duration(usage.ru_utime) + duration(usage.ru_stime))
}

fn duration(time: libc::timeval) -> Duration {
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    Duration::from_secs(part(time.tv_sec)) + Duration::from_micros(part(time.tv_usec))
}
