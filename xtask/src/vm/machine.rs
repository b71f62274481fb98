//! A guest that runs, and what it prints on its serial port.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::Duration,
};

use anyhow::{Context, Result};

use super::image;

/// Ended with everything it has not written when it is dropped, as a machine without power.
#[derive(Debug)]
pub(super) struct Machine {
    qemu: Child,
    lines: Receiver<String>,
}

/// What came of waiting for a line.
#[derive(Debug)]
pub(super) enum Heard {
    Line(String),
    Nothing,
    /// The guest has switched itself off.
    End,
}

impl Machine {
    /// `words` go to the guest's kernel, `more` to qemu. The root file system is as it was made,
    /// whatever an earlier guest wrote to it.
    pub(super) fn start(words: &str, more: &[String]) -> Result<Self> {
        let mut command = Command::new("qemu-system-x86_64");
        command.args(["-accel", "tcg,thread=multi", "-M", "q35", "-cpu", "max", "-smp", "2"]);
        command.args(["-m", "512", "-nodefaults", "-no-user-config", "-no-reboot"]);
        command.args(["-display", "none", "-monitor", "none", "-serial", "stdio", "-nic", "none"]);
        let root = image::disk();
        let root = format!("file={},format=raw,if=none,id=root,snapshot=on", root.display());
        command.arg("-drive").arg(root);
        // In this order they are /dev/vda and /dev/vdb.
        command.args(["-device", "virtio-blk-pci,drive=root"]).args(more);
        let line = format!(
            "console=ttyS0 quiet loglevel=1 panic=-1 mitigations=off tsc=reliable \
             random.trust_cpu=on {words}"
        );
        command.arg("-kernel").arg(image::kernel()).arg("-initrd").arg(image::initramfs());
        command.arg("-append").arg(line).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut qemu = command.spawn().context("cannot run qemu-system-x86_64")?;
        let serial = qemu.stdout.take().context("stdout was not piped")?;
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(serial).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { qemu, lines })
    }

    pub(super) fn hear(&self, limit: Duration) -> Heard {
        match self.lines.recv_timeout(limit) {
            Ok(line) => Heard::Line(line),
            Err(RecvTimeoutError::Timeout) => Heard::Nothing,
            Err(RecvTimeoutError::Disconnected) => Heard::End,
        }
    }

    /// The power goes, now. Answers what had been said until then.
    pub(super) fn cut(mut self) -> Result<Vec<String>> {
        self.qemu.kill().context("cannot end qemu")?;
        self.qemu.wait().context("cannot wait for qemu")?;
        Ok(self.lines.iter().collect())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}
