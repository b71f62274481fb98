use std::{io, time::Duration};

use berth_types::BootId;

use crate::{
    database::{Database, WriteError},
    digest::Digest,
    row::{self, RowError, State},
    sequence::SequenceFile,
    tree::{Rows, Tree, Writes},
};

/// The database and the sequence file together: what a commit is.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) database: Database,
    pub(crate) sequence: SequenceFile,
    /// As last committed.
    pub(crate) state: State,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum CommitError {
    #[error("cannot read the database")]
    Read(#[source] sled::Error),
    #[error("cannot write the state row")]
    State(#[source] RowError),
    #[error("cannot commit")]
    Write(#[from] WriteError),
    #[error("cannot write the commit sequence")]
    Sequence(#[source] io::Error),
}

impl Ledger {
    /// May be acknowledged when it returns. Answers how long the disk took.
    pub(crate) fn commit(
        &mut self,
        mut writes: Writes,
        boot_id: Option<&BootId>,
    ) -> Result<Duration, CommitError> {
        let mut next = self.state.clone();
        next.sequence += 1;
        next.boot_id = boot_id.cloned().or(next.boot_id);
        for ((tree, key), value) in &writes {
            if let Some(old) = self.database.get(*tree, key).map_err(CommitError::Read)? {
                next.digest -= Digest::of_row(*tree, key, &old);
            }
            if let Some(new) = value {
                next.digest += Digest::of_row(*tree, key, new);
            }
        }
        let state = row::encode(&next).map_err(CommitError::State)?;
        writes.insert((Tree::Meta, State::KEY.into()), Some(state));
        let took = self.database.write(&writes)?;
        self.sequence.write(next.sequence).map_err(CommitError::Sequence)?;
        crash_point!("store::after_sequence");
        self.state = next;
        Ok(took)
    }

    /// Every row but `meta`, as last committed.
    pub(crate) fn rows(&self) -> Result<Rows, sled::Error> {
        let mut rows = Rows::new();
        for tree in Tree::ALL.into_iter().filter(|tree| *tree != Tree::Meta) {
            for row in self.database.tree(tree).iter() {
                let (key, value) = row?;
                rows.insert((tree, key.to_vec()), value.to_vec());
            }
        }
        Ok(rows)
    }
}
