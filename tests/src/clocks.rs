use std::{
    fs,
    path::{Path, PathBuf},
};

/// Clocks of single processes, shifted: daemon and plugin are told another time, and the machine
/// keeps its own.
#[derive(Debug)]
pub struct Clocks {
    library: PathBuf,
    wall: PathBuf,
    boot: PathBuf,
}

impl Clocks {
    /// With files in `directory`, not shifted yet.
    ///
    /// # Panics
    /// Without `cc`, which every Rust toolchain links with.
    pub fn new(directory: &Path) -> Self {
        let library = directory.join("clock_shift.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/data/clock_shift.c");
        berth_testkit::run(&format!("cc -shared -fPIC -o {} {source}", library.display()));
        Self { library, wall: directory.join("wall-shift"), boot: directory.join("boot-shift") }
    }

    /// For the environment of whom it is about. They must be linked dynamically.
    pub fn variables(&self) -> [(&'static str, String); 3] {
        let text = |path: &Path| path.display().to_string();
        [
            ("LD_PRELOAD", text(&self.library)),
            ("WALL_CLOCK_SHIFT", text(&self.wall)),
            ("BOOT_CLOCK_SHIFT", text(&self.boot)),
        ]
    }

    /// In seconds, back where negative.
    pub fn shift_wall(&self, seconds: i64) {
        fs::write(&self.wall, seconds.to_string()).unwrap();
    }

    /// The time since boot, which never jumps on a real machine: as if so many seconds had passed
    /// with nothing going on.
    pub fn shift_boot(&self, seconds: u32) {
        fs::write(&self.boot, seconds.to_string()).unwrap();
    }
}
