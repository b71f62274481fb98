use std::{process::Command, thread};

use nix::sched::{CloneFlags, unshare};

/// Runs `body` in a network and a mount namespace of its own, which end with it.
///
/// The namespaces belong to a fresh thread, so tests may run side by side; threads and processes
/// that `body` starts are in them too. `/run` is an empty tmpfs there, so that `ip netns` and
/// default socket paths are private, and `lo` is up. A test that may not make namespaces fails:
/// one that is skipped looks like one that passed.
///
/// # Panics
/// When the namespaces cannot be made, and with `body`'s own panic.
pub fn in_namespaces<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_FS).expect(
            "namespaces need CAP_SYS_ADMIN: run the tests as root, or under `unshare -Urnm`",
        );
        run("mount --make-rprivate /");
        run("mount -t tmpfs tmpfs /run");
        run("mkdir -p /run/netns");
        run("ip link set lo up");
        body()
    });
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// [`in_namespaces`] for a `body` that is async.
pub fn in_netns<F, Fut>(body: F)
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future<Output = ()>,
{
    in_namespaces(|| {
        // The netlink tasks must run on the thread that changed its namespace.
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(body());
    });
}

/// Runs a command line, words parted by spaces, on this thread's namespaces; its stdout.
///
/// # Panics
/// When it fails, with what it printed.
#[track_caller]
pub fn run(command: &str) -> String {
    let mut words = command.split_whitespace();
    let program = words.next().expect("a command");
    let output = Command::new(program).args(words).output();
    let output = output.unwrap_or_else(|err| panic!("cannot run `{command}`: {err}"));
    assert!(
        output.status.success(),
        "`{command}` failed: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// `ip` with these arguments: the kernel's state as a tool that is not ours sees it.
#[track_caller]
pub fn ip(arguments: &str) -> String {
    run(&format!("ip {arguments}"))
}
