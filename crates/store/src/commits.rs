use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io,
    ops::Range,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
};

use berth_types::durable;

use crate::{
    directory,
    tree::{Place, Writes},
};

/// Its size from the first opening on: a commit writes into blocks that are there, so that a full
/// disk does not refuse it (unless the file system writes nothing in place) and its sync brings no
/// metadata to the disk. Some 2,000 commits, about a second at full speed.
pub(crate) const CAPACITY: usize = 8 << 20;

/// Records begin at multiples of this. No page of the cache and no sector of any disk holds two, so
/// that one torn write never spoils what was acknowledged before.
pub(crate) const PAGE: usize = 4096;

const MARK: &[u8; 4] = b"BCL1";

/// Mark, length of the body, the two sequences, and the checksum of all of it and the body; big
/// endian.
const HEAD: usize = 28;

/// The last commits, each one record that was on disk before the database was changed and before
/// anyone was told.
///
/// The file is a ring: at its end the next record goes to the beginning, over the oldest ones. Where
/// they stand in it says nothing; each names the one before.
#[derive(Debug)]
pub(crate) struct CommitLog {
    file: File,
    /// Where the last record ends.
    end: usize,
    /// Bytes appended since it was opened.
    written: usize,
    /// Sequence of the last record, or of the database where that is another one's.
    last: u64,
    /// Sequences of the records that are there, by where they begin.
    kept: BTreeMap<usize, u64>,
}

/// What a log says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Logged {
    /// In their order, parted where one does not follow the one before.
    pub(crate) runs: Vec<Vec<Commit>>,
    /// The highest sequence of them all.
    pub(crate) highest: u64,
    /// The highest that any of them names as the one before: that one was on disk.
    pub(crate) acknowledged: u64,
    /// Where the record of the highest stands.
    newest: Range<usize>,
    kept: BTreeMap<usize, u64>,
}

/// One commit, to be done again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Commit {
    pub(crate) previous: u64,
    pub(crate) sequence: u64,
    pub(crate) writes: Writes,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum LogError {
    #[error("cannot read or write the commit log")]
    Io(#[from] io::Error),
    /// It has its checksum.
    #[error("record {0} of the commit log is not known to this program: a newer one wrote it")]
    Unknown(u64),
}

impl CommitLog {
    /// The log and what it says, made where it is missing. A last record that is torn was never
    /// acknowledged.
    pub(crate) fn open(path: &Path) -> Result<(Self, Logged), LogError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(path)?;
        let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        if length < CAPACITY {
            file.write_all_at(&vec![0; CAPACITY - length], length as u64)?;
            file.sync_all()?;
            path.parent().map_or(Ok(()), durable::sync_directory)?;
        }
        let bytes = std::fs::read(path)?;
        let logged = parse(&bytes)?;
        // The last one may be in the page cache only, where a sync failed even as if it were on the
        // disk, and the database is about to follow it. Those before it were synced before it came.
        let newest = logged.newest.clone();
        file.write_all_at(&bytes[newest.clone()], newest.start as u64)?;
        file.sync_data()?;
        directory::forget(&file);
        let (end, last, kept) = (newest.end, logged.highest, logged.kept.clone());
        Ok((Self { file, end, written: 0, last, kept }, logged))
    }

    /// The database is on disk with all commits up to `sequence`, which the next record follows.
    pub(crate) fn follow(&mut self, sequence: u64) {
        self.last = sequence;
    }

    /// Whole pages, so that none has to be read first.
    pub(crate) fn record(
        &self,
        sequence: u64,
        writes: &Writes,
    ) -> Result<Vec<u8>, postcard::Error> {
        let commit = Commit { previous: self.last, sequence, writes: writes.clone() };
        let mut record = encode(&commit)?;
        record.resize(record.len().next_multiple_of(PAGE), 0);
        Ok(record)
    }

    /// The highest sequence among the commits that are lost with `record`: the database must be on
    /// disk with them.
    pub(crate) fn overwrites(&self, record: &[u8]) -> Option<u64> {
        self.kept.range(self.place(record)).map(|(_, sequence)| *sequence).max()
    }

    /// On disk when it returns.
    pub(crate) fn append(&mut self, record: &[u8], sequence: u64) -> io::Result<()> {
        let place = self.place(record);
        self.file.write_all_at(record, place.start as u64)?;
        crash_point!("store::after_log");
        self.file.sync_data()?;
        self.kept.retain(|at, _| !place.contains(at));
        self.kept.insert(place.start, sequence);
        self.written += record.len();
        self.end = place.end;
        self.last = sequence;
        Ok(())
    }

    /// What is larger than all of the log still has its place, from the beginning on.
    fn place(&self, record: &[u8]) -> Range<usize> {
        let start = if self.end + record.len() <= CAPACITY { self.end } else { 0 };
        start..start + record.len()
    }

    pub(crate) fn laps(&self) -> f64 {
        self.written as f64 / CAPACITY as f64
    }
}

