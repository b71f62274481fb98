//! A disk with a cache that goes with the power: qemu logs what the guest writes and where it
//! flushes (the format of Linux's dm-log-writes), and a cut keeps of the writes after the last
//! flush what chance has it.

use std::{
    fs::{self, File},
    io::{Read, Seek, SeekFrom},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

/// drivers/md/dm-log-writes.c, WRITE_LOG_MAGIC; qemu's block/blklogwrites.c writes it.
const MAGIC: u64 = 0x006a_7366_7773_6872;
const SECTOR: u64 = 512;

const FLUSH: u64 = 1;
const FORCED: u64 = 2;
const DISCARD: u64 = 4;

/// One request of the guest, in the order in which they came.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    /// In sectors.
    at: u64,
    sectors: u64,
    flags: u64,
    /// Where in the log its bytes begin.
    bytes: u64,
}

/// The image as it is without the writes of the guest that runs, and the log of those.
#[derive(Debug)]
pub(super) struct VolatileDisk {
    image: PathBuf,
    written: PathBuf,
    log: PathBuf,
}

impl VolatileDisk {
    pub(super) fn of(image: &Path) -> Self {
        let beside = |ending| image.with_extension(ending);
        Self { image: image.to_owned(), written: beside("written"), log: beside("log") }
    }

    /// What qemu needs to be told. To be asked once for each start of a guest.
    pub(super) fn arguments(&self) -> Result<Vec<String>> {
        copy(&self.image, &self.written)?;
        File::create(&self.log)?;
        let file = |name: &str, path: &Path| {
            format!("driver=file,node-name={name},filename={}", path.display())
        };
        // With every write counted at once: the process will be killed.
        let logged =
            "driver=blklogwrites,node-name=state,file=written,log=log,log-super-update-interval=1";
        Ok([
            "-blockdev",
            &file("written", &self.written),
            "-blockdev",
            &file("log", &self.log),
            "-blockdev",
            logged,
            "-device",
            "virtio-blk-pci,drive=state,write-cache=on",
        ]
        .map(str::to_owned)
        .to_vec())
    }

    /// The power is gone: makes the image what the disk still has. `keeps` is asked of each write
    /// that was not flushed. Answers how many were lost.
    pub(super) fn settle(&self, mut keeps: impl FnMut() -> Result<bool>) -> Result<usize> {
        let mut log = File::open(&self.log)?;
        let entries = entries(&mut log)?;
        let last_flush = entries.iter().rposition(|entry| entry.flags & FLUSH != 0);
        let flushed = last_flush.map_or(0, |last| last + 1);
        let image = File::options().write(true).open(&self.image)?;
        let mut lost = 0;
        for (number, entry) in entries.iter().enumerate() {
            if number < flushed || entry.flags & FORCED != 0 || keeps()? {
                apply(entry, &log, &image)?;
            } else {
                lost += 1;
            }
        }
        self.remove()?;
        Ok(lost)
    }

    pub(super) fn remove(&self) -> Result<()> {
        for path in [&self.written, &self.log] {
            fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
        Ok(())
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    crate::step::check(std::process::Command::new("cp").arg("--sparse=always").arg(from).arg(to))
}

fn apply(entry: &Entry, log: &File, image: &File) -> Result<()> {
    if entry.flags & DISCARD != 0 {
        // What a discarded block reads as is nobody's to rely on; it stays as it was.
        return Ok(());
    }
    let mut bytes = vec![0; usize::try_from(entry.sectors * SECTOR)?];
    log.read_exact_at(&mut bytes, entry.bytes)?;
    Ok(image.write_all_at(&bytes, entry.at * SECTOR)?)
}

/// Header: magic, version, number of entries, sector size. Each entry has a sector of its own,
/// with place, length, flags and the length of a text; its data follow.
fn entries(log: &mut File) -> Result<Vec<Entry>> {
    let mut header = [0; 28];
    log.seek(SeekFrom::Start(0))?;
    log.read_exact(&mut header).context("the log of the guest's writes is empty")?;
    let number =
        |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    let (magic, version) = (number(&header[..8]), number(&header[8..16]));
    ensure!(magic == MAGIC && version == 1, "not a log of writes: {magic:x}, version {version}");
    ensure!(number(&header[24..28]) == SECTOR, "another sector size than {SECTOR}");
    let mut at = SECTOR;
    let mut found = Vec::new();
    for _ in 0..number(&header[16..24]) {
        let mut head = [0; 32];
        log.read_exact_at(&mut head, at)?;
        let field = |index: usize| number(&head[index * 8..][..8]);
        let entry = Entry { at: field(0), sectors: field(1), flags: field(2), bytes: at + SECTOR };
        let has_data = entry.flags & DISCARD == 0;
        at += SECTOR + if has_data { entry.sectors * SECTOR } else { 0 };
        found.push(entry);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(requests: &[(u64, u64, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in [MAGIC, 1, requests.len() as u64] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(512_u32.to_le_bytes());
        bytes.resize(512, 0);
        for (at, flags, data) in requests {
            for number in [*at, data.len() as u64 / SECTOR, *flags, 0] {
                bytes.extend(number.to_le_bytes());
            }
            bytes.resize(bytes.len().next_multiple_of(512), 0);
            bytes.extend(*data);
        }
        bytes
    }

    #[test]
    fn what_was_flushed_or_forced_is_there_and_the_rest_by_chance() {
        let directory = std::env::temp_dir().join(format!("berth-volatile-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let disk = VolatileDisk::of(&directory.join("state.img"));
        let sector = |byte| vec![byte; 512];
        let requests: [(u64, u64, &[u8]); 5] = [
            (0, 0, &sector(1)),
            (0, FLUSH, &[]),
            (1, 0, &sector(2)),
            (2, FORCED, &sector(3)),
            (0, 0, &sector(4)),
        ];
        for (keeps, expected, lost) in [(false, [1, 0, 3], 2), (true, [4, 2, 3], 0)] {
            fs::write(&disk.image, vec![0; 3 * 512]).unwrap();
            fs::write(&disk.written, "").unwrap();
            fs::write(&disk.log, log(&requests)).unwrap();
            assert_eq!(disk.settle(|| Ok(keeps)).unwrap(), lost);
            let image = fs::read(&disk.image).unwrap();
            assert_eq!([image[0], image[512], image[1024]], expected);
        }
        fs::remove_dir_all(&directory).unwrap();
    }
}
