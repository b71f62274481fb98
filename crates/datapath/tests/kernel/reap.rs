use berth_datapath::Host;
use berth_testkit::{in_netns, ip, run};
use berth_types::{Bandwidth, HostPrefix, InterfaceName};
use tokio::time::Instant;

use crate::world::{Pod, host_state};

fn open() -> Host {
    Host::open(HostPrefix::default()).unwrap()
}

async fn pods(range: std::ops::RangeInclusive<u8>) -> Vec<Pod> {
    let mut pods = Vec::new();
    for n in range {
        let mut pod = Pod::new(n);
        if n % 4 == 0 {
            pod.conf.bandwidth = Bandwidth { ingress: None, egress: Some(1_000_000) };
        }
        pod.attach().await;
        pods.push(pod);
    }
    pods
}

fn hosts(pods: &[Pod]) -> Vec<InterfaceName> {
    pods.iter().map(|pod| pod.host().clone()).collect()
}

#[test]
fn a_batch_costs_little_more_than_one_link() {
    in_netns(|| async {
        let host = open();
        let before = host_state();
        let first = pods(1..=20).await;
        host.unhook(&hosts(&first)).await.unwrap();
        let start = Instant::now();
        host.reap(&hosts(&first), &[]).await.unwrap();
        let batch = start.elapsed();
        assert_eq!(host_state(), before);

        let second = pods(101..=120).await;
        host.unhook(&hosts(&second)).await.unwrap();
        // A link of another kind in our group: it is not ours, and forbids the batch.
        ip("link add bridge0 type bridge");
        ip("link set bridge0 group 48712");
        let start = Instant::now();
        host.reap(&hosts(&second), &[]).await.unwrap();
        let singly = start.elapsed();
        assert!(ip("link").contains("bridge0"));
        ip("link del bridge0");
        assert_eq!(host_state(), before);

        println!("reap of 20 links and 5 ifbs: {batch:?} in a batch, {singly:?} one by one");
        assert!(batch * 3 < singly, "{batch:?} {singly:?}");
    });
}

#[test]
fn reaping_is_done_where_links_are_gone() {
    in_netns(|| async {
        let pods = pods(1..=4).await;
        let names = hosts(&pods);
        open().unhook(&names).await.unwrap();
        open().reap(&names, &pods[0].addresses()).await.unwrap();
        open().reap(&names, &pods[0].addresses()).await.unwrap();
        open().unhook(&names).await.unwrap();
    });
}

#[test]
fn what_was_never_unhooked_goes_if_it_carries_the_address_and_stays_if_not() {
    in_netns(|| async {
        let host = open();
        let pods = pods(3..=4).await;
        let names = hosts(&pods);
        host.reap(&names, &pods[1].addresses()).await.unwrap();
        let left = host.wired(&Default::default()).await.unwrap();
        assert_eq!(left.into_keys().collect::<Vec<_>>(), [names[0].clone()]);
        assert!(!ip("link").contains("type ifb") && !ip("-d link").contains(" ifb "));
    });
}

#[test]
fn a_link_whose_mark_somebody_took_goes_all_the_same() {
    in_netns(|| async {
        let host = open();
        let pod = pods(2..=2).await.remove(0);
        let name = pod.host().clone();
        ip(&format!("link set {name} group default"));
        assert!(!host.wired(&Default::default()).await.unwrap()[name.as_str()].marked);
        host.unhook(std::slice::from_ref(&name)).await.unwrap();
        host.reap(std::slice::from_ref(&name), &pod.addresses()).await.unwrap();
        assert!(!ip("link").contains(name.as_str()));
    });
}

#[test]
fn an_ifb_whose_pair_died_with_its_namespace_is_listed_and_goes() {
    in_netns(|| async {
        let host = open();
        let pod = pods(4..=4).await.remove(0);
        let name = pod.host().clone();
        ip(&format!("link del {name}"));
        assert!(host.wired(&Default::default()).await.unwrap().contains_key(&name));
        host.reap(std::slice::from_ref(&name), &pod.addresses()).await.unwrap();
        assert!(host.wired(&Default::default()).await.unwrap().is_empty());
        assert!(!ip("-d link").contains(" ifb "));
    });
}

