//! What an ADD costs, beside others: `cargo xtask bench`.
//!
//! berth, two of Debian's reference plugins and the floor of the same work take turns on one node
//! in namespaces of its own, batch by batch, so that whatever else the machine does meets all of
//! them alike. Ratios count, not milliseconds.

#![allow(clippy::print_stdout, reason = "a program for people at a terminal")]
#![allow(clippy::unwrap_used, reason = "what goes wrong ends the run with its reason")]

mod cell;
mod chart;
mod density;
mod floor;
mod goals;
mod netlink;
mod noise;
mod options;
mod report;
mod rpc;
mod run;
mod spawn;
mod subject;
mod syscalls;

use std::{fs, process::ExitCode};

use berth_tests::{Node, NodeOptions};
use serde_json::json;

use crate::{
    cell::Family, density::Density, options::Options, report::Report, run::Bench, subject::Plugin,
};

fn main() -> ExitCode {
    let options = match Options::read(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(problem) => {
            println!("{problem}");
            return ExitCode::from(2);
        }
    };
    let mut report = Report::default();
    for family in Family::ALL {
        measure(&options, family, |part| {
            report.extend(part);
            // As it goes: what was measured is not lost when the rest never comes.
            save(&options, &report);
        });
    }
    // Last: the kernel takes many seconds to clean up behind so many pods.
    report.density = density(&options);
    report.print();
    goals::print(&report);
    ExitCode::SUCCESS
}

/// On a node of its own, both families.
fn density(options: &Options) -> Option<Density> {
    let (program, (sender, receiver)) = (options.plugin.clone(), std::sync::mpsc::channel());
    Node::with(node_options(Family::Dual), move |node| {
        let plugin = Plugin::berth(&program, node.directory());
        sender.send(Density::measure(node, &plugin)).expect("the receiver waits");
    });
    receiver.recv().ok()
}

fn node_options(family: Family) -> NodeOptions {
    NodeOptions::config(json!({
        "pod_cidrs": family.berth_cidrs(),
        "ip_stack": match family { Family::V4 => "ipv4", Family::Dual => "dual" },
    }))
}

fn save(options: &Options, report: &Report) {
    if let Some(path) = &options.json {
        fs::write(path, report.json()).unwrap();
    }
    if let Some(path) = &options.svg {
        fs::write(path, chart::draw(report)).unwrap();
    }
}

/// All of one family, on a node of its own with a fresh state directory; `hear` is told when the
/// figures of one number of records are there, and at the end.
fn measure(options: &Options, family: Family, mut hear: impl FnMut(Report)) {
    let (options, (sender, receiver)) = (options.clone(), std::sync::mpsc::channel());
    let measuring = std::thread::spawn(move || {
        Node::with(node_options(family), move |node| {
            Bench::new(node, &options, family).run(&sender)
        });
    });
    receiver.iter().for_each(&mut hear);
    if let Err(panic) = measuring.join() {
        std::panic::resume_unwind(panic);
    }
}
