//! Everything that CI runs.

use anyhow::{Result, ensure};
use nix::unistd::Uid;

use crate::{
    demo, dist, fuzz, go, packages,
    step::{Steps, sh},
    tally,
};

/// The one shape in which cargo is asked for anything, so that everything is compiled once and
/// the end-to-end tests find the binaries that belong to them.
pub(crate) const SHAPE: &str = "--workspace --all-targets --all-features";

/// Finds what is broken outright; the rest is for a longer run.
const FUZZ: [&str; 2] = ["--seconds", "30"];

/// The tests come last, so that the output ends with the test runner's own summary.
pub(crate) fn run() -> Result<()> {
    ensure!(
        Uid::effective().is_root(),
        "the tests make namespaces, mounts and containers: run `cargo xtask test` as root"
    );
    let mut steps = Steps::new(9);
    steps.run("packages and tools", || {
        packages::install_for_tests()?;
        packages::install_components()?;
        packages::install_cargo_deny()?;
        go::install_cnitool()
    })?;
    steps.run("formatting", || sh("cargo fmt --all --check"))?;
    steps.run("lints", || sh(&format!("cargo clippy {SHAPE} -- -D warnings")))?;
    steps.run("dependencies", || sh("cargo deny check bans licenses sources"))?;
    steps.run("build", || sh(&format!("cargo build {SHAPE}")))?;
    steps.run("the plugin as it ships", dist::run)?;
    steps.run("demo", demo::show)?;
    steps.run("fuzz targets, for half a minute", || fuzz::run(&FUZZ.map(str::to_owned)))?;
    steps.last("tests", || tally::run(&format!("{SHAPE} --no-fail-fast")))
}
