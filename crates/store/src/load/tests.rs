use berth_types::{AddressSet, BootTime, ContainerId, Resource};

use super::*;

fn key(container: &str) -> AttachmentKey {
    AttachmentKey::new("net", container, "eth0").unwrap()
}

fn address(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

fn attachment(container: &str, last: u8) -> Attachment {
    let mut golden: Attachment = serde_json::from_value(serde_json::json!({
        "key": {"network": "net", "container_id": "x", "interface": "eth0"},
        "state": {"is": "bound", "collect_by": 9},
        "resource": {"id": "r", "kind": "veth", "addresses": {}},
        "netns": {"path": "/run/netns/a", "id": {"device": 4, "inode": 5}},
        "started": {"boot_id": "b", "at": 1},
        "created": 2,
        "host_interface": "bth0",
        "host_mac": "02:00:00:00:00:01",
        "pod_mac": "02:00:00:00:00:02",
        "mtu": 1500,
    }))
    .unwrap();
    golden.key.container_id = container.parse::<ContainerId>().unwrap();
    golden.resource = Resource::veth(AddressSet::from(address(last)));
    golden.created = BootTime::from_nanos(2);
    golden
}

fn put<T: Record>(rows: &mut Rows, record: &T) {
    rows.insert((T::TREE, record.row_key().into_bytes()), row::encode(record).unwrap());
}

/// Each attachment with its index entry.
fn rows(attachments: &[Attachment]) -> Rows {
    let mut rows = Rows::new();
    for attachment in attachments {
        put(&mut rows, attachment);
        for address in attachment.resource.addresses.iter() {
            put(&mut rows, &Indexed { address, holder: attachment.key.clone() });
        }
    }
    rows
}

/// Reads, applies the repairs, and checks that the repaired rows need no more.
fn read_repaired(mut rows: Rows) -> Contents {
    let contents = read(&rows).unwrap();
    for (place, value) in contents.repairs.clone() {
        match value {
            Some(bytes) => _ = rows.insert(place, bytes),
            None => _ = rows.remove(&place),
        }
    }
    let again = read(&rows).unwrap();
    assert_eq!(again.repairs, Writes::new(), "a second reading repairs nothing");
    assert_eq!(again.loaded, contents.loaded);
    assert_eq!(again.remains, contents.remains);
    contents
}

#[test]
fn good_rows_need_no_repair() {
    let contents = read_repaired(rows(&[attachment("a", 1), attachment("b", 2)]));
    assert_eq!(contents.loaded.attachments, [attachment("a", 1), attachment("b", 2)]);
    assert_eq!(contents.repairs, Writes::new());
    assert_eq!(contents.loaded.set_aside, []);
}

#[test]
fn a_poison_row_is_set_aside_with_the_addresses_that_the_index_gives_it() {
    for poison in [&b"\xff"[..], b"{}", br#"{"version":7,"crc32":0,"body":{}}"#] {
        let mut rows = rows(&[attachment("a", 1), attachment("b", 2)]);
        rows.insert((Tree::Attachments, b"net/a/eth0".to_vec()), poison.to_vec());
        let contents = read_repaired(rows);
        assert_eq!(contents.loaded.attachments, [attachment("b", 2)]);
        let [aside] = &contents.loaded.set_aside[..] else { panic!("{contents:?}") };
        assert_eq!((aside.tree.as_str(), aside.key.as_str()), ("attachments", "net/a/eth0"));
        assert_eq!(aside.addresses, BTreeSet::from([address(1)]));
        assert!(contents.remains.contains_key(&key("a")));
    }
}

#[test]
fn a_row_under_another_ones_key_is_set_aside_with_the_addresses_it_names() {
    let mut rows = rows(&[attachment("a", 1)]);
    let row = row::encode(&attachment("z", 9)).unwrap();
    rows.insert((Tree::Attachments, b"net/b/eth0".to_vec()), row);
    let contents = read_repaired(rows);
    assert_eq!(contents.loaded.attachments, [attachment("a", 1)]);
    assert_eq!(contents.loaded.set_aside[0].addresses, BTreeSet::from([address(9)]));
    assert_eq!(contents.loaded.set_aside[0].problem, "it is the row of net/z/eth0");
}

#[test]
fn an_index_entry_that_is_missing_is_given_back() {
    let mut rows = rows(&[attachment("a", 1)]);
    rows.remove(&(Tree::ByAddress, b"10.0.0.1".to_vec()));
    let contents = read_repaired(rows);
    assert_eq!(contents.loaded.attachments, [attachment("a", 1)]);
    assert_eq!(contents.repairs.len(), 1);
    assert_eq!(contents.loaded.set_aside, []);
}

#[test]
fn of_two_attachments_with_one_address_the_one_that_the_index_names_is_kept() {
    let mut rows = rows(&[attachment("a", 1), attachment("b", 1)]);
    let contents = read_repaired(rows.clone());
    assert_eq!(contents.loaded.attachments, [attachment("b", 1)]);
    assert_eq!(contents.loaded.set_aside[0].key, "net/a/eth0");
    // Without an entry the first by key gets it.
    rows.remove(&(Tree::ByAddress, b"10.0.0.1".to_vec()));
    assert_eq!(read_repaired(rows).loaded.attachments, [attachment("a", 1)]);
}

#[test]
fn an_index_entry_without_a_record_is_reported_and_stays() {
    let mut rows = rows(&[attachment("a", 1)]);
    put(&mut rows, &Indexed { address: address(5), holder: key("gone") });
    let contents = read_repaired(rows);
    assert_eq!(contents.repairs, Writes::new());
    let [aside] = &contents.loaded.set_aside[..] else { panic!("{contents:?}") };
    assert_eq!((aside.tree.as_str(), aside.key.as_str()), ("by_address", "10.0.0.5"));
    assert_eq!(aside.addresses, BTreeSet::from([address(5)]));
}

#[test]
fn an_address_whose_entry_cannot_be_read_stays_taken() {
    let mut rows = rows(&[attachment("a", 1)]);
    for last in [1, 5] {
        let name = address(last).to_string().into_bytes();
        rows.insert((Tree::ByAddress, name), b"poison".to_vec());
    }
    let contents = read_repaired(rows);
    // One is claimed by a record and so restored; nobody claims the other.
    assert_eq!(contents.loaded.attachments, [attachment("a", 1)]);
    let entry = &contents.repairs[&(Tree::ByAddress, b"10.0.0.5".to_vec())];
    let entry: Indexed = row::decode(entry.as_ref().unwrap()).unwrap();
    assert_eq!(entry.holder, nobody_knows());
    let reported: BTreeSet<IpAddr> =
        contents.loaded.set_aside.iter().flat_map(|aside| aside.addresses.clone()).collect();
    assert_eq!(reported, BTreeSet::from([address(1), address(5)]));
}

#[test]
fn rows_of_every_tree_are_set_aside_one_by_one() {
    let mut rows = rows(&[attachment("a", 1)]);
    let trees =
        [Tree::Journal, Tree::Cooling, Tree::Reservations, Tree::Tombstones, Tree::SetAside];
    for tree in trees {
        rows.insert((tree, b"10.0.0.8\xff".to_vec()), b"poison".to_vec());
    }
    rows.insert((Tree::Cooling, b"10.0.0.9,fd00::9".to_vec()), b"poison".to_vec());
    let contents = read_repaired(rows);
    assert_eq!(contents.loaded.set_aside.len(), trees.len() + 1);
    let cooling = contents.loaded.set_aside.iter().find(|aside| aside.key.contains("10.0.0.9"));
    assert_eq!(
        cooling.unwrap().addresses,
        BTreeSet::from([address(9), "fd00::9".parse().unwrap()])
    );
}

#[test]
fn what_would_end_every_export_is_set_aside_even_where_nobody_reads_it() {
    let mut rows = rows(&[attachment("c1", 1)]);
    rows.insert((Tree::Pods, b"shop/web".to_vec()), b"{\"later\":1}".to_vec());
    rows.insert((Tree::Pods, b"shop/\xff".to_vec()), b"{}".to_vec());
    rows.insert((Tree::Pods, b"shop/db".to_vec()), b"garbage".to_vec());
    let contents = read_repaired(rows.clone());
    assert_eq!(contents.loaded.set_aside.len(), 2);
    for (place, value) in contents.repairs {
        match value {
            Some(bytes) => _ = rows.insert(place, bytes),
            None => _ = rows.remove(&place),
        }
    }
    assert!(rows.contains_key(&(Tree::Pods, b"shop/web".to_vec())));
    crate::export::write(&row::State::default(), &rows).unwrap();
}
