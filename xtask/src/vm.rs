//! What only a machine of its own can show: systemd as it runs the units, and power that really
//! goes. The guest is a plain Debian in qemu, emulated, so it needs no KVM.

mod image;
mod machine;
mod power;
mod units;
mod volatile;

use anyhow::{Context, Result, bail};

use crate::{
    packages,
    step::{Steps, sh},
    test::SHAPE,
};

/// As many cuts as the issue that asked for them.
const CUTS: u32 = 20;

/// `[units|power] [--cuts N]`; both where none is named.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let (mut cuts, mut only) = (CUTS, None);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--cuts" => {
                let number = rest.next().context("--cuts needs a number")?;
                cuts = number.parse().with_context(|| format!("not a number: {number}"))?;
            }
            "units" | "power" => only = Some(argument.clone()),
            other => bail!("{other:?} is neither `units`, `power` nor `--cuts N`"),
        }
    }
    let wants = |what: &str| only.as_deref().is_none_or(|only| only == what);
    let mut steps = Steps::new(3 + usize::from(wants("units")) + usize::from(wants("power")));
    steps.run("packages", packages::install_for_vm)?;
    steps.run("build", || sh(&format!("cargo build {SHAPE}")))?;
    steps.run("the guest's disk", image::make)?;
    if wants("units") {
        steps.run("systemd in the guest", units::run)?;
    }
    if wants("power") {
        steps.run("power cuts", || power::run(cuts))?;
    }
    Ok(())
}
