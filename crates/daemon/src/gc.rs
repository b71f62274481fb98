use std::time::Duration;

use berth_core::{Finding, GcError, GcRequest, Ipam};
use berth_types::chain;
use tokio::{
    runtime::Handle,
    task,
    time::{self, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

/// One pass every `interval`. A pass that fails is logged and the next one tries again.
pub(crate) async fn run(ipam: Ipam, interval: Duration, stop: CancellationToken) {
    let mut ticks = time::interval_at(time::Instant::now() + interval, interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => (),
        }
        match pass(ipam.clone(), GcRequest::default()).await {
            Ok(findings) => {
                for finding in findings.iter().filter(|finding| !finding.collected) {
                    info!(key = %finding.key, evidence = ?finding.evidence, "under suspicion");
                }
            }
            Err(err) => error!(err = %chain(&err), "a pass of garbage collection failed"),
        }
    }
}

/// One pass, on a thread of its own: it reads all records and looks at all namespaces, and on the
/// thread that answers, every ADD would wait for it. Dropped, it goes on to its end.
pub(crate) async fn pass(ipam: Ipam, request: GcRequest) -> Result<Vec<Finding>, GcError> {
    let runtime = Handle::current();
    let passed = task::spawn_blocking(move || runtime.block_on(ipam.collect(request))).await;
    match passed.map_err(task::JoinError::try_into_panic) {
        Ok(findings) => findings,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        // The runtime ends, and everything with it.
        Err(Err(_)) => std::future::pending().await,
    }
}
