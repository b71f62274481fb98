//! What Berth does, shown on this machine in namespaces of its own.

use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::unistd::Uid;

use crate::{
    packages,
    step::{Steps, answers, check, sh, target},
    test::SHAPE,
};

pub(crate) fn run() -> Result<()> {
    let mut steps = Steps::new(3);
    steps.run("packages", packages::install_for_demo)?;
    steps.run("build", || sh(&format!("cargo build {SHAPE}")))?;
    steps.run("demo", show)
}

/// The demo alone, from what is built. Without root it runs as root of a user namespace.
pub(crate) fn show() -> Result<()> {
    let demo = target().join("debug/berth-demo");
    let mut command = if Uid::effective().is_root() {
        Command::new(&demo)
    } else if answers("unshare -Urnm true") {
        println!("not root: running in a user namespace");
        let mut command = Command::new("unshare");
        command.arg("-Urnm").arg(&demo);
        command
    } else {
        bail!("the demo makes network namespaces: run `cargo xtask demo` as root");
    };
    check(&mut command).context("the demo did not come to its end")
}
