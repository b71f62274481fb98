use std::time::Duration;

use berth_core::ports::{Clock, Tombstone};
use berth_types::{BootId, BootTime, Deadline, ProcessStart};

use super::*;
use crate::{Options, open};

struct Still(BootId);

impl Clock for Still {
    fn now(&self) -> BootTime {
        BootTime::from_nanos(1)
    }

    fn boot_id(&self) -> &BootId {
        &self.0
    }
}

fn tombstone(number: usize) -> Change {
    let at = BootTime::from_nanos(1);
    let boot_id: BootId = "boot".parse().unwrap();
    Change::PutTombstone(Tombstone {
        key: AttachmentKey::new("net", &format!("c{number}"), "eth0").unwrap(),
        expires: Deadline::new(boot_id.clone(), at, Duration::from_secs(60)),
        deleted_by: ProcessStart { boot_id, at },
    })
}

/// Gone on acknowledging, it would have nothing left to be rebuilt from one day.
#[tokio::test]
async fn a_database_that_changes_by_itself_breaks_the_store_before_its_export_is_too_old() {
    let directory = tempfile::tempdir().unwrap();
    let options = || Options {
        reserve: 0,
        export_interval: Duration::from_millis(20),
        ..Options::new(directory.path(), Arc::new(Still("boot".parse().unwrap())))
    };
    let (store, _) = open(options()).unwrap();
    store.commit(vec![tombstone(0)]).await.unwrap();
    let attachments = store.shared.attachments().unwrap();
    attachments.insert("net/c9/eth0", "nobody wrote this").unwrap();
    let mut acknowledged = 1;
    while store.commit(vec![tombstone(acknowledged)]).await.is_ok() {
        acknowledged += 1;
        assert!(acknowledged < 100_000, "nobody notices");
    }
    assert_eq!(
        store.failed().borrow().as_deref(),
        Some("the database's rows do not add up to its digest")
    );
    assert!(store.statistics().exports_failed > 0);
    drop((store, attachments));

    let (_store, loaded) = open(options()).unwrap();
    let doubt = loaded.doubtful.unwrap();
    assert!(doubt.contains("rebuilt") && !doubt.contains("lost"), "{doubt}");
    assert!(
        loaded.tombstones.len() >= acknowledged,
        "of {acknowledged}: {}",
        loaded.tombstones.len()
    );
    assert_eq!(loaded.attachments, []);
}
