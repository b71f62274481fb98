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
    pub(crate) sequence: u64,
    pub(crate) doubtful: Option<String>,
    pub(crate) rows: Rows,
    /// Whether the rows add up to the digest that they were written with.
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
    trees: BTreeMap<Tree, BTreeMap<String, R>>,
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
    let document = Document {
        format: FORMAT,
        sequence: state.sequence,
        digest: state.digest,
        doubtful: state.doubtful.clone(),
        trees,
    };
    let mut bytes = serde_json::to_vec(&document)?;
    bytes.push(b'\n');
    Ok(bytes)
}

pub(crate) fn read(document: &[u8]) -> Result<Export, ExportError> {
    let document: Document<Box<RawValue>> = serde_json::from_slice(document)?;
    if document.format != FORMAT {
        return Err(ExportError::Format(document.format));
    }
    let mut rows = Rows::new();
    for (tree, entries) in document.trees {
        for (key, value) in entries {
            rows.insert((tree, key.into_bytes()), value.get().as_bytes().to_vec());
        }
    }
    rows.retain(|(tree, _), _| *tree != Tree::Meta);
    let whole = Digest::of(&rows) == document.digest;
    Ok(Export { sequence: document.sequence, doubtful: document.doubtful, rows, whole })
}

/// `None` where there is no file.
pub(crate) fn read_file(path: &Path) -> Result<Option<Export>, ExportError> {
    match std::fs::read(path) {
        Ok(bytes) => read(&bytes).map(Some),
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(err) => Err(ExportError::Io(err)),
    }
}
