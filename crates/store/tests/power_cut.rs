//! Simulated power cuts: the store works on a file system in an image; at an acknowledgement the
//! image is copied as the block device has it, and the copy is mounted and opened. A device that
//! loses what was submitted to it and not flushed would be harsher still.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::path::Path;

use berth_testkit::{in_netns, run};
use common::writer::{Setup, Writer, check, run_if_child};

fn cut(test: &'static str, file_system: &'static str, megabytes: u64, cuts: u64) {
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
            acknowledged: vec![0],
            fail_points: "",
            step: true,
        });
        let mut seen = 0;
        for cut in 0..cuts {
            // Some cuts after one operation, some after several.
            for step in 0..=cut % 4 {
                if step > 0 {
                    writer.go_on();
                }
                assert!(writer.next(), "the writer writes");
            }
            run(&format!("cp --sparse=always {image} {copy}"));
            let options = if file_system == "xfs" { "loop,nouuid" } else { "loop" };
            run(&format!("mount -o {options} {copy} {}", path("after")));
            let state = Path::new(&path("after")).join("state");
            let (store, loaded) = common::open(&state).unwrap();
            let acknowledged = &writer.acknowledged;
            let reached = check(&loaded, acknowledged, &format!("cut {cut} on {file_system}"));
            assert_eq!(reached, *acknowledged, "nothing is under way at an acknowledgement");
            seen += usize::from(!loaded.tombstones.is_empty());
            drop(store);
            run(&format!("umount {}", path("after")));
            writer.go_on();
        }
        assert!(seen > 0, "some had been deleted");
        writer.kill();
        writer.finish();
        run(&format!("umount {}", path("live")));
        run(&format!("umount {}", base.path().display()));
    });
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
