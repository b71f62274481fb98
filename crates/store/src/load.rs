use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use berth_core::ports::{Loaded, SetAside};
use berth_types::{Attachment, AttachmentKey};
use serde_json::value::RawValue;

use crate::{
    batch::Remains,
    row::{self, Aside, Indexed, Record, RowError},
    tree::{Place, Rows, Tree, Writes},
};

/// What the rows say.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) loaded: Loaded,
    /// What has to be written before anything else: rows set aside, index entries given back.
    pub(crate) repairs: Writes,
    pub(crate) remains: Remains,
}

/// Stands in the index for whoever held an address before the entry became unreadable.
fn nobody_knows() -> AttachmentKey {
    AttachmentKey::new("set-aside", "unknown", "unknown").expect("valid names")
}

/// Reads every row. One that cannot be read is set aside and its addresses are named, so that
/// nobody gets them; the rest is served.
pub(crate) fn read(rows: &Rows) -> Result<Contents, RowError> {
    let mut reader = Reader { rows, asides: BTreeMap::new(), repairs: Writes::new() };
    for aside in reader.take::<Aside>(|_| ())? {
        reader.asides.insert(aside.row_key(), aside);
    }
    let mut attachments = BTreeMap::new();
    for attachment in reader.take::<Attachment>(|_| ())? {
        attachments.insert(attachment.key.clone(), attachment);
    }
    let index = reader.index(&mut attachments)?;
    reader.keep(Tree::Pods)?;
    let loaded = Loaded {
        attachments: attachments.values().cloned().collect(),
        tombstones: reader.take(|_| ())?,
        cooling: reader.take(|_| ())?,
        reservations: reader.take(|_| ())?,
        intents: reader.take(|_| ())?,
        set_aside: Vec::new(),
        doubtful: None,
    };
    let (set_aside, remains) = report(&reader.asides, &attachments, &index);
    Ok(Contents { loaded: Loaded { set_aside, ..loaded }, repairs: reader.repairs, remains })
}

struct Reader<'a> {
    rows: &'a Rows,
    asides: BTreeMap<String, Aside>,
    repairs: Writes,
}

impl Reader<'_> {
    /// The rows of one tree. Those that cannot be read are set aside, and `lost` is told.
    fn take<T: Record>(&mut self, mut lost: impl FnMut(&[u8])) -> Result<Vec<T>, RowError> {
        let mut taken = Vec::new();
        let rows = self.rows;
        let range = rows.range((T::TREE, Vec::new())..);
        for ((tree, key), bytes) in range.take_while(|((tree, _), _)| *tree == T::TREE) {
            match row::decode::<T>(bytes) {
                Ok(record) if record.row_key().as_bytes() == key.as_slice() => taken.push(record),
                Ok(record) => {
                    let problem = format!("it is the row of {}", record.row_key());
                    self.set_aside((*tree, key.clone()), bytes, problem)?;
                    lost(key);
                }
                Err(err) => {
                    self.set_aside((*tree, key.clone()), bytes, err.to_string())?;
                    lost(key);
                }
            }
        }
        Ok(taken)
    }

    /// Rows that nobody reads yet. Those that no export can carry are set aside, or every export
    /// from then on would fail.
    fn keep(&mut self, tree: Tree) -> Result<(), RowError> {
        let rows = self.rows;
        for (place, bytes) in
            rows.range((tree, Vec::new())..).take_while(|((it, _), _)| *it == tree)
        {
            let text = std::str::from_utf8(&place.1);
            if let Err(err) = serde_json::from_slice::<&RawValue>(bytes) {
                self.set_aside(place.clone(), bytes, RowError::Envelope(err).to_string())?;
            } else if text.is_err() {
                self.set_aside(place.clone(), bytes, "its key is not text".to_owned())?;
            }
        }
        Ok(())
    }

    fn set_aside(&mut self, place: Place, bytes: &[u8], problem: String) -> Result<(), RowError> {
        let (tree, key) = &place;
        let mut aside = Aside {
            tree: *tree,
            key: key.escape_ascii().to_string(),
            problem,
            bytes_hex: to_hex(bytes),
            number: 0,
        };
        while self.asides.contains_key(&aside.row_key()) {
            aside.number += 1;
        }
        let row = row::encode(&aside)?;
        self.repairs.insert(place, None);
        self.repairs.insert((Tree::SetAside, aside.row_key().into_bytes()), Some(row));
        self.asides.insert(aside.row_key(), aside);
        Ok(())
    }

    /// Makes index and attachments agree: an attachment whose entry is missing gets it back; one
    /// whose address another key holds is set aside. Answers the index as it will be.
    fn index(
        &mut self,
        attachments: &mut BTreeMap<AttachmentKey, Attachment>,
    ) -> Result<BTreeMap<IpAddr, AttachmentKey>, RowError> {
        let mut unreadable = Vec::new();
        let entries = self.take::<Indexed>(|key| unreadable.push(key.to_vec()))?;
        let mut index: BTreeMap<_, _> =
            entries.into_iter().map(|entry| (entry.address, entry.holder)).collect();
        let mut taken = Vec::new();
        for attachment in attachments.values() {
            let mine = |holder: &AttachmentKey| *holder == attachment.key;
            let addresses = attachment.resource.addresses;
            let other = addresses.iter().find_map(|address| {
                index.get(&address).filter(|holder| !mine(holder)).map(|holder| (address, holder))
            });
            if let Some((address, holder)) = other {
                let problem = format!("its address {address} is indexed for {holder}");
                taken.push((attachment.key.clone(), problem));
                continue;
            }
            for address in addresses.iter() {
                if index.insert(address, attachment.key.clone()).is_none() {
                    self.put(&Indexed { address, holder: attachment.key.clone() })?;
                }
            }
        }
        for (key, problem) in taken {
            attachments.remove(&key);
            let place = (Tree::Attachments, key.to_string().into_bytes());
            let bytes = self.rows.get(&place).cloned().unwrap_or_default();
            self.set_aside(place, &bytes, problem)?;
        }
        // An address whose entry cannot be read stays taken, whoever had it.
        for key in unreadable {
            let address = std::str::from_utf8(&key).ok().and_then(|key| key.parse().ok());
            if let Some(address) = address.filter(|address| !index.contains_key(address)) {
                index.insert(address, nobody_knows());
                self.put(&Indexed { address, holder: nobody_knows() })?;
            }
        }
        Ok(index)
    }

    fn put(&mut self, entry: &Indexed) -> Result<(), RowError> {
        let key = entry.row_key().into_bytes();
        self.repairs.insert((Tree::ByAddress, key), Some(row::encode(entry)?));
        Ok(())
    }
}

