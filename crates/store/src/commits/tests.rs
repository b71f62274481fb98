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
        self.log.append(&record, sequence).unwrap();
    }

    /// Of each run.
    fn sequences(&self) -> Vec<Vec<u64>> {
        let runs = read(&self.path).unwrap().runs;
        runs.iter().map(|run| run.iter().map(|commit| commit.sequence).collect()).collect()
    }

    fn flip(&self, at: usize) {
        let mut byte = [0];
        self.log.file.read_exact_at(&mut byte, at as u64).unwrap();
        self.log.file.write_all_at(&[byte[0] ^ 4], at as u64).unwrap();
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
    let commits = CommitLog::open(&it.path).unwrap().1.runs.remove(0);
    assert_eq!(it.sequences(), [[1, 2, 3, 4]]);
    assert_eq!(
        commits[1],
        Commit { previous: 1, sequence: 2, writes: [(place("a"), None)].into() }
    );
    assert_eq!(commits[2].writes, put("b", &"x".repeat(9000)));
}

#[test]
fn a_torn_or_damaged_record_parts_what_is_before_it_from_what_is_behind_it() {
    let mut it = Log::new();
    (1..=3).for_each(|sequence| it.append(sequence, &put("a", "value")));
    for at in [PAGE, PAGE + 5, PAGE + 9, PAGE + 17, PAGE + 25, PAGE + 30] {
        it.flip(at);
        assert_eq!(it.sequences(), [[1], [3]], "byte {at}");
        // The third is whole, and says that the second was there.
        let logged = read(&it.path).unwrap();
        assert_eq!((logged.highest, logged.acknowledged), (3, 2));
        it.flip(at);
    }
    assert_eq!(it.sequences(), [[1, 2, 3]]);
}

#[test]
fn an_opened_log_is_gone_on_with_where_it_ends_and_follows_the_database() {
    let mut it = Log::new();
    (1..=3).for_each(|sequence| it.append(sequence, &put("a", "value")));
    it.log = CommitLog::open(&it.path).unwrap().0;
    it.log.follow(3);
    it.append(4, &put("a", "value"));
    assert_eq!(it.sequences(), [[1, 2, 3, 4]]);
    it.log = CommitLog::open(&it.path).unwrap().0;
    it.log.follow(9);
    it.append(11, &put("a", "value"));
    assert_eq!(it.sequences(), [vec![1, 2, 3, 4], vec![11]]);
    assert_eq!(read(&it.path).unwrap().acknowledged, 9);
}

/// Whatever their sizes: nothing but what was said to be overwritten is gone, and the oldest goes
/// first.
#[test]
fn a_full_log_goes_on_at_its_beginning_and_has_the_last_commits() {
    let mut it = Log::new();
    let (mut oldest, mut wraps) = (1, 0);
    for sequence in 1..9_000 {
        let length = if sequence % 97 == 0 { 30_000 } else { 100 };
        let record = it.log.record(sequence, &put("a", &"x".repeat(length))).unwrap();
        oldest = it.log.overwrites(&record).map_or(oldest, |gone| oldest.max(gone + 1));
        let before = it.log.end;
        it.log.append(&record, sequence).unwrap();
        let wrapped = it.log.end < before;
        wraps += usize::from(wrapped);
        if wrapped || sequence % 1_000 == 0 {
            if sequence % 2 == 0 {
                it.log = CommitLog::open(&it.path).unwrap().0;
            }
            let runs = it.sequences();
            let expected: Vec<u64> = (oldest..=sequence).collect();
            // What stands between the last that fitted and the end of the file is of an older round.
            assert_eq!(runs.last().unwrap(), &expected, "at {sequence}");
        }
        assert_eq!(std::fs::metadata(&it.path).unwrap().len(), CAPACITY as u64);
    }
    assert!(wraps > 3, "{wraps}");
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
fn what_is_larger_than_the_log_still_has_its_place() {
    let mut it = Log::new();
    (1..=3).for_each(|sequence| it.append(sequence, &put("a", "value")));
    let large = put("a", &"x".repeat(CAPACITY + 3));
    let record = it.log.record(4, &large).unwrap();
    assert_eq!(it.log.overwrites(&record), Some(3));
    it.append(4, &large);
    assert_eq!(CommitLog::open(&it.path).unwrap().1.runs[0][0].writes, large);
    it.append(5, &put("a", "value"));
    assert_eq!(it.sequences(), [[5]]);
}

/// It went back to the beginning whenever the database was on disk, and was shorter.
#[test]
fn a_log_of_an_earlier_program_is_read_and_gone_on_with() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("commits");
    let mut bytes = vec![0; 1 << 20];
    let mut put_record = |page: usize, sequence: u64| {
        let commit = Commit { previous: sequence - 1, sequence, writes: put("a", "value") };
        let record = encode(&commit).unwrap();
        bytes[page * PAGE..][..record.len()].copy_from_slice(&record);
    };
    (0..256).for_each(|page| put_record(page, 1 + page as u64));
    (0..100).for_each(|page| put_record(page, 257 + page as u64));
    (0..20).for_each(|page| put_record(page, 357 + page as u64));
    std::fs::write(&path, &bytes).unwrap();
    let (mut log, logged) = CommitLog::open(&path).unwrap();
    let ends = |runs: &[Vec<Commit>]| {
        let end = |run: &Vec<Commit>| (run[0].sequence, run[run.len() - 1].sequence);
        runs.iter().map(end).collect::<Vec<_>>()
    };
    assert_eq!(ends(&logged.runs), [(101, 256), (277, 376)]);
    let record = log.record(377, &put("a", "value")).unwrap();
    assert_eq!(log.overwrites(&record), Some(277));
    log.append(&record, 377).unwrap();
    assert_eq!(ends(&read(&path).unwrap().runs), [(101, 256), (278, 377)]);
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
