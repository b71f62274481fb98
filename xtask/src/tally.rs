//! cargo runs every test program and sums up each; this sums up all.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
};

use anyhow::{Context, Result, bail};

use crate::step::command;

#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    passed: u64,
    failed: u64,
}

impl Tally {
    /// Counts a line such as `test result: ok. 8 passed; 0 failed; 0 ignored; …`.
    fn count(&mut self, line: &str) {
        let Some(summary) = line.strip_prefix("test result: ") else { return };
        let (_, counts) = summary.split_once(". ").unwrap_or_default();
        for part in counts.split("; ") {
            match part.split_once(' ').map(|(number, what)| (number.parse::<u64>(), what)) {
                Some((Ok(number), "passed")) => self.passed += number,
                Some((Ok(number), "failed")) => self.failed += number,
                _ => {}
            }
        }
    }
}

/// Runs `cargo test` with these arguments, passes its output through, and ends it with one line
/// for all: `N passed, N failed`.
pub(crate) fn run(arguments: &str) -> Result<()> {
    println!("$ cargo test {arguments}");
    let mut cargo = command(&format!("cargo test {arguments}"));
    let mut child = cargo.stdout(Stdio::piped()).spawn().context("cannot run cargo")?;
    let output = child.stdout.take().context("stdout was not piped")?;
    let mut tally = Tally::default();
    for line in BufReader::new(output).split(b'\n') {
        let line = line.context("cannot read what the tests say")?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        tally.count(&line);
    }
    let status = child.wait().context("cannot wait for cargo")?;
    println!("\n{} passed, {} failed", tally.passed, tally.failed);
    if !status.success() {
        bail!("`cargo test` ended with {status}");
    }
    if tally.passed == 0 {
        bail!("no test ran");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summaries_of_every_test_program_are_added_up() {
        let mut tally = Tally::default();
        for line in [
            "running 8 tests",
            "test result: ok. 8 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.06s",
            "test says::test result: ok. 9 passed; ... ok",
            "test result: FAILED. 4 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.11s",
        ] {
            tally.count(line);
        }
        assert_eq!(tally, Tally { passed: 12, failed: 1 });
    }
}
