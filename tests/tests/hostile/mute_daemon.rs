//! Something else at the daemon's socket: it accepts and does not answer, answers nonsense, or
//! hangs up. The plugin ends in its time and says so.

use std::{
    fs,
    io::Write,
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use berth_tests::{Answer, Call, Node, NodeOptions, Pod, Snapshot, network_config};
use serde_json::json;

use crate::http2::{HEADERS, SETTINGS, frame};

const SOCKET: &str = "/run/berth/berth.sock";

type Manner = fn(UnixStream) -> Option<UnixStream>;

/// Stands in for the daemon. What its manner gives back stays open.
struct Impostor {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Impostor {
    fn start(manner: Manner) -> Self {
        fs::create_dir_all("/run/berth").unwrap();
        let listener = UnixListener::bind(SOCKET).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut held = Vec::new();
            while let Ok((stream, _)) = listener.accept() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                held.extend(manner(stream));
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = UnixStream::connect(SOCKET);
        let _ = self.thread.take().map(JoinHandle::join);
        let _ = fs::remove_file(SOCKET);
    }
}

fn add(pod: &Pod) -> Call {
    let mut config = network_config();
    config["addTimeout"] = json!(2);
    Call::of("ADD", pod).input(&config)
}

fn spooled() -> usize {
    fs::read_dir("/var/lib/berth/spool").map_or(0, Iterator::count)
}

/// No record, and no link of a pod.
#[track_caller]
fn assert_empty(node: &Node) {
    assert_eq!(node.ctl("pods"), json!([]));
    assert_eq!(Snapshot::take().about("link bth"), [""; 0]);
}

#[track_caller]
fn within(answer: &Answer, seconds: u64) {
    assert!(answer.took < Duration::from_secs(seconds), "{answer:?}");
}

#[test]
fn a_daemon_that_accepts_and_never_answers_is_given_up_on_in_time() {
    Node::stopped(NodeOptions::default(), |node| {
        let (pod, other) = (Pod::new(), Pod::new());
        {
            let _impostor = Impostor::start(Some);
            // The longest first; the rest is done meanwhile.
            let del = Call::of("DEL", &other).start();
            let answer = add(&pod).run();
            assert_eq!(answer.error_code(), 11, "{answer:?}");
            // With the attempts to give back what it may have got.
            within(&answer, 12);
            let mut config = network_config();
            config["prevResult"] = json!({});
            let answer = Call::of("CHECK", &pod).input(&config).run();
            assert_eq!(answer.error_code(), 11, "{answer:?}");
            within(&answer, 8);
            let answer = Call::network("STATUS").run();
            assert_eq!(answer.error_code(), 50, "{answer:?}");
            within(&answer, 2);
            Call::network("VERSION").run().json();
            let answer = del.finish();
            answer.nothing();
            within(&answer, 32);
        }
        // The ADD may have been done, and the DEL was promised.
        assert_eq!(spooled(), 2);
        node.start();
        assert_eq!(spooled(), 0);
        assert_empty(node);
    });
}

#[test]
fn what_speaks_another_language_is_no_daemon() {
    let manners: [(&str, Manner); 6] = [
        ("hangs up", |_| None),
        ("speaks HTTP/1", |mut stream| {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            Some(stream)
        }),
        ("noise", |mut stream| {
            let _ = stream.write_all(&[0xa5; 4096]);
            None
        }),
        ("a frame of 16 MiB", |mut stream| {
            let _ = stream.write_all(&[0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1]);
            Some(stream)
        }),
        ("noise for headers", |mut stream| {
            let _ = stream.write_all(&frame(SETTINGS, 0, 0, &[]));
            let _ = stream.write_all(&frame(HEADERS, 4, 1, &[0xff; 200]));
            Some(stream)
        }),
        ("a stream of another", |mut stream| {
            let _ = stream.write_all(&frame(SETTINGS, 0, 0, &[]));
            let _ = stream.write_all(&frame(HEADERS, 5, 7, &[0x88]));
            Some(stream)
        }),
    ];
    for (name, manner) in manners {
        Node::stopped(NodeOptions::default(), move |node| {
            let pod = Pod::new();
            {
                let _impostor = Impostor::start(manner);
                let answer = add(&pod).run();
                assert_eq!(answer.error_code(), 11, "{name}: {answer:?}");
                within(&answer, 12);
                let answer = Call::of("DEL", &pod).run();
                answer.nothing();
                within(&answer, 32);
            }
            assert!(spooled() > 0, "{name}");
            node.start();
            assert_empty(node);
        });
    }
}

#[test]
fn what_is_no_socket_is_no_daemon() {
    Node::stopped(NodeOptions::default(), |_| {
        let pod = Pod::new();
        let directory = Path::new(SOCKET).parent().unwrap();
        fs::create_dir_all(directory).unwrap();
        let attempts: [fn(); 3] = [
            || (),
            || fs::write(SOCKET, "").unwrap(),
            || {
                fs::remove_file(SOCKET).unwrap();
                fs::create_dir(SOCKET).unwrap();
            },
        ];
        for attempt in attempts {
            attempt();
            let answer = add(&pod).run();
            assert_eq!(answer.error_code(), 11, "{answer:?}");
            within(&answer, 3);
            Call::of("DEL", &pod).run().nothing();
        }
    });
}

/// It would otherwise take another program's socket away.
#[test]
fn a_daemon_does_not_clear_away_what_is_no_socket() {
    Node::stopped(NodeOptions::default(), |node| {
        fs::create_dir_all("/run/berth").unwrap();
        fs::write(SOCKET, "mine").unwrap();
        let status = node.spawn().wait();
        assert!(!status.success());
        assert!(node.log().contains("is not a socket"), "{}", node.log());
        assert_eq!(fs::read_to_string(SOCKET).unwrap(), "mine");
    });
}
