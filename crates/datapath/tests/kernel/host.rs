use std::{
    os::unix::fs::MetadataExt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use berth_datapath::{Host, NetnsError, PodNetns, check, identify};
use berth_testkit::{in_netns, ip, run};
use berth_types::HostPrefix;
use nix::sched::{CloneFlags, setns};

use crate::world::{Pod, path};

fn open() -> Host {
    Host::open(HostPrefix::default()).unwrap()
}

#[test]
fn a_namespace_is_known_by_its_inode_and_missing_when_it_is_gone() {
    in_netns(|| async {
        ip("netns add p1");
        let id = identify(&path("p1")).unwrap();
        assert_eq!(PodNetns::open(&path("p1")).unwrap().id(), id);
        ip("netns add p2");
        assert_ne!(identify(&path("p2")).unwrap(), id);

        // What is left when only the mount goes: an ordinary file.
        run("umount /run/netns/p1");
        assert!(matches!(identify(&path("p1")), Err(NetnsError::NotANamespace(_))));
        ip("netns del p2");
        assert!(matches!(identify(&path("p2")), Err(NetnsError::Missing(_))));
    });
}

#[test]
fn an_overlap_names_both() {
    in_netns(|| async {
        let host = open();
        host.prepare(&["10.1.0.0/16".parse().unwrap()], true).await.unwrap();
        let pod = Pod::attached(1).await;
        ip("link add up0 type veth peer name down0");
        ip("link set up0 up");
        ip("link set down0 up");
        ip("addr add 192.0.2.1/24 dev up0");
        ip("route add default via 192.0.2.9");
        let cidrs = ["10.1.0.0/16".parse().unwrap(), "fd00:1::/64".parse().unwrap()];
        assert_eq!(host.overlap(&cidrs).await.unwrap(), None);

        let expect = async |text: &str| {
            let (_, found) = host.overlap(&cidrs).await.unwrap().unwrap();
            assert_eq!(found, text);
        };
        ip("route add 10.0.0.0/8 via 192.0.2.9");
        expect("route 10.0.0.0/8 via 192.0.2.9 dev up0").await;
        ip("route del 10.0.0.0/8");
        ip("route add blackhole 10.1.4.0/24");
        expect("route 10.1.4.0/24").await;
        ip("route del blackhole 10.1.4.0/24");
        ip("addr add 10.1.200.1/32 dev lo");
        expect("address 10.1.200.1/32 dev lo").await;
        ip("addr del 10.1.200.1/32 dev lo");
        ip("-6 route add fd00:1::/80 dev up0");
        expect("route fd00:1::/80 dev up0").await;
        drop(pod);
    });
}

#[test]
fn the_uplink_is_where_the_default_route_leads() {
    in_netns(|| async {
        let host = open();
        assert_eq!(host.uplink_mtu().await.unwrap(), None);
        for (n, mtu) in [(1, 9001), (2, 1400), (3, 1380)] {
            ip(&format!("link add up{n} mtu {mtu} type veth peer name down{n}"));
            ip(&format!("link set up{n} up"));
            ip(&format!("addr add 192.0.{n}.1/24 dev up{n}"));
        }
        ip("-6 route add default dev up3");
        assert_eq!(host.uplink_mtu().await.unwrap(), Some(1380));
        ip("route add default via 192.0.2.9 metric 200");
        assert_eq!(host.uplink_mtu().await.unwrap(), Some(1400));
        ip("route add default via 192.0.1.9 metric 100");
        assert_eq!(host.uplink_mtu().await.unwrap(), Some(9001));
        ip("route add default metric 1 nexthop via 192.0.1.9 nexthop via 192.0.2.9");
        assert_eq!(host.uplink_mtu().await.unwrap(), Some(1400));
    });
}

#[test]
fn a_list_is_whole_while_links_come_and_go() {
    in_netns(|| async {
        for n in 1..=60 {
            Pod::attached(n).await;
        }
        let host = open();
        let expected = host.wired(&Default::default()).await.unwrap();
        assert_eq!(expected.len(), 60);

        let stop = Arc::new(AtomicBool::new(false));
        let (namespace, stopped) =
            (std::fs::File::open("/proc/thread-self/ns/net").unwrap(), stop.clone());
        let churn = std::thread::spawn(move || {
            setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
            let mut rounds = 0;
            while !stopped.load(Ordering::Relaxed) {
                ip("link add churn0 type ifb");
                ip("link del churn0");
                rounds += 1;
            }
            rounds
        });
        for _ in 0..300 {
            assert_eq!(host.wired(&Default::default()).await.unwrap(), expected);
        }
        stop.store(true, Ordering::Relaxed);
        let rounds = churn.join().unwrap();
        assert!(rounds > 2, "{rounds}");
    });
}

#[test]
fn nothing_of_ours_stays_in_a_namespace() {
    in_netns(|| async {
        let pod = Pod::new(1);
        let id = pod.netns.id();
        let is_in = |entry: &std::fs::DirEntry, below: &str| {
            let found = std::fs::metadata(format!("{}{below}", entry.path().display()));
            found.is_ok_and(|found| found.dev() == id.device && found.ino() == id.inode)
        };
        let count = |directory: &str, below: &str| {
            let entries = std::fs::read_dir(directory).unwrap();
            entries.filter_map(Result::ok).filter(|entry| is_in(entry, below)).count()
        };
        let descriptors = || count("/proc/self/fd", "");
        let threads = || count("/proc/self/task", "/ns/net");
        assert_eq!(descriptors(), 1);

        let attached = pod.attach().await;
        assert_eq!((descriptors(), threads()), (1, 0));
        drop(attached);
        identify(&path("p1")).unwrap();
        PodNetns::open(&path("p1")).unwrap();
        check(&pod.netns, &pod.conf, None).await.unwrap();
        drop(pod);
        for _ in 0..500 {
            if descriptors() + threads() == 0 {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
        panic!("{} descriptors and {} threads are left", descriptors(), threads());
    });
}
