use std::{
    os::unix::{fs::PermissionsExt, net::UnixListener},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use crate::{
    model::{Model, Node},
    run::{Outcome, berthctl, command},
};

/// One line on stderr, nothing on stdout.
#[track_caller]
fn fails(socket: &Path, words: &str, status: i32, says: &str) {
    let outcome = berthctl(socket, words);
    assert_eq!(outcome.stderr, format!("berthctl: {says}\n"), "berthctl {words}");
    assert_eq!((outcome.status, outcome.stdout.as_str()), (status, ""), "berthctl {words}");
}

#[test]
fn a_daemon_that_does_not_serve_is_bad_news() {
    let model = Model::start(Node { serving: false, ..Node::default() });
    let outcome = berthctl(model.socket(), "status");
    assert_eq!(outcome.status, 1);
    assert!(outcome.stdout.starts_with("serving      no, NOT_SERVING\n"), "{}", outcome.stdout);
}

#[test]
fn nothing_found_is_bad_news() {
    let model = Model::start(Node::default());
    let outcome = berthctl(model.socket(), "explain pod shop/web-9");
    assert_eq!(outcome.status, 1);
    assert_eq!(outcome.stdout, "there is no record of it\n  - the pool is half full\n");
    let said = "no attachment has a container id that begins with \"beef\"";
    fails(model.socket(), "release beef --reason stuck", 1, said);
}

#[test]
fn wrong_usage_is_told_apart() {
    let nowhere = Path::new("/nonexistent/berth.sock");
    for words in [
        "",
        "pod",
        "explain ip 10.0.0",
        "release c1",
        "status --timeout 10",
        "-o yaml status",
        "db import",
    ] {
        assert_eq!(berthctl(nowhere, words).status, 2, "berthctl {words}");
    }
    for words in ["--help", "help explain", "--version"] {
        assert_eq!(berthctl(nowhere, words).status, 0, "berthctl {words}");
    }
}

#[test]
fn the_exit_statuses_are_in_the_help() {
    let help = berthctl("/nonexistent".as_ref(), "--help").stdout;
    for status in 0..=5 {
        assert!(help.contains(&format!("\n  {status}  ")), "{status} in {help}");
    }
}

#[test]
fn a_socket_nobody_listens_at_is_not_reachable() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("berth.sock");
    let cannot = format!("cannot reach the daemon at {}", socket.display());
    let missing = format!("{cannot}: No such file or directory (os error 2)");
    fails(&socket, "pods", 3, &missing);
    drop(UnixListener::bind(&socket).unwrap());
    let refused = format!("{cannot}: Connection refused (os error 111)");
    fails(&socket, "pods", 3, &refused);
}

#[test]
fn a_daemon_that_does_not_answer_is_not_waited_for() {
    let model = Model::start(Node { silent: true, ..Node::default() });
    // One that takes the connection and never speaks.
    let directory = tempfile::tempdir().unwrap();
    let mute = directory.path().join("mute.sock");
    let _listener = UnixListener::bind(&mute).unwrap();
    for socket in [model.socket(), &mute] {
        // timeout(1) ends with 124 if it has to step in.
        let outcome = Command::new("timeout")
            .args(["10", env!("CARGO_BIN_EXE_berthctl"), "--timeout", "300ms", "pods", "--socket"])
            .arg(socket)
            .output();
        let outcome = Outcome::from(outcome.unwrap());
        assert_eq!(outcome.stderr, "berthctl: the daemon did not answer within 300ms\n");
        assert_eq!(outcome.status, 3);
    }
}

#[test]
fn a_socket_of_someone_else_is_not_allowed() {
    let model = Model::start(Node::default());
    std::os::unix::fs::chown(model.socket(), Some(65534), None).unwrap();
    std::fs::set_permissions(model.socket(), std::fs::Permissions::from_mode(0o600)).unwrap();
    // Root without the right to pass over permissions: the program itself it may still read.
    let outcome = Command::new("setpriv")
        .args(["--bounding-set=-all", "--inh-caps=-all", env!("CARGO_BIN_EXE_berthctl")])
        .args(["pods", "--socket"])
        .arg(model.socket())
        .output();
    let outcome = Outcome::from(outcome.unwrap());
    let said = format!(
        "berthctl: may not use the daemon's socket {}: Permission denied (os error 13)\n",
        model.socket().display()
    );
    assert_eq!((outcome.status, outcome.stderr), (4, said));
}

#[test]
fn a_daemon_that_hangs_up_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("berth.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let hangs_up = std::thread::spawn(move || {
        let connection = listener.accept().unwrap();
        std::thread::sleep(Duration::from_millis(50));
        drop((connection, listener));
    });
    let outcome = berthctl(&socket, "--timeout 5s pods");
    hangs_up.join().unwrap();
    assert_eq!(outcome.status, 3, "{}", outcome.stderr);
    assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
}

#[test]
fn who_may_not_is_told_so() {
    let model = Model::start(Node { root: false, ..Node::default() });
    let said = "not allowed: only root may change the daemon [NOT_ALLOWED]";
    fails(model.socket(), "gc", 4, said);
    fails(model.socket(), "release 77aa00 --force --reason stuck", 4, said);
    assert_eq!(model.node().attachments.len(), 2);
}

#[test]
fn a_refusal_comes_with_its_reason() {
    let model = Model::start(Node::default());
    let said = "the daemon refused: its network namespace is alive [ATTACHED_ELSEWHERE]";
    fails(model.socket(), "release 77aa00 --reason stuck", 5, said);
    assert_eq!(model.node().attachments.len(), 2);
}

#[test]
fn a_configuration_that_is_no_json_is_a_failure_of_its_own() {
    let model = Model::start(Node { config: "{".into(), ..Node::default() });
    let outcome = berthctl(model.socket(), "config show");
    assert_eq!(outcome.status, 1);
    let said = "berthctl: the daemon's configuration is not JSON: EOF";
    assert!(outcome.stderr.starts_with(said), "{}", outcome.stderr);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let model = Model::start(Node::default());
    let mut child = command(model.socket())
        .arg("pods")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let outcome = Outcome::from(child.wait_with_output().unwrap());
    assert_eq!((outcome.status, outcome.stderr.as_str()), (0, ""));
}

#[test]
fn a_full_disk_behind_stdout_is_an_error() {
    let model = Model::start(Node::default());
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let outcome = Outcome::from(command(model.socket()).arg("pods").stdout(full).output().unwrap());
    assert_eq!(outcome.status, 1);
    assert!(outcome.stderr.starts_with("berthctl: cannot write the answer: "));
}

#[test]
fn the_socket_may_come_from_the_environment() {
    let model = Model::start(Node::default());
    let outcome = Command::new(env!("CARGO_BIN_EXE_berthctl"))
        .env_clear()
        .env("BERTH_SOCKET", model.socket())
        .arg("pods")
        .output()
        .unwrap();
    assert_eq!(Outcome::from(outcome).status, 0);
}
