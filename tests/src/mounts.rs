use std::{fs, path::Path, process::Command, time::Duration};

/// Unmounts what is mounted on `directory` and below, the innermost first.
pub(crate) fn unmount_below(directory: &Path) {
    let mounts = fs::read_to_string("/proc/thread-self/mounts").unwrap_or_default();
    let mut points: Vec<&str> = mounts.lines().filter_map(|line| line.split(' ').nth(1)).collect();
    points.reverse();
    for point in points.into_iter().filter(|point| Path::new(point).starts_with(directory)) {
        let _ = Command::new("umount").arg("--lazy").arg(point).output();
    }
}

/// Removes the control group `path` and those below it from every hierarchy. They are empty
/// once their processes are gone, which takes the kernel a moment.
pub(crate) fn remove_control_groups(path: &str) {
    let stopwatch = crate::Stopwatch::start();
    loop {
        let found = Command::new("find")
            .args(["/sys/fs/cgroup", "-depth", "-type", "d", "-path", &format!("*{path}*")])
            .output();
        let found = found.map(|output| output.stdout).unwrap_or_default();
        let found = String::from_utf8_lossy(&found).into_owned();
        if found.is_empty() || stopwatch.elapsed() > Duration::from_secs(5) {
            return;
        }
        for directory in found.lines() {
            let _ = fs::remove_dir(directory);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
