//! Who holds what, in sled, on disk before anyone is told. The only crate that knows there is a
//! database.
//!
//! **Invariants.** What was acknowledged survives `kill -9` and a power cut, and what was deleted
//! stays deleted. One address has one holder. A database that lost something, for whatever
//! reason, is noticed when it is opened and never served as the truth. Nothing is thrown away
//! because it cannot be read.
//!
//! # The directory
//!
//! | path | what |
//! | --- | --- |
//! | `lock` | one daemon: flock(2) and the holder's pid |
//! | `db/` | sled |
//! | `sequence` | number of the last commit that may have been acknowledged, in two slots |
//! | `export.json` | every row, written at most once a second after commits |
//! | `ballast` | 4 MiB that are given up when the disk is full, so that releases still work |
//! | `corrupt-…/` | databases and exports that were moved aside; never deleted |
//!
//! # The trees
//!
//! Every row is JSON, `{"version":1,"crc32":…,"body":…}`; the checksum is that of the body's
//! bytes. Row keys are text.
//!
//! | tree | key | body |
//! | --- | --- | --- |
//! | `attachments` | `network/container/interface` | `Attachment` |
//! | `by_address` | address | its holder's key; this is where an address has one holder |
//! | `journal` | intent id | `Intent` |
//! | `cooling` | resource id | `Cooling` |
//! | `reservations` | `namespace/name` | `Reserved` |
//! | `tombstones` | `network/container/interface` | `Tombstone` |
//! | `pods` | `namespace/name` | nothing yet: last known specs |
//! | `set_aside` | `tree/key` | a row that could not be read, its bytes in hex, and why |
//! | `meta` | `state` | schema, boot id, commit sequence, digest of all other rows, doubt |
//!
//! # A commit
//!
//! One thread takes all requests that wait, decides them one by one ([`StoreError::AddressTaken`]
//! and the like leave out that request alone) and writes the sum of the rest as one transaction
//! with the next commit sequence and digest. Then come sled's `flush`, fdatasync(2) of the log on a
//! descriptor of ours, the sequence file with its fdatasync, and only then the answers. `flush`
//! alone is not durable: it does not write the file's size or empty the disk's cache.
//!
//! A note ([`Store::note`]) is answered after the transaction; the rest follows with the
//! next commit, or within 50 ms, and always before an export. The log and its numbers
//! are in order, so a crash takes back the last notes and nothing that was acknowledged as on disk.
//!
//! The sequence file is written last, so a crash in between leaves the database ahead of it, which
//! is harmless. A database that is *behind* it has lost an acknowledged commit. A database whose
//! rows do not add up to its digest has lost or kept a row it should not.
//!
//! [`Store::note`]: berth_core::ports::Store::note
//! [`StoreError::AddressTaken`]: berth_core::ports::StoreError::AddressTaken

#[cfg(feature = "fuzz")]
pub mod fuzz;
pub mod offline;

#[macro_use]
mod crash;
mod ballast;
mod batch;
mod database;
mod digest;
mod directory;
mod expiry;
mod export;
mod exporter;
mod ledger;
mod load;
mod lock;
mod open;
mod recover;
mod row;
mod sequence;
mod statistics;
mod store;
mod tree;
mod verdict;
mod worker;

pub use open::{OpenError, Options, open};
pub use statistics::Statistics;
pub use store::SledStore;
