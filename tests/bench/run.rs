//! The order of the batches.

use std::{
    mem,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc::Sender,
    },
    thread,
    time::Duration,
};

use berth_testkit::ip;
use berth_tests::{Node, Pod, Stopwatch, eventually};

use crate::{
    cell::{Family, Name, Operation, Setting},
    floor::{self, Floor},
    noise::{Meter, cpu_of},
    options::Options,
    report::{Batch, Report, Restart},
    rpc::Callers,
    spawn::Timed,
    subject::Plugin,
    syscalls,
};

/// How often the subjects take turns in one setting.
const ROUNDS: usize = 3;

/// Callers of the daemon at once, and their calls, for the figure of a burst.
const BURST: (usize, usize) = (250, 2000);

/// With more records than this, host-local takes tenths of a second, and fewer calls are enough.
const MANY_RECORDS: usize = 5_000;

/// Whatever a batch set going has ended after this: the reaper, the export, kernel workers.
const REST: Duration = Duration::from_millis(60);

pub(crate) struct Bench<'a> {
    node: &'a mut Node,
    options: &'a Options,
    family: Family,
    pods: Vec<Pod>,
    plugins: Vec<Plugin>,
    floor: Floor,
    filled: usize,
    burst: usize,
}

impl<'a> Bench<'a> {
    pub(crate) fn new(node: &'a mut Node, options: &'a Options, family: Family) -> Self {
        let directory = node.directory().to_owned();
        let pods = (0..options.pods).map(|_| Pod::new()).collect();
        let plugins = vec![
            Plugin::berth(&options.plugin, &directory),
            Plugin::reference(Name::Ptp, family, &directory),
            Plugin::reference(Name::Bridge, family, &directory),
        ];
        let floor = Floor::new(&options.empty, &directory, family);
        Self { node, options, family, pods, plugins, floor, filled: 0, burst: 0 }
    }

    /// Sends what is measured whenever one number of records is through, and the rest at the end.
    pub(crate) fn run(mut self, sender: &Sender<Report>) {
        let mut whole = Report::default();
        let report = &mut whole;
        self.count_syscalls(report);
        let (pid, options) = (self.node.daemon().pid(), self.options);
        for records in options.records.iter().copied() {
            self.fill(records);
            for parallel in options.parallel.iter().copied() {
                let setting = Setting { family: self.family, records, parallel };
                println!("{} records, {}, {parallel} at once", records, self.family.as_str());
                for round in 0..ROUNDS {
                    for turn in 0..Name::ALL.len() {
                        // Nobody is always the first, or always behind the same.
                        let name = Name::ALL[(turn + round) % Name::ALL.len()];
                        self.turn(setting, name, round, pid, report);
                    }
                }
            }
            let setting = Setting { family: self.family, records, parallel: BURST.0 };
            self.allocate(setting, BURST.1, pid, report);
            sender.send(mem::take(report)).expect("the receiver waits");
        }
        report.resident = report.resident.max(self.node.daemon().usage().resident);
        self.node.kill();
        let stopwatch = Stopwatch::start();
        self.node.start();
        let restart =
            Restart { family: self.family, records: self.filled, took: stopwatch.elapsed() };
        report.restarts.push(restart);
        sender.send(whole).expect("the receiver waits");
    }

    fn count_syscalls(&mut self, report: &mut Report) {
        let directory = self.node.directory().to_owned();
        for plugin in &mut self.plugins {
            let counts = syscalls::of_plugin(plugin, &self.pods, &directory);
            for (operation, count) in Operation::CALLS.into_iter().zip(counts) {
                report.syscalls.push((plugin.name, operation, self.family, count));
            }
        }
        wait_for_reaper();
        // What the daemon does for them, of which a sample needs more calls.
        let pid = self.node.daemon().pid();
        let calls = self.pods.len().min(32);
        self.plugins[0].next_generation();
        for operation in Operation::CALLS {
            let attached = syscalls::Attached::to(pid, &directory);
            for index in 0..calls {
                let answer = self.plugins[0].call(operation, index, &self.pods[index]);
                if operation == Operation::Add {
                    self.plugins[0].keep_result(index, &answer.stdout);
                }
            }
            wait_for_reaper_after(operation);
            let count = attached.finish() as f64 / calls as f64;
            report.daemon_syscalls.push((operation, self.family, count));
        }
    }

    /// Attachments in the daemon by real calls, and as many reservations of host-local.
    fn fill(&mut self, records: usize) {
        let ids: Vec<String> =
            (self.filled..records).map(|number| format!("record-{number}")).collect();
        let callers = Callers::connect(&self.node.socket(), &self.pods[0], 64);
        callers.allocate(&ids);
        self.filled = records;
        for plugin in &self.plugins {
            plugin.reserve(records);
        }
        self.node.wait_for_export();
    }

