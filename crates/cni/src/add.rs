//! ADD: connect, ask, wire, commit, print. Whatever fails after the asking is taken back first.

use std::{path::Path, time::Duration};

use berth_datapath::{Attached, PodNetns};
use berth_proto::v1;
use berth_types::{BootTime, NetConf, ProcessStart, chain};

use crate::{
    clock,
    daemon::{Daemon, DaemonError, Limit},
    error::CniError,
    fail_point,
    invocation::Add,
    layout::{self, Wired},
    output, spool,
};

/// For asking whose it is, and for giving an address back, beyond the time of the ADD itself.
const ASK_LIMIT: Duration = Duration::from_secs(1);
const GIVE_BACK_LIMIT: Duration = Duration::from_secs(5);

pub(crate) async fn run(add: Add, process: ProcessStart) -> Result<(), CniError> {
    let limit = Limit::starting(process.at, add.timeout);
    let mut phases = Phases::new();
    // Before anything is asked for: a pod must not be wired into our own namespace.
    let netns = PodNetns::open(Path::new(&add.netns)).map_err(CniError::Netns)?;
    phases.end("netns");
    fail_point::reach("cni::before_connect");
    let daemon = Daemon::connect(&add.socket, limit).await.map_err(CniError::Daemon)?;
    phases.end("connect");

    let giver = Giver { daemon: &daemon, add: &add, process: &process };
    let conf = match daemon.allocate(request(&add, &process), limit).await {
        Ok(conf) => conf,
        Err(err) => {
            if err.is_doubtful() {
                giver.give_back_unless_owned(&chain(&err)).await;
            }
            return Err(CniError::Daemon(err));
        }
    };
    phases.end("alloc");
    fail_point::reach("cni::after_alloc");

    let attached = match attach(&netns, &conf, limit, add.timeout).await {
        Ok(attached) => attached,
        Err(err) => {
            giver.give_back_unless_owned(&chain(&err)).await;
            return Err(err);
        }
    };
    phases.end("attach");
    fail_point::reach("cni::after_attach");

    let facts = v1::CommitIpRequest {
        key: Some((&add.key).into()),
        process_start: Some((&process).into()),
        host: Some((&attached.host).into()),
        pod: Some((&attached.pod).into()),
        netns_inode: netns.id().inode,
        phases: phases.timings(),
    };
    if let Err(err) = daemon.commit(facts, limit).await {
        take_down(attached).await;
        giver.give_back(&chain(&err)).await;
        return Err(CniError::Daemon(err));
    }
    fail_point::reach("cni::after_commit");

    let wired = Wired {
        conf: &conf,
        host: &attached.host,
        pod: &attached.pod,
        netns: &add.netns,
        dns: &add.wishes.dns,
    };
    let result = layout::result(add.version, &wired, add.previous.clone());
    if let Err(err) = output::document(&result) {
        take_down(attached).await;
        giver.give_back(&chain(&err)).await;
        return Err(err);
    }
    // The process ends now, and its sockets go with it.
    std::mem::forget((attached, daemon));
    Ok(())
}

fn request(add: &Add, process: &ProcessStart) -> v1::AllocIpRequest {
    v1::AllocIpRequest {
        key: Some((&add.key).into()),
        netns: add.netns.clone(),
        process_start: Some(process.into()),
        pod: Some((&add.wishes.pod).into()),
        ips: add.wishes.addresses.iter().map(|address| address.to_string()).collect(),
        mac: add.wishes.mac.map(|mac| mac.to_string()).unwrap_or_default(),
        bandwidth: Some(add.wishes.bandwidth.into()),
        annotations: add.wishes.annotations.clone(),
    }
}

/// Cut off in the middle, an attach leaves its links behind; the release that follows has the
/// daemon take them away by their name.
async fn attach(
    netns: &PodNetns,
    conf: &NetConf,
    limit: Limit,
    whole: Duration,
) -> Result<Attached, CniError> {
    match tokio::time::timeout(limit.left(), berth_datapath::attach(netns, conf)).await {
        Ok(attached) => attached.map_err(CniError::Wiring),
        Err(_) => Err(CniError::TooSlow { what: "ADD", limit: whole }),
    }
}

/// What cannot be taken down here goes with the release: the daemon reaps the links.
async fn take_down(attached: Attached) {
    let undone = tokio::time::timeout(GIVE_BACK_LIMIT, attached.undo()).await;
    fail_point::reach("cni::after_take_down");
    match undone {
        Ok(Ok(())) => {}
        Ok(Err(err)) => output::note(&format!("the wiring is left to berthd: {}", chain(&err))),
        Err(_) => output::note("the wiring is left to berthd: taking it down took too long"),
    }
}

/// Gives back what this ADD may hold. An error here is told on stderr; the one that led here is
/// the answer.
struct Giver<'a> {
    daemon: &'a Daemon,
    add: &'a Add,
    process: &'a ProcessStart,
}

impl Giver<'_> {
    /// A record that is committed belongs to an earlier ADD that succeeded, and stays.
    async fn give_back_unless_owned(&self, cause: &str) {
        let limit = Limit::after(ASK_LIMIT);
        match self.daemon.attachment(&self.add.key, limit).await {
            Ok((v1::AttachmentState::Committed, _)) => {
                output::note("an earlier ADD of this attachment succeeded: nothing is released");
            }
            Ok(_) | Err(_) => self.give_back(cause).await,
        }
    }

    async fn give_back(&self, cause: &str) {
        let reason = format!("ADD failed: {cause}");
        let limit = Limit::after(GIVE_BACK_LIMIT);
        let released = self.daemon.release(&self.add.key, self.process, &reason, limit).await;
        fail_point::reach("cni::after_give_back");
        match released {
            Ok(()) => {}
            Err(err) if err.is_transient() => self.spool(&reason, &err),
            Err(err) => output::note(&format!("not released: {}", chain(&err))),
        }
    }

    fn spool(&self, reason: &str, cause: &DaemonError) {
        let away = &self.add.away;
        let key = &self.add.key;
        let written = spool::write(&away.spool_dir, &away.host_prefix, key, self.process, reason);
        match written {
            Ok(()) => output::note(&format!("the release waits in the spool: {}", chain(cause))),
            Err(err) => output::note(&format!("not released: {}", chain(&err))),
        }
    }
}

/// How long each step took, told to the daemon with the commit.
struct Phases {
    since: BootTime,
    ended: Vec<(&'static str, Duration)>,
}

impl Phases {
    fn new() -> Self {
        Self { since: clock::now(), ended: Vec::new() }
    }

    fn end(&mut self, name: &'static str) {
        let now = clock::now();
        self.ended.push((name, now.since(self.since)));
        self.since = now;
    }

    fn timings(&self) -> Vec<v1::PhaseTiming> {
        let timing = |(name, took): &(&'static str, Duration)| v1::PhaseTiming {
            name: (*name).to_owned(),
            microseconds: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
        };
        self.ended.iter().map(timing).collect()
    }
}
