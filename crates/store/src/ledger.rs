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
    /// As last applied.
    pub(crate) state: State,
    /// Something was applied that may not be on disk.
    pub(crate) behind: bool,
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
    pub(crate) fn new(database: Database, sequence: SequenceFile, state: State) -> Self {
        Self { database, sequence, state, behind: false }
    }

    /// May be acknowledged when it returns. Answers how long the disk took.
    pub(crate) fn commit(
        &mut self,
        writes: Writes,
        boot_id: Option<&BootId>,
    ) -> Result<Duration, CommitError> {
        self.apply(writes, boot_id)?;
        self.sync()
    }

    /// One transaction with the next sequence and digest. A crash before the next
    /// [`sync`](Self::sync) takes it back whole.
    pub(crate) fn apply(
        &mut self,
        mut writes: Writes,
        boot_id: Option<&BootId>,
    ) -> Result<(), CommitError> {
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
        self.behind = true;
        self.database.apply(&writes)?;
        self.state = next;
        Ok(())
    }

    /// What was applied may be acknowledged when it returns. Answers how long the disk took.
    ///
    /// **Order matters:** the sequence file may be behind the database, and never ahead of it.
    pub(crate) fn sync(&mut self) -> Result<Duration, CommitError> {
        let took = self.database.sync()?;
        self.sequence.write(self.state.sequence).map_err(CommitError::Sequence)?;
        crash_point!("store::after_sequence");
        self.behind = false;
        Ok(took)
    }

    /// Every row but `meta`, as last applied.
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
