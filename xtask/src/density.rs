//! A full node: how much the daemon takes when everybody comes at once, and when nobody does.

use anyhow::Result;

use crate::{
    packages,
    step::{Steps, check, command, sh},
    test::SHAPE,
};

/// An idle minute, where the test alone looks for a shorter time.
const IDLE_SECONDS: &str = "60";

pub(crate) fn run() -> Result<()> {
    let mut steps = Steps::new(3);
    steps.run("packages", packages::install_for_demo)?;
    steps.run("build", || sh(&format!("cargo build {SHAPE}")))?;
    steps.run("250 pods, 32 plugins at once, one idle minute", || {
        let mut test = command("cargo test --workspace --all-features --test many_pods");
        check(test.args(["--", "--nocapture"]).env("BERTH_IDLE_SECONDS", IDLE_SECONDS))
    })
}
