//! Files in the spool that no plugin of ours wrote.

use std::{
    fs,
    os::unix::{
        fs::{PermissionsExt, symlink},
        net::UnixListener,
    },
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use berth_tests::{Node, NodeOptions, Pod, eventually};
use nix::{sys::stat::Mode, unistd::mkfifo};

fn spool(name: &str) -> PathBuf {
    Path::new("/var/lib/berth/spool").join(name)
}

/// One of everything, with names before and after those of the plugin.
fn spoil(valid: &Path) {
    let text = fs::read_to_string(valid).unwrap();
    let file = |name: &str, content: &[u8]| fs::write(spool(name), content).unwrap();
    file("0-garbage.json", b"\0\xff garbage");
    file("0-empty.json", b"");
    file("0-deep.json", &b"[".repeat(60_000));
    file("0-future.json", text.replace("\"version\":1", "\"version\":2").as_bytes());
    file("0-more.json", text.replacen('{', "{\"more\":1,", 1).as_bytes());
    file("0-climb.json", text.replace("berth-test", "../../x").as_bytes());
    let with_reason = text.replace("CNI DEL", &"\\n\\u001b[31m".repeat(20_000));
    file("0-long.json", with_reason.as_bytes());
    file("0-unreadable.json", text.as_bytes());
    fs::set_permissions(spool("0-unreadable.json"), fs::Permissions::from_mode(0o0)).unwrap();
    // A hole of a terabyte.
    fs::File::create(spool("0-huge.json")).unwrap().set_len(1 << 40).unwrap();
    symlink("/etc/passwd", spool("0-link.json")).unwrap();
    symlink("0-loop.json", spool("0-loop.json")).unwrap();
    fs::create_dir_all(spool("0-directory.json/inside")).unwrap();
    mkfifo(&spool("0-fifo.json"), Mode::S_IRWXU).unwrap();
    drop(UnixListener::bind(spool("0-socket.json")).unwrap());
    file("0-half.json.tmp", b"{");
    file("\u{1b}[31m\n.json", b"{}");
}

fn names(ending: &str) -> Vec<String> {
    let entries = fs::read_dir(spool("")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(ending)).collect();
    names.sort();
    names
}

#[test]
fn what_is_no_release_is_set_aside_and_the_release_among_it_is_done() {
    Node::with(NodeOptions::default(), |node| {
        let (gone, kept) = (Pod::new(), Pod::new());
        node.add(&gone).result();
        node.add(&kept).result();
        node.kill();
        node.del(&gone).nothing();
        let valid = spool(&names(".json")[0]);
        let passwords = fs::read("/etc/passwd").unwrap();
        spoil(&valid);

        node.start();
        assert!(node.records(&gone.id).is_empty(), "{}", node.log());
        assert_eq!(node.record(&kept.id)["state"], "committed");
        assert_eq!(names(".json"), [""; 0], "{}", node.log());
        // Root may read what has no mode; that one was a second release of the same.
        assert_eq!(names(".unreadable").len(), 14, "{:?}", names(""));
        // As it was: not opened, followed, copied or grown.
        assert_eq!(fs::read_link(spool("0-link.unreadable")).unwrap(), Path::new("/etc/passwd"));
        assert_eq!(fs::read("/etc/passwd").unwrap(), passwords);
        assert!(spool("0-directory.unreadable/inside").is_dir());
        assert_eq!(fs::metadata(spool("0-huge.unreadable")).unwrap().len(), 1 << 40);
        assert!(!spool("0-huge.unreadable").is_symlink());
        let log = node.log();
        assert!(!log.contains('\u{1b}') && log.len() < 100_000, "{} bytes: {log}", log.len());

        // It has seen its own renames, and does not go round in circles.
        thread::sleep(Duration::from_millis(500));
        let before = node.daemon().usage();
        thread::sleep(Duration::from_secs(1));
        let after = node.daemon().usage();
        assert!(after.cpu - before.cpu < Duration::from_millis(100), "{before:?} {after:?}");
        assert!(after.anonymous < 32 << 20, "{after:?}");
    });
}

#[test]
fn a_spool_that_is_spoiled_while_the_daemon_runs_is_cleaned_too() {
    Node::with(NodeOptions::default(), |node| {
        let pod = Pod::new();
        node.add(&pod).result();
        fs::write(spool("x.json"), "garbage").unwrap();
        symlink("/etc/shadow", spool("y.json")).unwrap();
        fs::write(spool("z.tmp"), "{}").unwrap();
        // A link makes no event of its own; it goes with the next.
        fs::write(spool("w.json"), "garbage").unwrap();
        eventually(Duration::from_secs(5), || match names(".json") {
            names if names.is_empty() => Ok(()),
            names => Err(format!("{names:?}")),
        });
        node.del(&pod).nothing();
    });
}

/// Its mode is about to be changed, and its files removed.
#[test]
fn a_spool_that_lies_elsewhere_is_refused() {
    Node::stopped(NodeOptions::default(), |node| {
        let elsewhere = node.directory().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o755)).unwrap();
        symlink(&elsewhere, "/var/lib/berth/spool").unwrap();
        assert!(!node.spawn().wait().success());
        assert!(node.log().contains("cannot open the spool"), "{}", node.log());
        let mode = fs::metadata(&elsewhere).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
    });
}
