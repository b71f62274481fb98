/// A place where a test can end the process as `kill -9` would: configure the fail point with
/// `return`, or `N*off->return` for a later pass.
macro_rules! crash_point {
    ($name:literal) => {
        fail::fail_point!($name, |_| crate::crash::now())
    };
}

#[cfg(feature = "failpoints")]
pub(crate) fn now() -> ! {
    let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL);
    loop {
        std::thread::park();
    }
}
