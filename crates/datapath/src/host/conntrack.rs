//! Connection tracking (ctnetlink): a connection that outlives its pod would be taken up by the
//! next pod with the address.

use std::{collections::BTreeSet, io, net::IpAddr};

use netlink_packet_core::{
    NLA_TYPE_MASK, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NlaBuffer, NlasIterator,
};
use netlink_sys::protocols::NETLINK_NETFILTER;
use nix::errno::Errno;

use super::{
    HostError,
    raw::{NETLINK_HEADER, Raw},
};

// linux/netfilter/nfnetlink.h and nfnetlink_conntrack.h
const NFNL_SUBSYS_CTNETLINK: u16 = 1;
const IPCTNL_MSG_CT_GET: u16 = 1;
const IPCTNL_MSG_CT_DELETE: u16 = 2;
const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_REPLY: u16 = 2;
const CTA_ID: u16 = 12;
const CTA_ZONE: u16 = 18;
const CTA_TUPLE_IP: u16 = 1;

/// `struct nfgenmsg`: family, version, resource id.
const GENERIC: usize = 4;

/// Forgets every connection with one of `addresses` at either end, before or after translation.
/// A kernel without connection tracking has none.
pub(super) async fn forget(addresses: &[IpAddr]) -> Result<(), HostError> {
    if addresses.is_empty() {
        return Ok(());
    }
    // Made here, in the namespace of this thread; read on a thread that may wait.
    let socket = match Raw::open(NETLINK_NETFILTER) {
        Ok(socket) => socket,
        Err(err) if is_absent(&err) => return Ok(()),
        Err(err) => return Err(HostError::Conntrack(err)),
    };
    let addresses = addresses.iter().copied().collect();
    let work = tokio::task::spawn_blocking(move || forget_all(&socket, &addresses));
    match work.await.map_err(HostError::Task)? {
        Err(err) if !is_absent(&err) => Err(HostError::Conntrack(err)),
        _ => Ok(()),
    }
}

/// nfnetlink answers EINVAL where it has no such subsystem.
fn is_absent(err: &io::Error) -> bool {
    let errno = Errno::from_raw(err.raw_os_error().unwrap_or(0));
    matches!(errno, Errno::EPROTONOSUPPORT | Errno::EOPNOTSUPP | Errno::EINVAL)
}

fn forget_all(socket: &Raw, addresses: &BTreeSet<IpAddr>) -> io::Result<()> {
    for is_v4 in [true, false] {
        if !addresses.iter().any(|address| address.is_ipv4() == is_v4) {
            continue;
        }
        let family = if is_v4 { nix::libc::AF_INET } else { nix::libc::AF_INET6 };
        let family = u8::try_from(family).expect("address families are small");
        for connection in connections(socket, family, addresses)? {
            let flags = NLM_F_REQUEST | NLM_F_ACK;
            let request = request(IPCTNL_MSG_CT_DELETE, flags, family, &connection);
            match socket.ask(&request, &mut |_| ()) {
                Err(err) if err.raw_os_error() != Some(nix::libc::ENOENT) => return Err(err),
                _ => (),
            }
        }
    }
    Ok(())
}

/// What names each connection of the addresses, as attributes for its deletion.
fn connections(
    socket: &Raw,
    family: u8,
    addresses: &BTreeSet<IpAddr>,
) -> io::Result<BTreeSet<Vec<u8>>> {
    let mut found = BTreeSet::new();
    let request = request(IPCTNL_MSG_CT_GET, NLM_F_REQUEST | NLM_F_DUMP, family, &[]);
    socket.ask(&request, &mut |body| {
        found.extend(identity(body.get(GENERIC..).unwrap_or_default(), addresses));
    })?;
    Ok(found)
}

fn request(kind: u16, flags: u16, family: u8, attributes: &[u8]) -> Vec<u8> {
    let length =
        u32::try_from(NETLINK_HEADER + GENERIC + attributes.len()).expect("a small message");
    let mut message = Vec::with_capacity(NETLINK_HEADER + GENERIC + attributes.len());
    message.extend(length.to_ne_bytes());
    message.extend((NFNL_SUBSYS_CTNETLINK << 8 | kind).to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend([0; 8]);
    message.extend([family, 0, 0, 0]);
    message.extend(attributes);
    message
}

/// The attributes that name a connection, if one of `addresses` is part of it. The original
/// tuple is always among them: a deletion without one would be of everything.
fn identity(attributes: &[u8], addresses: &BTreeSet<IpAddr>) -> Option<Vec<u8>> {
    let (mut name, mut has_tuple, mut is_meant) = (Vec::new(), false, false);
    for attribute in NlasIterator::new(attributes).flatten() {
        let kind = attribute.kind() & NLA_TYPE_MASK;
        if kind == CTA_TUPLE_ORIG || kind == CTA_TUPLE_REPLY {
            is_meant |= ends(attribute.value()).any(|end| addresses.contains(&end));
        }
        if kind == CTA_TUPLE_ORIG || kind == CTA_ID || kind == CTA_ZONE {
            has_tuple |= kind == CTA_TUPLE_ORIG;
            copy(&attribute, &mut name);
        }
    }
    (has_tuple && is_meant).then_some(name)
}

fn copy(attribute: &NlaBuffer<&[u8]>, to: &mut Vec<u8>) {
    let value = attribute.value();
    let length = u16::try_from(value.len() + 4).expect("as long as it came");
    to.extend(length.to_ne_bytes());
    // The type with its nested flag, as it came.
    to.extend(attribute.into_inner()[2..4].iter());
    to.extend(value);
    to.resize(to.len().next_multiple_of(4), 0);
}

/// Source and destination of a tuple.
fn ends(tuple: &[u8]) -> impl Iterator<Item = IpAddr> {
    let ip =
        NlasIterator::new(tuple).flatten().filter(|nla| nla.kind() & NLA_TYPE_MASK == CTA_TUPLE_IP);
    ip.flat_map(|nla| {
        let ends: Vec<_> = NlasIterator::new(nla.value())
            .flatten()
            .filter_map(|end| address(end.value()))
            .collect();
        ends
    })
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from).ok();
    v4.or_else(|| <[u8; 16]>::try_from(bytes).map(IpAddr::from).ok())
}

/// For the fuzzer: attributes of one connection. What names it for its deletion must still have
/// its tuple when it is read again, or the deletion would be of others, too.
#[cfg(feature = "fuzz")]
pub(super) fn fuzz(attributes: &[u8]) {
    let addresses: BTreeSet<IpAddr> =
        [[10, 0, 0, 1].into(), IpAddr::from([0xfd_u8; 16])].into_iter().collect();
    let Some(name) = identity(attributes, &addresses) else { return };
    let kinds: Vec<u16> =
        NlasIterator::new(&name[..]).flatten().map(|it| it.kind() & NLA_TYPE_MASK).collect();
    assert!(name.len() % 4 == 0 && kinds.contains(&CTA_TUPLE_ORIG), "{kinds:?}");
}
