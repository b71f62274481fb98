//! What ships, measured beside Debian's reference plugins: `cargo xtask bench`.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use nix::unistd::Uid;

use crate::{
    dist, packages,
    step::{Steps, check, command, sh, target},
};

const BUILD: &str = "cargo build --release --package berth-daemon --package berth-tests";

/// `arguments` go to the program that measures; paths are taken from where the command was given.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    ensure!(
        Uid::effective().is_root(),
        "the bench makes namespaces and mounts: run `cargo xtask bench` as root"
    );
    let arguments = absolute(arguments)?;
    let mut steps = Steps::new(4);
    steps.run("packages", packages::install_for_bench)?;
    steps.run("the plugin as it ships", dist::run)?;
    steps.run("build", || sh(BUILD))?;
    steps.run("bench", || {
        let empty = empty_program()?;
        let mut bench = std::process::Command::new(target().join("release/berth-bench"));
        bench.arg("--plugin").arg(dist::plugin()?).arg("--empty").arg(empty);
        check(bench.args(&arguments)).context("the bench did not come to its end")
    })
}

fn absolute(arguments: &[String]) -> Result<Vec<String>> {
    let mut absolute = Vec::new();
    let mut is_path = false;
    for argument in arguments {
        let path = std::env::current_dir()?.join(argument);
        let text = path.to_str().context("a path is not text")?;
        absolute.push(if is_path { text.to_owned() } else { argument.clone() });
        is_path = argument == "--json" || argument == "--svg";
    }
    if is_path {
        bail!("--json and --svg need a file");
    }
    Ok(absolute)
}

/// A static program that does nothing, built as the plugin is.
fn empty_program() -> Result<PathBuf> {
    let triple = packages::static_target()?;
    let directory = target().join("bench");
    std::fs::create_dir_all(&directory)?;
    let (source, program) = (directory.join("empty.rs"), directory.join("empty"));
    std::fs::write(&source, "fn main() {}\n")?;
    let mut rustc = command(&format!("rustc --target {triple} -O -C panic=abort -C strip=symbols"));
    rustc.args(["-C", "target-feature=+crt-static", "-o"]).arg(&program).arg(&source);
    check(&mut rustc)?;
    Ok(program)
}
