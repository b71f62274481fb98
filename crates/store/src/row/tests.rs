use std::time::Duration;

use berth_core::ports::{Former, IntentId, IntentKind, Unwiring};
use berth_types::{
    AddressSet, AttachmentState, Bandwidth, BootTime, Deadline, InterfaceFacts, Netns, NetnsId,
    PodIdentity, PodInterface, ProcessStart, Resource, WiredFacts,
};

use super::*;

fn key() -> AttachmentKey {
    AttachmentKey::new("net", "c1", "eth0").unwrap()
}

fn start() -> ProcessStart {
    ProcessStart { boot_id: "boot-1".parse().unwrap(), at: BootTime::from_nanos(5) }
}

fn deadline() -> Deadline {
    Deadline::new("boot-1".parse().unwrap(), BootTime::from_nanos(7), Duration::from_nanos(30))
}

fn resource() -> Resource {
    Resource::veth(AddressSet {
        v4: Some("10.0.0.7".parse().unwrap()),
        v6: Some("fd00::7".parse().unwrap()),
    })
}

fn pod() -> PodInterface {
    PodInterface {
        network: "net".parse().unwrap(),
        interface: "eth0".parse().unwrap(),
        namespace: "default".to_owned(),
        name: "web-0".to_owned(),
    }
}

fn committed() -> Attachment {
    let facts = |name: &str, mac: &str| {
        Some(InterfaceFacts { name: name.parse().unwrap(), mac: mac.parse().unwrap() })
    };
    Attachment {
        key: key(),
        state: AttachmentState::Committed {
            wired: WiredFacts {
                host: facts("bth0", "02:00:00:00:00:01"),
                pod: facts("eth0", "02:00:00:00:00:02"),
            },
        },
        resource: resource(),
        pod: PodIdentity {
            namespace: Some("default".to_owned()),
            name: Some("web-0".to_owned()),
            uid: Some("u1".to_owned()),
        },
        netns: Netns {
            path: "/run/netns/a".into(),
            id: NetnsId { device: 4, inode: 4_026_531_840 },
        },
        started: start(),
        created: BootTime::from_nanos(6),
        host_interface: "bth0".parse().unwrap(),
        host_mac: "02:00:00:00:00:01".parse().unwrap(),
        pod_mac: "02:00:00:00:00:02".parse().unwrap(),
        mtu: 1500,
        bandwidth: Bandwidth { ingress: Some(125_000), egress: None },
        sticky_seconds: None,
    }
}

fn bound() -> Attachment {
    Attachment {
        state: AttachmentState::Bound { collect_by: BootTime::from_nanos(9) },
        resource: Resource::veth(AddressSet { v6: None, ..resource().addresses }),
        pod: PodIdentity::default(),
        bandwidth: Bandwidth::default(),
        ..committed()
    }
}

/// These bytes were written by a version that is out there. They are never edited: what cannot
/// be read as it stands needs a new version of the row.
fn check<T: Record + PartialEq + std::fmt::Debug>(record: &T, row_key: &str, golden: &str) {
    let golden = golden.trim_end();
    assert_eq!(String::from_utf8(encode(record).unwrap()).unwrap(), golden);
    assert_eq!(decode::<T>(golden.as_bytes()).unwrap(), *record);
    assert_eq!(record.row_key(), row_key);
}

#[test]
fn attachment_rows_are_read_for_ever() {
    check(&committed(), "net/c1/eth0", include_str!("golden/attachment-committed.json"));
    check(&bound(), "net/c1/eth0", include_str!("golden/attachment-bound.json"));
    let sticky = Attachment { sticky_seconds: Some(300), ..bound() };
    check(&sticky, "net/c1/eth0", include_str!("golden/attachment-sticky.json"));
}

#[test]
fn index_rows_are_read_for_ever() {
    let entry = |address: &str| Indexed { address: address.parse().unwrap(), holder: key() };
    check(&entry("10.0.0.7"), "10.0.0.7", include_str!("golden/index-v4.json"));
    check(&entry("fd00::7"), "fd00::7", include_str!("golden/index-v6.json"));
}

#[test]
fn journal_rows_are_read_for_ever() {
    let unwire = Unwiring {
        key: key(),
        host_interface: "bth0".parse().unwrap(),
        resource: Some(resource().id),
        addresses: resource().addresses,
    };
    let intent =
        Intent { id: IntentId("unwire net/c1/eth0".to_owned()), what: IntentKind::Unwire(unwire) };
    check(&intent, "unwire net/c1/eth0", include_str!("golden/journal-unwire.json"));
}

#[test]
fn cooling_reservation_and_tombstone_rows_are_read_for_ever() {
    let cooling = Cooling { resource: resource(), deadline: deadline(), former: None };
    check(&cooling, "10.0.0.7,fd00::7", include_str!("golden/cooling.json"));
    let former = Some(Former { key: key(), pod: Some(pod()) });
    let of_someone = Cooling { former, ..cooling };
    check(&of_someone, "10.0.0.7,fd00::7", include_str!("golden/cooling-former.json"));
    let reserved = Reserved { pod: pod(), resource: resource(), deadline: deadline() };
    check(&reserved, "10.0.0.7,fd00::7", include_str!("golden/reservation.json"));
    let tombstone = Tombstone { key: key(), deleted_by: start(), expires: deadline() };
    check(&tombstone, "net/c1/eth0", include_str!("golden/tombstone.json"));
}

#[test]
fn rows_of_the_store_itself_are_read_for_ever() {
    let aside = Aside {
        tree: Tree::Attachments,
        key: "net/c1/eth0".to_owned(),
        problem: "its checksum is wrong".to_owned(),
        bytes_hex: "7b7d".to_owned(),
        number: 0,
    };
    check(&aside, "attachments/net/c1/eth0", include_str!("golden/set-aside.json"));
    let second = Aside { number: 1, ..aside };
    assert_eq!(second.row_key(), "attachments/net/c1/eth0#1");
    let state = State {
        schema: 1,
        boot_id: Some("boot-1".parse().unwrap()),
        sequence: 42,
        digest: Digest::of_row(Tree::Cooling, b"k", b"v"),
        doubtful: Some("why".to_owned()),
    };
    check(&state, "state", include_str!("golden/state.json"));
}

#[test]
fn a_flipped_bit_in_a_row_is_noticed() {
    let good = encode(&committed()).unwrap();
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        // An upper-case letter for a lower-case one in a field's name is noticed as well.
        assert!(decode::<Attachment>(&bad).is_err(), "bit {bit}");
    }
}

#[test]
fn a_newer_version_is_not_guessed_at() {
    let row = br#"{"version":2,"crc32":0,"body":{}}"#;
    let err = decode::<Attachment>(row).unwrap_err();
    assert_eq!(err.to_string(), "version 2 is newer than this program");
}
