//! GC: the runtime's list of what is valid goes to the daemon, which weighs it with its own
//! evidence: what has a live namespace or is young is not collected, whatever the list says.

use std::time::Duration;

use berth_proto::v1;

use crate::{
    daemon::{Daemon, Limit},
    error::CniError,
    invocation::Gc,
};

/// CRI-O gives the whole of GC 30 s.
const LIMIT: Duration = Duration::from_secs(25);

pub(crate) async fn run(gc: Gc) -> Result<(), CniError> {
    let limit = Limit::after(LIMIT);
    let daemon = Daemon::connect(&gc.socket, limit).await.map_err(CniError::Daemon)?;
    let runtime = v1::RuntimeAttachments {
        network: gc.network.to_string(),
        valid: gc.valid.iter().map(Into::into).collect(),
    };
    daemon.collect_garbage(runtime, limit).await.map_err(CniError::Daemon)
}
