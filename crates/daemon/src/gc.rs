use std::time::Duration;

use berth_core::{GcRequest, Ipam};
use berth_types::chain;
use tokio::time::{self, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::aside::aside;

/// One pass every `interval`. A pass that fails is logged and the next one tries again.
pub(crate) async fn run(ipam: Ipam, interval: Duration, stop: CancellationToken) {
    let mut ticks = time::interval_at(time::Instant::now() + interval, interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => (),
        }
        let pass = ipam.clone();
        match aside(async move { pass.collect(GcRequest::default()).await }).await {
            Ok(findings) => {
                for finding in findings.iter().filter(|finding| !finding.collected) {
                    info!(key = %finding.key, evidence = ?finding.evidence, "under suspicion");
                }
            }
            Err(err) => error!(err = %chain(&err), "a pass of garbage collection failed"),
        }
    }
}
