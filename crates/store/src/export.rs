use std::{collections::BTreeMap, io, path::Path};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{
    digest::Digest,
    row::State,
    tree::{Rows, Tree},
};

const FORMAT: u32 = 1;

/// All rows but `meta`, as text: what a damaged database is rebuilt from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Export {
    /// 0 where it cannot be trusted.
    pub(crate) sequence: u64,
    pub(crate) doubtful: Option<String>,
    pub(crate) rows: Rows,
    /// Whether head and rows are as they were written.
    pub(crate) whole: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document<R> {
    format: u32,
    sequence: u64,
    digest: Digest,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    doubtful: Option<String>,
    /// Of the fields above: a damaged number must not pass for a newer state than the database's.
    /// Exports of programs before it was there have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    crc32: Option<u32>,
    trees: BTreeMap<Tree, BTreeMap<String, R>>,
}

impl<R> Document<R> {
    fn checksum(&self) -> Result<u32, serde_json::Error> {
        let head = (self.format, self.sequence, self.digest, &self.doubtful);
        Ok(crc32fast::hash(&serde_json::to_vec(&head)?))
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error("cannot read the export")]
    Io(#[source] io::Error),
    #[error("not an export of a store")]
    Json(#[from] serde_json::Error),
    #[error("export format {0} is not known to this program")]
    Format(u32),
    #[error("row {0:?} has a key that is not text")]
    Key(Vec<u8>),
}

/// The document for `rows`, as they were at `state`.
pub(crate) fn write(state: &State, rows: &Rows) -> Result<Vec<u8>, ExportError> {
    let mut trees: BTreeMap<Tree, BTreeMap<String, &RawValue>> = BTreeMap::new();
    for ((tree, key), value) in rows.iter().filter(|((tree, _), _)| *tree != Tree::Meta) {
        let key =
            String::from_utf8(key.clone()).map_err(|err| ExportError::Key(err.into_bytes()))?;
        trees.entry(*tree).or_default().insert(key, serde_json::from_slice(value)?);
    }
    let mut document = Document {
        format: FORMAT,
        sequence: state.sequence,
        digest: state.digest,
        doubtful: state.doubtful.clone(),
        crc32: None,
        trees,
    };
    document.crc32 = Some(document.checksum()?);
    let mut bytes = serde_json::to_vec(&document)?;
    bytes.push(b'\n');
    Ok(bytes)
}

pub(crate) fn read(document: &[u8]) -> Result<Export, ExportError> {
    let document: Document<Box<RawValue>> = serde_json::from_slice(document)?;
    if document.format != FORMAT {
        return Err(ExportError::Format(document.format));
    }
    let found = document.checksum()?;
    let head_is_whole = document.crc32.is_none_or(|written| written == found);
    let mut rows = Rows::new();
    for (tree, entries) in document.trees {
        for (key, value) in entries {
            rows.insert((tree, key.into_bytes()), value.get().as_bytes().to_vec());
        }
    }
    rows.retain(|(tree, _), _| *tree != Tree::Meta);
    let whole = head_is_whole && Digest::of(&rows) == document.digest;
    let sequence = if head_is_whole { document.sequence } else { 0 };
    Ok(Export { sequence, doubtful: document.doubtful, rows, whole })
}

/// `None` where there is no file.
pub(crate) fn read_file(path: &Path) -> Result<Option<Export>, ExportError> {
    match std::fs::read(path) {
        Ok(bytes) => read(&bytes).map(Some),
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(err) => Err(ExportError::Io(err)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> (Rows, Vec<u8>) {
        let row = |name: &str| ((Tree::Cooling, name.into()), br#"{"version":1}"#.to_vec());
        let rows = Rows::from([row("a"), row("b")]);
        let state = State { sequence: 12, digest: Digest::of(&rows), ..State::default() };
        (rows.clone(), write(&state, &rows).unwrap())
    }

    #[test]
    fn no_flipped_bit_makes_it_newer_or_passes_for_whole() {
        let (rows, written) = document();
        let whole = read(&written).unwrap();
        assert_eq!((whole.sequence, &whole.rows, whole.whole), (12, &rows, true));
        for bit in 0..written.len() * 8 {
            let mut bytes = written.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let Ok(read) = read(&bytes) else { continue };
            assert!(read.sequence <= 12, "bit {bit}: {}", read.sequence);
            assert!(!read.whole || read == whole, "bit {bit}: {read:?}");
        }
    }

    #[test]
    fn one_of_an_earlier_program_is_read() {
        let mut value: serde_json::Value = serde_json::from_slice(&document().1).unwrap();
        value.as_object_mut().unwrap().remove("crc32").unwrap();
        let export = read(value.to_string().as_bytes()).unwrap();
        assert_eq!((export.sequence, export.whole), (12, true));
    }
}
