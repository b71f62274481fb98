use std::time::Duration;

use serde::Serialize;

use crate::{
    cell::{Family, Name, Operation, Setting},
    density::Density,
    spawn::Timed,
};

/// What one turn of a subject gave.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) calls: Vec<Timed>,
    pub(crate) elapsed: Duration,
    /// Of the daemon, until what the calls set going had ended.
    pub(crate) daemon_cpu: Duration,
    /// Processors that others used meanwhile.
    pub(crate) others: f64,
}

/// One line of the result. Times are in milliseconds.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) subject: Name,
    pub(crate) operation: Operation,
    pub(crate) parallel: usize,
    pub(crate) family: Family,
    pub(crate) records: usize,
    pub(crate) median_ms: f64,
    pub(crate) p99_ms: f64,
    /// User and system time of a call: of the plugin and the processes it starts (wait4), and
    /// the daemon's share.
    pub(crate) cpu_ms: f64,
    /// Of the plugin and the processes it starts, and the daemon's share; `null` where no process
    /// of its own does the work.
    pub(crate) syscalls: Option<f64>,
    pub(crate) per_second: f64,
    /// Of `cpu_ms`.
    #[serde(skip)]
    pub(crate) daemon_cpu_ms: f64,
    #[serde(skip)]
    pub(crate) others: f64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Restart {
    pub(crate) family: Family,
    pub(crate) records: usize,
    pub(crate) took: Duration,
}

#[derive(Debug)]
struct Series {
    subject: Name,
    operation: Operation,
    setting: Setting,
    walls: Vec<Duration>,
    cpu: Duration,
    daemon_cpu: Duration,
    elapsed: Duration,
    others: Vec<f64>,
}

#[derive(Debug, Default)]
pub(crate) struct Report {
    series: Vec<Series>,
    pub(crate) syscalls: Vec<(Name, Operation, Family, f64)>,
    pub(crate) daemon_syscalls: Vec<(Operation, Family, f64)>,
    pub(crate) restarts: Vec<Restart>,
    pub(crate) density: Option<Density>,
    /// The daemon's memory at the end, in bytes.
    pub(crate) resident: u64,
}

impl Report {
    pub(crate) fn add(
        &mut self,
        subject: Name,
        operation: Operation,
        setting: Setting,
        batch: &Batch,
    ) {
        let found = self.series.iter_mut().find(|series| {
            (series.subject, series.operation, series.setting) == (subject, operation, setting)
        });
        let series = match found {
            Some(series) => series,
            None => {
                self.series.push(Series {
                    subject,
                    operation,
                    setting,
                    walls: Vec::new(),
                    cpu: Duration::ZERO,
                    daemon_cpu: Duration::ZERO,
                    elapsed: Duration::ZERO,
                    others: Vec::new(),
                });
                self.series.last_mut().expect("one was pushed")
            }
        };
        series.walls.extend(batch.calls.iter().map(|call| call.wall));
        series.cpu += batch.calls.iter().map(|call| call.cpu).sum::<Duration>();
        series.daemon_cpu += batch.daemon_cpu;
        series.elapsed += batch.elapsed;
        series.others.push(batch.others);
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.series.extend(other.series);
        self.syscalls.extend(other.syscalls);
        self.daemon_syscalls.extend(other.daemon_syscalls);
        self.restarts.extend(other.restarts);
        self.resident = self.resident.max(other.resident);
    }

    pub(crate) fn rows(&self) -> Vec<Row> {
        self.series.iter().map(|series| self.row(series)).collect()
    }

    fn row(&self, series: &Series) -> Row {
        let mut walls = series.walls.clone();
        walls.sort();
        let calls = walls.len() as f64;
        let Setting { family, records, parallel } = series.setting;
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        let daemon_cpu_ms = milliseconds(series.daemon_cpu) / calls;
        Row {
            subject: series.subject,
            operation: series.operation,
            parallel,
            family,
            records,
            median_ms: milliseconds(quantile(&walls, 0.5)),
            p99_ms: milliseconds(quantile(&walls, 0.99)),
            cpu_ms: milliseconds(series.cpu) / calls + daemon_cpu_ms,
            syscalls: self.syscalls_of(series.subject, series.operation, family),
            per_second: calls / series.elapsed.as_secs_f64(),
            daemon_cpu_ms,
            others: series.others.iter().sum::<f64>() / series.others.len() as f64,
        }
    }

    fn syscalls_of(&self, subject: Name, operation: Operation, family: Family) -> Option<f64> {
        let plugin = self
            .syscalls
            .iter()
            .find(|(name, what, of, _)| (*name, *what, *of) == (subject, operation, family))?
            .3;
        Some(plugin + self.daemon_syscalls_of(subject, operation, family))
    }

    fn daemon_syscalls_of(&self, subject: Name, operation: Operation, family: Family) -> f64 {
        let found = self
            .daemon_syscalls
            .iter()
            .find(|(what, of, _)| (*what, *of) == (operation, family) && subject == Name::Berth);
        found.map_or(0.0, |(_, _, count)| *count)
    }

    pub(crate) fn json(&self) -> String {
        serde_json::to_string_pretty(&self.rows()).expect("a row is plain data") + "\n"
    }

    pub(crate) fn print(&self) {
        println!(
            "\n{:<7} {:<10} {:<5} {:>7} {:>8} {:>10} {:>9} {:>9} {:>11} {:>9} {:>9} {:>7}",
            "subject",
            "operation",
            "stack",
            "records",
            "at once",
            "median ms",
            "p99 ms",
            "CPU ms",
            "of it berthd",
            "syscalls",
            "a second",
            "others",
        );
        for row in self.rows() {
            let syscalls = row.syscalls.map_or(String::new(), |count| format!("{count:.0}"));
            println!(
                "{:<7} {:<10} {:<5} {:>7} {:>8} {:>10.2} {:>9.2} {:>9.2} {:>11.2} {syscalls:>9} \
                 {:>9.0} {:>6.0}%",
                row.subject.as_str(),
                row.operation.as_str(),
                row.family.as_str(),
                row.records,
                row.parallel,
                row.median_ms,
                row.p99_ms,
                row.cpu_ms,
                row.daemon_cpu_ms,
                row.per_second,
                row.others * 100.0,
            );
        }
        println!(
            "\nCPU: user and system time of the plugin with the processes it starts (wait4), and \
             of berthd\n(its CPU clock, until the links of deleted pods are gone), for each call. \
             Kernel workers count for nobody.\nsyscalls: strace -f -c over a small sample, one \
             at a time, plugin and berthd.\nothers: processors used by everything else meanwhile, \
             kernel workers among it; 100% is one."
        );
        for (operation, family, count) in &self.daemon_syscalls {
            println!(
                "berthd alone: {count:.0} syscalls for {} ({})",
                operation.as_str(),
                family.as_str()
            );
        }
    }
}

fn quantile(sorted: &[Duration], part: f64) -> Duration {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
    let index = (sorted.len() as f64 * part).ceil() as usize;
    sorted[index.clamp(1, sorted.len()) - 1]
}
