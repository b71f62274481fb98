//! The plugin as it ships. Every pod's start waits for it, in whatever root file system and
//! environment a runtime has: static, small, without the tests' fail points.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

use crate::{
    packages,
    step::{check, command, target},
};

const MOST_BYTES: u64 = 3 << 20;

/// A position-independent program moves itself first: it writes to all pages with pointers in
/// them, which the kernel then has to copy, in each of its millisecond-long lives a twelfth of
/// what an ADD costs. The price is that its code is at the same address every time.
const LOADED_WHERE_IT_WAS_LINKED: &str = "-C relocation-model=static";

pub(crate) fn run() -> Result<()> {
    let triple = packages::static_target()?;
    let line = format!("cargo build --package berth-cni --profile dist-plugin --target {triple}");
    println!("$ {line}");
    let mut build = command(&line);
    let mut flags = LOADED_WHERE_IT_WAS_LINKED.to_owned();
    if !triple.ends_with("-musl") {
        println!("no musl standard library to be had: linking glibc statically");
        flags.push_str(" -C target-feature=+crt-static");
    }
    build.env("RUSTFLAGS", flags);
    check(&mut build)?;
    let plugin = plugin()?;
    let bytes = inspect(&plugin)?;
    println!("{}: {bytes} bytes, static, without fail points", plugin.display());
    Ok(())
}

/// Where [`run`] puts it.
pub(crate) fn plugin() -> Result<PathBuf> {
    Ok(target().join(packages::static_target()?).join("dist-plugin/berth"))
}

fn inspect(plugin: &Path) -> Result<u64> {
    let image = fs::read(plugin).with_context(|| format!("cannot read {}", plugin.display()))?;
    let bytes = image.len() as u64;
    ensure!(bytes <= MOST_BYTES, "the plugin has {bytes} bytes, at most {MOST_BYTES} are allowed");
    ensure!(!asks_for_a_loader(&image)?, "the plugin is linked dynamically");
    let points = b"cni::after_alloc";
    ensure!(
        !image.windows(points.len()).any(|window| window == points),
        "the plugin has the tests' fail points in it"
    );
    let answer = std::process::Command::new(plugin)
        .env_clear()
        .env("CNI_COMMAND", "VERSION")
        .stdin(std::process::Stdio::null())
        .output()
        .context("cannot run the plugin")?;
    ensure!(answer.status.success(), "VERSION ended with {}", answer.status);
    let text = String::from_utf8_lossy(&answer.stdout);
    ensure!(text.contains("\"1.1.0\""), "VERSION does not list 1.1.0: {text}");
    Ok(bytes)
}

/// Whether the ELF file (64 bit, little endian) has a PT_INTERP program header.
fn asks_for_a_loader(image: &[u8]) -> Result<bool> {
    const PT_INTERP: u64 = 3;
    let number = |at: usize, width: usize| -> Result<u64> {
        let bytes = image.get(at..at + width).context("the ELF file is cut short")?;
        Ok(bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    };
    ensure!(image.starts_with(b"\x7fELF\x02\x01"), "not a 64-bit little-endian ELF file");
    let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    for index in 0..count {
        let header = usize::try_from(table + index * size)?;
        if number(header, 4)? == PT_INTERP {
            return Ok(true);
        }
    }
    Ok(false)
}
