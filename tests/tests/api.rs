//! The daemon's gRPC, asked directly: what is refused and how, and what happens when callers go
//! away.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::{collections::HashMap, time::Duration};

use berth_proto::v1::{
    AllocIpRequest, AttachmentKey, CommitIpRequest, GetIpInfoRequest, ListPoolRequest, PodIdentity,
    ProcessStart, RecordEventRequest, ReleaseIpRequest, ReleaseRequest, ReloadRequest,
    RunAuditRequest, SetLogLevelRequest, WatchRequest,
    admin_client::AdminClient,
    get_ip_info_request::Of,
    inspect_client::InspectClient,
    ipam_client::IpamClient,
    record_event_request::{Target, Type},
    watch_reply::Kind,
};
use berth_tests::{Node, NodeOptions, Pod, Snapshot, Stopwatch, eventually};
use serde_json::json;
use tonic::{Code, Request, Status, transport::Channel};
use tonic_types::StatusExt;

fn key(pod: &Pod) -> Option<AttachmentKey> {
    let (network, interface) = ("berth-test".into(), "eth0".into());
    Some(AttachmentKey { network, container_id: pod.id.clone(), interface })
}

/// A process that began now, as the plugin says it.
fn now() -> Option<ProcessStart> {
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let clock = nix::time::ClockId::CLOCK_BOOTTIME;
    let time = Duration::from(nix::time::clock_gettime(clock).unwrap());
    Some(ProcessStart {
        boot_id: boot_id.trim().into(),
        boottime_nanoseconds: time.as_nanos().try_into().unwrap(),
    })
}

fn request(pod: &Pod) -> AllocIpRequest {
    AllocIpRequest {
        key: key(pod),
        netns: pod.netns_text(),
        process_start: now(),
        ..AllocIpRequest::default()
    }
}

fn talk<T>(node: &Node, question: impl AsyncFnOnce(Channel) -> T) -> T {
    node.ask(async |channel| Ok(question(channel).await))
}

#[track_caller]
fn is(status: &Status, code: Code, reason: &str, says: &str) {
    assert_eq!(status.code(), code, "{status:?}");
    let details = status.get_error_details();
    let info = details.error_info().expect("an ErrorInfo in the details");
    assert_eq!((info.reason.as_str(), info.domain.as_str()), (reason, "berth"), "{status:?}");
    assert!(status.message().contains(says), "{status:?}");
}

#[test]
fn a_bad_request_is_refused_with_the_name_of_its_field_and_holds_nothing() {
    Node::with(NodeOptions::default(), |node| {
        let pod = Pod::new();
        let good = request(&pod);
        let bad = |change: fn(&mut AllocIpRequest)| {
            let mut request = good.clone();
            change(&mut request);
            request
        };
        let cases = [
            (bad(|it| it.key = None), "field `key` is missing"),
            (
                bad(|it| it.key.as_mut().unwrap().container_id = "../x".into()),
                "container id \"../x\"",
            ),
            (bad(|it| it.key.as_mut().unwrap().interface = "eth0/../1".into()), "interface name"),
            (bad(|it| it.netns.clear()), "field `netns` is missing"),
            (bad(|it| it.netns = "/run/netns/nowhere".into()), "does not exist"),
            (bad(|it| it.netns = "/etc/hostname".into()), "is not a network namespace"),
            (bad(|it| it.process_start = None), "field `process_start` is missing"),
            (
                bad(|it| it.process_start.as_mut().unwrap().boot_id = "elsewhen".into()),
                "boot elsewhen",
            ),
            (bad(|it| it.mac = "01:00:00:00:00:01".into()), "field `mac`"),
            (bad(|it| it.ips = vec!["nowhere".into()]), "field `ips`: \"nowhere\" is not an IP"),
            (bad(|it| it.ips = vec!["10.0.0.1".into(), "10.0.0.2".into()]), "more than one"),
            (
                bad(|it| it.pod = Some(PodIdentity { name: "a\nb".into(), ..Default::default() })),
                "field `pod.name`",
            ),
        ];
        for (request, says) in cases {
            let status = talk(node, async |channel| {
                IpamClient::new(channel).alloc_ip(request).await.unwrap_err()
            });
            is(&status, Code::InvalidArgument, "BAD_REQUEST", says);
        }
        let elsewhere = AllocIpRequest { ips: vec!["192.0.2.1".into()], ..good };
        let status = talk(node, async |channel| {
            IpamClient::new(channel).alloc_ip(elsewhere).await.unwrap_err()
        });
        is(&status, Code::InvalidArgument, "ADDRESS_NOT_AVAILABLE", "192.0.2.1 is not an address");
        assert!(node.records(&pod.id).is_empty());
    });
}

