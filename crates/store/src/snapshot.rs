use std::sync::{Arc, Mutex, MutexGuard};

use crate::{
    database::{Database, OpenDatabaseError},
    digest::Digest,
    replay,
    row::State,
    store::lock,
    tree::{Rows, Tree, Writes},
};

/// What was committed since somebody began to read all rows, if anybody does.
#[derive(Debug, Clone, Default)]
pub(crate) struct Since(Arc<Mutex<Option<Later>>>);

#[derive(Debug)]
struct Later {
    state: State,
    writes: Writes,
}

impl Since {
    /// No reader ends before it is let go: take it before the database is changed.
    pub(crate) fn hold(&self) -> Noting<'_> {
        Noting(lock(&self.0))
    }
}

#[derive(Debug)]
pub(crate) struct Noting<'a>(MutexGuard<'a, Option<Later>>);

impl Noting<'_> {
    /// The database was changed by `writes` and is at `state`.
    pub(crate) fn add(mut self, writes: Writes, state: &State) {
        if let Some(later) = &mut *self.0 {
            later.writes.extend(writes);
            later.state = state.clone();
        }
    }
}

/// All rows as of one commit, read on any thread while commits go on.
///
/// What the rows become in the meantime is noted, and put over what was read, of which it may have
/// any part: the result is the state of the last commit before the reading ended.
#[derive(Debug)]
pub(crate) struct Snapshot {
    database: Arc<Database>,
    since: Since,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum SnapshotError {
    #[error(transparent)]
    Read(#[from] OpenDatabaseError),
    #[error("the database's rows do not add up to its digest")]
    Digest,
}

impl Snapshot {
    /// Between two commits, and one at a time.
    pub(crate) fn begin(database: &Arc<Database>, since: &Since, state: &State) -> Self {
        *lock(&since.0) = Some(Later { state: state.clone(), writes: Writes::new() });
        Self { database: Arc::clone(database), since: since.clone() }
    }

    /// Every row but `meta`, and the state that goes with them.
    pub(crate) fn read(self) -> Result<(State, Rows), SnapshotError> {
        let read = self.database.rows();
        let later = lock(&self.since.0).take().expect("it was begun, and nobody else ends it");
        let mut rows = read?;
        replay::redo(&mut rows, &later.writes);
        rows.retain(|(tree, _), _| *tree != Tree::Meta);
        if Digest::of(&rows) != later.state.digest {
            return Err(SnapshotError::Digest);
        }
        Ok((later.state, rows))
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        *lock(&self.since.0) = None;
    }
}
