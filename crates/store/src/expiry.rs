use std::collections::{BTreeMap, BTreeSet};

use berth_core::ports::{Cooling, Reserved, Tombstone};
use berth_types::{BootId, BootTime, Deadline};

use crate::{row, tree::Tree};

/// A row by its tree and key.
type Name = (Tree, Vec<u8>);

/// When which row is due, so that finding the expired ones costs nothing while there are none.
/// They leave with a later commit: nothing is written because of time alone.
#[derive(Debug, Default)]
pub(crate) struct Expiries {
    by_due: BTreeSet<(BootTime, Name)>,
    due_of: BTreeMap<Name, BootTime>,
}

impl Expiries {
    /// Takes note of a row as it was written, or of its removal.
    pub(crate) fn note(
        &mut self,
        tree: Tree,
        key: &[u8],
        bytes: Option<&[u8]>,
        boot: &BootId,
        now: BootTime,
    ) {
        self.remove(tree, key);
        if let Some(deadline) = bytes.and_then(|bytes| deadline(tree, bytes)) {
            self.put(tree, key.to_vec(), &deadline, boot, now);
        }
    }

    pub(crate) fn put(
        &mut self,
        tree: Tree,
        key: Vec<u8>,
        deadline: &Deadline,
        boot: &BootId,
        now: BootTime,
    ) {
        let (due, name) = (deadline.due(boot, now), (tree, key));
        self.by_due.insert((due, name.clone()));
        self.due_of.insert(name, due);
    }

    fn remove(&mut self, tree: Tree, key: &[u8]) {
        let name = (tree, key.to_vec());
        if let Some(due) = self.due_of.remove(&name) {
            self.by_due.remove(&(due, name));
        }
    }

    /// At most `most` rows that are due.
    pub(crate) fn due(&self, now: BootTime, most: usize) -> Vec<Name> {
        let due = self.by_due.iter().take_while(|(due, _)| *due <= now);
        due.take(most).map(|(_, name)| name.clone()).collect()
    }
}

/// The deadline of a row whose tree has them.
fn deadline(tree: Tree, bytes: &[u8]) -> Option<Deadline> {
    match tree {
        Tree::Tombstones => row::decode::<Tombstone>(bytes).ok().map(|it| it.expires),
        Tree::Cooling => row::decode::<Cooling>(bytes).ok().map(|it| it.deadline),
        Tree::Reservations => row::decode::<Reserved>(bytes).ok().map(|it| it.deadline),
        Tree::Attachments
        | Tree::ByAddress
        | Tree::Journal
        | Tree::Pods
        | Tree::SetAside
        | Tree::Meta => None,
    }
}
