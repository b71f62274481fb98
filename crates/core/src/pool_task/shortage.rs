use std::{fmt, time::Duration};

use berth_types::BootTime;

use crate::{
    pool::{Counts, Pool, SlotState},
    ports::SourceError,
};

/// What there is and what is in the way: the *why* of "no address".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    pub capacity: usize,
    pub counts: Counts,
    /// How long until the first resting one may be had, where one rests.
    pub first_free_in: Option<Duration>,
    pub refused: Option<SourceError>,
}

impl Shortage {
    pub(super) fn of(pool: &Pool, now: BootTime) -> Self {
        let first = pool
            .slots()
            .filter(|slot| matches!(slot.state, SlotState::Cooling { .. }) && !slot.foreign)
            .filter_map(|slot| slot.state.ends())
            .min();
        Self {
            capacity: pool.limits().capacity,
            counts: pool.counts(),
            first_free_in: first.map(|at| at.since(now)),
            refused: pool.last_refusal().cloned(),
        }
    }

    /// As many as new pods could get right now.
    pub fn available(&self) -> usize {
        let room = match self.refused {
            None => self.capacity.saturating_sub(self.counts.total()),
            Some(_) => 0,
        };
        self.counts.idle + room
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { leased, promised, cooling, reserved, quarantined, .. } = self.counts;
        write!(f, "capacity {}, {} leased", self.capacity, leased + promised)?;
        write!(f, ", {cooling} cooling")?;
        if let Some(first) = self.first_free_in {
            write!(f, " (the first for {} s more)", first.as_secs_f64().ceil())?;
        }
        write!(f, ", {reserved} reserved, {quarantined} in quarantine")?;
        if let Some(refused) = &self.refused {
            write!(f, "; the provider says: {refused}")?;
        }
        Ok(())
    }
}
