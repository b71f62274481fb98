use std::{collections::BTreeMap, net::IpAddr};

use berth_core::ports::{Change, StoreError};
use berth_types::{Attachment, AttachmentKey};

use crate::{
    row::{self, Indexed, Record},
    tree::{Place, Tree, Writes},
};

/// What a batch comes to.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Only what differs from what is there.
    pub(crate) writes: Writes,
    /// One for each unit, in order. `Ok` holds once `writes` are on disk.
    pub(crate) outcomes: Vec<Result<(), StoreError>>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Space {
    pub(crate) free: u64,
    /// What must be free for a new attachment.
    pub(crate) needed: u64,
}

/// What is left of attachments that have no readable record: rows set aside and index entries.
/// It goes when the attachment is removed.
pub(crate) type Remains = BTreeMap<AttachmentKey, Vec<Place>>;

/// Decides a batch: each unit whole or not at all, each on top of those before it. `get` reads
/// what is on disk, and nobody else writes meanwhile. An `Err` is the database's and ends it.
pub(crate) fn plan<E>(
    units: &[Vec<Change>],
    space: Space,
    remains: &Remains,
    get: impl Fn(Tree, &[u8]) -> Result<Option<Vec<u8>>, E>,
) -> Result<Plan, E> {
    let mut writes = Writes::new();
    let mut outcomes = Vec::with_capacity(units.len());
    for unit in units {
        let mut draft = Draft { get: &get, batch: &writes, unit: Writes::new(), space, remains };
        let decided = unit.iter().try_for_each(|change| draft.apply(change));
        let unit = draft.unit;
        outcomes.push(match decided {
            Ok(()) => {
                writes.extend(unit);
                Ok(())
            }
            Err(Refusal::Unit(err)) => Err(err),
            Err(Refusal::Database(err)) => return Err(err),
        });
    }
    let mut differing = Writes::new();
    for ((tree, key), value) in writes {
        if get(tree, &key)? != value {
            differing.insert((tree, key), value);
        }
    }
    Ok(Plan { writes: differing, outcomes })
}

enum Refusal<E> {
    Unit(StoreError),
    Database(E),
}

/// One unit on its way.
struct Draft<'a, G> {
    get: &'a G,
    batch: &'a Writes,
    unit: Writes,
    space: Space,
    remains: &'a Remains,
}

impl<E, G: Fn(Tree, &[u8]) -> Result<Option<Vec<u8>>, E>> Draft<'_, G> {
    fn apply(&mut self, change: &Change) -> Result<(), Refusal<E>> {
        match change {
            Change::PutAttachment(attachment) => self.put_attachment(attachment),
            Change::RemoveAttachment(key) => self.remove_attachment(key),
            Change::PutTombstone(tombstone) => self.put(tombstone),
            Change::PutCooling(cooling) => self.put(cooling),
            Change::RemoveCooling(id) => self.remove(Tree::Cooling, id.to_string()),
            Change::PutReservation(reserved) => self.put(reserved),
            Change::RemoveReservation(id) => self.remove(Tree::Reservations, id.to_string()),
            Change::BeginIntent(intent) => self.put(intent),
            Change::EndIntent(id) => self.remove(Tree::Journal, id.0.clone()),
        }
    }

    fn put_attachment(&mut self, attachment: &Attachment) -> Result<(), Refusal<E>> {
        let addresses = attachment.resource.addresses;
        match self.read::<Attachment>(&attachment.key.to_string())? {
            Some(old) => {
                for address in old.resource.addresses.iter().filter(|old| !addresses.contains(*old))
                {
                    self.remove_index(address, &old.key)?;
                }
            }
            None if self.space.free < self.space.needed => {
                let Space { free, needed } = self.space;
                return Err(Refusal::Unit(StoreError::DiskFull { free, needed }));
            }
            None => (),
        }
        for address in addresses.iter() {
            match self.read::<Indexed>(&address.to_string())? {
                Some(Indexed { holder, .. }) if holder != attachment.key => {
                    return Err(Refusal::Unit(StoreError::AddressTaken { address, holder }));
                }
                Some(_) | None => self.put(&Indexed { address, holder: attachment.key.clone() })?,
            }
        }
        self.put(attachment)
    }

    fn remove_attachment(&mut self, key: &AttachmentKey) -> Result<(), Refusal<E>> {
        if let Some(old) = self.read::<Attachment>(&key.to_string())? {
            for address in old.resource.addresses.iter() {
                self.remove_index(address, key)?;
            }
            self.remove(Tree::Attachments, key.to_string())?;
        }
        for (tree, name) in self.remains.get(key).into_iter().flatten() {
            if *tree == Tree::ByAddress {
                // It may be somebody else's by now.
                let Some(address) = std::str::from_utf8(name).ok().and_then(|a| a.parse().ok())
                else {
                    continue;
                };
                self.remove_index(address, key)?;
            } else {
                self.unit.insert((*tree, name.clone()), None);
            }
        }
        Ok(())
    }

    fn remove_index(&mut self, address: IpAddr, holder: &AttachmentKey) -> Result<(), Refusal<E>> {
        match self.read::<Indexed>(&address.to_string())? {
            Some(entry) if entry.holder == *holder => {
                self.remove(Tree::ByAddress, address.to_string())
            }
            Some(_) | None => Ok(()),
        }
    }

    fn read<T: Record>(&self, key: &str) -> Result<Option<T>, Refusal<E>> {
        let place = (T::TREE, key.as_bytes().to_vec());
        let staged = self.unit.get(&place).or_else(|| self.batch.get(&place));
        let bytes = match staged {
            Some(value) => value.clone(),
            None => (self.get)(T::TREE, key.as_bytes()).map_err(Refusal::Database)?,
        };
        bytes.map(|bytes| row::decode(&bytes)).transpose().map_err(|err| bad_row(key, &err))
    }

    fn put<T: Record>(&mut self, record: &T) -> Result<(), Refusal<E>> {
        let key = record.row_key();
        let bytes = row::encode(record).map_err(|err| bad_row(&key, &err))?;
        self.unit.insert((T::TREE, key.into_bytes()), Some(bytes));
        Ok(())
    }

    #[expect(clippy::unnecessary_wraps, reason = "an arm among others of this type")]
    fn remove(&mut self, tree: Tree, key: String) -> Result<(), Refusal<E>> {
        self.unit.insert((tree, key.into_bytes()), None);
        Ok(())
    }
}

fn bad_row<E>(key: &str, err: &row::RowError) -> Refusal<E> {
    Refusal::Unit(StoreError::BadRow { key: key.to_owned(), problem: err.to_string() })
}
