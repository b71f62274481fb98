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
    /// As many more as the provider could still give.
    pub room: usize,
    pub counts: Counts,
    /// Held or resting, but not of the configured CIDRs any more: beside the capacity.
    pub foreign: usize,
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
            room: pool.room(),
            counts: Counts::of(pool.slots().filter(|slot| !slot.foreign)),
            foreign: pool.slots().filter(|slot| slot.foreign).count(),
            first_free_in: first.map(|at| at.since(now)),
            refused: pool.last_refusal().cloned(),
        }
    }

    /// As many as new pods could get right now.
    pub fn available(&self) -> usize {
        let room = match self.refused {
            None => self.room,
            Some(_) => 0,
        };
        self.counts.idle + room
    }
}

impl Shortage {
    /// Whether none is there and none is coming by itself: a resting one is on its way.
    pub fn is_lasting(&self) -> bool {
        self.available() == 0 && self.counts.cooling == 0
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
        if self.foreign > 0 {
            write!(f, ", and {} of earlier pod CIDRs", self.foreign)?;
        }
        if let Some(refused) = &self.refused {
            write!(f, "; the provider says: {refused}")?;
        }
        Ok(())
    }
}
