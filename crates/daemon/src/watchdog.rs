use std::time::Duration;

use berth_core::Ipam;
use sd_notify::NotifyState;
use tokio::time;
use tokio_util::sync::CancellationToken;
use tracing::error;

/// Tells systemd that the daemon is alive, as long as it is: the heart of it has to answer.
pub(crate) async fn run(ipam: Ipam, stop: CancellationToken) {
    let Some(limit) = sd_notify::watchdog_enabled() else { return };
    let mut ticks = time::interval(limit / 3);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => (),
        }
        match time::timeout(limit / 3, ipam.shortage()).await {
            Ok(Ok(_)) => notify(&[NotifyState::Watchdog]),
            Ok(Err(_)) | Err(_) => error!("the pool does not answer"),
        }
    }
}

/// Best effort: outside systemd there is nobody to tell.
pub(crate) fn notify(states: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(states);
}

/// How long systemd waits for a stop, in its notion of time.
pub(crate) fn stopping(grace: Duration) {
    let micros = u32::try_from(grace.as_micros()).unwrap_or(u32::MAX);
    notify(&[NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(micros)]);
}
