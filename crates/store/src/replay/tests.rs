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
    let mut rows = Rows::new();
    for commit in &history {
        for (place, value) in &commit.writes {
            let mut replayed = rows.clone();
            redo(&mut replayed, &replay(&history, commit.previous).unwrap());
            assert_eq!(replayed, last);
            redo(&mut rows, &[(place.clone(), value.clone())].into());
        }
    }
}

#[test]
fn commits_are_not_replayed_on_a_state_that_they_do_not_lead_on_from() {
    let commits: Vec<_> = (5..8)
        .map(|previous| Commit { previous, sequence: previous + 1, writes: put("a", "1") })
        .collect();
    for (sequence, leads_on) in [(4, false), (5, true), (8, true), (9, false)] {
        assert_eq!(replay(&commits, sequence).is_some(), leads_on, "{sequence}");
    }
    assert_eq!(replay(&[], 0), None);
}
