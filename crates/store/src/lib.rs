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
//! | `commits` | the last commits, some 2,000, of which `db/` may not have the latest on disk yet |
//! | `sequence` | number of a commit that was on disk, and of nearly the last, in two slots |
//! | `export.json` | every row, as of one of the last commits |
//! | `ballast` | 4 MiB that are given up when the disk is full, so that releases still work |
//! | `corrupt-…/` | databases that were moved aside, copies of export and log; never deleted |
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
//! and the like leave out that request alone) and makes the sum of the rest one commit, with the
//! next sequence and digest. It is appended to the commit log as one record, with a checksum, and
//! fdatasync(2) brings that to the disk; then the database is changed in memory, the sequence file
//! is written without a sync, and the answers are given.
//!
//! A checkpoint (a second after the first commit since the last one, and at the end) brings the
//! database to the disk by sled's `flush` and by fdatasync of its log on a descriptor of ours, then
//! the sequence file, on a thread beside the commits. The log is a ring: a record is overwritten
//! once the database is on disk with it, and commits wait for a checkpoint of their own where that
//! is not so yet. `flush` alone is not durable: it does not write the file's size or empty the disk's
//! cache.
//!
//! An export is read and written on a thread of its own too, as of one commit. It is not written
//! more often than once a second, nor for more than a 500th of the time (where that is less than a
//! minute), unless half of the log was filled meanwhile: the log is to lead from the export to the
//! last commit. Rows that do not add up break the store while it still does.
//!
//! An opening does the commits in the log again, all that lead on to the last one. sled keeps
//! whatever part of them it has brought to the disk by itself, in their order, so doing all of them
//! again from any such state ends in that of the last one; a damaged database's export is brought
//! up to it likewise. A last record that is torn was never acknowledged. One that was and is damaged leaves the state behind the sequence
//! file, which is never ahead, or behind a later record, which names the one before it; and rows
//! that do not add up to the digest tell of a row that was lost or kept against the log. Only damage
//! to the very last record, with a power cut before the next checkpoint, cannot be told from a torn
//! one.
//!
//! A rebuilt database is filled beside the log and the export that it is made of: those stay as they
//! are until it is on disk.
//!
//! [`StoreError::AddressTaken`]: berth_core::ports::StoreError::AddressTaken

#[cfg(feature = "fuzz")]
pub mod fuzz;
pub mod offline;

#[macro_use]
mod crash;
mod ballast;
mod batch;
mod commits;
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
mod replay;
mod row;
mod sequence;
mod snapshot;
mod statistics;
mod store;
mod tree;
mod verdict;
mod worker;

pub use open::{OpenError, Options, open};
pub use statistics::Statistics;
pub use store::SledStore;
