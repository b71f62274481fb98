//! The node's readiness in the eyes of a containerd newer than Debian's.

use anyhow::{Context, Result};

use crate::{
    go, packages,
    step::{Steps, check, command, sh, target},
    test::SHAPE,
};

pub(crate) fn run() -> Result<()> {
    let mut steps = Steps::new(4);
    steps.run("packages", packages::install_for_tests)?;
    let mut containerd = None;
    steps.run("containerd 2.1, from Go modules", || {
        containerd = Some(go::build_containerd()?);
        Ok(())
    })?;
    let containerd = containerd.context("the step before has built it")?;
    steps.run("build", || sh(&format!("cargo build {SHAPE}")))?;
    steps.run("restarts under a containerd that asks for STATUS", || {
        let watch = target().join("debug/berth-newer-containerd");
        check(command(&watch.display().to_string()).arg(containerd))
    })
}