#[test]
fn what_is_not_built_says_in_which_stage_it_comes() {
    Node::with(NodeOptions::default(), |node| {
        talk(node, async |channel| {
            let mut admin = AdminClient::new(channel);
            let audit = admin.run_audit(RunAuditRequest {}).await.unwrap_err();
            is(&audit, Code::Unimplemented, "NOT_BUILT_YET", "comes in stage 2");
            let reload = admin.reload(ReloadRequest {}).await.unwrap_err();
            is(&reload, Code::Unimplemented, "NOT_BUILT_YET", "comes in stage 4");
            let level = admin.set_log_level(SetLogLevelRequest::default()).await.unwrap_err();
            is(&level, Code::Unimplemented, "NOT_BUILT_YET", "comes in stage 4");
        });
    });
}

#[test]
fn an_unknown_key_is_a_success_to_release_and_not_found_to_ask_for() {
    Node::with(NodeOptions::default(), |node| {
        let pod = Pod::new();
        talk(node, async |channel| {
            let mut ipam = IpamClient::new(channel.clone());
            let release =
                ReleaseIpRequest { key: key(&pod), process_start: now(), reason: "x".into() };
            let reply = ipam.release_ip(release).await.unwrap().into_inner();
            assert!(!reply.released);
            let asked = GetIpInfoRequest { of: Some(Of::Key(key(&pod).unwrap())) };
            let status = ipam.get_ip_info(asked).await.unwrap_err();
            is(&status, Code::NotFound, "UNKNOWN_ATTACHMENT", &pod.id);
            let status = ipam.get_ip_info(GetIpInfoRequest { of: None }).await.unwrap_err();
            is(&status, Code::InvalidArgument, "BAD_REQUEST", "key or pod");
            let by_hand = ReleaseRequest { key: key(&pod), ..ReleaseRequest::default() };
            let status = AdminClient::new(channel).release(by_hand).await.unwrap_err();
            is(&status, Code::InvalidArgument, "BAD_REQUEST", "field `reason` is missing");
        });
    });
}

#[test]
fn a_call_of_a_process_that_began_before_the_release_is_refused() {
    Node::with(NodeOptions::default(), |node| {
        let pod = Pod::new();
        let early = request(&pod);
        talk(node, async |channel| {
            let mut ipam = IpamClient::new(channel);
            let release =
                ReleaseIpRequest { key: key(&pod), process_start: now(), reason: "x".into() };
            ipam.release_ip(release).await.unwrap();
            let status = ipam.alloc_ip(early.clone()).await.unwrap_err();
            is(&status, Code::FailedPrecondition, "RELEASED_MEANWHILE", "started after this one");
            let commit = CommitIpRequest {
                key: early.key.clone(),
                process_start: early.process_start.clone(),
                ..CommitIpRequest::default()
            };
            let status = ipam.commit_ip(commit).await.unwrap_err();
            is(&status, Code::FailedPrecondition, "RELEASED_MEANWHILE", "started after this one");
            ipam.alloc_ip(request(&pod)).await.unwrap();
        });
    });
}

#[test]
fn a_client_that_hangs_up_does_not_cut_its_allocation_in_half() {
    let slow = vec![("FAILPOINTS", "core::allocate::reserved=sleep(600)")];
    let options = NodeOptions { environment: slow, ..NodeOptions::default() };
    Node::with(options, |node| {
        let pod = Pod::new();
        let status = talk(node, async |channel| {
            let mut hasty = Request::new(request(&pod));
            hasty.set_timeout(Duration::from_millis(150));
            IpamClient::new(channel).alloc_ip(hasty).await.unwrap_err()
        });
        assert!(matches!(status.code(), Code::Cancelled | Code::DeadlineExceeded), "{status:?}");
        // The daemon is still at the point, with its only thread: the next answer comes after it.
        eventually(Duration::from_secs(5), || match node.records(&pod.id).len() {
            1 => Ok(()),
            other => Err(format!("{other} records")),
        });
        // The runtime's DEL takes back what nobody collected.
        node.del(&pod).nothing();
        assert!(node.records(&pod.id).is_empty());
    });
}

#[test]
fn a_full_node_says_why_in_the_status_the_plugin_and_explain() {
    let config = json!({ "pod_cidrs": ["10.66.0.0/30"], "cool_down": "60s" });
    Node::with(NodeOptions::config(config), |node| {
        let before = Snapshot::take();
        let (first, second) = (Pod::new(), Pod::new());
        node.add(&first).result();
        let status = talk(node, async |channel| {
            IpamClient::new(channel).alloc_ip(request(&second)).await.unwrap_err()
        });
        is(&status, Code::ResourceExhausted, "NO_ADDRESS", "capacity 1, 1 leased, 0 cooling");
        let answer = node.add(&second);
        assert_eq!(answer.error_code(), 11);
        assert!(answer.error_text().contains("capacity 1, 1 leased"), "{}", answer.error_text());
        node.del(&second).nothing();
        node.del(&first).nothing();
        let status = talk(node, async |channel| {
            IpamClient::new(channel).alloc_ip(request(&second)).await.unwrap_err()
        });
        is(&status, Code::ResourceExhausted, "NO_ADDRESS", "1 cooling (the first for");
        let retry = status.get_error_details().retry_info().unwrap().retry_delay.unwrap();
        assert!((50..=60).contains(&retry.as_secs()), "{retry:?}");
        node.assert_no_trace_since(&before);
    });
}

