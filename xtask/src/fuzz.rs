//! Fuzzes every parser of bytes from outside: the targets of `tests/fuzz`, with libFuzzer.

use std::{
    collections::VecDeque,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Mutex, PoisonError},
    thread,
};

use anyhow::{Context, Result, bail, ensure};

use crate::step::{check, command, output, root, target};

/// What cargo-fuzz passes, without a sanitizer: that would need a nightly toolchain, and the code
/// under test has next to no `unsafe`. Overflows and wrong indexes panic by themselves.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing";

/// Of all targets together, where nobody says.
const SECONDS: u64 = 600;

/// No parser may take longer for 64 KiB, nor hold more.
const LIMITS: &[&str] =
    &["-max_len=65536", "-timeout=10", "-rss_limit_mb=1024", "-print_final_stats=1"];

/// What one target came to.
#[derive(Debug)]
struct Outcome {
    name: String,
    passed: bool,
    executions: u64,
    /// libFuzzer's last line with figures.
    last: String,
}

/// `--seconds N` for all targets together, and names of targets; none are all.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let mut seconds = SECONDS;
    let mut wanted = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument == "--seconds" {
            let number = rest.next().context("--seconds needs a number")?;
            seconds = number.parse().with_context(|| format!("not a number: {number}"))?;
        } else {
            wanted.push(argument.clone());
        }
    }
    let all = targets()?;
    for name in &wanted {
        ensure!(all.contains(name), "no target {name:?}; there are {}", all.join(", "));
    }
    build()?;
    let names = if wanted.is_empty() { all } else { wanted };
    fuzz(names, seconds)
}

/// The names of the targets, from the files that they are.
fn targets() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(root().join("tests/fuzz/targets"))? {
        let name = entry?.path().file_stem().map(|name| name.to_string_lossy().into_owned());
        names.extend(name);
    }
    names.sort();
    Ok(names)
}

fn place() -> PathBuf {
    target().join("fuzz")
}

fn host() -> Result<String> {
    let version = output("rustc -vV")?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("`rustc -vV` names no host")?.to_owned())
}

/// With `--target`, so that build scripts and macros are not counted.
fn build() -> Result<()> {
    let host = host()?;
    let line = format!("cargo build --manifest-path tests/fuzz/Cargo.toml --target {host}");
    println!("$ {line}");
    let mut build = command(&line);
    build.env("RUSTFLAGS", COVERAGE).env("CARGO_TARGET_DIR", place());
    check(&mut build)
}

fn fuzz(names: Vec<String>, seconds: u64) -> Result<()> {
    let count = u64::try_from(names.len())?;
    let at_once =
        thread::available_parallelism().map_or(1, std::num::NonZero::get).min(names.len());
    let each = (seconds * u64::try_from(at_once)? / count).max(1);
    println!("{count} targets, {at_once} at once, {each} s each");
    let queue = Mutex::new(VecDeque::from(names));
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let work = || -> Result<Vec<Outcome>> {
        let mut done = Vec::new();
        while let Some(name) = next() {
            done.push(one(&name, each).with_context(|| format!("target {name}"))?);
        }
        Ok(done)
    };
    let outcomes = thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
        let mut outcomes = Vec::new();
        for worker in workers {
            match worker.join() {
                Ok(done) => outcomes.extend(done?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok::<_, anyhow::Error>(outcomes)
    })?;
    report(outcomes)
}

/// New inputs are kept below `target/`, and used again by the next run.
fn one(name: &str, seconds: u64) -> Result<Outcome> {
    let directory = |what: &str| -> Result<PathBuf> {
        let path = place().join(what).join(name);
        fs::create_dir_all(&path)?;
        Ok(path)
    };
    let (corpus, artifacts) = (directory("corpus")?, directory("artifacts")?);
    let log = place().join(format!("{name}.log"));
    let program = place().join(host()?).join("debug").join(name);
    let mut fuzzer = command(&program.display().to_string());
    fuzzer
        .arg(&corpus)
        .arg(root().join("tests/fuzz/corpus").join(name))
        .args(LIMITS)
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .stdout(Stdio::null())
        .stderr(File::create(&log)?);
    let status = fuzzer.status().with_context(|| format!("cannot run {}", program.display()))?;
    Ok(outcome(name, status.success(), &fs::read(&log)?))
}

fn outcome(name: &str, passed: bool, log: &[u8]) -> Outcome {
    let text = String::from_utf8_lossy(log);
    let stat = "stat::number_of_executed_units:";
    let executions = text.lines().find_map(|line| line.strip_prefix(stat)?.trim().parse().ok());
    let last = text.lines().rev().find_map(|line| line.contains(" cov: ").then(|| line.trim()));
    Outcome {
        name: name.to_owned(),
        passed,
        executions: executions.unwrap_or(0),
        last: last.unwrap_or_default().to_owned(),
    }
}

fn report(mut outcomes: Vec<Outcome>) -> Result<()> {
    outcomes.sort_by(|a, b| a.name.cmp(&b.name));
    let mut failed = Vec::new();
    for Outcome { name, passed, executions, last } in &outcomes {
        let found = if *passed { "nothing found" } else { "FOUND SOMETHING" };
        let figure = |key: &str| {
            let mut words = last.split_whitespace().skip_while(|word| *word != key);
            words.nth(1).unwrap_or("?").to_owned()
        };
        let (coverage, corpus) = (figure("cov:"), figure("corp:"));
        println!(
            "{name:20} {executions:>10} runs, coverage {coverage:>6}, corpus {corpus:>12}: {found}"
        );
        ensure!(*executions > 0 || !*passed, "{name} did not run: see {}", log_of(name).display());
        if !passed {
            failed.push(name.as_str());
        }
    }
    let total: u64 = outcomes.iter().map(|it| it.executions).sum();
    println!("{total} runs in all");
    if failed.is_empty() {
        return Ok(());
    }
    for name in &failed {
        let log = String::from_utf8_lossy(&fs::read(log_of(name))?).into_owned();
        let lines: Vec<&str> = log.lines().filter(|line| !line.contains(" cov: ")).collect();
        println!("\n{name}:\n{}", lines[lines.len().saturating_sub(40)..].join("\n"));
    }
    bail!(
        "inputs that break something, in {}: {}",
        place().join("artifacts").display(),
        failed.join(", ")
    )
}

fn log_of(name: &str) -> PathBuf {
    Path::new(&place()).join(format!("{name}.log"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_come_from_what_libfuzzer_says_last() {
        let log = "#2\tINITED cov: 10 ft: 11 corp: 1/1b exec/s: 0 rss: 40Mb\n\
                   #99\tDONE   cov: 20 ft: 22 corp: 7/90b lim: 4 exec/s: 99 rss: 41Mb\n\
                   stat::number_of_executed_units: 99\n";
        let outcome = outcome("x", true, log.as_bytes());
        assert_eq!(outcome.executions, 99);
        assert!(outcome.last.starts_with("#99"), "{outcome:?}");
    }

    #[test]
    fn every_target_has_seeds_and_is_built() {
        let manifest = fs::read_to_string(root().join("tests/fuzz/Cargo.toml")).unwrap();
        for name in targets().unwrap() {
            assert!(manifest.contains(&format!("name = \"{name}\"")), "{name} is not built");
            let seeds = root().join("tests/fuzz/corpus").join(&name);
            assert!(fs::read_dir(seeds).unwrap().count() > 0, "{name} has no seeds");
        }
    }
}
