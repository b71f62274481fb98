use std::{fmt, time::Duration};

use tokio::time::Instant;
use tracing::{debug, warn};

use crate::{NetError, Op};

/// Operations block; between them the caller's deadline is looked at, but not sooner than this
/// after the last look: it is a trip through the event loop, which costs as much as an operation.
const LOOK: Duration = Duration::from_millis(1);

/// Something that carries operations out: the kernel, or a fake.
pub(crate) trait Executor: Send {
    fn apply(&mut self, op: &Op) -> Result<Outcome, NetError>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Changed,
    /// It was there already, if with other values, so it is not ours to take away.
    AlreadySo,
}

/// One operation of a plan failed, and those before it were taken back.
#[derive(Debug, thiserror::Error)]
#[error("`{op}` failed{}", Left(.left_behind))]
pub struct PlanError {
    pub op: Box<Op>,
    pub source: NetError,
    /// How to take back the changes that could not be.
    pub left_behind: Vec<Op>,
}

/// Carries `plan` out in order and answers what takes back the changes it made, in the order
/// they were made. On a failure they are taken back here, last first, as far as that goes.
pub(crate) async fn run(executor: &mut dyn Executor, plan: &[Op]) -> Result<Vec<Op>, PlanError> {
    let mut undo = Vec::new();
    let mut looked = Instant::now();
    for op in plan {
        if looked.elapsed() >= LOOK {
            tokio::task::yield_now().await;
            looked = Instant::now();
        }
        match executor.apply(op) {
            Ok(outcome) => {
                debug!(%op, ?outcome, "applied");
                if outcome == Outcome::Changed {
                    undo.extend(op.inverse());
                }
            }
            Err(source) => {
                let left_behind = take_back(executor, undo);
                return Err(PlanError { op: Box::new(op.clone()), source, left_behind });
            }
        }
    }
    Ok(undo)
}

/// Applies `undo` last first, goes on after failures and answers what failed.
pub(crate) fn take_back(executor: &mut dyn Executor, undo: Vec<Op>) -> Vec<Op> {
    let mut failed = Vec::new();
    for op in undo.into_iter().rev() {
        if let Err(err) = executor.apply(&op) {
            warn!(%op, err = berth_types::chain(&err), "cannot take back");
            failed.push(op);
        }
    }
    failed
}

struct Left<'a>(&'a [Op]);

impl fmt::Display for Left<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, op) in self.0.iter().enumerate() {
            f.write_str(if n == 0 { " and this is still to do: " } else { ", " })?;
            write!(f, "`{op}`")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::{Side, Thing};

    use super::*;

    /// Records what it is told; fails where it is told to.
    #[derive(Default)]
    struct Fake {
        seen: Vec<String>,
        already: &'static [&'static str],
        failing: &'static [&'static str],
    }

    impl Executor for Fake {
        fn apply(&mut self, op: &Op) -> Result<Outcome, NetError> {
            let op = op.to_string();
            let outcome = if self.failing.contains(&op.as_str()) {
                Err(NetError::NoAnswer)
            } else if self.already.contains(&op.as_str()) {
                Ok(Outcome::AlreadySo)
            } else {
                Ok(Outcome::Changed)
            };
            self.seen.push(op);
            outcome
        }
    }

    fn address(text: &str) -> Op {
        let link = "eth0".parse().unwrap();
        Op::ensure(Side::Pod, Thing::Address { link, address: text.parse().unwrap() })
    }

    fn up() -> Op {
        Op::ensure(Side::Pod, Thing::Up { link: "eth0".parse().unwrap() })
    }

    #[tokio::test]
    async fn a_failed_plan_takes_back_what_it_changed_and_nothing_else() {
        let plan = ["10.0.0.1/32", "10.0.0.2/32", "10.0.0.3/32", "10.0.0.4/32"].map(address);
        let mut fake = Fake {
            already: &["[pod] ip addr add 10.0.0.1/32 dev eth0"],
            failing: &[
                "[pod] ip addr add 10.0.0.4/32 dev eth0",
                "[pod] ip addr del 10.0.0.3/32 dev eth0",
            ],
            ..Fake::default()
        };

        let err = run(&mut fake, &plan).await.unwrap_err();

        assert_eq!(
            err.to_string(),
            "`[pod] ip addr add 10.0.0.4/32 dev eth0` failed and this is still to do: \
             `[pod] ip addr del 10.0.0.3/32 dev eth0`"
        );
        assert_eq!(fake.seen.last().unwrap(), "[pod] ip addr del 10.0.0.2/32 dev eth0");
        assert_eq!(fake.seen.len(), 6);
    }

    #[tokio::test]
    async fn a_plan_that_ran_answers_how_to_take_back_its_changes() {
        let plan = [up(), address("10.0.0.1/32"), address("10.0.0.2/32")];
        let mut fake =
            Fake { already: &["[pod] ip addr add 10.0.0.1/32 dev eth0"], ..Fake::default() };
        let undo = run(&mut fake, &plan).await.unwrap();
        let undo: Vec<_> = undo.iter().map(Op::to_string).collect();
        assert_eq!(undo, ["[pod] ip addr del 10.0.0.2/32 dev eth0"]);
    }
}
