use std::{fmt, io, net::IpAddr, time::Duration};

use berth_types::{
    InterfaceFacts, InterfaceName, LINK_GATEWAY_V6, MacAddress, NetConf, ResourceKind,
};
use nix::errno::Errno;
use tokio::time::{sleep, timeout};
use tracing::warn;

use crate::{
    NetError, Op, PlanError, PodNetns, Side, exec,
    kernel::Kernel,
    message::{self, Link},
    plan,
    seen::{self, LinkSeen},
};

/// Longer than this nobody is kept waiting: what the kernel has yet to do, it will have done
/// before the pod's processes start.
const READY: Duration = Duration::from_secs(1);

/// The pause before the second look, doubling up to the other: the kernel's workers are usually
/// done at once, and on a node that starts many pods, looking costs them the time that they need.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(2));

/// A timer of the runtime, with its milliseconds, is too coarse for less: then the thread itself
/// sleeps.
const COARSE: Duration = Duration::from_millis(1);

#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The pod has an interface of that name that is not ours.
    #[error("interface {0} exists already in the pod's network namespace")]
    InterfaceExists(InterfaceName),
    /// The host has an interface of the name that ours would have. It is left as it is.
    #[error("interface {0} exists already on the host and is not ours")]
    HostInterfaceExists(InterfaceName),
    #[error("cannot wire a {0} interface: only veth pairs are built")]
    Kind(ResourceKind),
    #[error("cannot enter the pod's network namespace")]
    Enter(#[source] io::Error),
    #[error("cannot wire the pod")]
    Plan(#[source] PlanError),
    #[error("cannot read back what was wired")]
    Read(#[source] NetError),
    #[error("cannot take back everything, left is: {}", Listed(.0))]
    Undo(Vec<Op>),
}

impl From<PlanError> for AttachError {
    fn from(err: PlanError) -> Self {
        // With something left behind, that is what matters.
        if !err.left_behind.is_empty() {
            return Self::Plan(err);
        }
        match err.source {
            NetError::PodInterfaceExists(name) => Self::InterfaceExists(name),
            NetError::HostInterfaceExists(name) => Self::HostInterfaceExists(name),
            NetError::Refused { .. }
            | NetError::NoLink(_)
            | NetError::Foreign(_)
            | NetError::Sysctl { .. }
            | NetError::Connection(_)
            | NetError::Socket(_)
            | NetError::NoAnswer
            | NetError::Churn => Self::Plan(err),
        }
    }
}

/// Wires `conf` into `netns`; repeating it changes nothing. On a failure everything that this
/// call changed is taken back.
///
/// Dropped half way it leaves what it has done so far; unhooking and reaping the host interface
/// takes that away.
pub async fn attach(netns: &PodNetns, conf: &NetConf) -> Result<Attached, AttachError> {
    wirable(conf)?;
    let mut kernel = Kernel::open(netns).map_err(AttachError::Enter)?;
    let undo = exec::run(&mut kernel, &plan::attach(conf)).await?;
    match facts(&kernel, conf).await {
        Ok((host, pod)) => Ok(Attached { host, pod, undo, kernel }),
        Err(err) => {
            let left = exec::take_back(&mut kernel, undo);
            if left.is_empty() {
                return Err(AttachError::Read(err));
            }
            warn!(err = berth_types::chain(&err), "cannot read back what was wired");
            Err(AttachError::Undo(left))
        }
    }
}

pub(crate) fn wirable(conf: &NetConf) -> Result<(), AttachError> {
    match conf.kind {
        ResourceKind::Veth => Ok(()),
        ResourceKind::Eni | ResourceKind::EniIp | ResourceKind::Eip => {
            Err(AttachError::Kind(conf.kind))
        }
    }
}

/// What was wired, and how to take it back.
pub struct Attached {
    /// As the kernel has it now: something on the node may have changed the MAC address since.
    pub host: InterfaceFacts,
    pub pod: InterfaceFacts,
    undo: Vec<Op>,
    kernel: Kernel,
}

impl Attached {
    /// Takes back what the attach changed (and nothing that was there before it).
    pub async fn undo(mut self) -> Result<(), AttachError> {
        let left = exec::take_back(&mut self.kernel, self.undo);
        if left.is_empty() { Ok(()) } else { Err(AttachError::Undo(left)) }
    }
}

impl fmt::Debug for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("Attached");
        text.field("host", &self.host).field("pod", &self.pod).finish_non_exhaustive()
    }
}

async fn facts(
    kernel: &Kernel,
    conf: &NetConf,
) -> Result<(InterfaceFacts, InterfaceFacts), NetError> {
    let ready = async {
        let mut pause = LOOK_AGAIN.0;
        loop {
            let host = link(kernel, Side::Host, &conf.host_interface)?;
            if is_ready(kernel, conf, &host)? {
                return Ok(host);
            }
            if pause < COARSE {
                std::thread::sleep(pause);
            } else {
                sleep(pause).await;
            }
            pause = (pause * 2).min(LOOK_AGAIN.1);
        }
    };
    let host = match timeout(READY, ready).await {
        Ok(ready) => ready?,
        Err(_) => {
            warn!(interface = %conf.host_interface, "the kernel is slow to finish the pair");
            link(kernel, Side::Host, &conf.host_interface)?
        }
    };
    let pod = link(kernel, Side::Pod, &conf.interface)?;
    let facts = |name: &InterfaceName, seen: LinkSeen, planned: MacAddress| InterfaceFacts {
        name: name.clone(),
        mac: seen.mac.unwrap_or(planned),
    };
    Ok((
        facts(&conf.host_interface, host, conf.host_mac),
        facts(&conf.interface, pod, conf.pod_mac),
    ))
}

/// Whether the next packet passes, both ways. Two things are left to workers of the kernel: that
/// the host's end, which came up first, has a carrier now, and, for IPv6 addresses even without
/// duplicate address detection, their multicast groups and local routes.
fn is_ready(kernel: &Kernel, conf: &NetConf, host: &LinkSeen) -> Result<bool, NetError> {
    if !host.running {
        return Ok(false);
    }
    let Some(v6) = conf.addresses.v6 else { return Ok(true) };
    let pod = kernel.index(Side::Pod, &conf.interface)?;
    Ok(is_local(kernel, Side::Pod, pod, v6.into())?
        && is_local(kernel, Side::Host, host.index, LINK_GATEWAY_V6.into())?)
}

fn is_local(kernel: &Kernel, side: Side, index: u32, address: IpAddr) -> Result<bool, NetError> {
    let message = message::look_up_route(index, address);
    match kernel.sides().netlink(side).get(message) {
        Ok(found) => Ok(found.as_ref().is_some_and(seen::is_local_route)),
        // There is no route at all yet.
        Err(err) if matches!(err.errno(), Some(Errno::ENETUNREACH | Errno::EHOSTUNREACH)) => {
            Ok(false)
        }
        Err(err) => Err(err),
    }
}

fn link(kernel: &Kernel, side: Side, name: &InterfaceName) -> Result<LinkSeen, NetError> {
    let found = kernel.sides().find(side, Link::Name(name))?;
    found.ok_or_else(|| NetError::NoLink(name.clone()))
}

struct Listed<'a>(&'a [Op]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, op) in self.0.iter().enumerate() {
            let comma = if n == 0 { "" } else { ", " };
            write!(f, "{comma}`{op}`")?;
        }
        Ok(())
    }
}
