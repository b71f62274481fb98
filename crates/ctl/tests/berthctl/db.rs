use std::{fs, path::Path, process::Command, sync::Arc};

use berth_core::ports::{Change, Clock, Store};
use berth_store::{Options, SledStore};
use berth_types::{Attachment, BootId, BootTime};
use serde_json::{Value, json};

use crate::run::Outcome;

fn db(state: &Path, words: &str) -> Outcome {
    let mut command = Command::new(env!("CARGO_BIN_EXE_berthctl"));
    command.env_clear().args(["db", "--state-dir"]).arg(state).args(words.split_whitespace());
    command.output().expect("berthctl starts").into()
}

struct Still(BootId);

impl Clock for Still {
    fn now(&self) -> BootTime {
        BootTime::from_nanos(1)
    }

    fn boot_id(&self) -> &BootId {
        &self.0
    }
}

fn attachment() -> Attachment {
    let record = json!({
        "key": {"network": "berth", "container_id": "c1", "interface": "eth0"},
        "state": {"is": "committed", "wired": {}},
        "resource": {
            "id": "172.16.240.2", "kind": "veth", "addresses": {"v4": "172.16.240.2"},
        },
        "netns": {"path": "/run/netns/c1", "id": {"device": 4, "inode": 1}},
        "started": {"boot_id": "b", "at": 1}, "created": 1,
        "host_interface": "bth000000000002", "mtu": 1500,
        "host_mac": "02:00:00:00:00:01", "pod_mac": "02:00:00:00:00:02",
    });
    serde_json::from_value(record).unwrap()
}

/// Runs `body` while a store with one attachment is open in `state`.
fn with_store(state: &Path, body: impl FnOnce()) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let clock = Arc::new(Still("b".parse().unwrap()));
        let (store, _): (SledStore, _) = berth_store::open(Options::new(state, clock)).unwrap();
        store.commit(vec![Change::PutAttachment(Box::new(attachment()))]).await.unwrap();
        body();
        store.close().await;
    });
}

fn stopped_state() -> tempfile::TempDir {
    let state = tempfile::tempdir().unwrap();
    with_store(state.path(), || ());
    state
}

fn check(state: &Path) -> (i32, Value) {
    let outcome = db(state, "-o json check");
    (outcome.status, serde_json::from_str(&outcome.stdout).unwrap())
}

#[test]
fn a_sound_state_is_counted_and_left_alone() {
    let state = stopped_state();
    for _ in 0..2 {
        let (status, report) = check(state.path());
        assert_eq!((status, &report["sound"]), (0, &json!(true)), "{report}");
        assert_eq!((&report["attachments"], &report["addresses"]), (&json!(1), &json!(1)));
        assert_eq!(report["problems"], json!([]));
    }
    let table = db(state.path(), "check").stdout;
    assert!(table.starts_with("sound         yes\nattachments   1\n"), "{table}");
}

#[test]
fn damage_is_bad_news_and_told_in_words() {
    let state = stopped_state();
    let log = state.path().join("db/db");
    fs::OpenOptions::new().write(true).open(&log).unwrap().set_len(64).unwrap();
    // The commit log still has all that ever was, and a start makes the database whole.
    let (status, report) = check(state.path());
    assert_eq!((status, &report["attachments"]), (0, &json!(1)), "{report}");
    fs::remove_file(state.path().join("commits")).unwrap();
    let outcome = db(state.path(), "check");
    assert_eq!(outcome.status, 1, "{}", outcome.stdout);
    assert!(outcome.stdout.starts_with("sound         no\n"), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("\n  - "), "{}", outcome.stdout);
}

#[test]
fn what_was_exported_can_be_imported_elsewhere() {
    let state = stopped_state();
    let exported = db(state.path(), "export");
    assert_eq!(exported.status, 0, "{}", exported.stderr);
    let elsewhere = tempfile::tempdir().unwrap();
    let file = elsewhere.path().join("export.json");
    fs::write(&file, &exported.stdout).unwrap();
    let fresh = elsewhere.path().join("state");
    let imported = db(&fresh, &format!("import {}", file.display()));
    assert_eq!((imported.status, imported.stderr.as_str()), (0, ""));
    // The record and the index of its address.
    assert_eq!(imported.stdout, "imported 2 rows\n");
    // It is in doubt until a daemon has compared it with the world: that is told.
    let (status, report) = check(&fresh);
    assert_eq!((status, &report["attachments"]), (1, &json!(1)), "{report}");
    assert!(report["problems"][0].as_str().unwrap().contains("imported by hand"), "{report}");
}

#[test]
fn records_that_are_there_are_not_written_over() {
    let state = stopped_state();
    let file = state.path().join("out.json");
    fs::write(&file, db(state.path(), "export").stdout).unwrap();
    let outcome = db(state.path(), &format!("import {}", file.display()));
    assert_eq!(outcome.stderr, "berthctl: the database holds 2 rows already\n");
    assert_eq!(outcome.status, 5);
    assert_eq!(check(state.path()).0, 0);
    let outcome = db(state.path(), &format!("import --move-aside {}", file.display()));
    assert_eq!((outcome.status, outcome.stdout.as_str()), (0, "imported 2 rows\n"));
    let aside = fs::read_dir(state.path()).unwrap().filter(|entry| {
        entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("corrupt-")
    });
    assert_eq!(aside.count(), 1);
}

#[test]
fn a_running_daemon_keeps_its_state_to_itself() {
    let exported = db(stopped_state().path(), "export").stdout;
    let state = tempfile::tempdir().unwrap();
    with_store(state.path(), || {
        let held = format!("the state directory is in use by process {}", std::process::id());
        let document = state.path().join("elsewhere.json");
        let import = format!("import --move-aside {}", document.display());
        fs::write(&document, &exported).unwrap();
        for words in ["check", "export", &import] {
            let outcome = db(state.path(), words);
            assert_eq!(outcome.stderr, format!("berthctl: {held}\n"), "db {words}");
            assert_eq!((outcome.status, outcome.stdout.as_str()), (5, ""), "db {words}");
        }
    });
}

#[test]
fn a_directory_that_holds_no_state_is_named() {
    let outcome = db("/nonexistent/berth".as_ref(), "check");
    assert_eq!(outcome.stderr, "berthctl: \"/nonexistent/berth\" is not a state directory\n");
    assert_eq!(outcome.status, 1);
    let state = tempfile::tempdir().unwrap();
    let outcome = db(state.path(), "import /nonexistent/export.json");
    assert!(outcome.stderr.starts_with("berthctl: cannot read \"/nonexistent/export.json\": No"));
    assert_eq!(outcome.status, 1);
}
