//! CHECK: record, kernel and prevResult against each other. It says what differs and repairs
//! nothing.

use std::{path::Path, time::Duration};

use berth_datapath::PodNetns;
use berth_types::NetConf;

use crate::{
    daemon::{Daemon, Limit},
    error::{CniError, Differences},
    invocation::Check,
    previous::Found,
};

const LIMIT: Duration = Duration::from_secs(5);

pub(crate) async fn run(check: Check) -> Result<(), CniError> {
    let limit = Limit::after(LIMIT);
    let daemon = Daemon::connect(&check.socket, limit).await.map_err(CniError::Daemon)?;
    let (_, conf) = daemon.attachment(&check.key, limit).await.map_err(CniError::Daemon)?;
    let netns = PodNetns::open(Path::new(&check.netns)).map_err(CniError::Netns)?;

    let found = check.previous.pod_interface(conf.interface.as_str(), &check.netns);
    let mut differences = in_result(&check, &conf, found);
    // A later plugin of the chain may have changed the MAC address, and says so in the result.
    let mac = found.and_then(|found| found.mac);
    let in_kernel = berth_datapath::check(&netns, &conf, mac);
    match tokio::time::timeout(limit.left(), in_kernel).await {
        Ok(in_kernel) => differences.extend(in_kernel.map_err(CniError::Wiring)?),
        Err(_) => return Err(CniError::TooSlow { what: "CHECK", limit: LIMIT }),
    }
    if differences.is_empty() { Ok(()) } else { Err(CniError::Differs(Differences(differences))) }
}

/// What of ours the result should hold. Everything else in it is others'.
fn in_result(check: &Check, conf: &NetConf, found: Option<Found>) -> Vec<String> {
    let Some(found) = found else {
        return vec![format!("prevResult has no interface {} in {}", conf.interface, check.netns)];
    };
    let missing = check.previous.missing_addresses(found, &conf.addresses);
    missing
        .into_iter()
        .map(|address| format!("prevResult does not give {address} to {}", conf.interface))
        .collect()
}
