use std::net::IpAddr;

use berth_core::ports::{Cooling, Intent, Reserved, Tombstone};
use berth_types::{Attachment, AttachmentKey, BootId};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use crate::{digest::Digest, tree::Tree};

/// What may stand in a row. Versions are only ever added: a daemon reads every row that any
/// older one wrote. Within a version, bodies only gain fields that have a default.
pub(crate) trait Record: Serialize + DeserializeOwned {
    const TREE: Tree;

    fn row_key(&self) -> String;
}

/// The one version there is so far.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Envelope<'a> {
    version: u32,
    crc32: u32,
    #[serde(borrow)]
    body: &'a RawValue,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum RowError {
    #[error("not a row: {0}")]
    Envelope(serde_json::Error),
    #[error("version {0} is newer than this program")]
    UnknownVersion(u32),
    #[error("its checksum is wrong")]
    Checksum,
    #[error("not what belongs here: {0}")]
    Body(serde_json::Error),
    #[error("cannot be written as JSON: {0}")]
    Encode(serde_json::Error),
}

pub(crate) fn encode<T: Record>(record: &T) -> Result<Vec<u8>, RowError> {
    let body = serde_json::value::to_raw_value(record).map_err(RowError::Encode)?;
    let crc32 = crc32fast::hash(body.get().as_bytes());
    serde_json::to_vec(&Envelope { version: VERSION, crc32, body: &body }).map_err(RowError::Encode)
}

pub(crate) fn decode<T: Record>(bytes: &[u8]) -> Result<T, RowError> {
    let envelope: Envelope<'_> = serde_json::from_slice(bytes).map_err(RowError::Envelope)?;
    if envelope.version != VERSION {
        return Err(RowError::UnknownVersion(envelope.version));
    }
    if envelope.crc32 != crc32fast::hash(envelope.body.get().as_bytes()) {
        return Err(RowError::Checksum);
    }
    serde_json::from_str(envelope.body.get()).map_err(RowError::Body)
}

/// Who holds an address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Indexed {
    pub(crate) address: IpAddr,
    pub(crate) holder: AttachmentKey,
}

/// A row that could not be read, as it was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Aside {
    pub(crate) tree: Tree,
    /// Escaped as in Rust where it is not printable ASCII.
    pub(crate) key: String,
    pub(crate) problem: String,
    pub(crate) bytes_hex: String,
    /// More than one row of the same name may be set aside in time.
    #[serde(default)]
    pub(crate) number: u32,
}

/// What the last commit said about the whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    /// Of the trees and their keys; rows carry versions of their own.
    pub(crate) schema: u32,
    pub(crate) boot_id: Option<BootId>,
    /// Grows by one with each commit.
    pub(crate) sequence: u64,
    pub(crate) digest: Digest,
    /// Why something may be missing, until someone has compared the records with the world.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) doubtful: Option<String>,
}

impl State {
    pub(crate) const SCHEMA: u32 = 1;
    pub(crate) const KEY: &str = "state";
}

/// Before the first commit.
impl Default for State {
    fn default() -> Self {
        Self {
            schema: Self::SCHEMA,
            boot_id: None,
            sequence: 0,
            digest: Digest::default(),
            doubtful: None,
        }
    }
}

impl Record for Attachment {
    const TREE: Tree = Tree::Attachments;

    fn row_key(&self) -> String {
        self.key.to_string()
    }
}

impl Record for Indexed {
    const TREE: Tree = Tree::ByAddress;

    fn row_key(&self) -> String {
        self.address.to_string()
    }
}

impl Record for Intent {
    const TREE: Tree = Tree::Journal;

    fn row_key(&self) -> String {
        self.id.0.clone()
    }
}

impl Record for Cooling {
    const TREE: Tree = Tree::Cooling;

    fn row_key(&self) -> String {
        self.resource.id.to_string()
    }
}

impl Record for Reserved {
    const TREE: Tree = Tree::Reservations;

    fn row_key(&self) -> String {
        self.resource.id.to_string()
    }
}

impl Record for Tombstone {
    const TREE: Tree = Tree::Tombstones;

    fn row_key(&self) -> String {
        self.key.to_string()
    }
}

impl Record for Aside {
    const TREE: Tree = Tree::SetAside;

    fn row_key(&self) -> String {
        let name = format!("{}/{}", self.tree.name(), self.key);
        if self.number == 0 { name } else { format!("{name}#{}", self.number) }
    }
}

impl Record for State {
    const TREE: Tree = Tree::Meta;

    fn row_key(&self) -> String {
        Self::KEY.to_owned()
    }
}

#[cfg(test)]
mod tests;
