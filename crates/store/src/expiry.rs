use std::collections::{BTreeMap, BTreeSet};

use berth_core::ports::Tombstone;
use berth_types::{BootId, BootTime};

/// When which tombstone is due, so that finding the expired ones costs nothing while there are
/// none. Their rows leave with a later commit: nothing is written because of time alone.
#[derive(Debug, Default)]
pub(crate) struct Expiries {
    by_due: BTreeSet<(BootTime, Vec<u8>)>,
    due_of: BTreeMap<Vec<u8>, BootTime>,
}

impl Expiries {
    pub(crate) fn put(
        &mut self,
        key: Vec<u8>,
        tombstone: &Tombstone,
        boot: &BootId,
        now: BootTime,
    ) {
        self.remove(&key);
        let due = tombstone.expires.due(boot, now);
        self.by_due.insert((due, key.clone()));
        self.due_of.insert(key, due);
    }

    pub(crate) fn remove(&mut self, key: &[u8]) {
        if let Some(due) = self.due_of.remove(key) {
            self.by_due.remove(&(due, key.to_vec()));
        }
    }

    /// The keys of at most `most` tombstones that are due.
    pub(crate) fn due(&self, now: BootTime, most: usize) -> Vec<Vec<u8>> {
        let due = self.by_due.iter().take_while(|(due, _)| *due <= now);
        due.take(most).map(|(_, key)| key.clone()).collect()
    }
}
