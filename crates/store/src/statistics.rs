use std::time::Duration;

/// What the store has done since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Calls of `commit` that came through, those that changed nothing among them.
    pub requests: u64,
    /// Batches that were written: each is one record of the commit log and shares its sync.
    pub commits: u64,
    pub largest_batch: usize,
    /// Time that the disk took for the commit log, over all commits, and at most.
    pub flush_total: Duration,
    pub flush_longest: Duration,
    pub exports: u64,
    pub exports_failed: u64,
    /// Attachments on record.
    pub records: usize,
    /// Size of the database's files.
    pub bytes_on_disk: u64,
}
