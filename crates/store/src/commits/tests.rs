use std::path::PathBuf;

use super::*;
use crate::tree::Tree;

fn place(key: &str) -> Place {
    (Tree::Attachments, key.as_bytes().to_vec())
}

fn put(key: &str, value: &str) -> Writes {
    Writes::from([(place(key), Some(value.as_bytes().to_vec()))])
}

struct Log {
    _directory: tempfile::TempDir,
    path: PathBuf,
    log: CommitLog,
}

impl Log {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("commits");
        let (log, logged) = CommitLog::open(&path).unwrap();
        assert_eq!(logged, Logged::default());
        Self { _directory: directory, path, log }
    }

    fn append(&mut self, sequence: u64, writes: &Writes) {
        let record = self.log.record(sequence, writes).unwrap();
        assert!(self.log.has_room(&record));
        self.log.append(&record, sequence).unwrap();
    }

    fn sequences(&self) -> Vec<u64> {
        read(&self.path).unwrap().commits.iter().map(|commit| commit.sequence).collect()
    }

    fn flip(&self, at: u64) {
        let mut byte = [0];
        self.log.file.read_exact_at(&mut byte, at).unwrap();
        self.log.file.write_all_at(&[byte[0] ^ 4], at).unwrap();
    }
}

#[test]
fn what_was_appended_is_read_back_in_order() {
    let mut it = Log::new();
    it.append(1, &put("a", "1"));
    it.append(2, &Writes::from([(place("a"), None)]));
    // Longer than a page.
    it.append(3, &put("b", &"x".repeat(9000)));
    it.append(4, &put("c", "4"));
    let commits = CommitLog::open(&it.path).unwrap().1.commits;
    assert_eq!(it.sequences(), [1, 2, 3, 4]);
    assert_eq!(
        commits[1],
        Commit { previous: 1, sequence: 2, writes: [(place("a"), None)].into() }
    );
    assert_eq!(commits[2].writes, put("b", &"x".repeat(9000)));
}

#[test]
fn a_torn_or_damaged_record_ends_the_log_before_it() {
    let mut it = Log::new();
    (1..=3).for_each(|sequence| it.append(sequence, &put("a", "value")));
    for at in [PAGE, PAGE + 5, PAGE + 9, PAGE + 17, PAGE + 25, PAGE + 30] {
        it.flip(at);
        assert_eq!(it.sequences(), [1], "byte {at}");
        // The third is whole, and says that the second was there.
        let logged = read(&it.path).unwrap();
        assert_eq!((logged.highest, logged.acknowledged), (3, 2));
        it.flip(at);
    }
    assert_eq!(it.sequences(), [1, 2, 3]);
}

#[test]
fn records_from_before_a_restart_are_not_taken_for_later_ones() {
    let mut it = Log::new();
    (1..=3).for_each(|sequence| it.append(sequence, &put("a", "value")));
    it.log.restart();
    assert_eq!(it.sequences(), [1, 2, 3]);
    it.append(4, &put("a", "value"));
    assert_eq!(it.sequences(), [4]);
    it.append(5, &put("a", "value"));
    assert_eq!(it.sequences(), [4, 5]);
}

#[test]
fn an_opened_log_is_gone_on_with_where_it_ends_unless_the_database_is_elsewhere() {
    let mut it = Log::new();
    (1..=3).for_each(|sequence| it.append(sequence, &put("a", "value")));
    it.log = CommitLog::open(&it.path).unwrap().0;
    it.log.follow(3);
    it.append(4, &put("a", "value"));
    assert_eq!(it.sequences(), [1, 2, 3, 4]);
    it.log.follow(9);
    it.append(11, &put("a", "value"));
    assert_eq!(it.sequences(), [11]);
}

#[test]
fn a_record_that_is_whole_and_not_known_is_an_error_and_not_the_end() {
    let mut it = Log::new();
    it.append(1, &put("a", "value"));
    let newer = seal(1, 2, b"\xff\xff\xff").unwrap();
    it.log.append(&newer, 2).unwrap();
    assert!(matches!(read(&it.path), Err(LogError::Unknown(2))));
    assert!(matches!(CommitLog::open(&it.path), Err(LogError::Unknown(2))));
}

#[test]
fn the_log_is_made_whole_before_it_is_used_and_does_not_grow() {
    let mut it = Log::new();
    let size = || std::fs::metadata(&it.path).unwrap().len();
    assert_eq!(size(), CAPACITY);
    let mut sequence = 0;
    loop {
        let record = it.log.record(sequence + 1, &put("a", "value")).unwrap();
        if !it.log.has_room(&record) {
            break;
        }
        sequence += 1;
        it.log.append(&record, sequence).unwrap();
    }
    assert_eq!((sequence, size()), (CAPACITY / PAGE, CAPACITY));
    // What is larger than all of it still has its place: at the beginning.
    it.log.restart();
    let large = put("a", &"x".repeat(3 << 20));
    it.append(sequence + 1, &large);
    assert_eq!(read(&it.path).unwrap().commits[0].writes, large);
    assert_eq!(CommitLog::open(&it.path).unwrap().1.commits.len(), 1);
}

/// Golden: a later daemon must read the log of this one.
#[test]
fn a_record_is_written_in_these_bytes_for_ever() {
    let writes = Writes::from([
        ((Tree::Attachments, b"k".to_vec()), Some(b"{}".to_vec())),
        ((Tree::Meta, b"state".to_vec()), None),
    ]);
    let record = encode(&Commit { previous: 0x0102, sequence: 0x0103, writes }).unwrap();
    let head = b"BCL1\0\0\0\x10\0\0\0\0\0\0\x01\x02\0\0\0\0\0\0\x01\x03";
    let body = b"\x02\0\x01k\x01\x02{}\x08\x05state\0";
    assert_eq!(record[..24], *head);
    assert_eq!(record[24..28], checksum(head, body).to_be_bytes());
    assert_eq!(record[28..], *body);
    assert_eq!(Tree::ALL.map(|tree| tree as usize), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
}
