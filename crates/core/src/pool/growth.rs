use std::time::Duration;

use berth_types::BootTime;

use crate::ports::SourceError;

/// The least and the most that the provider is left alone after it refused. The pause doubles
/// from one to the other.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Whether more may be asked for right now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Growth {
    Ready,
    /// `pause` is how long the provider was left alone before, if it had refused.
    InFlight {
        pause: Option<Duration>,
    },
    BackingOff {
        until: BootTime,
        pause: Duration,
        because: SourceError,
    },
}

impl Growth {
    /// Whether a call may begin now; if so, it has.
    pub(super) fn begin(&mut self, now: BootTime) -> bool {
        let pause = match self {
            Self::Ready => None,
            Self::BackingOff { until, pause, .. } if *until <= now => Some(*pause),
            Self::InFlight { .. } | Self::BackingOff { .. } => return false,
        };
        *self = Self::InFlight { pause };
        true
    }

    pub(super) fn refused(&mut self, now: BootTime, because: SourceError) {
        let pause = match self {
            Self::InFlight { pause: Some(pause) } | Self::BackingOff { pause, .. } => {
                (*pause * 2).min(BACKOFF.1)
            }
            Self::Ready | Self::InFlight { pause: None } => BACKOFF.0,
        };
        *self = Self::BackingOff { until: now + pause, pause, because };
    }

    /// Whether the provider is left alone now.
    pub(super) fn is_backing_off(&self, now: BootTime) -> bool {
        matches!(self, Self::BackingOff { until, .. } if *until > now)
    }

    /// Nothing is asked for now: a pause that is over is forgotten.
    pub(super) fn rest(&mut self, now: BootTime) {
        if matches!(self, Self::BackingOff { until, .. } if *until <= now) {
            *self = Self::Ready;
        }
    }

    pub(super) fn backing_off_until(&self) -> Option<BootTime> {
        match self {
            Self::BackingOff { until, .. } => Some(*until),
            Self::Ready | Self::InFlight { .. } => None,
        }
    }

    pub(super) fn last_refusal(&self) -> Option<&SourceError> {
        match self {
            Self::BackingOff { because, .. } => Some(because),
            Self::Ready | Self::InFlight { .. } => None,
        }
    }
}
