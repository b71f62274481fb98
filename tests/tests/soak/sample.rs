use std::{fmt, fs, path::Path};

use berth_tests::Node;

/// What is looked at, and how much of it is noise.
const FIGURES: [(&str, u64); 8] = [
    // The allocator keeps pages, and the tombstones of the last minutes are many after such churn: a
    // short run is over before the first of them expire.
    ("RSS KiB", 4096),
    // tokio's pool of threads for files comes and goes; a caller may just have hung up.
    ("fds", 3),
    ("threads", 3),
    ("links", 0),
    ("rules", 0),
    ("routes", 0),
    ("qdiscs", 0),
    // sled takes 2 to 2.6 MB before it uses its segments again, however long that goes on.
    ("state KiB", 2560),
];

#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample([u64; FIGURES.len()]);

impl Sample {
    pub(crate) fn take(node: &mut Node) -> Self {
        let (pid, usage) = (node.daemon().pid(), node.daemon().usage());
        let entries = |name: &str| fs::read_dir(format!("/proc/{pid}/{name}")).unwrap().count();
        let lines = |command: &str| berth_testkit::run(command).lines().count() as u64;
        Self([
            usage.resident / 1024,
            entries("fd") as u64,
            entries("task") as u64,
            lines("ip -br link"),
            lines("ip -4 rule") + lines("ip -6 rule"),
            lines("ip -4 route show table all") + lines("ip -6 route show table all"),
            lines("tc qdisc"),
            size(Path::new("/var/lib/berth")) / 1024,
        ])
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<String> = FIGURES
            .iter()
            .zip(self.0)
            .map(|((name, _), value)| format!("{name} {value}"))
            .collect();
        f.write_str(&shown.join(", "))
    }
}

fn size(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => size(&entry.path()),
            Ok(found) => found.len(),
            // A temporary file that was renamed meanwhile.
            Err(_) => 0,
        })
        .sum()
}

/// Figures that grew beyond their noise, in words. From life to life: every last look of the last
/// third of lives is above every one of the first third. Within lives: the last look is above the
/// second one, by the mean of all lives. (The first comes while caches still fill.)
pub(crate) fn growth(lives: &[Vec<Sample>]) -> Vec<String> {
    let mut found = Vec::new();
    for (index, (name, noise)) in FIGURES.iter().enumerate() {
        let last: Vec<u64> = lives.iter().map(|life| life[life.len() - 1].0[index]).collect();
        let third = (last.len() / 3).max(1);
        let (early, late) = (&last[..third], &last[last.len() - third..]);
        let (most, least) = (early.iter().max().unwrap(), late.iter().min().unwrap());
        if *least > most + noise {
            found.push(format!("{name} from life to life: {last:?}"));
        }
        let within: u64 = lives.iter().map(|life| life[life.len() - 1].0[index]).sum();
        let second: u64 = lives.iter().map(|life| life[1].0[index]).sum();
        let lives = lives.len() as u64;
        if within / lives > second / lives + noise {
            found.push(format!("{name} within a life: {} to {}", second / lives, within / lives));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lives(rss: &[[u64; 3]]) -> Vec<Vec<Sample>> {
        let sample = |value: &u64| Sample([*value, 9, 9, 3, 3, 3, 3, 512]);
        rss.iter().map(|life| life.iter().map(sample).collect()).collect()
    }

    #[test]
    fn a_slope_is_told_from_noise() {
        let flat = [[10_000, 12_000, 12_100], [10_000, 13_900, 12_000], [9_000, 12_000, 13_000]];
        assert_eq!(growth(&lives(&flat)), Vec::<String>::new());
        let rising = [[10_000, 12_000, 12_000], [10_000, 14_500, 14_500], [9_000, 17_000, 17_000]];
        assert_eq!(growth(&lives(&rising)).len(), 1);
        let leaking = [[10_000, 12_000, 17_000], [10_000, 12_000, 17_000], [9_000, 12_000, 17_000]];
        assert_eq!(growth(&lives(&leaking)).len(), 1);
    }
}