    fn turn(&mut self, setting: Setting, name: Name, round: usize, pid: u32, report: &mut Report) {
        let whole = self.options.pods;
        let mut count = if setting.parallel <= 2 { whole / ROUNDS } else { whole };
        if setting.records > MANY_RECORDS && matches!(name, Name::Ptp | Name::Bridge) {
            if round > 0 {
                return;
            }
            count = setting.parallel.max(8).min(whole);
        }
        if name == Name::Ptp && setting.family == Family::Dual {
            // It waits more than a second for duplicate address detection.
            count = setting.parallel.max(8).min(count);
        }
        match name {
            Name::Floor => self.floor(setting, count, pid, report),
            Name::Berth | Name::Ptp | Name::Bridge => {
                self.plugin(setting, name, count, pid, report)
            }
        }
        if name == Name::Berth {
            self.allocate(setting, count, pid, report);
        }
    }

    fn plugin(
        &mut self,
        setting: Setting,
        name: Name,
        count: usize,
        pid: u32,
        report: &mut Report,
    ) {
        let plugin = self.plugins.iter_mut().find(|plugin| plugin.name == name);
        let plugin = plugin.expect("every name but the floor's has a plugin");
        plugin.next_generation();
        let (plugin, pods) = (&*plugin, &self.pods);
        for operation in Operation::CALLS {
            let daemon = cpu_of(pid);
            let (meter, stopwatch) = (Meter::read(pid), Stopwatch::start());
            let calls = at_once(
                setting.parallel,
                count,
                |_| (),
                |(), index| plugin.call(operation, index, &pods[index]),
            );
            let elapsed = stopwatch.elapsed();
            let others = Meter::read(pid).others_since(meter, elapsed);
            if operation == Operation::Add {
                for (index, call) in calls.iter().enumerate() {
                    plugin.keep_result(index, &call.stdout);
                }
            }
            let mut daemon_cpu = Duration::ZERO;
            if name == Name::Berth {
                wait_for_reaper_after(operation);
                daemon_cpu = cpu_of(pid) - daemon;
            }
            thread::sleep(REST);
            report.add(name, operation, setting, &Batch { calls, elapsed, daemon_cpu, others });
        }
    }

    fn floor(&self, setting: Setting, count: usize, pid: u32, report: &mut Report) {
        let operations = [
            Operation::Version,
            Operation::Add,
            Operation::Del,
            Operation::DelAgain,
            Operation::AllocRpc,
        ];
        for operation in operations {
            let (meter, stopwatch) = (Meter::read(pid), Stopwatch::start());
            let calls = at_once(
                setting.parallel,
                count,
                |number| self.floor.worker(number),
                |worker, index| self.floor.call(worker, operation, index, &self.pods[index]),
            );
            let elapsed = stopwatch.elapsed();
            let others = Meter::read(pid).others_since(meter, elapsed);
            let calls = calls.into_iter().flatten().collect();
            if operation == Operation::Del {
                ip(&format!("link delete group {}", floor::UNHOOKED));
            }
            thread::sleep(REST);
            let batch = Batch { calls, elapsed, daemon_cpu: Duration::ZERO, others };
            report.add(Name::Floor, operation, setting, &batch);
        }
    }

    fn allocate(&mut self, setting: Setting, count: usize, pid: u32, report: &mut Report) {
        self.burst += 1;
        let ids: Vec<String> = (0..count).map(|n| format!("call-{}-{n}", self.burst)).collect();
        let callers = Callers::connect(&self.node.socket(), &self.pods[0], setting.parallel);
        let (daemon, meter) = (cpu_of(pid), Meter::read(pid));
        let done = callers.allocate(&ids);
        let others = Meter::read(pid).others_since(meter, done.elapsed);
        let daemon_cpu = cpu_of(pid) - daemon;
        callers.release(&ids);
        // The next ones need the room that the daemon grants one process for connections.
        drop(callers);
        thread::sleep(REST);
        let call = |wall| Timed { wall, cpu: Duration::ZERO, stdout: String::new() };
        let calls = done.walls.into_iter().map(call).collect();
        let batch = Batch { calls, elapsed: done.elapsed, daemon_cpu, others };
        report.add(Name::Berth, Operation::AllocRpc, setting, &batch);
    }
}

/// `count` calls by `parallel` workers; the answers in the calls' order.
pub(crate) fn at_once<Worker, T: Send>(
    parallel: usize,
    count: usize,
    worker: impl Fn(usize) -> Worker + Sync,
    call: impl Fn(&mut Worker, usize) -> T + Sync,
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let answers = Mutex::new(Vec::with_capacity(count));
    thread::scope(|scope| {
        for number in 0..parallel {
            let (next, answers, worker, call) = (&next, &answers, &worker, &call);
            scope.spawn(move || {
                let mut worker = worker(number);
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        return;
                    }
                    let answer = call(&mut worker, index);
                    answers.lock().unwrap().push((index, answer));
                }
            });
        }
    });
    let mut answers = answers.into_inner().unwrap();
    answers.sort_by_key(|(index, _)| *index);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// The links of deleted pods go in batches behind the DEL; that work is the DEL's too.
fn wait_for_reaper_after(operation: Operation) {
    if operation == Operation::Del {
        wait_for_reaper();
    }
}

fn wait_for_reaper() {
    eventually(Duration::from_secs(30), || {
        let links = ip("-br link show type veth");
        let left = links.lines().filter(|line| line.starts_with("bth")).count();
        if left == 0 { Ok(()) } else { Err(format!("{left} links are left")) }
    });
}
