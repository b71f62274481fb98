//! Simulated power cuts: the store works on a file system in an image; the image is copied as the
//! block device has it, and the copy is mounted and opened. A device that loses what was submitted
//! to it and not flushed would be harsher still. `BERTH_POWER_CUTS` says how many cuts.

#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(clippy::print_stdout, reason = "figures for `cargo xtask power`")]

mod common;

use std::{path::Path, process::Command};

use berth_testkit::{in_netns, run};
use common::{
    unmount,
    writer::{Setup, WRITERS, Writer, check_up_to, releases, run_if_child},
};

/// Operations between two cuts, at most: enough for sled to fill and to clean segments.
const LOAD: u64 = 61;

fn cut(test: &'static str, file_system: &'static str, megabytes: u64, cuts: u64) {
    let cuts = std::env::var("BERTH_POWER_CUTS").map_or(cuts, |text| text.parse().unwrap());
    in_netns(move || async move {
        let base = tempfile::tempdir().unwrap();
        let path = |name: &str| base.path().join(name).display().to_string();
        run(&format!("mount -t tmpfs tmpfs {}", base.path().display()));
        for directory in ["live", "after"] {
            std::fs::create_dir(base.path().join(directory)).unwrap();
        }
        let (image, copy) = (path("image"), path("copy"));
        run(&format!("truncate -s {megabytes}M {image}"));
        run(&format!("mkfs.{file_system} -q {image}"));
        run(&format!("mount -o loop {image} {}", path("live")));
        run(&format!("sync -f {}", path("live")));

        let mut writer = Writer::start(Setup {
            test,
            directory: Path::new(&path("live")).join("state"),
            acknowledged: vec![0; WRITERS],
            fail_points: "",
            step: true,
        });
        let hear = |writer: &mut Writer, count: u64| {
            (0..count).for_each(|_| assert!(writer.next(), "the writer writes"));
        };
        hear(&mut writer, WRITERS as u64);
        let mut unheard = 0;
        for cut in 0..cuts {
            let load = 1 + cut * 37 % LOAD;
            (0..load).for_each(|_| writer.go_on());
            // Every other cut comes while the writers are at work.
            let heard = if cut % 2 == 0 { load } else { load / 2 };
            hear(&mut writer, heard);
            writer.pause();
            copy_at_one_instant(&image, &copy);
            writer.resume();

            let options = if file_system == "xfs" { "loop,nouuid" } else { "loop" };
            run(&format!("mount -o {options} {copy} {}", path("after")));
            let state = Path::new(&path("after")).join("state");
            let (store, loaded) = common::open(&state).unwrap();
            let acknowledged = &writer.acknowledged;
            let case = format!("cut {cut} on {file_system}");
            let reached = check_up_to(&loaded, acknowledged, load - heard, &case);
            unheard += usize::from(reached != *acknowledged);
            drop(store);
            unmount(Path::new(&path("after")));
            hear(&mut writer, load - heard);
        }
        let done = &writer.acknowledged;
        let operations: u64 = done.iter().sum();
        let deletes: usize = done.iter().zip(0..).map(|(count, it)| releases(it, *count)).sum();
        println!(
            "{file_system}: {cuts} cuts, {operations} operations acknowledged ({deletes} deletes): \
             0 lost, 0 back; at {unheard} cuts more was done than was acknowledged"
        );
        assert!(deletes > 0, "some were deletes");
        writer.kill();
        writer.finish();
        unmount(Path::new(&path("live")));
        run(&format!("umount {}", base.path().display()));
    });
}

/// The writer stands still, but the kernel may still write: then the copy is made once more.
fn copy_at_one_instant(image: &str, copy: &str) {
    for _ in 0..50 {
        run(&format!("cp --sparse=always {image} {copy}"));
        if Command::new("cmp").args(["-s", image, copy]).status().unwrap().success() {
            return;
        }
    }
    panic!("the image never stands still");
}

#[test]
fn a_power_cut_on_ext4_loses_nothing_and_brings_nothing_back() {
    run_if_child();
    cut("a_power_cut_on_ext4_loses_nothing_and_brings_nothing_back", "ext4", 32, 20);
}

#[test]
fn a_power_cut_on_xfs_loses_nothing_and_brings_nothing_back() {
    run_if_child();
    cut("a_power_cut_on_xfs_loses_nothing_and_brings_nothing_back", "xfs", 320, 4);
}
