//! What the commit log adds to a database or an export that is behind it.

use crate::{
    commits::Commit,
    digest::Digest,
    export::Export,
    row::{self, RowError, State},
    tree::{Place, Rows, Tree, Writes},
    verdict::Found,
};

/// The commits that lead on from one of commit `sequence`, or from a state that has part of those
/// after it too, if there are any.
fn leading_on(runs: &[Vec<Commit>], sequence: u64) -> Option<&[Commit]> {
    let leads_on = |run: &&Vec<Commit>| match (run.first(), run.last()) {
        (Some(first), Some(last)) => (first.previous..=last.sequence).contains(&sequence),
        _ => false,
    };
    runs.iter().rev().find(leads_on).map(Vec::as_slice)
}

/// What the commits do: all of it may be done again, for each row ends as the last commit wrote it.
fn sum(commits: &[Commit]) -> Writes {
    let mut sum = Writes::new();
    for commit in commits {
        sum.extend(commit.writes.clone());
    }
    sum
}

pub(crate) fn redo(rows: &mut Rows, writes: &Writes) {
    for (place, value) in writes {
        match value {
            Some(value) => _ = rows.insert(place.clone(), value.clone()),
            None => _ = rows.remove(place),
        }
    }
}

/// What a database holds once its log is done again.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) state: State,
    /// All but `meta`.
    pub(crate) rows: Rows,
    /// What of it the database does not have.
    pub(crate) replayed: Writes,
    /// The database said that it has all of it, and had something else.
    pub(crate) mended: bool,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum StateError {
    #[error("the state row is missing")]
    Missing,
    #[error("the state row: {0}")]
    Unreadable(#[source] RowError),
    #[error("the state row: schema {0} is newer than this program")]
    NewerSchema(u32),
}

impl Contents {
    pub(crate) fn of(rows: Rows, runs: &[Vec<Commit>]) -> Result<Self, StateError> {
        match state(&rows) {
            Ok(state) => {
                let sequence = state.map_or(0, |state| state.sequence);
                let commits = leading_on(runs, sequence).unwrap_or_default();
                let said = commits.last().is_some_and(|commit| commit.sequence == sequence);
                let contents = Self::from(rows, commits)?;
                Ok(Self { mended: said && !contents.replayed.is_empty(), ..contents })
            }
            // The log may have that row. A crash in the first commit of all leaves none.
            Err(err @ (StateError::Unreadable(_) | StateError::Missing)) => {
                let first = leading_on(runs, 0);
                let Some(commits) = first.or(runs.last().map(Vec::as_slice)) else {
                    return Err(err);
                };
                let mended = Self::from(rows, commits)?;
                let whole = matches!(mended.found(), Found::Holds { whole: true, .. });
                if whole { Ok(Self { mended: first.is_none(), ..mended }) } else { Err(err) }
            }
            Err(err @ StateError::NewerSchema(_)) => Err(err),
        }
    }

    fn from(mut rows: Rows, commits: &[Commit]) -> Result<Self, StateError> {
        let mut replayed = sum(commits);
        replayed.retain(|place, value| rows.get(place) != value.as_ref());
        redo(&mut rows, &replayed);
        let state = state(&rows)?.unwrap_or_default();
        rows.retain(|(tree, _), _| *tree != Tree::Meta);
        Ok(Self { state, rows, replayed, mended: false })
    }

    pub(crate) fn found(&self) -> Found {
        if self.rows.is_empty() && self.state == State::default() {
            return Found::Empty;
        }
        let whole = Digest::of(&self.rows) == self.state.digest;
        Found::Holds { sequence: self.state.sequence, whole }
    }
}

fn state_place() -> Place {
    (Tree::Meta, State::KEY.into())
}

/// `None` where there is nothing at all.
fn state(rows: &Rows) -> Result<Option<State>, StateError> {
    let Some(bytes) = rows.get(&state_place()) else {
        return if rows.is_empty() { Ok(None) } else { Err(StateError::Missing) };
    };
    match row::decode::<State>(bytes) {
        Ok(state) if state.schema > State::SCHEMA => Err(StateError::NewerSchema(state.schema)),
        Ok(state) => Ok(Some(state)),
        Err(RowError::UnknownVersion(version)) => Err(StateError::NewerSchema(version)),
        Err(err) => Err(StateError::Unreadable(err)),
    }
}

/// The newest state that can be had without the database: the export with the log's commits after
/// it. A log that begins with the first commit needs no export.
pub(crate) fn spare(export: Option<Export>, runs: &[Vec<Commit>]) -> Option<Export> {
    let empty = || Export { sequence: 0, doubtful: None, rows: Rows::new(), whole: true };
    let mut spare = export.clone().unwrap_or_else(empty);
    let mut commits = leading_on(runs, spare.sequence).filter(|_| spare.whole);
    let exported = export.as_ref().filter(|export| export.whole).map_or(0, |it| it.sequence);
    if let Some(first) = leading_on(runs, 0)
        && first.last().is_some_and(|last| last.sequence >= exported)
        && commits.is_none_or(|commits| commits == first)
    {
        (spare, commits) = (empty(), Some(first));
    }
    let Some(commits) = commits else { return export };
    redo(&mut spare.rows, &sum(commits));
    let Ok(Some(state)) = state(&spare.rows) else { return export };
    spare.rows.remove(&state_place());
    if Digest::of(&spare.rows) != state.digest {
        return export;
    }
    Some(Export { sequence: state.sequence, doubtful: state.doubtful, ..spare })
}

#[cfg(test)]
mod tests;
