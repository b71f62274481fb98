//! The units as systemd runs them.

use std::time::Duration;

use anyhow::{Result, bail, ensure};

use super::machine::{Heard, Machine};

/// Of silence. The longest check waits for the watchdog: 30 s, then as long for the stuck process
/// to end by itself.
const PATIENCE: Duration = Duration::from_secs(150);

pub(super) fn run() -> Result<()> {
    let machine = Machine::start("systemd.show_status=0", &[])?;
    let (mut passed, mut failed) = (0, 0);
    loop {
        match machine.hear(PATIENCE) {
            Heard::Line(line) if line.starts_with("CHECK ok ") => {
                println!("{line}");
                passed += 1;
            }
            Heard::Line(line) if line.starts_with("CHECK FAILED ") => {
                println!("{line}");
                failed += 1;
                continue;
            }
            Heard::Line(line) if line == "CHECK-END" => break,
            Heard::Line(line) => {
                println!("  {line}");
                continue;
            }
            Heard::Nothing => bail!("the guest says nothing any more"),
            Heard::End => bail!("the guest ended before its checks did"),
        }
    }
    println!("{passed} checks passed, {failed} failed");
    let written = include_str!("units.sh").lines().filter(|it| it.starts_with("check \"")).count();
    ensure!(passed + failed == written, "{written} checks are written, and not all ran");
    ensure!(failed == 0, "{failed} checks of the units failed");
    Ok(())
}
