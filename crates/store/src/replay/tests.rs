use super::*;

fn place(key: &str) -> Place {
    (Tree::Attachments, key.as_bytes().to_vec())
}

fn put(key: &str, value: &str) -> Writes {
    Writes::from([(place(key), Some(value.as_bytes().to_vec()))])
}

/// From any state that a crash may leave: the database of some commit, with part of the next.
#[test]
fn a_replay_leads_to_the_last_commit_from_every_state_in_between() {
    let history: Vec<Commit> = (5..9_u64)
        .map(|previous| {
            let value = |key: u64| !(previous + key).is_multiple_of(3);
            let write = |key: u64| {
                let text = format!("{previous}");
                (place(&key.to_string()), value(key).then(|| text.into_bytes()))
            };
            let writes =
                (0..4).filter(|key| (key + previous).is_multiple_of(2)).map(write).collect();
            Commit { previous, sequence: previous + 1, writes }
        })
        .collect();
    let mut last = Rows::new();
    history.iter().for_each(|commit| redo(&mut last, &commit.writes));
    assert!(!last.is_empty());
    let runs = [history.clone()];
    let mut rows = Rows::new();
    for commit in &history {
        for (place, value) in &commit.writes {
            let mut replayed = rows.clone();
            redo(&mut replayed, &sum(leading_on(&runs, commit.previous).unwrap()));
            assert_eq!(replayed, last);
            redo(&mut rows, &[(place.clone(), value.clone())].into());
        }
    }
}

#[test]
fn commits_are_not_replayed_on_a_state_that_they_do_not_lead_on_from() {
    let run = |previous: std::ops::Range<u64>| -> Vec<_> {
        previous
            .map(|previous| Commit { previous, sequence: previous + 1, writes: put("a", "1") })
            .collect()
    };
    let runs = [run(5..8), run(9..11)];
    let found = [(4, None), (5, Some(0)), (8, Some(0)), (9, Some(1)), (11, Some(1)), (12, None)];
    for (sequence, found) in found {
        assert_eq!(leading_on(&runs, sequence), found.map(|at| &*runs[at]), "{sequence}");
    }
    assert_eq!(leading_on(&[], 0), None);
}

#[test]
fn a_lost_state_row_is_had_from_the_log_though_it_does_not_begin_with_the_first_commit() {
    let rows: Rows = [(place("a"), b"1".to_vec())].into();
    let state = State { sequence: 6, digest: Digest::of(&rows), ..State::default() };
    let mut writes = put("a", "1");
    writes.insert(state_place(), Some(row::encode(&state).unwrap()));
    let runs = [vec![Commit { previous: 5, sequence: 6, writes }]];
    let contents = Contents::of(rows.clone(), &runs).unwrap();
    assert_eq!((contents.state, &contents.rows, contents.mended), (state, &rows, true));
    assert!(matches!(Contents::of(rows, &[]), Err(StateError::Missing)));
}
