use std::os::fd::AsRawFd;

use berth_types::InterfaceName;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_ECHO, NLM_F_EXCL};
use netlink_packet_route::{RouteNetlinkMessage, nsid::NsidAttribute};
use nix::errno::Errno;

use super::Kernel;
use crate::{
    NetError, Side, Veth,
    exec::Outcome,
    message::{self, Link},
    seen::{self, LinkKind, LinkSeen, Peer},
};

/// At most two leftovers can be in the way, one at each end; they go at the first attempt.
const ATTEMPTS: usize = 3;

const CREATE: u16 = NLM_F_CREATE | NLM_F_EXCL;

impl Kernel {
    /// One message in the usual case. Only where a name is taken does it look at what is there.
    pub(super) fn ensure_veth(&mut self, veth: &Veth) -> Result<Outcome, NetError> {
        let mut attempt = 1;
        loop {
            let message = message::new_veth(veth, self.sides.netns.file().as_raw_fd());
            match self.change(Side::Host, message, CREATE | NLM_F_ECHO) {
                Ok(echo) => {
                    self.pair = Outcome::Changed;
                    return self.remember(veth, echo);
                }
                Err(err) if err.errno() == Some(Errno::EEXIST) && attempt < ATTEMPTS => {
                    if self.make_way(veth)? == Outcome::AlreadySo {
                        return Ok(Outcome::AlreadySo);
                    }
                }
                Err(err) => return Err(err),
            }
            attempt += 1;
        }
    }

    /// The echo has both indexes. Kernels before 6.2 send none, and are asked.
    fn remember(
        &mut self,
        veth: &Veth,
        echo: Vec<RouteNetlinkMessage>,
    ) -> Result<Outcome, NetError> {
        if let Some(host) = echo.iter().find_map(seen::link).filter(|l| l.is_named(&veth.host)) {
            self.indexes.insert((Side::Host, veth.host.clone()), host.index);
            if let Some(Peer { index, namespace: Some(_) }) = host.peer {
                self.indexes.insert((Side::Pod, veth.pod.clone()), index);
            }
        }
        for (side, name) in [(Side::Host, &veth.host), (Side::Pod, &veth.pod)] {
            let index = self.index(side, name)?;
            self.indexes.insert((side, name.clone()), index);
        }
        Ok(Outcome::Changed)
    }

    /// Finds the pair in place, or deletes leftovers of ours that hold its names. What is not
    /// ours is left as it is, and an error.
    fn make_way(&mut self, veth: &Veth) -> Result<Outcome, NetError> {
        let host = self.sides.find(Side::Host, Link::Name(&veth.host))?;
        let pod = self.sides.find(Side::Pod, Link::Name(&veth.pod))?;
        let namespace = self.namespace_id()?;
        let is_peer = |host: &LinkSeen, pod: &LinkSeen| {
            host.kind == LinkKind::Veth && host.peer == Some(Peer { index: pod.index, namespace })
        };
        if host.as_ref().is_some_and(|host| !host.is_live() && !host.is_unhooked()) {
            return Err(NetError::HostInterfaceExists(veth.host.clone()));
        }
        if let (Some(host), Some(pod)) = (&host, &pod) {
            let as_planned = host.is_live()
                && host.mac == Some(veth.host_mac)
                && host.mtu == veth.mtu
                && is_peer(host, pod);
            if as_planned {
                self.indexes.insert((Side::Host, veth.host.clone()), host.index);
                self.indexes.insert((Side::Pod, veth.pod.clone()), pod.index);
                return Ok(Outcome::AlreadySo);
            }
        }
        if let Some(pod) = &pod
            && !host.as_ref().is_some_and(|host| is_peer(host, pod))
        {
            let other = match pod.peer {
                Some(peer) => self.sides.find(Side::Host, Link::Index(peer.index))?,
                None => None,
            };
            match other {
                Some(other) if other.is_unhooked() && is_peer(&other, pod) => {
                    self.delete(other.index)?;
                }
                _ => return Err(NetError::PodInterfaceExists(veth.pod.clone())),
            }
        }
        if let Some(host) = host {
            self.delete(host.index)?;
        }
        Ok(Outcome::Changed)
    }

    pub(super) fn ensure_ifb(
        &mut self,
        link: &InterfaceName,
        mtu: u32,
    ) -> Result<Outcome, NetError> {
        let mut attempt = 1;
        loop {
            let message = message::new_ifb(link, mtu);
            match self.change(Side::Host, message, CREATE | NLM_F_ECHO) {
                Ok(echo) => {
                    if let Some(made) = echo.iter().find_map(seen::link) {
                        self.indexes.insert((Side::Host, link.clone()), made.index);
                    }
                    return Ok(Outcome::Changed);
                }
                Err(err) if err.errno() == Some(Errno::EEXIST) && attempt < ATTEMPTS => {
                    match self.sides.find(Side::Host, Link::Name(link))? {
                        // Left by a life of this attachment whose pair died with its namespace,
                        // if the pair is new: then it is the new pair's now.
                        Some(found) if found.is_live() && found.kind == LinkKind::Ifb => {
                            self.indexes.insert((Side::Host, link.clone()), found.index);
                            return Ok(self.pair);
                        }
                        // The reaper may delete it at any moment.
                        Some(found) if found.is_unhooked() => self.delete(found.index)?,
                        Some(_) => return Err(NetError::HostInterfaceExists(link.clone())),
                        None => (),
                    }
                }
                Err(err) => return Err(err),
            }
            attempt += 1;
        }
    }

    fn delete(&self, index: u32) -> Result<(), NetError> {
        match self.change(Side::Host, message::delete_link(index), 0) {
            Err(err) if err.errno() != Some(Errno::ENODEV) => Err(err),
            _ => Ok(()),
        }
    }

    /// The id by which the host's links name the pod's namespace, if any link does.
    fn namespace_id(&self) -> Result<Option<i32>, NetError> {
        let message = message::get_namespace_id(self.sides.netns.file().as_raw_fd());
        let Some(RouteNetlinkMessage::NewNsId(answer)) = self.sides.host.get(message)? else {
            return Ok(None);
        };
        let mut ids = answer.attributes.iter().filter_map(|attribute| {
            if let NsidAttribute::Id(id) = attribute { Some(*id) } else { None }
        });
        // -1 says that there is none.
        Ok(ids.rfind(|id| *id >= 0))
    }
}
