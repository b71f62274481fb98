use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
};

use berth_types::durable;

use crate::tree::{Place, Writes};

/// Its size from the first opening on: a commit writes into blocks that are there, so a full disk
/// cannot refuse it and its sync brings no metadata to the disk.
const CAPACITY: u64 = 1 << 20;

/// Records begin at multiples of this. No page of the cache and no sector of any disk holds two, so
/// that one torn write never spoils what was acknowledged before.
const PAGE: u64 = 4096;

const MARK: &[u8; 4] = b"BCL1";

/// Mark, length of the body, the two sequences, and the checksum of all of it and the body; big
/// endian.
const HEAD: usize = 28;

/// The commits since the database was last brought to the disk, each one record that was on disk
/// before the database was changed and before anyone was told.
///
/// When the database is on disk the next record is written at the beginning again. What is left of
/// the old ones behind it is told apart by its sequences: each record names the one before.
#[derive(Debug)]
pub(crate) struct CommitLog {
    file: File,
    /// Where the next record goes.
    end: u64,
    /// Sequence of the last record, or of the database where there is none.
    last: u64,
}

/// One commit, to be done again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Commit {
    pub(crate) previous: u64,
    pub(crate) sequence: u64,
    pub(crate) writes: Writes,
}

impl CommitLog {
    /// The log and the commits in it, made where it is missing. Whatever follows the last record
    /// that is whole was never acknowledged, or is missed by its sequence.
    pub(crate) fn open(path: &Path) -> io::Result<(Self, Vec<Commit>)> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(path)?;
        let length = file.metadata()?.len();
        if length < CAPACITY {
            let missing = vec![0; usize::try_from(CAPACITY - length).unwrap_or_default()];
            file.write_all_at(&missing, length)?;
            file.sync_all()?;
            path.parent().map_or(Ok(()), durable::sync_directory)?;
        }
        let commits = read(path)?;
        Ok((Self { file, end: 0, last: 0 }, commits))
    }

    /// The database is on disk with all commits up to `sequence`: the next record goes to the
    /// beginning.
    pub(crate) fn restart(&mut self, sequence: u64) {
        self.end = 0;
        self.last = sequence;
    }

    /// Sequence of the last commit that is in the log or in the database.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    pub(crate) fn record(
        &self,
        sequence: u64,
        writes: &Writes,
    ) -> Result<Vec<u8>, postcard::Error> {
        let commit = Commit { previous: self.last, sequence, writes: writes.clone() };
        encode(&commit)
    }

    /// At the beginning there is room for anything.
    pub(crate) fn has_room(&self, record: &[u8]) -> bool {
        self.end == 0 || self.end + record.len() as u64 <= CAPACITY
    }

    /// On disk when it returns.
    pub(crate) fn append(&mut self, record: &[u8], sequence: u64) -> io::Result<()> {
        self.file.write_all_at(record, self.end)?;
        crash_point!("store::after_log");
        self.file.sync_data()?;
        self.end = next_page(self.end + record.len() as u64);
        self.last = sequence;
        Ok(())
    }
}

/// The commits in the log at `path`, if there is one. Writes nothing.
pub(crate) fn read(path: &Path) -> io::Result<Vec<Commit>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(parse(&bytes)),
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(err) => Err(err),
    }
}

/// The records from the beginning, as long as each is whole and follows the one before.
pub(crate) fn parse(bytes: &[u8]) -> Vec<Commit> {
    let mut commits: Vec<Commit> = Vec::new();
    let mut at = 0;
    while let Some((commit, length)) = bytes.get(at..).and_then(decode) {
        if commits.last().is_some_and(|before| before.sequence != commit.previous) {
            break;
        }
        at = usize::try_from(next_page((at + length) as u64)).unwrap_or(usize::MAX);
        commits.push(commit);
    }
    commits
}

/// The body: places and values in their order, as postcard writes them.
type Body = Vec<(Place, Option<Vec<u8>>)>;

pub(crate) fn encode(commit: &Commit) -> Result<Vec<u8>, postcard::Error> {
    let body: Body = commit.writes.clone().into_iter().collect();
    let body = postcard::to_allocvec(&body)?;
    seal(commit.previous, commit.sequence, &body).ok_or(postcard::Error::SerializeBufferFull)
}

/// `None` where the body is longer than 4 GiB.
fn seal(previous: u64, sequence: u64, body: &[u8]) -> Option<Vec<u8>> {
    let length = u32::try_from(body.len()).ok()?;
    let mut record = Vec::with_capacity(HEAD + body.len());
    record.extend(MARK);
    record.extend(length.to_be_bytes());
    record.extend(previous.to_be_bytes());
    record.extend(sequence.to_be_bytes());
    record.extend(checksum(&record, body).to_be_bytes());
    record.extend(body);
    Some(record)
}

/// The first record of a log, for the fuzzer.
#[cfg(feature = "fuzz")]
pub(crate) fn sealed(body: &[u8]) -> Vec<u8> {
    seal(0, 1, body).expect("a fuzzer's inputs are short")
}

/// The record at the beginning of `bytes`, and its length.
fn decode(bytes: &[u8]) -> Option<(Commit, usize)> {
    let (head, rest) = bytes.split_at_checked(HEAD)?;
    let number = |from: usize| Some(u64::from_be_bytes(*head.get(from..)?.first_chunk()?));
    let short = |from: usize| Some(u32::from_be_bytes(*head.get(from..)?.first_chunk()?));
    let length = usize::try_from(short(4)?).ok()?;
    let body = rest.get(..length)?;
    let (named, sum) = head.split_at_checked(HEAD - 4)?;
    if !named.starts_with(MARK) || sum != checksum(named, body).to_be_bytes() {
        return None;
    }
    let (previous, sequence) = (number(8)?, number(16)?);
    let (writes, after) = postcard::take_from_bytes::<Body>(body).ok()?;
    (after.is_empty() && previous < sequence).then(|| {
        let writes = writes.into_iter().collect();
        (Commit { previous, sequence, writes }, HEAD + length)
    })
}

fn checksum(head: &[u8], body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    hasher.update(body);
    hasher.finalize()
}

fn next_page(end: u64) -> u64 {
    end.next_multiple_of(PAGE)
}

#[cfg(test)]
mod tests;
