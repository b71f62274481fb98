//! Places where a test may kill or hold the plugin. Without the feature `failpoints` none exists.
//!
//! `FAILPOINTS='cni::after_alloc=return'` kills the process with SIGKILL there, as a runtime does
//! at its deadline; `sleep(ms)` and `pause` hold it.

#[cfg(feature = "failpoints")]
pub(crate) fn set_up() {
    // Dropped, a scenario takes its fail points away; this one lives as long as the process.
    std::mem::forget(fail::FailScenario::setup());
}

#[cfg(not(feature = "failpoints"))]
pub(crate) fn set_up() {}

#[cfg(feature = "failpoints")]
pub(crate) fn reach(name: &'static str) {
    fail::fail_point!(name, |_| {
        let _ = nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::SIGKILL);
    });
}

#[cfg(not(feature = "failpoints"))]
pub(crate) fn reach(_name: &'static str) {}
