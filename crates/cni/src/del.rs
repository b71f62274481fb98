//! DEL: the daemon takes back address and wiring; without it, the release is written down.
//!
//! It ends in an error only when the release is neither done nor kept: an error stops the DEL of
//! the plugins before us, makes containerd repeat it for ever and CRI-O forget it.

use std::time::Duration;

use berth_datapath::Host;
use berth_types::{ProcessStart, chain, host_interface};

use crate::{
    daemon::{Daemon, DaemonError, Limit},
    error::CniError,
    fail_point,
    invocation::{Del, WhenAway},
    output, spool,
};

/// For the daemon's answer: with connecting, writing down and unhooking, DEL is over in 30 s.
const ANSWER_LIMIT: Duration = Duration::from_secs(24);
const UNHOOK_LIMIT: Duration = Duration::from_secs(3);
const REASON: &str = "CNI DEL";

pub(crate) async fn run(del: Del, process: ProcessStart) -> Result<(), CniError> {
    fail_point::reach("cni::before_release");
    let asked = ask(&del, &process).await;
    fail_point::reach("cni::after_release");
    match asked {
        Ok(()) => Ok(()),
        Err(err) if err.is_transient() => {
            let WhenAway { spool_dir, host_prefix } = &del.away;
            spool::write(spool_dir, host_prefix, &del.key, &process, REASON)
                .map_err(CniError::Spool)?;
            output::note(&format!("the release waits in the spool: {}", chain(&err)));
            unhook(&del).await;
            fail_point::reach("cni::after_unhook");
            Ok(())
        }
        Err(err) => Err(CniError::Daemon(err)),
    }
}

async fn ask(del: &Del, process: &ProcessStart) -> Result<(), DaemonError> {
    let limit = Limit::after(ANSWER_LIMIT);
    let daemon = Daemon::connect(&del.socket, limit).await?;
    daemon.release(&del.key, process, REASON, limit).await
}

/// Takes the pod off the network at once. The daemon will do it again: not an error here.
async fn unhook(del: &Del) {
    let link = host_interface(&del.away.host_prefix, &del.key);
    let work = async {
        let host = Host::open(del.away.host_prefix.clone())?;
        host.unhook(std::slice::from_ref(&link)).await
    };
    match tokio::time::timeout(UNHOOK_LIMIT, work).await {
        Ok(Ok(_)) => {}
        Ok(Err(err)) => output::note(&format!("{link} stays up until then: {}", chain(&err))),
        Err(_) => output::note(&format!("{link} stays up until then: it took too long")),
    }
}
