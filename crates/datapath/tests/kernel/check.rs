use berth_datapath::{Host, check};
use berth_testkit::{in_netns, ip, run};
use berth_types::{Bandwidth, HostPrefix, ifb_name};

use crate::world::Pod;

async fn differences(pod: &Pod) -> Vec<String> {
    check(&pod.netns, &pod.conf, None).await.unwrap()
}

fn limited(n: u8) -> Pod {
    let mut pod = Pod::new(n);
    pod.conf.bandwidth = Bandwidth { ingress: Some(1_250_000), egress: Some(12_500_000_000) };
    pod.conf.extra_routes = vec!["10.96.0.0/12".parse().unwrap(), "fd00:2::/64".parse().unwrap()];
    pod
}

#[test]
fn what_was_wired_is_right() {
    in_netns(|| async {
        let pod = limited(1);
        pod.attach().await;
        assert_eq!(differences(&pod).await, [""; 0]);
    });
}

#[test]
fn every_part_that_is_taken_away_is_named() {
    in_netns(|| async {
        let pod = limited(1);
        pod.attach().await;
        let host = pod.host().to_string();
        let ifb = ifb_name(pod.host());
        let mac = pod.conf.host_mac;
        // Everything beside it stays, so that each is found for itself. With its last IPv4 address
        // a link would lose its routes.
        pod.ip("addr add 192.0.2.99/32 dev eth0");
        let cases = [
            (
                "ip -n p1 route del default".to_owned(),
                "route default via 169.254.1.1 dev eth0 is missing in the pod".to_owned(),
            ),
            (
                "ip -n p1 -6 route del default".to_owned(),
                "route default via fe80::1 dev eth0 is missing in the pod".to_owned(),
            ),
            (
                "ip -n p1 route del 10.96.0.0/12".to_owned(),
                "route 10.96.0.0/12 via 169.254.1.1 dev eth0 is missing in the pod".to_owned(),
            ),
            (
                "ip -n p1 -6 route del fd00:2::/64".to_owned(),
                "route fd00:2::/64 via fe80::1 dev eth0 is missing in the pod".to_owned(),
            ),
            (
                "ip -n p1 addr del 10.1.0.1/32 dev eth0".to_owned(),
                "address 10.1.0.1/32 dev eth0 is missing in the pod".to_owned(),
            ),
            (
                "ip -n p1 addr del fd00:1::1/128 dev eth0".to_owned(),
                "address fd00:1::1/128 dev eth0 is missing in the pod".to_owned(),
            ),
            (
                "ip -n p1 neigh del 169.254.1.1 dev eth0".to_owned(),
                "permanent neighbour 169.254.1.1 dev eth0 is missing in the pod".to_owned(),
            ),
            (
                "ip -n p1 neigh replace fe80::1 dev eth0 lladdr 02:00:00:00:00:99".to_owned(),
                format!(
                    "neighbour fe80::1 dev eth0 has MAC 02:00:00:00:00:99 instead of {mac} \
                     in the pod"
                ),
            ),
            (
                "ip netns exec p1 sysctl -qw net.ipv6.conf.eth0.accept_ra=2".to_owned(),
                "sysctl net/ipv6/conf/eth0/accept_ra is 2 instead of 0 in the pod".to_owned(),
            ),
            ("ip -n p1 link set lo down".to_owned(), "link lo is down in the pod".to_owned()),
            (
                "ip -n p1 link set eth0 mtu 1300".to_owned(),
                "link eth0 has MTU 1300 instead of 1400 in the pod".to_owned(),
            ),
            (
                format!("ip route del 10.1.0.1/32 dev {host}"),
                format!("route 10.1.0.1/32 dev {host} is missing on the host"),
            ),
            (
                format!("ip -6 route del fd00:1::1/128 dev {host}"),
                format!("route fd00:1::1/128 dev {host} is missing on the host"),
            ),
            (
                format!("ip addr del fe80::1/64 dev {host}"),
                format!("address fe80::1/64 dev {host} is missing on the host"),
            ),
            (
                format!("tc qdisc del dev {host} root"),
                format!("bandwidth limit of {host} is missing on the host"),
            ),
            (
                format!(
                    "tc qdisc replace dev {ifb} root handle 1: tbf rate 8Mbit burst 9k limit 9k"
                ),
                format!(
                    "bandwidth limit of {ifb} is 1000000 instead of 12500000000 bytes per second \
                     on the host"
                ),
            ),
            (
                format!("tc filter del dev {host} ingress"),
                format!("redirect from {host} to {ifb} is missing on the host"),
            ),
        ];
        for (command, sentence) in cases {
            run(&command);
            assert_eq!(differences(&pod).await, [sentence], "{command}");
            // Put right by hand or by a repeated attach; what it does not touch is put back here.
            if command.contains("mtu") {
                pod.ip("link set eth0 mtu 1400");
            }
            pod.attach().await;
            assert_eq!(differences(&pod).await, [""; 0], "{command}");
        }
    });
}

