//! The tests of `cargo xtask test` that are worth more time: the same programs, told to go on.

use anyhow::{Result, ensure};

use crate::{
    options::Options,
    packages,
    step::{Steps, check, command, sh},
    test::SHAPE,
};

/// Runs the tests of one program whose names contain `names`, with variables that say how much.
fn longer(program: &str, names: &[&str], variables: &[(&str, String)]) -> Result<()> {
    let mut steps = Steps::new(3);
    steps.run("packages", packages::install_for_tests)?;
    steps.run("build", || sh(&format!("cargo build {SHAPE}")))?;
    steps.last(program, || {
        let line = format!("cargo test --workspace --all-features --test {program} --");
        println!("$ {line} {}", names.join(" "));
        let mut test = command(&line);
        test.args(names).args(["--nocapture", "--test-threads=1"]);
        check(test.envs(variables.iter().map(|(name, value)| (name, value))))
    })
}

pub(crate) fn power(arguments: &[&str]) -> Result<()> {
    let options = Options::of(arguments, &["--cuts", "--file-system"])?;
    let cuts: u32 = options.number("--cuts", 300)?;
    let names = match options.text("--file-system") {
        None => vec!["power_cut_on"],
        Some("ext4") => vec!["power_cut_on_ext4"],
        Some("xfs") => vec!["power_cut_on_xfs"],
        Some(other) => anyhow::bail!("--file-system {other}: there is ext4 and xfs"),
    };
    ensure!(cuts > 1, "--cuts {cuts}: two at least, one at rest and one at work");
    longer("power_cut", &names, &[("BERTH_POWER_CUTS", cuts.to_string())])
}

pub(crate) fn races(arguments: &[&str]) -> Result<()> {
    let options = Options::of(arguments, &["--histories", "--seed"])?;
    let histories: u32 = options.number("--histories", 2000)?;
    let seed: u32 = options.number("--seed", 1)?;
    let variables = [("BERTH_HISTORIES", histories.to_string()), ("BERTH_SEED", seed.to_string())];
    longer("races", &[], &variables)
}

pub(crate) fn soak(arguments: &[&str]) -> Result<()> {
    let options = Options::of(arguments, &["--minutes"])?;
    let minutes: u32 = options.number("--minutes", 10)?;
    longer("soak", &[], &[("BERTH_SOAK_SECONDS", (minutes * 60).to_string())])
}
