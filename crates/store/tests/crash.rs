//! `kill -9`, at any time and at each step of a commit.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::{os::unix::process::ExitStatusExt, time::Duration};

use common::writer::{Setup, WRITERS, Writer, check, run_if_child};

const KILLS: u64 = 25;

/// They come once a second.
const SELDOM: [&str; 4] =
    ["store::after_flush", "store::after_sync", "store::after_checkpoint", "store::before_export"];

#[test]
fn what_was_acknowledged_survives_kill_9_and_what_was_deleted_stays_deleted() {
    run_if_child();
    let directory = tempfile::tempdir().unwrap();
    let mut acknowledged = vec![0; WRITERS];
    for kill in 0..KILLS {
        let before = acknowledged.iter().sum::<u64>();
        let mut writer = Writer::start(Setup {
            test: "what_was_acknowledged_survives_kill_9_and_what_was_deleted_stays_deleted",
            directory: directory.path().to_owned(),
            acknowledged,
            fail_points: "",
            step: false,
        });
        assert!(writer.next(), "the writer writes");
        // Anywhere between the first commit and, now and then, an export.
        std::thread::sleep(Duration::from_millis(1 + kill * 37 % 60));
        writer.kill();
        let (acked, status) = writer.finish();
        assert_eq!(status.signal(), Some(9));
        assert!(acked.iter().sum::<u64>() > before);
        let (store, loaded) = common::open(directory.path()).unwrap();
        acknowledged = check(&loaded, &acked, &format!("kill {kill}"));
        drop(store);
    }
}

#[test]
fn a_crash_at_any_step_of_a_commit_loses_nothing() {
    run_if_child();
    let built = fail::has_failpoints();
    assert!(built, "fail points are needed: run with --all-features");
    let points = [
        "store::before_log",
        "store::after_log",
        "store::after_log_sync",
        "store::after_apply",
        "store::after_sequence",
        "store::after_flush",
        "store::after_sync",
        "store::after_checkpoint",
        "store::before_export",
    ];
    for point in points {
        let directory = tempfile::tempdir().unwrap();
        let mut acknowledged = vec![0; WRITERS];
        // In the commit of an empty database, and in later ones.
        for pass in [0, 1, 2, 7, 30] {
            if pass > 2 && SELDOM.contains(&point) {
                continue;
            }
            let off = if pass == 0 { String::new() } else { format!("{pass}*off->") };
            let writer = Writer::start(Setup {
                test: "a_crash_at_any_step_of_a_commit_loses_nothing",
                directory: directory.path().to_owned(),
                acknowledged,
                fail_points: &format!("{point}={off}return"),
                step: false,
            });
            let (acked, status) = writer.finish();
            let case = format!("{point}, pass {pass}");
            assert_eq!(status.signal(), Some(9), "{case}: the fail point was not reached");
            let (store, loaded) = common::open(directory.path()).unwrap();
            acknowledged = check(&loaded, &acked, &case);
            drop(store);
        }
    }
}
