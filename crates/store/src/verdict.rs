use crate::sequence::Recorded;

/// What the opened database turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// No row at all: never used, or lost whole.
    Empty,
    Damaged(String),
    /// Up to commit `sequence`; `whole` when its rows add up to its digest.
    Holds {
        sequence: u64,
        whole: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// As it should be.
    Keep,
    KeepInDoubt(String),
    /// Move it aside and start from the export, in doubt.
    Rebuild(String),
    /// Move it aside and start with nothing, in doubt.
    StartEmpty(String),
}

/// Compares the database with what was acknowledged, and picks the newest state there is.
/// `logged` is the last commit that the commit log tells to have been acknowledged (0: none),
/// `exported` the one up to which export and commit log lead without the database, if they do.
pub(crate) fn judge(
    found: &Found,
    recorded: Recorded,
    logged: u64,
    exported: Option<u64>,
) -> Verdict {
    let acknowledged = match recorded {
        Recorded::At(sequence) => sequence.max(logged),
        Recorded::Missing | Recorded::Damaged => logged,
    };
    match found {
        Found::Empty
            if recorded == Recorded::Missing && acknowledged == 0 && exported.is_none() =>
        {
            Verdict::Keep
        }
        Found::Empty => replace("the database is empty", acknowledged, exported),
        Found::Damaged(problem) => {
            replace(&format!("the database is damaged ({problem})"), acknowledged, exported)
        }
        Found::Holds { sequence, whole: false } => {
            let problem = "the database's rows do not add up to its digest";
            match exported {
                // A few rows may be wrong, where with the export all commits since would be lost.
                Some(exported) if exported < *sequence => {
                    let newest = acknowledged.max(*sequence);
                    Verdict::KeepInDoubt(format!(
                        "{problem}; it is at commit {sequence} of {newest}, the export at {exported}"
                    ))
                }
                Some(_) => replace(problem, acknowledged, exported),
                None => Verdict::KeepInDoubt(format!("{problem}, and there is no export")),
            }
        }
        Found::Holds { sequence, whole: true } => {
            judge_sequence(*sequence, recorded, acknowledged, exported.unwrap_or(0))
        }
    }
}

fn judge_sequence(sequence: u64, recorded: Recorded, acknowledged: u64, exported: u64) -> Verdict {
    let newest = acknowledged.max(exported);
    if sequence < newest {
        let problem = format!("the database is at commit {sequence} where {newest} was written");
        return if exported > sequence {
            replace(&problem, newest, Some(exported))
        } else {
            Verdict::KeepInDoubt(problem)
        };
    }
    match recorded {
        Recorded::At(_) => Verdict::Keep,
        // A crash within the very first commit.
        Recorded::Missing if sequence <= 1 => Verdict::Keep,
        Recorded::Missing => Verdict::KeepInDoubt("the sequence file is missing".to_owned()),
        Recorded::Damaged => Verdict::KeepInDoubt("the sequence file is damaged".to_owned()),
    }
}

fn replace(problem: &str, acknowledged: u64, exported: Option<u64>) -> Verdict {
    match exported {
        Some(sequence) if sequence < acknowledged => Verdict::Rebuild(format!(
            "{problem}; rebuilt from the export as of commit {sequence}, {} commits are lost",
            acknowledged - sequence
        )),
        Some(sequence) => {
            Verdict::Rebuild(format!("{problem}; rebuilt from the export as of commit {sequence}"))
        }
        None => Verdict::StartEmpty(format!("{problem}; there is no export: started empty")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(sequence: u64) -> Found {
        Found::Holds { sequence, whole: true }
    }

    #[test]
    fn a_database_that_holds_all_that_was_acknowledged_is_kept() {
        for (found, recorded, logged, exported) in [
            (Found::Empty, Recorded::Missing, 0, None),
            (holds(7), Recorded::At(7), 6, Some(7)),
            // A crash between the log's sync and the sequence file: not an alarm.
            (holds(8), Recorded::At(7), 7, Some(5)),
            (holds(1), Recorded::Missing, 0, None),
        ] {
            let case = format!("{found:?} {recorded:?} {logged} {exported:?}");
            assert_eq!(judge(&found, recorded, logged, exported), Verdict::Keep, "{case}");
        }
    }

    #[test]
    fn what_lost_something_is_doubted_and_the_newest_state_is_taken() {
        let damaged = Found::Damaged("torn".to_owned());
        let broken = Found::Holds { sequence: 9, whole: false };
        let (rebuilt, kept, empty) = ("rebuilt", "kept", "empty");
        for (found, recorded, exported, expected) in [
            (&holds(6), Recorded::At(7), Some(7), rebuilt),
            (&holds(6), Recorded::At(7), Some(6), kept),
            (&holds(6), Recorded::At(7), None, kept),
            // The database and its sequence came back from a backup, the export did not.
            (&holds(6), Recorded::At(6), Some(7), rebuilt),
            (&holds(6), Recorded::Missing, Some(6), kept),
            (&holds(6), Recorded::Damaged, Some(7), rebuilt),
            (&broken, Recorded::At(9), Some(9), rebuilt),
            (&broken, Recorded::At(9), Some(3), kept),
            (&broken, Recorded::At(9), None, kept),
            (&damaged, Recorded::At(9), Some(9), rebuilt),
            (&damaged, Recorded::Missing, None, empty),
            (&Found::Empty, Recorded::At(9), Some(9), rebuilt),
            (&Found::Empty, Recorded::Missing, Some(9), rebuilt),
            (&Found::Empty, Recorded::At(9), None, empty),
        ] {
            let verdict = match judge(found, recorded, 0, exported) {
                Verdict::Keep => "not doubted",
                Verdict::KeepInDoubt(_) => kept,
                Verdict::Rebuild(_) => rebuilt,
                Verdict::StartEmpty(_) => empty,
            };
            assert_eq!(verdict, expected, "{found:?} {recorded:?} {exported:?}");
        }
    }

    #[test]
    fn a_log_that_tells_of_more_is_believed_whatever_else_is_gone() {
        for (found, recorded) in [
            (Found::Empty, Recorded::Missing),
            (holds(1), Recorded::Missing),
            (holds(6), Recorded::At(6)),
        ] {
            let verdict = judge(&found, recorded, 7, None);
            let (Verdict::StartEmpty(doubt) | Verdict::KeepInDoubt(doubt)) = &verdict else {
                panic!("{found:?} {recorded:?}: {verdict:?}")
            };
            assert!(doubt.starts_with("the database is "), "{doubt}");
        }
    }
}
