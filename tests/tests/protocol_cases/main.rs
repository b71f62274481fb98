//! What plugins are really sent, each with its right answer: `data/cni.json` against the built
//! daemon and plugin. What a case presupposes is in `given`, what must hold after it in `holds`;
//! a sentence that nobody turned into code fails its case.

#![allow(clippy::unwrap_used, reason = "a test")]

mod given;
mod holds;
mod scene;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use berth_tests::{Answer, Call, Node, Snapshot, StandardOutput};
use scene::Scene;
use serde_json::Value;

/// A case mostly waits, so more than there are processors run side by side.
const AT_ONCE: usize = 4;

fn cases() -> Vec<Value> {
    serde_json::from_str(include_str!("../../data/cni.json")).unwrap()
}

#[test]
fn every_recorded_call_gets_its_right_answer() {
    let cases = cases();
    assert_eq!(cases.len(), 43);
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let name = case["name"].as_str().unwrap();
                    if catch_unwind(AssertUnwindSafe(|| run(case.clone()))).is_err() {
                        failed.lock().unwrap().push(name);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{} of {} cases: {failed:#?}", failed.len(), cases.len());
}

fn run(case: Value) {
    let given = case["given"].as_str().map(str::to_owned);
    let options = given::options(given.as_deref());
    Node::with(options, move |node| {
        let before = Snapshot::take();
        let mut scene = Scene::new(node, before);
        given::prepare(&mut scene, given.as_deref());
        let call = call(&scene, &case);
        let answer = call.run();
        let expect = &case["expect"];
        compare(&case, expect, &answer);
        for sentence in expect["holds"].as_array().into_iter().flatten() {
            holds::check(&mut scene, &call, &answer, sentence.as_str().unwrap());
        }
        scene.clean_up();
    });
}

fn call(scene: &Scene<'_>, case: &Value) -> Call {
    let mut call = Call::bare();
    for (name, value) in case["env"].as_object().unwrap() {
        call = call.environment(name, &scene.fill(value.as_str().unwrap()));
    }
    if let Some(text) = case.get("stdin_text") {
        call = call.input_text(text.as_str());
    } else {
        call = call.input(&scene.fill_all(&scene.configure(&case["stdin"])));
    }
    if let Some(path) = case["stdout_to"].as_str() {
        call = call.output(StandardOutput::To(Path::new(path).to_owned()));
    }
    call
}

fn compare(case: &Value, expect: &Value, answer: &Answer) {
    if expect["exit"] == 0 {
        assert!(answer.succeeded(), "{answer:?}");
    } else {
        assert_eq!(expect["exit"], "non-zero");
        assert!(answer.code.is_some_and(|code| code != 0), "{answer:?}");
    }
    match expect["stdout"].as_str() {
        Some("one-json") => drop(answer.json()),
        Some("empty") => assert_eq!(answer.stdout, "", "{answer:?}"),
        None => {}
        other => panic!("unknown stdout {other:?}"),
    }
    if let Some(code) = expect["code"].as_u64() {
        assert_eq!(answer.error_code(), code, "{answer:?}");
    }
    if answer.succeeded() && case["env"]["CNI_COMMAND"] == "ADD" && expect["stdout"] == "one-json" {
        assert_eq!(answer.json()["cniVersion"], case["stdin"]["cniVersion"]);
    }
}
