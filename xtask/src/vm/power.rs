//! Power cuts: a guest that attaches and detaches pods is ended at a moment of chance, its disk
//! loses what was not flushed, and the next guest says what it finds.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};

use super::{
    image,
    machine::{Heard, Machine},
    volatile::VolatileDisk,
};
use crate::step::check;

/// To start, check and list; emulated, on a machine that has other things to do.
const BOOT: Duration = Duration::from_secs(120);

/// The cut comes so many milliseconds after the first pod, at most.
const LOAD: u64 = 8000;

/// What the guests have acknowledged, by the id of the pod. Those that are to be deleted say so
/// at the end of their id.
#[derive(Debug, Default)]
struct Ledger {
    kept: BTreeSet<String>,
    deleted: BTreeSet<String>,
}

impl Ledger {
    fn note(&mut self, line: &str) {
        match line.split_once(' ') {
            Some(("ADDED", id)) if id.ends_with('k') => _ = self.kept.insert(id.to_owned()),
            Some(("DELETED", id)) => _ = self.deleted.insert(id.to_owned()),
            _ => {}
        }
    }

    /// `held` is what the disk has, with each pod's address.
    fn compare(&self, held: &BTreeMap<String, String>) -> Result<()> {
        let lost: Vec<&String> = self.kept.iter().filter(|id| !held.contains_key(*id)).collect();
        let back: Vec<&String> = self.deleted.iter().filter(|id| held.contains_key(*id)).collect();
        ensure!(lost.is_empty(), "acknowledged and lost: {lost:?}");
        ensure!(back.is_empty(), "deleted and back: {back:?}");
        let addresses: BTreeSet<&String> = held.values().collect();
        ensure!(addresses.len() == held.len(), "an address is held twice: {held:?}");
        Ok(())
    }
}

pub(super) fn run(cuts: u32) -> Result<()> {
    let disk = image::place().join("state.img");
    let _ = fs::remove_file(&disk);
    File::create(&disk)?.set_len(256 << 20)?;
    check(Command::new("/sbin/mke2fs").args(["-q", "-F", "-t", "ext4"]).arg(&disk))?;
    let volatile = VolatileDisk::of(&disk);
    let mut ledger = Ledger::default();
    let outcome = (1..=cuts).try_for_each(|round| {
        cut(round, &volatile, &mut ledger).with_context(|| format!("cut {round} of {cuts}"))
    });
    outcome.and_then(|()| look(&volatile, &ledger)).with_context(|| kept_at(&disk))?;
    fs::remove_file(&disk)?;
    println!(
        "{cuts} power cuts: {} pods kept, 0 lost; {} deleted, 0 back",
        ledger.kept.len(),
        ledger.deleted.len()
    );
    Ok(())
}

fn kept_at(disk: &Path) -> String {
    format!("the state disk is kept as {}", PathBuf::from(disk).display())
}

/// One guest, from its start to the end of its power.
fn cut(round: u32, disk: &VolatileDisk, ledger: &mut Ledger) -> Result<()> {
    let words = format!("go=/usr/local/bin/power.sh round={round}");
    let machine = Machine::start(&words, &disk.arguments()?)?;
    let held = survivors(&machine)?;
    ledger.compare(&held)?;
    let first = loop {
        match machine.hear(BOOT) {
            Heard::Line(line) if line.starts_with("ADDED ") => break line,
            Heard::Line(line) => println!("  {line}"),
            Heard::Nothing | Heard::End => bail!("the guest attaches no pod"),
        }
    };
    let before = ledger.kept.len() + ledger.deleted.len();
    ledger.note(&first);
    std::thread::sleep(Duration::from_millis(chance(LOAD)?));
    for line in machine.cut()? {
        ledger.note(&line);
        if line.starts_with("LOG ") {
            println!("  {line}");
        }
    }
    let lost = disk.settle(|| Ok(chance(2)? == 0))?;
    let acknowledged = ledger.kept.len() + ledger.deleted.len() - before;
    let there = held.len();
    println!(
        "cut {round}: {there} pods were there, {acknowledged} more acknowledged, {lost} writes lost"
    );
    Ok(())
}

/// One guest more, whose power stays.
fn look(disk: &VolatileDisk, ledger: &Ledger) -> Result<()> {
    let words = "go=/usr/local/bin/power.sh round=last";
    let machine = Machine::start(words, &disk.arguments()?)?;
    let held = survivors(&machine)?;
    drop(machine);
    disk.remove()?;
    ledger.compare(&held)
}

/// The pods that the disk has, with their addresses, as the daemon tells after its start.
fn survivors(machine: &Machine) -> Result<BTreeMap<String, String>> {
    let mut held = BTreeMap::new();
    loop {
        let line = match machine.hear(BOOT) {
            Heard::Line(line) => line,
            Heard::Nothing => bail!("the guest says nothing"),
            Heard::End => bail!("the guest ended"),
        };
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["HELD", id, address] => _ = held.insert(id.to_owned(), address.to_owned()),
            ["HELD-END"] => return Ok(held),
            // The daemon's own check of what the cut left.
            ["DB-CHECK", "0"] => {}
            ["DB-CHECK", status] => bail!("`berthctl db check` ended with {status}"),
            ["FAILED:", ..] => bail!("{line}"),
            [] => {}
            _ => println!("  {line}"),
        }
    }
}

fn chance(most: u64) -> Result<u64> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes) % most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(lines: &[&str]) -> Ledger {
        let mut ledger = Ledger::default();
        lines.iter().for_each(|line| ledger.note(line));
        ledger
    }

    fn held(pods: &[(&str, &str)]) -> BTreeMap<String, String> {
        pods.iter().map(|(id, address)| ((*id).to_owned(), (*address).to_owned())).collect()
    }

    #[test]
    fn what_is_lost_back_or_doubled_is_noticed_and_nothing_else() {
        let lines = ["ADDED r1-a-1k", "ADDED r1-a-1d", "DELETED r1-a-1d", "ADDED r1-a-2d", "noise"];
        let ledger = ledger(&lines);
        let compare = |pods| ledger.compare(&held(pods)).map_err(|err| err.to_string());
        assert_eq!(compare(&[("r1-a-1k", "10.0.0.1")]), Ok(()));
        // Not acknowledged: it may be there or not.
        assert_eq!(compare(&[("r1-a-1k", "10.0.0.1"), ("r1-a-2d", "10.0.0.2")]), Ok(()));
        assert!(compare(&[]).unwrap_err().contains("lost"));
        let back = compare(&[("r1-a-1k", "10.0.0.1"), ("r1-a-1d", "10.0.0.2")]);
        assert!(back.unwrap_err().contains("back"));
        let twice = compare(&[("r1-a-1k", "10.0.0.1"), ("r1-a-9k", "10.0.0.1")]);
        assert!(twice.unwrap_err().contains("twice"));
    }
}
