use berth_datapath::Host;
use berth_testkit::{in_netns, ip, run};
use berth_types::{Bandwidth, HostPrefix};

use crate::world::{
    Place::{self, Here, In},
    Pod, exchange,
};

const CIDRS: [&str; 2] = ["10.1.0.0/24", "fd00:1::/64"];

async fn prepared(masquerade: bool) -> Host {
    let host = Host::open(HostPrefix::default()).unwrap();
    let cidrs = CIDRS.map(|text| text.parse().unwrap());
    host.prepare(&cidrs, masquerade).await.unwrap();
    host
}

#[track_caller]
fn reaches(from: Place<'_>, to: Place<'_>, address: &str) -> String {
    let seen = exchange(from, to, address.parse().unwrap());
    seen.unwrap_or_else(|err| panic!("{from:?} to {address}: {err}")).to_string()
}

#[track_caller]
fn does_not_reach(from: Place<'_>, to: Place<'_>, address: &str) {
    let seen = exchange(from, to, address.parse().unwrap());
    assert!(seen.is_err(), "{from:?} to {address}");
}

#[track_caller]
fn until(mut condition: impl FnMut() -> bool) {
    for _ in 0..500 {
        if condition() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    panic!("not within a second");
}

#[test]
fn pods_and_host_reach_each_other_with_the_first_packet() {
    in_netns(|| async {
        prepared(true).await;
        ip("addr add 192.0.2.1/32 dev lo");
        ip("addr add fd00:9::1/128 dev lo nodad");
        Pod::attached(1).await;
        Pod::attached(2).await;
        assert_eq!(reaches(In("p1"), In("p2"), "fd00:1::2"), "fd00:1::1");
        assert_eq!(reaches(In("p1"), In("p2"), "10.1.0.2"), "10.1.0.1");
        assert_eq!(reaches(In("p2"), Here, "fd00:9::1"), "fd00:1::2");
        assert_eq!(reaches(In("p2"), Here, "192.0.2.1"), "10.1.0.2");
        // The host's own source here is whatever it has: for IPv6 the link's own address.
        reaches(Here, In("p1"), "fd00:1::1");
        reaches(Here, In("p1"), "10.1.0.1");
    });
}

#[test]
fn a_pod_whose_mac_a_later_plugin_changed_still_reaches_its_gateways() {
    in_netns(|| async {
        prepared(true).await;
        ip("addr add 192.0.2.1/32 dev lo");
        let pod = Pod::attached(1).await;
        pod.ip("link set eth0 address 02:00:00:00:00:77");
        Pod::attached(2).await;
        assert_eq!(reaches(In("p1"), In("p2"), "10.1.0.2"), "10.1.0.1");
        reaches(In("p1"), In("p2"), "fd00:1::2");
        reaches(Here, In("p1"), "10.1.0.1");
        reaches(Here, In("p1"), "fd00:1::1");
    });
}

#[test]
fn the_hosts_own_packets_to_a_pod_carry_an_address_of_the_node() {
    in_netns(|| async {
        prepared(true).await;
        ip("link add uplink type veth peer name other");
        ip("link set uplink up");
        ip("addr add 192.0.2.1/24 dev uplink");
        Pod::attached(1).await;
        assert_eq!(reaches(Here, In("p1"), "10.1.0.1"), "192.0.2.1");
    });
}

#[test]
fn the_first_packet_to_a_pod_that_is_a_moment_old_arrives() {
    in_netns(|| async {
        prepared(true).await;
        ip("addr add 192.0.2.1/32 dev lo");
        for n in 1..=20 {
            let pod = Pod::attached(n).await;
            reaches(Here, In(&pod.name), &format!("fd00:1::{n:x}"));
            reaches(In(&pod.name), Here, "192.0.2.1");
        }
    });
}

#[test]
fn what_pods_send_to_the_outside_carries_the_nodes_address() {
    in_netns(|| async {
        ip("netns add outside");
        ip("link add uplink type veth peer name eth0 netns outside");
        ip("link set uplink up");
        ip("-n outside link set eth0 up");
        ip("addr add 192.0.2.1/24 dev uplink");
        ip("addr add fd00:9::1/64 dev uplink nodad");
        ip("-n outside addr add 192.0.2.9/24 dev eth0");
        ip("-n outside addr add fd00:9::9/64 dev eth0 nodad");
        // The kernel finishes even `nodad` addresses a moment later.
        for (place, address) in [("-n outside", "fd00:9::9"), ("", "fd00:9::1")] {
            until(|| ip(&format!("{place} -6 route show table local")).contains(address));
        }
        prepared(true).await;
        Pod::attached(1).await;
        Pod::attached(2).await;
        assert_eq!(reaches(In("p1"), In("outside"), "192.0.2.9"), "192.0.2.1");
        assert_eq!(reaches(In("p1"), In("outside"), "fd00:9::9"), "fd00:9::1");
        assert_eq!(reaches(In("p1"), In("p2"), "10.1.0.2"), "10.1.0.1");

        prepared(false).await;
        ip("-n outside route add 10.1.0.0/24 via 192.0.2.1");
        assert_eq!(reaches(In("p1"), In("outside"), "192.0.2.9"), "10.1.0.1");
    });
}

#[test]
fn an_unhooked_pod_is_off_the_network_at_once() {
    in_netns(|| async {
        let host = prepared(true).await;
        ip("addr add 192.0.2.1/32 dev lo");
        let pod = Pod::attached(1).await;
        reaches(In("p1"), Here, "192.0.2.1");
        reaches(Here, In("p1"), "10.1.0.1");

        let start = tokio::time::Instant::now();
        host.unhook(std::slice::from_ref(pod.host())).await.unwrap();
        println!("unhook: {:?}", start.elapsed());

        assert!(!ip("route").contains("10.1.0.1"));
        assert!(!ip("-6 route").contains("fd00:1::1"));
        does_not_reach(In("p1"), Here, "192.0.2.1");
        does_not_reach(Here, In("p1"), "10.1.0.1");
        does_not_reach(Here, In("p1"), "fd00:1::1");
        host.unhook(std::slice::from_ref(pod.host())).await.unwrap();
    });
}

#[test]
fn a_pods_traffic_goes_through_its_limits_both_ways() {
    in_netns(|| async {
        prepared(true).await;
        let mut pod = Pod::new(1);
        // 100 kB/s and bursts of 14 kB (ten packets of the MTU).
        pod.conf.bandwidth = Bandwidth { ingress: Some(100_000), egress: Some(100_000) };
        pod.attach().await;
        Pod::attached(2).await;
        for (from, to, address) in [("p1", "p2", "10.1.0.2"), ("p2", "p1", "10.1.0.1")] {
            let receiver = In(to).socket(format!("{address}:0").parse().unwrap()).unwrap();
            let sender = In(from).socket("0.0.0.0:0".parse().unwrap()).unwrap();
            // 100 kB at once: the burst of 14 kB goes through, and 19 kB wait (the burst and 50 ms
            // of rate). The rest is lost, but for what goes out while more is being sent.
            receiver.set_read_timeout(Some(std::time::Duration::from_millis(400))).unwrap();
            for _ in 0..100 {
                sender.send_to(&[0; 1000], receiver.local_addr().unwrap()).unwrap();
            }
            let mut received = 0;
            while let Ok(bytes) = receiver.recv(&mut [0; 2000]) {
                received += bytes;
            }
            assert!((25_000..=60_000).contains(&received), "{from} to {to}: {received}");
        }
        let shown = run("tc -s qdisc");
        let dropping = shown.split("qdisc ").filter(|q| q.starts_with("tbf"));
        let dropping = dropping.filter(|q| !q.contains("dropped 0,")).count();
        assert_eq!(dropping, 2, "{shown}");
    });
}