/// Names what is set aside, with every address that it may hold, and what goes with it when its
/// attachment is removed.
fn report(
    asides: &BTreeMap<String, Aside>,
    attachments: &BTreeMap<AttachmentKey, Attachment>,
    index: &BTreeMap<IpAddr, AttachmentKey>,
) -> (Vec<SetAside>, Remains) {
    let mut remains = Remains::new();
    // Addresses whose holder has no record that says so, by holder.
    let mut dangling: BTreeMap<String, BTreeSet<IpAddr>> = BTreeMap::new();
    for (address, holder) in index {
        let held = attachments
            .get(holder)
            .is_some_and(|attachment| attachment.resource.addresses.contains(*address));
        if !held {
            dangling.entry(holder.to_string()).or_default().insert(*address);
            let place = (Tree::ByAddress, address.to_string().into_bytes());
            remains.entry(holder.clone()).or_default().push(place);
        }
    }
    let mut set_aside = Vec::new();
    for aside in asides.values() {
        let mut addresses = addresses_in(aside);
        if aside.tree == Tree::Attachments {
            addresses.extend(dangling.remove(&aside.key).into_iter().flatten());
            if let Ok(key) = aside.key.parse() {
                let place = (Tree::SetAside, aside.row_key().into_bytes());
                remains.entry(key).or_default().push(place);
            }
        }
        set_aside.push(SetAside {
            tree: aside.tree.name().to_owned(),
            key: aside.key.clone(),
            problem: aside.problem.clone(),
            addresses,
        });
    }
    for (holder, addresses) in dangling {
        for address in addresses {
            set_aside.push(SetAside {
                tree: Tree::ByAddress.name().to_owned(),
                key: address.to_string(),
                problem: format!("it is indexed for {holder}, whose record does not hold it"),
                addresses: BTreeSet::from([address]),
            });
        }
    }
    (set_aside, remains)
}

/// The addresses that a spoiled row names, as far as it can still be read: in its key, or as
/// `v4` and `v6` anywhere in its JSON.
fn addresses_in(aside: &Aside) -> BTreeSet<IpAddr> {
    let mut found: BTreeSet<IpAddr> =
        aside.key.split(',').filter_map(|part| part.parse().ok()).collect();
    let bytes = from_hex(&aside.bytes_hex).unwrap_or_default();
    if let Ok(json) = serde_json::from_slice(&bytes) {
        collect_addresses(&json, &mut found);
    }
    found
}

fn collect_addresses(json: &serde_json::Value, found: &mut BTreeSet<IpAddr>) {
    match json {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_str().and_then(|text| text.parse().ok()) {
                    Some(address) if name == "v4" || name == "v6" => _ = found.insert(address),
                    Some(_) | None => collect_addresses(value, found),
                }
            }
        }
        serde_json::Value::Array(items) => {
            items.iter().for_each(|item| collect_addresses(item, found));
        }
        serde_json::Value::Null
        | serde_json::Value::Bool(_)
        | serde_json::Value::Number(_)
        | serde_json::Value::String(_) => (),
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests;
