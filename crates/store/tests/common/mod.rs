#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::cast_possible_truncation, reason = "small numbers of a test")]
#![allow(unreachable_pub, reason = "shared by several test files")]

pub mod writer;

use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use berth_core::ports::{Change, Clock, Cooling, Loaded, Tombstone};
use berth_store::{OpenError, Options, SledStore};
use berth_types::{
    Attachment, AttachmentKey, AttachmentState, Bandwidth, BootId, BootTime, Deadline, Netns,
    NetnsId, PodIdentity, ProcessStart, Resource,
};

/// A clock that a test moves.
#[derive(Debug)]
pub struct Hand {
    boot: BootId,
    now: AtomicU64,
}

impl Hand {
    pub fn new(boot: &str) -> Arc<Self> {
        Arc::new(Self { boot: boot.parse().unwrap(), now: AtomicU64::new(1) })
    }

    pub fn advance(&self, by: Duration) {
        self.now.fetch_add(by.as_nanos() as u64, Ordering::SeqCst);
    }
}

impl Clock for Hand {
    fn now(&self) -> BootTime {
        BootTime::from_nanos(self.now.load(Ordering::SeqCst))
    }

    fn boot_id(&self) -> &BootId {
        &self.boot
    }
}

pub fn options(directory: &Path) -> Options {
    Options::new(directory, Hand::new("boot"))
}

/// Threads of sled's hold its files for a moment after the store was dropped.
pub fn unmount(path: &Path) {
    for _ in 0..500 {
        let umount = std::process::Command::new("umount").arg(path).output().unwrap();
        if umount.status.success() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    berth_testkit::run(&format!("umount {}", path.display()));
}

/// What kill -9 would leave of the store at `from`, which may still be at work.
pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().unwrap().is_dir() {
            copy(&from, &to);
        } else if let Err(err) = std::fs::copy(&from, to) {
            // An export that is being written has another name until it is whole.
            assert_eq!(err.kind(), std::io::ErrorKind::NotFound, "{from:?}");
        }
    }
}

/// With a reserve of nothing, for small file systems.
pub fn open(directory: &Path) -> Result<(SledStore, Loaded), OpenError> {
    berth_store::open(Options { reserve: 0, ..options(directory) })
}

pub fn key(slot: u16) -> AttachmentKey {
    AttachmentKey::new("net", &format!("c{slot}"), "eth0").unwrap()
}

pub fn address(slot: u16) -> Ipv4Addr {
    let [high, low] = slot.to_be_bytes();
    Ipv4Addr::new(10, 0, high, low)
}

pub fn resource(slot: u16) -> Resource {
    Resource::veth(std::net::IpAddr::from(address(slot)).into())
}

pub fn start() -> ProcessStart {
    ProcessStart { boot_id: "boot".parse().unwrap(), at: BootTime::from_nanos(1) }
}

/// The attachment of `slot`, with its own address and a mark to tell one life from the next.
pub fn attachment(slot: u16, mark: u32) -> Attachment {
    Attachment {
        key: key(slot),
        state: AttachmentState::Bound { collect_by: BootTime::from_nanos(9) },
        resource: resource(slot),
        pod: PodIdentity::default(),
        netns: Netns { path: "/run/netns/a".into(), id: NetnsId { device: 4, inode: 5 } },
        started: start(),
        created: BootTime::from_nanos(2),
        host_interface: "bth0".parse().unwrap(),
        host_mac: "02:00:00:00:00:01".parse().unwrap(),
        pod_mac: "02:00:00:00:00:02".parse().unwrap(),
        mtu: mark,
        bandwidth: Bandwidth::default(),
        sticky_seconds: None,
    }
}

pub fn tombstone(slot: u16, life: Duration) -> Tombstone {
    let expires = Deadline::new(start().boot_id, BootTime::from_nanos(1), life);
    Tombstone { key: key(slot), deleted_by: start(), expires }
}

pub fn cooling(slot: u16) -> Cooling {
    let deadline = Deadline::new(start().boot_id, BootTime::from_nanos(1), Duration::from_secs(30));
    Cooling { resource: resource(slot), deadline, former: None }
}

pub fn put(slot: u16, mark: u32) -> Change {
    Change::PutAttachment(Box::new(attachment(slot, mark)))
}

/// One life as the core writes it: an allocation ends the rest of the address.
pub fn allocate(slot: u16, mark: u32) -> Vec<Change> {
    vec![put(slot, mark), Change::RemoveCooling(resource(slot).id)]
}

pub fn release(slot: u16) -> Vec<Change> {
    vec![
        Change::RemoveAttachment(key(slot)),
        Change::PutTombstone(tombstone(slot, Duration::from_secs(3600))),
        Change::PutCooling(cooling(slot)),
    ]
}

/// The marks of what is recorded, by slot.
pub fn marks(attachments: &[Attachment]) -> BTreeMap<u16, u32> {
    attachments
        .iter()
        .map(|attachment| {
            let slot = attachment.key.container_id.as_str()[1..].parse().unwrap();
            assert_eq!(*attachment, self::attachment(slot, attachment.mtu));
            (slot, attachment.mtu)
        })
        .collect()
}
