use std::process::Command;

use nix::sched::{CloneFlags, unshare};

/// Runs `body` in a network and a mount namespace of its own, which end with it.
///
/// The namespaces belong to a fresh thread, so tests may run side by side. `/run/netns` is an
/// empty tmpfs there and `lo` is up. A test that may not make namespaces fails: one that is
/// skipped looks like one that passed.
///
/// # Panics
/// When the namespaces cannot be made, and with `body`'s own panic.
pub fn in_netns<F, Fut>(body: F)
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future<Output = ()>,
{
    let thread = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_FS).expect(
            "namespaces need CAP_SYS_ADMIN: run the tests as root, or under `unshare -rnm`",
        );
        run("mount --make-rprivate /");
        run("mkdir -p /run/netns");
        run("mount -t tmpfs tmpfs /run/netns");
        run("ip link set lo up");
        // The netlink tasks must run on the thread that changed its namespace.
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(body());
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
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
