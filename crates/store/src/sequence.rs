use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
};

use berth_types::durable;

/// A slot is mark, number (big endian) and the checksum of both.
const SLOT: usize = 16;
const MARK: &[u8; 4] = b"BSQ1";

/// The slots stand in sectors of their own, so that a torn write spoils one only.
const SECTOR: u64 = 512;

/// Number of a commit that was on disk, and of nearly the last: what database and commit log are
/// compared with when they are opened.
///
/// Commits take turns at two slots, so the one before is still there while a slot is written.
#[derive(Debug)]
pub(crate) struct SequenceFile {
    file: File,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recorded {
    /// No commit was ever recorded.
    Missing,
    /// Something is written there, and no slot of it can be read.
    Damaged,
    At(u64),
}

impl SequenceFile {
    pub(crate) fn open(path: &Path) -> io::Result<(Self, Recorded)> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)?;
        let length = file.metadata()?.len();
        let slots = [read_slot(&file, 0)?, read_slot(&file, SECTOR)?];
        let recorded = match slots.into_iter().flatten().max() {
            Some(sequence) => Recorded::At(sequence),
            None if is_blank(&file)? => Recorded::Missing,
            None => Recorded::Damaged,
        };
        if length < 2 * SECTOR {
            // Its final size now, so that a commit writes data only and no metadata.
            file.write_all_at(&[0; 1], 2 * SECTOR - 1)?;
            file.sync_all()?;
            if let Some(directory) = path.parent() {
                durable::sync_directory(directory)?;
            }
        }
        Ok((Self { file }, recorded))
    }

    /// Not on disk before [`sync`](Self::sync), though a process that is killed has written it.
    pub(crate) fn write(&self, sequence: u64) -> io::Result<()> {
        let mut slot = [0; SLOT];
        slot[..4].copy_from_slice(MARK);
        slot[4..12].copy_from_slice(&sequence.to_be_bytes());
        let checksum = crc32fast::hash(&slot[..12]);
        slot[12..].copy_from_slice(&checksum.to_be_bytes());
        self.file.write_all_at(&slot, sequence % 2 * SECTOR)
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// As it is made, before the first commit.
fn is_blank(file: &File) -> io::Result<bool> {
    let mut bytes = [0; 1024];
    let length = file.read_at(&mut bytes, 0)?;
    Ok(bytes[..length].iter().all(|byte| *byte == 0))
}

fn read_slot(file: &File, offset: u64) -> io::Result<Option<u64>> {
    let mut slot = [0; SLOT];
    match file.read_exact_at(&mut slot, offset) {
        Ok(()) => (),
        Err(err) if err.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(err) => return Err(err),
    }
    let whole = slot[..4] == *MARK && slot[12..] == crc32fast::hash(&slot[..12]).to_be_bytes();
    let mut number = [0; 8];
    number.copy_from_slice(&slot[4..12]);
    Ok(whole.then(|| u64::from_be_bytes(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_slot_leaves_the_one_before() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sequence");
        let (file, recorded) = SequenceFile::open(&path).unwrap();
        assert_eq!(recorded, Recorded::Missing);
        assert_eq!(SequenceFile::open(&path).unwrap().1, Recorded::Missing);
        file.write(41).unwrap();
        file.write(42).unwrap();
        assert_eq!(SequenceFile::open(&path).unwrap().1, Recorded::At(42));
        file.file.write_all_at(b"xx", 7).unwrap();
        assert_eq!(SequenceFile::open(&path).unwrap().1, Recorded::At(41));
        file.file.write_all_at(b"xx", SECTOR + 7).unwrap();
        assert_eq!(SequenceFile::open(&path).unwrap().1, Recorded::Damaged);
    }

    /// Golden: a later daemon must find the number of this one.
    #[test]
    fn a_slot_is_sixteen_bytes_that_never_change() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sequence");
        SequenceFile::open(&path).unwrap().0.write(0x0102).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 1024);
        assert_eq!(&bytes[..12], b"BSQ1\0\0\0\0\0\0\x01\x02");
        assert_eq!(bytes[12..16], crc32fast::hash(&bytes[..12]).to_be_bytes());
    }
}