#[test]
fn what_takes_more_with_it_is_named_with_all_of_it() {
    in_netns(|| async {
        let pod = limited(1);
        pod.attach().await;
        let (host, ifb) = (pod.host().to_string(), ifb_name(pod.host()));
        run(&format!("tc qdisc del dev {host} ingress"));
        assert_eq!(
            differences(&pod).await,
            [
                format!("ingress queue of {host} is missing on the host"),
                format!("redirect from {host} to {ifb} is missing on the host"),
            ]
        );
        pod.attach().await;
        ip(&format!("link set {host} down"));
        let found = differences(&pod).await;
        assert!(found.contains(&format!("link {host} is down on the host")), "{found:?}");
        assert!(found.contains(&format!("route 10.1.0.1/32 dev {host} is missing on the host")));
        pod.attach().await;
        ip(&format!("link del {ifb}"));
        assert_eq!(differences(&pod).await[0], format!("link {ifb} is missing on the host"));
    });
}

#[test]
fn a_pod_without_its_pair_misses_two_links() {
    in_netns(|| async {
        let pod = Pod::attached(1).await;
        ip(&format!("link del {}", pod.host()));
        assert_eq!(
            differences(&pod).await,
            [
                format!("link {} is missing on the host", pod.host()),
                "link eth0 is missing in the pod".to_owned(),
            ]
        );
    });
}

#[test]
fn a_foreign_interface_in_the_pod_is_not_the_other_end() {
    in_netns(|| async {
        let pod = Pod::attached(1).await;
        pod.ip("link set eth0 down");
        pod.ip("link set eth0 name eth1");
        pod.ip(&format!("link add eth0 mtu 1400 address {} type veth", pod.conf.pod_mac));
        let found = differences(&pod).await;
        let expected =
            format!("link eth0 in the pod is not the other end of {} on the host", pod.host());
        assert!(found.contains(&expected), "{found:?}");
    });
}

#[test]
fn a_mac_that_a_later_plugin_set_is_right_if_the_result_says_so() {
    in_netns(|| async {
        let pod = Pod::attached(1).await;
        pod.ip("link set eth0 address 02:00:00:00:00:77");
        let planned = pod.conf.pod_mac;
        assert_eq!(
            differences(&pod).await,
            [
                format!("link eth0 has MAC 02:00:00:00:00:77 instead of {planned} in the pod"),
                "permanent neighbour 169.254.1.1 dev eth0 is missing in the pod".to_owned(),
                "permanent neighbour fe80::1 dev eth0 is missing in the pod".to_owned(),
            ]
        );
        let changed = "02:00:00:00:00:77".parse().unwrap();
        let found = check(&pod.netns, &pod.conf, Some(changed)).await.unwrap();
        assert_eq!(found, [""; 0]);
    });
}

#[test]
fn what_is_there_beside_the_plan_is_fine() {
    in_netns(|| async {
        let pod = Pod::attached(1).await;
        Host::open(HostPrefix::default())
            .unwrap()
            .prepare(&["10.1.0.0/24".parse().unwrap()], true)
            .await
            .unwrap();
        pod.ip("addr add 192.0.2.7/24 dev eth0");
        pod.ip("route add 198.51.100.0/24 via 192.0.2.1");
        pod.ip("link add other type veth peer name rehto");
        ip(&format!("route add 198.51.100.7 dev {}", pod.host()));
        assert_eq!(differences(&pod).await, [""; 0]);
    });
}
