//! What a fresh machine lacks, and how it gets it.

use anyhow::{Context, Result, bail};
use nix::unistd::Uid;

use crate::step::{answers, check, command, output, sh};

/// Debian packages of the demo: its namespaces, pings and the masquerade.
pub(crate) const DEMO: &[&str] = &["iproute2", "iputils-ping", "nftables"];

/// Debian packages of the tests beside [`DEMO`]: real runtimes with the reference plugins, the
/// image they run, file systems to cut the power of, proof by trace, what shows connections, the
/// program of others that speaks gRPC to the daemon, the one that judges our units, and the compiler
/// of libFuzzer.
const TESTS: &[&str] = &[
    "containerd",
    "runc",
    "containernetworking-plugins",
    "busybox-static",
    "iptables",
    "podman",
    "conmon",
    "e2fsprogs",
    "xfsprogs",
    "strace",
    "conntrack",
    "python3-venv",
    "systemd",
    "g++",
];

/// Of the bench beside [`DEMO`]: who it compares with, and what counts system calls.
const BENCH: &[&str] = &["containernetworking-plugins", "strace"];

/// The release that the tests were written with; a newer one may know checks we do not pass.
const CARGO_DENY: &str = "0.18.9";

/// Debian packages that make and run the guest of `cargo xtask vm`.
const VM: &[&str] =
    &["qemu-system-x86", "debootstrap", "busybox-static", "cpio", "kmod", "e2fsprogs", "binutils"];

pub(crate) fn install_for_vm() -> Result<()> {
    install(VM)
}

pub(crate) fn install_for_demo() -> Result<()> {
    install(DEMO)
}

pub(crate) fn install_for_bench() -> Result<()> {
    install(&[DEMO, BENCH].concat())
}

pub(crate) fn install_for_tests() -> Result<()> {
    install(&[DEMO, TESTS].concat())
}

fn install(wanted: &[&str]) -> Result<()> {
    let missing: Vec<&str> = wanted.iter().copied().filter(|name| !installed(name)).collect();
    if missing.is_empty() {
        println!("Debian packages: all there ({})", wanted.join(" "));
        return Ok(());
    }
    let names = missing.join(" ");
    if !answers("apt-get --version") {
        bail!("this machine has no apt-get: install what Debian calls {names}");
    }
    if !Uid::effective().is_root() {
        bail!("as root, once: apt-get install {names}");
    }
    println!("Debian packages missing: {names}");
    sh("apt-get update -qq").context("cannot read the package lists")?;
    let mut install = command("apt-get install -y -qq --no-install-recommends");
    check(install.args(&missing).env("DEBIAN_FRONTEND", "noninteractive"))
        .with_context(|| format!("cannot install {names}"))
}

fn installed(package: &str) -> bool {
    output(&format!("dpkg-query -W -f=${{Status}} {package}"))
        .is_ok_and(|status| status.trim() == "install ok installed")
}

pub(crate) fn install_cargo_deny() -> Result<()> {
    if answers("cargo deny --version") {
        print!("{}", output("cargo deny --version")?);
        return Ok(());
    }
    sh(&format!("cargo install cargo-deny --locked --version {CARGO_DENY}"))
}

/// rustfmt and clippy are parts of the toolchain that a minimal install leaves out.
pub(crate) fn install_components() -> Result<()> {
    if answers("cargo fmt --version") && answers("cargo clippy --version") {
        return Ok(());
    }
    sh("rustup component add rustfmt clippy")
}

/// The target to link the plugin statically for: musl where its standard library is to be had.
pub(crate) fn static_target() -> Result<String> {
    let version = output("rustc -vV")?;
    let host = version
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .context("`rustc -vV` names no host")?;
    let musl = host.replace("-gnu", "-musl");
    let library = output(&format!("rustc --print target-libdir --target {musl}"))?;
    let there = || std::path::Path::new(library.trim()).is_dir();
    if !there() && answers("rustup --version") {
        // Without a way to download it, glibc is linked statically instead.
        let _ = sh(&format!("rustup target add {musl}"));
    }
    Ok(if there() { musl } else { host.to_owned() })
}
