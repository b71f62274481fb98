//! Floods of HTTP/2 that each aim at something without a bound: they have one.

use std::{
    fs,
    io::{self, Write},
    os::unix::net::UnixStream,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use berth_proto::v1::{RecordEventRequest, ipam_client::IpamClient};
use berth_tests::{Node, NodeOptions, Pod, Stopwatch};
use serde_json::json;

use crate::http2::{
    CONTINUATION, DATA, EMPTY, END_HEADERS, END_STREAM, HEADERS, PING, RST_STREAM, SETTINGS, call,
    frame, greet,
};

const SOCKET: &str = "/run/berth/berth.sock";
const LIST: &str = "/berth.v1.Inspect/ListPool";
const ALLOC: &str = "/berth.v1.Ipam/AllocIP";
const PLAIN: (&str, &str) = ("x-a", "a");

/// No answer may be sent: SETTINGS_INITIAL_WINDOW_SIZE (4) is 0.
const CLOSED_WINDOW: &[u8] = &[0, 4, 0, 0, 0, 0];

/// One connection's worth of harm. The numbers of streams are odd and grow.
type Flood = fn(&mut UnixStream, &mut dyn Iterator<Item = u32>) -> io::Result<()>;

fn list(stream: u32) -> Vec<u8> {
    let mut bytes = frame(HEADERS, END_HEADERS, stream, &call(LIST, PLAIN));
    bytes.extend(frame(DATA, END_STREAM, stream, EMPTY));
    bytes
}

/// Each with its settings at the greeting.
const FLOODS: &[(&str, &[u8], Flood)] = &[
    ("calls that never end", &[], |peer, streams| {
        streams.take(200).try_for_each(|stream| {
            peer.write_all(&frame(HEADERS, END_HEADERS, stream, &call(ALLOC, PLAIN)))?;
            // The start of a message of 300 KiB, which does not come.
            let mut message = vec![0, 0, 4, 0xb0, 0];
            message.resize(8 << 10, 0);
            peer.write_all(&frame(DATA, 0, stream, &message))
        })
    }),
    ("calls taken back at once", &[], |peer, streams| {
        streams.take(200).try_for_each(|stream| {
            peer.write_all(&list(stream))?;
            peer.write_all(&frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]))
        })
    }),
    ("settings", &[], |peer, _| {
        let settings: Vec<u8> = frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 9].repeat(100)).repeat(20);
        peer.write_all(&settings)
    }),
    ("pings whose answers are not read", &[], |peer, _| {
        peer.write_all(&frame(PING, 0, 0, &[7; 8]).repeat(1000))
    }),
    ("headers without an end", &[], |peer, streams| {
        let stream = streams.next().unwrap_or(1);
        peer.write_all(&frame(HEADERS, 0, stream, &call(LIST, PLAIN)))?;
        let more = frame(CONTINUATION, 0, stream, &call(LIST, ("x-b", &"b".repeat(8000))));
        peer.write_all(&more.repeat(50))
    }),
    ("large headers", &[], |peer, streams| {
        let large = "c".repeat(15_000);
        streams.take(20).try_for_each(|stream| {
            let flags = END_HEADERS | END_STREAM;
            peer.write_all(&frame(HEADERS, flags, stream, &call(LIST, ("x-c", &large))))
        })
    }),
    ("answers that are not taken", CLOSED_WINDOW, |peer, streams| {
        streams.take(200).try_for_each(|stream| peer.write_all(&list(stream)))
    }),
    ("data for nobody", &[], |peer, _| peer.write_all(&frame(DATA, 0, 1, &[0; 1000]).repeat(20))),
    ("empty data", &[], |peer, streams| {
        let stream = streams.next().unwrap_or(1);
        peer.write_all(&frame(HEADERS, END_HEADERS, stream, &call(LIST, PLAIN)))?;
        peer.write_all(&frame(DATA, 0, stream, &[]).repeat(10_000))
    }),
    ("noise", &[], |peer, _| peer.write_all(&[0xa5; 64 << 10])),
];

