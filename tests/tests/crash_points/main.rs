//! `kill -9` of daemon and plugin at every named fail point, and what must hold afterwards: no
//! address is held twice, nothing acknowledged is lost, nothing deleted is back, a DEL leaves no
//! wiring, and in the end every address can be given out again.

#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(clippy::print_stdout, reason = "the list of points with their results")]

mod cases;
mod scene;
mod sources;
mod stories;

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use cases::{CASES, Case};

/// Most of a case is waiting: for processes, and for addresses to have rested.
const AT_ONCE: usize = 8;

#[test]
fn every_fail_point_of_the_sources_has_a_case_and_every_case_its_point() {
    let named = sources::points();
    assert!(named.len() > 30, "{named:?}");
    let covered: BTreeSet<String> = CASES.iter().map(|case| case.point.to_owned()).collect();
    assert_eq!(named, covered);
}

#[test]
fn every_wait_on_the_way_of_an_address_is_followed_by_a_fail_point_or_changes_nothing() {
    let problems = sources::waits_without_a_point();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn a_crash_at_any_point_loses_doubles_and_leaves_nothing() {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(case) = CASES.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = catch_unwind(AssertUnwindSafe(|| scene::play(*case)));
                    results.lock().unwrap().push((*case, outcome.map_err(|panic| text(&*panic))));
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap();
    results.sort_by_key(|(case, _)| (case.point, format!("{case:?}")));
    for (case, outcome) in &results {
        let said = outcome.as_ref().map_or_else(|problem| problem.clone(), |()| "ok".to_owned());
        println!("{:<40} {:<40} {said}", case.point, circumstances(case));
    }
    assert_eq!(results.len(), CASES.len());
    let failed = results.iter().filter(|(_, outcome)| outcome.is_err()).count();
    assert_eq!(failed, 0, "of {} cases", CASES.len());
}

fn circumstances(case: &Case) -> String {
    let later = if case.passes > 0 { ", a pass later" } else { "" };
    format!("{:?}{later}, then {:?}", case.story, case.then)
}

fn text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without text").to_owned()
}
