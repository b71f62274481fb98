//! What the sources say: names of fail points, and waits that have none.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Where an address goes from and to. Every `.await` here is followed by a fail point before the
/// next one, or is in [`HARMLESS`].
const PATH: &[&str] = &[
    "core/src/ipam/allocate.rs",
    "core/src/ipam/collect.rs",
    "core/src/ipam/commit.rs",
    "core/src/ipam/release.rs",
    "core/src/ipam/start.rs",
    "core/src/reaper.rs",
    "daemon/src/spool.rs",
    "cni/src/add.rs",
    "cni/src/del.rs",
];

/// Parts of statements that wait without having changed anything themselves.
const HARMLESS: &[(&str, &str)] = &[
    ("self.allocate_once(", "has points of its own"),
    ("self.again(", "has points of its own"),
    ("self.take_over(", "has points of its own"),
    ("self.release_unknown(", "has points of its own"),
    ("self.let_go(", "has points of its own"),
    ("self.collect_one(", "has points of its own"),
    ("self.sweep_links(", "has points of its own"),
    ("self.remove_links(", "has points of its own"),
    ("rebase_deadlines(", "has points of its own"),
    ("finish(&parts", "has points of its own"),
    ("finish_batch(parts", "has points of its own"),
    ("reap_all(", "has points of its own"),
    ("reap(parts, &batch)", "has points of its own"),
    ("reap(parts, std::slice", "has points of its own"),
    ("self.drain(", "has points of its own"),
    ("take_down(attached)", "has points of its own"),
    ("giver.give_back", "has points of its own"),
    ("self.give_back(", "has points of its own"),
    ("ipam .release(", "its caller has the point"),
    ("self.settle(", "waits for others' work"),
    ("self.wait_for_former(", "waits for others' work"),
    ("self.inner.reaper.settle(&former)", "waits for others' work"),
    ("tokio::time::sleep(", "waits for time"),
    ("done.await", "waits for others' work"),
    ("time::timeout(SETTLE_WITHIN", "waits for others' work"),
    ("parts.source.assign(", "its caller has the point"),
    ("berth_datapath::attach(", "its caller has the point"),
    (".host.links(", "reads"),
    ("self.predecessor(", "reads"),
    ("self.inner.pool.is_foreign(", "reads"),
    ("self.is_dead(", "reads"),
    ("self.opinions(", "reads"),
    ("time::timeout(PODS_ANSWER_WITHIN", "reads"),
    ("self.daemon.attachment(", "reads"),
    ("Daemon::connect(", "changes nothing"),
    ("daemon.release(&del.key", "its caller has the point"),
    ("host.unhook(std::slice::from_ref(&link))", "its caller has the point"),
    ("match attach(&netns, &conf", "its failure goes on with what has points, its success has one"),
    ("daemon.commit(facts", "its failure goes on with what has points, its success has one"),
    ("daemon.allocate(request(", "its failure goes on with what has points, its success has one"),
    ("UNHOOK_LIMIT", "its caller has the point"),
];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates").canonicalize().unwrap()
}

/// A source without its tests, comments left out.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_else(|err| panic!("{}: {err}", path.display()));
    let text = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.map(|line| format!("{line}\n")).collect()
}

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Every name that is given to a fail point anywhere.
pub(crate) fn points() -> BTreeSet<String> {
    let mut files = Vec::new();
    for entry in fs::read_dir(crates()).unwrap() {
        sources(&entry.unwrap().path().join("src"), &mut files);
    }
    let mut names = BTreeSet::new();
    for file in files {
        let code = code(&file);
        for opening in ["fail_point!(\"", "crash_point!(\"", "fail_point::reach(\""] {
            let after = code.split(opening).skip(1);
            names.extend(after.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
        }
    }
    names
}

/// Waits on the way of an address that nothing stops at, and exceptions that no wait needs.
pub(crate) fn waits_without_a_point() -> Vec<String> {
    let mut problems = Vec::new();
    let mut used = BTreeSet::new();
    let mut waits = 0;
    for file in PATH {
        // Names that begin with the word are no waits.
        let code = code(&crates().join(file)).replace(".await_", ".wait_for_");
        let parts: Vec<&str> = code.split(".await").collect();
        for pair in parts.windows(2) {
            waits += 1;
            // Up to the next wait, or where the function ends.
            let after = pair[1].split("\n    }\n").next().unwrap_or_default();
            let after = after.split("\n}\n").next().unwrap_or_default();
            if after.contains("fail_point") {
                continue;
            }
            let statement = format!("{}.await", statement(pair[0]));
            match HARMLESS.iter().find(|(part, _)| statement.contains(part)) {
                Some((part, _)) => _ = used.insert(*part),
                None => problems.push(format!("{file}: nothing stops after `{statement}`")),
            }
        }
    }
    assert!(waits > 40, "{waits}");
    let unused = HARMLESS.iter().filter(|(part, _)| !used.contains(part));
    problems.extend(unused.map(|(part, _)| format!("no wait needs the exception `{part}`")));
    problems
}

/// The statement that `code` ends in the middle of, on one line.
fn statement(code: &str) -> String {
    let begin = code.rfind([';', '{', '}']).map_or(0, |at| at + 1);
    let begin = if code[begin..].trim().is_empty() || code[begin..].trim().starts_with(')') {
        // The last one was a closure or a literal of the same statement.
        code[..begin - 1].rfind(';').map_or(0, |at| at + 1)
    } else {
        begin
    };
    code[begin..].split_whitespace().collect::<Vec<_>>().join(" ")
}