/// Goes on until told to stop, each time with connections that stay open for a while.
fn flood(settings: &'static [u8], attack: Flood, stop: &AtomicBool) -> usize {
    let mut held: Vec<(UnixStream, u32)> = Vec::new();
    let mut sent = 0;
    while !stop.load(Ordering::Relaxed) {
        held.truncate(8);
        if held.len() < 8 {
            match greet(Path::new(SOCKET), settings) {
                Ok(peer) => held.push((peer, 1)),
                Err(_) => thread::sleep(Duration::from_millis(5)),
            }
        }
        held.retain_mut(|(peer, next)| {
            let mut streams = std::iter::from_fn(|| {
                *next += 2;
                Some(*next)
            });
            sent += 1;
            // Hung up on, or the daemon does not read on: a new connection, then.
            attack(peer, &mut streams).is_ok() && *next < 1 << 30
        });
    }
    sent
}

#[test]
fn floods_leave_the_daemon_small_and_of_use_to_others_and_able_to_stop() {
    let options = NodeOptions::config(json!({"stop_grace": "5s"}));
    Node::with(options, |node| {
        let before = node.daemon().usage();
        let stop = Arc::new(AtomicBool::new(false));
        let attackers: Vec<_> = FLOODS
            .iter()
            .map(|(name, settings, attack)| {
                let stop = Arc::clone(&stop);
                (*name, thread::spawn(move || flood(settings, *attack, &stop)))
            })
            .collect();
        let (stopwatch, mut served, mut largest) = (Stopwatch::start(), 0, 0);
        let mut slowest = Duration::ZERO;
        while stopwatch.elapsed() < Duration::from_secs(12) {
            let pod = Pod::new();
            let answer = node.add(&pod);
            answer.result();
            slowest = slowest.max(answer.took);
            node.del(&pod).nothing();
            pod.destroy();
            served += 1;
            largest = largest.max(node.daemon().usage().anonymous);
        }
        let grown = largest.saturating_sub(before.anonymous);
        println!("{served} pods served, the slowest ADD {slowest:?}, {grown} bytes more");
        assert!(slowest < Duration::from_secs(10), "{slowest:?}");
        // Ten peers with eight connections each, and a debug build.
        assert!(grown < 192 << 20, "{grown} bytes more");
        let descriptors =
            fs::read_dir(format!("/proc/{}/fd", node.daemon().pid())).unwrap().count();
        assert!(descriptors < 400, "{descriptors} descriptors");

        // Under the floods still.
        let stopping = Stopwatch::start();
        assert!(node.stop().success());
        let took = stopping.elapsed();
        assert!(took < Duration::from_secs(12), "the stop took {took:?}");
        stop.store(true, Ordering::Relaxed);
        for (name, attacker) in attackers {
            assert!(attacker.join().unwrap() > 0, "{name}: nothing was sent");
        }
        let log = node.log();
        assert!(!log.contains("panicked"), "{log}");
        assert!(log.len() < 4 << 20, "a flood of the log: {} bytes", log.len());
    });
}

/// What one peer cannot do is said to it, and its connection goes on.
#[test]
fn a_message_that_is_too_large_is_refused_and_so_is_a_method_that_is_none() {
    Node::with(NodeOptions::default(), |node| {
        let outcome = node.ask(async |channel| {
            let mut client = IpamClient::new(channel);
            let large = RecordEventRequest { message: "x".repeat(2 << 20), ..Default::default() };
            let first = client.record_event(large).await.unwrap_err();
            let second = client.record_event(RecordEventRequest::default()).await.unwrap_err();
            Ok((first.code(), second.code()))
        });
        assert_eq!(outcome, (tonic::Code::OutOfRange, tonic::Code::InvalidArgument));
    });
}