#[test]
fn what_bears_our_name_is_listed_with_its_addresses_and_whether_it_bears_our_mark() {
    in_netns(|| async {
        let pods = pods(1..=5).await;
        let host = open();
        host.unhook(&[pods[2].host().clone()]).await.unwrap();
        ip("link add bth000000000000 type veth peer name foreign");
        ip("link add bridge0 type bridge");
        let found = host.wired(&Default::default()).await.unwrap();
        let mut expected = hosts(&pods);
        expected.remove(2);
        expected.push("bth000000000000".parse().unwrap());
        expected.sort();
        assert_eq!(found.keys().cloned().collect::<Vec<_>>(), expected);
        assert!(!found["bth000000000000"].marked, "it has our name and not our mark");
        let first = &found[pods[0].host()];
        assert!(first.marked);
        assert_eq!(first.addresses, pods[0].addresses().into_iter().collect());
        let others = Host::open("xyz".parse().unwrap()).unwrap();
        let found = others.wired(&Default::default()).await.unwrap();
        expected.retain(|name| name.as_str() != "bth000000000000");
        assert_eq!(found.into_keys().collect::<Vec<_>>(), expected, "our mark tells, by any name");
        let known = ["bth000000000000".parse().unwrap()].into();
        assert!(others.wired(&known).await.unwrap().contains_key("bth000000000000"));
    });
}

#[test]
fn what_is_foreign_outlives_prepare_unhook_and_reap() {
    in_netns(|| async {
        ip("link add other type veth peer name rehto");
        ip("link set other up");
        ip("addr add 192.0.2.1/24 dev other");
        ip("route add 10.1.0.0/24 dev other");
        ip("route add 10.1.0.77/32 dev other table 77");
        ip("rule add to 10.1.0.0/24 lookup 77 priority 100");
        run("nft add table inet other");
        run("nft add chain inet other c { type filter hook forward priority 0 ; }");
        run("nft add rule inet other c ip saddr 10.1.0.0/24 counter accept");
        run("sysctl -qw net.ipv4.ip_forward=2");
        let before = host_state();

        let host = open();
        let cidrs = ["10.1.0.0/24", "fd00:1::/64"].map(|text| text.parse().unwrap());
        host.prepare(&cidrs, true).await.unwrap();
        let prepared = host_state();
        assert!(prepared.contains("table inet berth"), "{prepared}");
        host.prepare(&cidrs, true).await.unwrap();
        assert_eq!(host_state(), prepared);
        assert_eq!(run("sysctl -n net.ipv4.ip_forward"), "2\n");
        assert_eq!(run("sysctl -n net.ipv6.conf.all.forwarding"), "1\n");

        let pods = pods(1..=4).await;
        host.unhook(&hosts(&pods)).await.unwrap();
        host.reap(&hosts(&pods), &pods[0].addresses()).await.unwrap();
        assert_eq!(host_state(), prepared);
        host.prepare(&cidrs, false).await.unwrap();
        // Forwarding makes the kernel join all-routers' anycast addresses; ours is the rest.
        let after: String = host_state()
            .lines()
            .filter(|line| !line.contains("anycast"))
            .map(|l| format!("{l}\n"))
            .collect();
        assert_eq!(after, before);
    });
}

#[test]
fn connections_of_the_addresses_are_forgotten_and_no_others() {
    in_netns(|| async {
        let host = open();
        // Connections are tracked where a rule looks at them.
        host.prepare(&["10.1.0.0/24".parse().unwrap()], true).await.unwrap();
        ip("addr add 192.0.2.1/32 dev lo");
        ip("addr add fd00:9::1/128 dev lo nodad");
        let pods = pods(1..=2).await;
        for pod in &pods {
            use crate::world::{Place::*, exchange};
            exchange(Here, In(&pod.name), pod.conf.addresses.v4.unwrap().into()).unwrap();
            exchange(Here, In(&pod.name), pod.conf.addresses.v6.unwrap().into()).unwrap();
        }
        let known = || run("conntrack -L") + &run("conntrack -L -f ipv6");
        for address in ["=10.1.0.1 ", "=10.1.0.2 ", "=fd00:1::1 ", "=fd00:1::2 "] {
            assert!(known().contains(address), "{address}: {}", known());
        }
        host.reap(&[], &pods[0].addresses()).await.unwrap();
        for (address, is_kept) in [
            ("=10.1.0.1 ", false),
            ("=10.1.0.2 ", true),
            ("=fd00:1::1 ", false),
            ("=fd00:1::2 ", true),
        ] {
            assert_eq!(known().contains(address), is_kept, "{address}: {}", known());
        }
    });
}