/// Bytes that the log at `path` still has to take from the disk.
pub(crate) fn missing(path: &Path) -> u64 {
    (CAPACITY as u64).saturating_sub(std::fs::metadata(path).map_or(0, |found| found.len()))
}

/// What the log at `path` says, if there is one. Writes nothing.
pub(crate) fn read(path: &Path) -> Result<Logged, LogError> {
    match std::fs::read(path) {
        Ok(bytes) => parse(&bytes),
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(Logged::default()),
        Err(err) => Err(err.into()),
    }
}

pub(crate) fn parse(bytes: &[u8]) -> Result<Logged, LogError> {
    let (mut logged, mut commits, mut at) = (Logged::default(), Vec::new(), 0);
    while at < bytes.len() {
        let Some((commit, length)) = decode(&bytes[at..])? else {
            at += PAGE;
            continue;
        };
        let end = (at + length).next_multiple_of(PAGE);
        if logged.highest < commit.sequence {
            logged.highest = commit.sequence;
            logged.newest = at..end.min(bytes.len());
        }
        logged.acknowledged = logged.acknowledged.max(commit.previous);
        logged.kept.insert(at, commit.sequence);
        commits.push(commit);
        at = end;
    }
    commits.sort_by_key(|commit| commit.sequence);
    for commit in commits {
        match logged.runs.last_mut() {
            Some(run) if run.last().is_some_and(|it| it.sequence == commit.previous) => {
                run.push(commit);
            }
            Some(_) | None => logged.runs.push(vec![commit]),
        }
    }
    Ok(logged)
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

/// The record at the beginning of `bytes`, and its length; `None` where there is none that is
/// whole.
fn decode(bytes: &[u8]) -> Result<Option<(Commit, usize)>, LogError> {
    let Some((previous, sequence, body)) = unseal(bytes) else { return Ok(None) };
    match postcard::take_from_bytes::<Body>(body) {
        Ok((writes, [])) if previous < sequence => {
            let writes = writes.into_iter().collect();
            Ok(Some((Commit { previous, sequence, writes }, HEAD + body.len())))
        }
        Ok(_) | Err(_) => Err(LogError::Unknown(sequence)),
    }
}

fn unseal(bytes: &[u8]) -> Option<(u64, u64, &[u8])> {
    let (head, rest) = bytes.split_at_checked(HEAD)?;
    let number = |from: usize| Some(u64::from_be_bytes(*head.get(from..)?.first_chunk()?));
    let length = u32::from_be_bytes(*head.get(4..)?.first_chunk()?);
    let body = rest.get(..usize::try_from(length).ok()?)?;
    let (named, sum) = head.split_at_checked(HEAD - 4)?;
    if !named.starts_with(MARK) || sum != checksum(named, body).to_be_bytes() {
        return None;
    }
    Some((number(8)?, number(16)?, body))
}

fn checksum(head: &[u8], body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    hasher.update(body);
    hasher.finalize()
}

#[cfg(test)]
mod tests;