#[test]
fn a_sticky_pod_gets_its_addresses_back_across_a_restart_and_nobody_else_does() {
    Node::with(NodeOptions::config(json!({ "cool_down": "1s" })), |node| {
        let (first, again) = (Pod::new(), Pod::new());
        let pod = PodIdentity { namespace: "shop".into(), name: "db-0".into(), uid: String::new() };
        let annotations = HashMap::from([("berth.dev/sticky".to_owned(), "10m".to_owned())]);
        let sticky = |of: &Pod| AllocIpRequest {
            pod: Some(pod.clone()),
            annotations: annotations.clone(),
            ..request(of)
        };
        let had = talk(node, async |channel| {
            let mut ipam = IpamClient::new(channel);
            let reply = ipam.alloc_ip(sticky(&first)).await.unwrap().into_inner();
            let release =
                ReleaseIpRequest { key: key(&first), process_start: now(), reason: "x".into() };
            ipam.release_ip(release).await.unwrap();
            reply.net_confs[0].pod_ip.clone().unwrap()
        });
        node.kill();
        node.start();
        std::thread::sleep(Duration::from_secs(2));
        let address = had.ipv4.parse().unwrap();
        assert_eq!(node.slot_state(address).as_deref(), Some("reserved"));
        let has = talk(node, async |channel| {
            let reply = IpamClient::new(channel).alloc_ip(sticky(&again)).await.unwrap();
            reply.into_inner().net_confs[0].pod_ip.clone().unwrap()
        });
        assert_eq!(has, had);
    });
}

#[test]
fn changes_are_watched_in_order_and_an_open_watch_does_not_hold_up_the_stop() {
    Node::with(NodeOptions::default(), |node| {
        let pod = Pod::new();
        let (socket, id) = (node.socket(), pod.id.clone());
        let watcher = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let address = format!("unix://{}", socket.display());
                let channel =
                    tonic::transport::Endpoint::from_shared(address).unwrap().connect().await;
                let mut inspect = InspectClient::new(channel.unwrap());
                let mut changes = inspect.watch(WatchRequest {}).await.unwrap().into_inner();
                let mut kinds = Vec::new();
                while let Ok(Some(change)) = changes.message().await {
                    assert_eq!(change.key.as_ref().unwrap().container_id, id);
                    kinds.push(change.kind());
                }
                kinds
            })
        });
        std::thread::sleep(Duration::from_millis(500));
        node.add(&pod).result();
        node.del(&pod).nothing();
        let stopwatch = Stopwatch::start();
        assert!(node.stop().success());
        assert!(stopwatch.elapsed() < Duration::from_secs(10), "{:?}", stopwatch.elapsed());
        assert_eq!(watcher.join().unwrap(), [Kind::Allocated, Kind::Committed, Kind::Released]);
    });
}

#[test]
fn an_event_needs_its_target_and_is_told_in_the_log() {
    Node::with(NodeOptions::default(), |node| {
        talk(node, async |channel| {
            let mut ipam = IpamClient::new(channel);
            let status = ipam.record_event(RecordEventRequest::default()).await.unwrap_err();
            is(&status, Code::InvalidArgument, "BAD_REQUEST", "field `target` is missing");
            let event = RecordEventRequest {
                target: Target::Node.into(),
                r#type: Type::Warning.into(),
                reason: "PodNetworkSlow".into(),
                message: "seen by a test\nwith a second line".into(),
                ..RecordEventRequest::default()
            };
            ipam.record_event(event).await.unwrap();
        });
        let log = node.log();
        assert!(log.contains("PodNetworkSlow") && log.contains("seen by a test\\nwith"), "{log}");
    });
}

#[test]
fn a_pod_cidr_that_is_in_use_is_refused_at_start_with_both_named() {
    let config = json!({ "pod_cidrs": ["198.51.100.0/24"] });
    Node::stopped(NodeOptions::config(config), |node| {
        let daemon = node.spawn();
        assert!(!daemon.wait().success());
        let log = node.log();
        assert!(log.contains("198.51.100.0/24 overlaps"), "{log}");
        assert!(log.contains("of this node; choose a prefix that is free"), "{log}");
    });
}

#[test]
fn the_summary_of_the_pool_is_the_sum_of_its_slots() {
    Node::with(NodeOptions::default(), |node| {
        let (held, gone) = (Pod::new(), Pod::new());
        node.add(&held).result();
        node.add(&gone).result();
        node.del(&gone).nothing();
        let reply = talk(node, async |channel| {
            let request = ListPoolRequest { summary_only: false };
            InspectClient::new(channel).list_pool(request).await.unwrap().into_inner()
        });
        let count = |state: &str| reply.slots.iter().filter(|it| it.state == state).count() as u64;
        let summary = reply.summary.as_ref().unwrap();
        assert_eq!((summary.leased, summary.cooling), (1, 1));
        assert_eq!(
            (summary.leased, summary.cooling, summary.idle),
            (count("leased"), count("cooling"), count("idle"))
        );
    });
}
