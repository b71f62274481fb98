//! What Berth does, on this machine, in a minute: `cargo xtask demo`.
//!
//! It runs in network and mount namespaces of its own and changes nothing of the machine.

#![allow(clippy::print_stdout, reason = "a program for people at a terminal")]
#![allow(clippy::unwrap_used, reason = "what goes wrong ends the demo with its reason")]

mod stage;

use std::{
    net::{IpAddr, SocketAddr, TcpListener},
    panic,
    process::ExitCode,
    time::Duration,
};

use berth_tests::{
    Addresses, Answer, Call, NODE_V4, NODE_V6, Node, NodeOptions, OUTSIDE_V4, OUTSIDE_V6, Pod,
    Snapshot, network_config, ping, receive, send,
};
use serde_json::json;
use stage::Stage;

/// The limit that the third pod asks for, in bits per second as runtimes say it.
const LIMIT_BITS: u64 = 16_000_000;

fn main() -> ExitCode {
    panic::set_hook(Box::new(|info| {
        let payload = info.payload();
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let message = text.or(payload.downcast_ref().copied()).unwrap_or("a step failed");
        println!("   ✗ {message}");
    }));
    let played = panic::catch_unwind(|| Node::stopped(NodeOptions::default(), play));
    match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => {
            println!("\nThe demo FAILED at the step above.");
            ExitCode::FAILURE
        }
    }
}

/// A pod of the demo with what it was given.
struct Guest {
    pod: Pod,
    name: &'static str,
    addresses: Addresses,
}

fn play(node: &mut Node) {
    let mut stage = Stage::new();
    stage.step("Start berthd: no cloud, no Kubernetes, namespaces of its own");
    node.start();
    stage.done("it serves on /run/berth/berth.sock");
    let before = Snapshot::take();

    stage.step("Attach three pods through the CNI plugin, dual stack");
    let guests = ["web-0", "web-1", "db-0"].map(|name| attach(&mut stage, name));
    let [first, second, limited] = &guests;

    stage.step("Ping");
    reach(&mut stage, first, "another pod", second.addresses.0.clone());
    reach(&mut stage, first, "the node", vec![NODE_V4.into(), NODE_V6.into()]);
    reach(&mut stage, first, "the outside", vec![OUTSIDE_V4.into(), OUTSIDE_V6.into()]);

    stage.step("Masquerade: whom does the outside see when a pod connects?");
    for (target, node_address, own) in [
        (IpAddr::from(OUTSIDE_V4), IpAddr::from(NODE_V4), IpAddr::from(first.addresses.v4())),
        (OUTSIDE_V6.into(), NODE_V6.into(), first.addresses.v6().into()),
    ] {
        let seen = sender_seen(node.outside(), &first.pod, (target, 9000).into());
        assert_eq!(seen, node_address, "the outside sees {seen}");
        stage.done(&format!("it sees the node, {seen}, and not the pod, {own}"));
    }

    stage.step("Bandwidth: db-0 asked for 16 Mbit/s towards it");
    measure(&mut stage, "web-1 (no limit)", second, None);
    measure(&mut stage, "db-0", limited, Some(LIMIT_BITS));

    stage.step("berthctl pods");
    stage.show(&node.ctl_text("pods"));

    stage.step("kill -9 the daemon; pods and records do not need it");
    node.kill();
    reach(&mut stage, first, "another pod", second.addresses.0.clone());
    let answer = node.del(&second.pod);
    answer.nothing();
    let spooled = std::fs::read_dir("/var/lib/berth/spool").map_or(0, Iterator::count);
    assert_eq!(spooled, 1, "the delete was not written down");
    stage.done(&format!("detached web-1 meanwhile: written down, {}", milliseconds(&answer)));
    node.start();
    for guest in [first, limited] {
        let record = node.record(&guest.pod.id);
        assert_eq!(record["ipv4"], guest.addresses.v4().to_string());
    }
    assert!(node.records(&second.pod.id).is_empty(), "web-1 is still recorded");
    stage.done("started again: web-0 and db-0 are recorded as before, web-1 is released");
    reach(&mut stage, first, "the outside", vec![OUTSIDE_V4.into(), OUTSIDE_V6.into()]);

    stage.step("Detach the rest");
    for guest in [first, limited] {
        let answer = node.del(&guest.pod);
        answer.nothing();
        stage.done(&format!("{:<6} {}", guest.name, milliseconds(&answer)));
    }

    stage.step("What is left?");
    node.assert_no_trace_since(&before);
    for guest in &guests {
        let links = guest.pod.run("ip -br link");
        assert!(!links.contains("eth0"), "{} still has eth0", guest.name);
    }
    stage.done("no record; no link, address, route, rule, qdisc, ifb or nft rule of a pod");
    let pool = &node.ctl("pool")["summary"];
    stage.done(&format!("{} addresses rest before anyone else gets them", pool["cooling"]));

    assert!(node.stop().success(), "berthd did not stop cleanly");
    stage.end();
}

fn attach(stage: &mut Stage, name: &'static str) -> Guest {
    let pod = Pod::new();
    let mut config = network_config();
    if name == "db-0" {
        config["runtimeConfig"] = json!({"bandwidth": {
            "ingressRate": LIMIT_BITS, "ingressBurst": LIMIT_BITS,
        }});
    }
    let answer = Call::of("ADD", &pod).pod("shop", name).input(&config).run();
    let addresses = Addresses::of_result(&answer.result());
    stage.done(&format!(
        "shop/{name:<6} {:<15} {:<24} {}",
        addresses.v4(),
        addresses.v6(),
        milliseconds(&answer)
    ));
    Guest { pod, name, addresses }
}

fn milliseconds(answer: &Answer) -> String {
    format!("{:.1} ms", answer.took.as_secs_f64() * 1e3)
}

fn reach(stage: &mut Stage, from: &Guest, what: &str, targets: Vec<IpAddr>) {
    for target in targets {
        let answered = from.pod.enter(move || ping(target)).join().unwrap();
        assert!(answered, "{} does not reach {what} at {target}", from.name);
        stage.done(&format!("{} reaches {what} at {target}", from.name));
    }
}

/// Who a receiver at `address` in `to` sees when `from` connects.
fn sender_seen(to: &Pod, from: &Pod, address: SocketAddr) -> IpAddr {
    let listener = to.enter(move || TcpListener::bind(address).unwrap()).join().unwrap();
    let receiving = to.enter(move || receive(&listener, Duration::from_millis(50)));
    from.enter(move || send(address, Duration::from_millis(200))).join().unwrap();
    receiving.join().unwrap().1.ip()
}

/// Sends to the pod for two seconds and tells the rate that arrived.
fn measure(stage: &mut Stage, name: &str, guest: &Guest, limit: Option<u64>) {
    const SPAN: Duration = Duration::from_secs(2);
    let address = SocketAddr::new(guest.addresses.v4().into(), 9000);
    let listener = guest.pod.enter(move || TcpListener::bind(address).unwrap()).join().unwrap();
    let receiving = guest.pod.enter(move || receive(&listener, SPAN));
    send(address, SPAN + Duration::from_millis(500));
    let (bytes, _) = receiving.join().unwrap();
    let bits = bytes * 8 / SPAN.as_secs();
    if let Some(limit) = limit {
        // What the bucket and the queue hold comes on top, in so short a time.
        let allowed = limit / 2..limit * 5 / 4;
        assert!(allowed.contains(&bits), "{bits} bit/s arrive, with a limit of {limit}");
    }
    let megabits = bits as f64 / 1e6;
    stage.done(&format!("{megabits:.1} Mbit/s arrive at {name}"));
}
