//! What this crate reads of the disk, for the fuzzer in `tests/fuzz`. Each function panics where
//! something does not hold.

use std::collections::BTreeSet;

use crate::{
    commits,
    digest::Digest,
    export, load,
    replay::{self, Contents},
    row::State,
    tree::{Rows, Tree},
};

/// `export.json`, which `berthctl db import` and the recovery of a damaged database read.
pub fn export(document: &[u8]) {
    let Ok(read) = export::read(document) else { return };
    let state = State {
        sequence: read.sequence,
        digest: Digest::of(&read.rows),
        doubtful: read.doubtful.clone(),
        ..State::default()
    };
    let written = export::write(&state, &read.rows).expect("what was read can be written");
    let again = export::read(&written).expect("what was written can be read");
    assert_eq!((again.sequence, &again.rows), (read.sequence, &read.rows));
    assert!(again.whole);
    settle(read.rows);
}

/// A whole database: rows as lines of tree number, key and value, parted by tabs. Those whose
/// line begins with `+` get a checksum that is right, or no mutation would ever pass it.
pub fn rows(lines: &[u8]) {
    let mut rows = Rows::new();
    for line in lines.split(|byte| *byte == b'\n') {
        let (sealed, line) = match line.strip_prefix(b"+") {
            Some(line) => (true, line),
            None => (false, line),
        };
        let mut parts = line.splitn(3, |byte| *byte == b'\t');
        let (Some([tree]), Some(key), Some(value)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let tree = Tree::ALL[usize::from(*tree) % Tree::ALL.len()];
        let value = if sealed { seal(value) } else { value.to_vec() };
        // The state is read before, and by itself.
        if tree != Tree::Meta {
            rows.insert((tree, key.to_vec()), value);
        }
    }
    settle(rows);
}

/// The commit log: as it is, and once more as the body of one record with a checksum that is
/// right. What is read is written again as the same bytes, and can be done again.
pub fn commits(bytes: &[u8]) {
    for log in [bytes.to_vec(), commits::sealed(bytes)] {
        let Ok(read) = commits::parse(&log).map(|logged| logged.runs) else { continue };
        let mut written = Vec::new();
        for commit in read.iter().flatten() {
            written.extend(commits::encode(commit).expect("what was read can be written"));
            written.resize(written.len().next_multiple_of(commits::PAGE), 0);
        }
        let again = commits::parse(&written).expect("what was written can be read");
        assert_eq!(again.runs, read);
        if let Ok(contents) = Contents::of(Rows::new(), &read) {
            settle(contents.rows);
        }
        replay::spare(None, &read);
    }
}

fn seal(body: &[u8]) -> Vec<u8> {
    let crc32 = crc32fast::hash(body);
    let mut row = format!("{{\"version\":1,\"crc32\":{crc32},\"body\":").into_bytes();
    row.extend(body);
    row.push(b'}');
    row
}

/// Whatever the rows are: they can be loaded, nothing is lost, nobody shares an address, and what
/// the loading repaired stays so.
fn settle(mut rows: Rows) {
    let first = load::read(&rows).expect("rows can be set aside");
    let before = rows.len();
    for (place, value) in first.repairs {
        match value {
            Some(value) => rows.insert(place, value),
            None => rows.remove(&place),
        };
    }
    let mut addresses = BTreeSet::new();
    for attachment in &first.loaded.attachments {
        for address in attachment.resource.addresses.iter() {
            assert!(addresses.insert(address), "{address} has two holders");
        }
    }
    let second = load::read(&rows).expect("rows can be loaded again");
    assert!(second.repairs.is_empty(), "repaired twice: {:?}", second.repairs);
    assert_eq!(first.loaded.attachments, second.loaded.attachments);
    // What was moved is there under its new name.
    assert!(rows.len() >= before, "{before} rows became {}", rows.len());
    export::write(&State::default(), &rows).expect("every export from now on can be written");
}
