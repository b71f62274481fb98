//! A numbered step of a longer command: a heading, its time, and one clear error.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, bail};

/// The repository's top directory: that of the checkout which cargo runs this from, whichever one
/// it was built in.
pub(crate) fn root() -> PathBuf {
    let own = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let own = own.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).to_owned());
    own.parent().expect("xtask lies in the repository").to_owned()
}

pub(crate) fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(directory) => root().join(directory),
        None => root().join("target"),
    }
}

/// Runs the steps of one command in order and says how long each took.
#[derive(Debug)]
pub(crate) struct Steps {
    number: usize,
    total: usize,
}

impl Steps {
    pub(crate) fn new(total: usize) -> Self {
        Self { number: 0, total }
    }

    pub(crate) fn run(&mut self, title: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let stopwatch = Stopwatch::start();
        self.last(title, work)?;
        println!("--- {title}: ok, {:.1} s", stopwatch.elapsed().as_secs_f64());
        Ok(())
    }

    /// A step that has the last word: nothing is printed after it where it succeeds.
    pub(crate) fn last(&mut self, title: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
        self.number += 1;
        println!("\n=== {}/{} {title}", self.number, self.total);
        work().with_context(|| format!("step {}/{} ({title})", self.number, self.total))
    }
}

#[derive(Debug)]
struct Stopwatch(std::time::Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "a command for people tells real time")]
    fn start() -> Self {
        Self(std::time::Instant::now())
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// A command line in the repository's top directory, its output passed through.
pub(crate) fn command(line: &str) -> Command {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().expect("a command line has a program"));
    command.args(words).current_dir(root());
    command
}

pub(crate) fn sh(line: &str) -> Result<()> {
    println!("$ {line}");
    check(&mut command(line))
}

pub(crate) fn check(command: &mut Command) -> Result<()> {
    let shown = format!("{:?}", command.get_program());
    let status = command.status().with_context(|| format!("cannot run {shown}"))?;
    if !status.success() {
        bail!("{shown} ended with {status}");
    }
    Ok(())
}

/// stdout of a command that must succeed.
pub(crate) fn output(line: &str) -> Result<String> {
    let output = command(line).output().with_context(|| format!("cannot run `{line}`"))?;
    if !output.status.success() {
        bail!("`{line}` ended with {}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether a program answers, its output thrown away.
pub(crate) fn answers(line: &str) -> bool {
    command(line).output().is_ok_and(|output| output.status.success())
}
