//! A process that writes and tells what was acknowledged, to be killed: the test's own binary,
//! run again for the same test.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Lines, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    sync::Arc,
};

use berth_core::ports::{Loaded, Store};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{allocate, key, marks, open, release, resource};

const DIRECTORY: &str = "BERTH_STORE_TEST_DIRECTORY";
const FIRST: &str = "BERTH_STORE_TEST_FIRST";
const STEP: &str = "BERTH_STORE_TEST_STEP";

/// Writers that run side by side in one process, so that commits are shared.
pub const WRITERS: usize = 4;

/// Slots that one writer goes round.
const SLOTS: u64 = 12;

/// What the `n`th operation of a writer does: the slot, and the mark or `None` for a release.
fn operation(writer: u64, n: u64) -> (u16, Option<u32>) {
    let mut mixed = (writer << 32 | n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^= mixed >> 29;
    mixed = mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 16;
    let slot = (writer * SLOTS + mixed % SLOTS) as u16;
    (slot, (mixed / SLOTS % 5 > 1).then_some(n as u32 + 1))
}

/// How many of a writer's first `count` operations are releases.
pub fn releases(writer: u64, count: u64) -> usize {
    (0..count).filter(|n| operation(writer, *n).1.is_none()).count()
}

/// The slots as they are when a writer has done `count` operations.
fn slots_after(writer: u64, count: u64) -> BTreeMap<u16, Option<u32>> {
    (0..count).map(|n| operation(writer, n)).collect()
}

/// To be called first in a test that starts a [`Writer`]: in that process it never returns.
pub fn run_if_child() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let _scenario = fail::FailScenario::setup();
    let first: Vec<u64> =
        std::env::var(FIRST).unwrap().split(',').map(|count| count.parse().unwrap()).collect();
    let step = std::env::var(STEP).is_ok();
    let (store, _) = open(Path::new(&directory)).unwrap();
    say("\nready");
    // A writer that waits for its next step blocks a thread.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(WRITERS).build().unwrap();
    let store = Arc::new(store);
    runtime.block_on(async {
        let writers = first.into_iter().enumerate().map(|(writer, first)| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { write(&*store, writer as u64, first, step).await })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.unwrap();
        }
    });
    #[expect(clippy::exit, reason = "the test's other half is in the parent process")]
    std::process::exit(0);
}

async fn write(store: &dyn Store, writer: u64, first: u64, step: bool) {
    for n in first.. {
        let (slot, mark) = operation(writer, n);
        let changes = match mark {
            Some(mark) => allocate(slot, mark),
            None => release(slot),
        };
        store.commit(changes).await.unwrap();
        say(&format!("ack {writer} {}", n + 1));
        if step && std::io::stdin().lines().next().is_none() {
            return;
        }
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").unwrap();
    out.flush().unwrap();
}

/// What is acknowledged, and the process that goes on from there.
pub struct Writer {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// Operations acknowledged so far, by writer.
    pub acknowledged: Vec<u64>,
}

pub struct Setup<'a> {
    /// The test that calls, to be run again in the child.
    pub test: &'a str,
    pub directory: PathBuf,
    pub acknowledged: Vec<u64>,
    /// As in the environment variable `FAILPOINTS`.
    pub fail_points: &'a str,
    /// Wait after each acknowledgement until [`Writer::go_on`].
    pub step: bool,
}

impl Writer {
    pub fn start(setup: Setup<'_>) -> Self {
        let first: Vec<String> = setup.acknowledged.iter().map(u64::to_string).collect();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", setup.test, "--nocapture", "--test-threads=1"])
            .env(DIRECTORY, &setup.directory)
            .env(FIRST, first.join(","))
            .env("FAILPOINTS", setup.fail_points)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if setup.step {
            command.env(STEP, "1");
        }
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines, acknowledged: setup.acknowledged }
    }

    /// Takes the next acknowledgement; `false` when the process has ended.
    pub fn next(&mut self) -> bool {
        for line in self.lines.by_ref() {
            let line = line.unwrap();
            let words: Vec<&str> = line.split(' ').collect();
            if let ["ack", writer, count] = words[..] {
                self.acknowledged[writer.parse::<usize>().unwrap()] = count.parse().unwrap();
                return true;
            }
        }
        false
    }

    pub fn go_on(&mut self) {
        writeln!(self.child.stdin.as_mut().unwrap()).unwrap();
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    /// Stops the process wherever it is, and returns when no thread of it runs any more.
    pub fn pause(&self) {
        self.signal(Signal::SIGSTOP);
        let tasks = format!("/proc/{}/task", self.child.id());
        let stopped = |stat: String| stat.rsplit_once(") ").unwrap().1.starts_with('T');
        while !std::fs::read_dir(&tasks).unwrap().all(|task| {
            std::fs::read_to_string(task.unwrap().path().join("stat")).is_ok_and(stopped)
        }) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    pub fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), signal).unwrap();
    }

    /// Takes what was acknowledged before the end.
    pub fn finish(mut self) -> (Vec<u64>, ExitStatus) {
        drop(self.child.stdin.take());
        while self.next() {}
        (self.acknowledged, self.child.wait().unwrap())
    }
}

/// Compares what was loaded with what was acknowledged: nothing lost, nothing back. Each writer
/// may have had one more operation under way, whole or not at all. Answers how many had: that is
/// where they go on.
pub fn check(loaded: &Loaded, acknowledged: &[u64], case: &str) -> Vec<u64> {
    check_up_to(loaded, acknowledged, 1, case)
}

/// Like [`check`], where each writer may have done up to `more` operations that were not heard of.
pub fn check_up_to(loaded: &Loaded, acknowledged: &[u64], more: u64, case: &str) -> Vec<u64> {
    assert_eq!(loaded.doubtful, None, "{case}");
    assert_eq!(loaded.set_aside, [], "{case}");
    let marks = marks(&loaded.attachments);
    let mut reached = Vec::new();
    for (writer, &count) in acknowledged.iter().enumerate() {
        let writer = writer as u64;
        let mine: Vec<u16> =
            (writer * SLOTS..(writer + 1) * SLOTS).map(|slot| slot as u16).collect();
        let fits = |count: u64| {
            let expected = slots_after(writer, count);
            mine.iter().all(|slot| {
                let expected = expected.get(slot);
                let released = expected == Some(&None);
                let buried = loaded.tombstones.iter().any(|tomb| tomb.key == key(*slot));
                let cools =
                    loaded.cooling.iter().any(|cooling| cooling.resource == resource(*slot));
                // A tombstone stands on when its key lives again.
                let buried_rightly = match expected {
                    None => !buried,
                    Some(None) => buried,
                    Some(Some(_)) => true,
                };
                marks.get(slot).copied() == expected.copied().flatten()
                    && buried_rightly
                    && cools == released
            })
        };
        let found = (count..=count + more).find(|count| fits(*count));
        reached.push(found.unwrap_or_else(|| {
            panic!("{case}: writer {writer} was acknowledged {count} operations, found {marks:?}")
        }));
    }
    reached
}
