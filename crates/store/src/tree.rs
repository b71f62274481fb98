use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The trees, by the names they have in the database and in the export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Tree {
    Attachments,
    ByAddress,
    Journal,
    Cooling,
    Reservations,
    Tombstones,
    Pods,
    SetAside,
    Meta,
}

impl Tree {
    pub(crate) const ALL: [Self; 9] = [
        Self::Attachments,
        Self::ByAddress,
        Self::Journal,
        Self::Cooling,
        Self::Reservations,
        Self::Tombstones,
        Self::Pods,
        Self::SetAside,
        Self::Meta,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Attachments => "attachments",
            Self::ByAddress => "by_address",
            Self::Journal => "journal",
            Self::Cooling => "cooling",
            Self::Reservations => "reservations",
            Self::Tombstones => "tombstones",
            Self::Pods => "pods",
            Self::SetAside => "set_aside",
            Self::Meta => "meta",
        }
    }
}

/// Where a row is.
pub(crate) type Place = (Tree, Vec<u8>);

/// Rows as they are on disk.
pub(crate) type Rows = BTreeMap<Place, Vec<u8>>;

/// Rows to put, or to remove where there is no value.
pub(crate) type Writes = BTreeMap<Place, Option<Vec<u8>>>;
