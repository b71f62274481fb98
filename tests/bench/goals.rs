//! The goals of the design, one by one, from the figures of this run.

use crate::{
    cell::{Family, Name, Operation},
    density::{Density, PODS},
    report::{Report, Row},
};

pub(crate) fn print(report: &Report) {
    let rows = Rows(report.rows());
    println!("\nGoals (of the figures above; ratios within this run):");
    for family in Family::ALL {
        rows.one_at_a_time(family);
        rows.many_at_once(family);
        rows.delete(family);
        rows.version(family);
        rows.allocate(family);
        rows.growth(family);
    }
    for restart in &report.restarts {
        let seconds = restart.took.as_secs_f64();
        let (family, records) = (restart.family.as_str(), restart.records);
        // The goal is for 10,000.
        let most = (records as f64 / 1e4).max(1.0);
        verdict(&format!("restart to serving with {records} records, {family}, s"), seconds, most);
    }
    if let Some(density) = &report.density {
        full_node(density);
    }
    println!("       berthd at the end: {} MiB resident", report.resident >> 20);
}

fn full_node(density: &Density) {
    let resident = density.resident as f64 / f64::from(1 << 20);
    verdict(&format!("berthd with {PODS} pods, MiB resident"), resident, 20.0);
    verdict("berthd idle, bytes written", density.idle_written as f64, 0.0);
    // sled's threads look once a second whether there is anything to do; no setting stops them.
    verdict("berthd idle, % of one processor", density.idle_cpu * 100.0, 0.1);
}

fn verdict(what: &str, value: f64, most: f64) {
    let met = if value <= most { "met " } else { "NOT " };
    println!("  {met} {what}: {value:.2}, at most {most:.2}");
}

struct Rows(Vec<Row>);

impl Rows {
    fn find(
        &self,
        subject: Name,
        operation: Operation,
        family: Family,
        parallel: usize,
        records: usize,
    ) -> Option<&Row> {
        self.0.iter().find(|row| {
            (row.subject, row.operation, row.family, row.parallel, row.records)
                == (subject, operation, family, parallel, records)
        })
    }

    fn fresh(&self, subject: Name, operation: Operation, family: Family) -> Option<&Row> {
        self.find(subject, operation, family, 1, 0)
    }

    fn one_at_a_time(&self, family: Family) {
        let add = |subject| self.fresh(subject, Operation::Add, family);
        let (Some(berth), Some(ptp), Some(floor)) =
            (add(Name::Berth), add(Name::Ptp), add(Name::Floor))
        else {
            return;
        };
        let family = family.as_str();
        let of_floor = berth.median_ms / floor.median_ms;
        verdict(&format!("ADD {family}, median / floor"), of_floor, 2.0);
        verdict(&format!("ADD {family}, median / ptp"), berth.median_ms / ptp.median_ms, 0.25);
        verdict(&format!("ADD {family}, p99 / ptp"), berth.p99_ms / ptp.p99_ms, 1.0 / 3.0);
    }

    fn many_at_once(&self, family: Family) {
        let add = |subject| self.find(subject, Operation::Add, family, 32, 0);
        let (Some(berth), Some(ptp)) = (add(Name::Berth), add(Name::Ptp)) else { return };
        let family = family.as_str();
        let slower = ptp.per_second / berth.per_second;
        verdict(&format!("ADD {family}, 32 at once, ptp's a second / ours"), slower, 0.25);
        verdict(&format!("ADD {family}, 32 at once, CPU / ptp"), berth.cpu_ms / ptp.cpu_ms, 0.2);
    }

    fn delete(&self, family: Family) {
        let del = |subject| self.fresh(subject, Operation::Del, family);
        let (Some(berth), Some(ptp)) = (del(Name::Berth), del(Name::Ptp)) else { return };
        let ratio = berth.median_ms / ptp.median_ms;
        verdict(&format!("DEL {}, median / ptp", family.as_str()), ratio, 1.0 / 6.0);
    }

    fn version(&self, family: Family) {
        let version = |subject| self.fresh(subject, Operation::Version, family);
        let (Some(berth), Some(floor)) = (version(Name::Berth), version(Name::Floor)) else {
            return;
        };
        let more = berth.median_ms - floor.median_ms;
        verdict(&format!("VERSION {}, ms above an empty program", family.as_str()), more, 0.5);
    }

    fn allocate(&self, family: Family) {
        let rpc = |subject| self.fresh(subject, Operation::AllocRpc, family);
        let (Some(berth), Some(floor)) = (rpc(Name::Berth), rpc(Name::Floor)) else { return };
        let most = 1.5 * floor.median_ms + 0.3;
        let what = format!("AllocIP {}, median ms (1.5 fdatasync + 0.3 ms)", family.as_str());
        verdict(&what, berth.median_ms, most);
        if let Some(burst) = self.find(Name::Berth, Operation::AllocRpc, family, 250, 0) {
            let what = format!("AllocIP {}, 250 callers, ms for each", family.as_str());
            verdict(&what, 1e3 / burst.per_second, 0.5);
        }
    }

    /// CPU time, which the machine's other work disturbs least.
    fn growth(&self, family: Family) {
        let Some(first) = self.fresh(Name::Berth, Operation::Add, family) else { return };
        for records in [1_000, 16_000] {
            let row = self.find(Name::Berth, Operation::Add, family, 1, records);
            let Some(row) = row else { continue };
            let what = format!("ADD {}, CPU with {records} records / with none", family.as_str());
            verdict(&what, row.cpu_ms / first.cpu_ms, 1.15);
            let what = format!("ADD {}, median with {records} records / none", family.as_str());
            verdict(&what, row.median_ms / first.median_ms, 1.15);
        }
    }
}
