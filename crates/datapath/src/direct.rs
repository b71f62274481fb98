use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
    sync::atomic::{AtomicU32, Ordering},
};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_MULTIPART, NLM_F_REQUEST, NetlinkBuffer, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use nix::{
    errno::Errno,
    libc,
    sys::{
        socket::{setsockopt, sockopt::ReceiveTimeout},
        time::{TimeVal, TimeValLike},
    },
};

use crate::{
    NetError,
    netlink::{self, ANSWER, DUMPS, Heard, Whole},
};

/// More than the kernel puts into one part of a dump (32 KiB, net/netlink/af_netlink.c).
const LARGEST_PART: usize = 64 << 10;

/// Of what is not a dump. A link, the largest, has 2 KiB: its virtual functions are not asked for.
const LARGEST_ANSWER: usize = 16 << 10;

/// rtnetlink in one namespace, for a process that does one thing after the other: the kernel has
/// done what is asked when the sending returns, so there is nothing to wait for beside it.
#[derive(Debug)]
pub(crate) struct Direct {
    socket: Socket,
    sequence: AtomicU32,
}

impl Direct {
    /// In the calling thread's namespace.
    pub(crate) fn open() -> io::Result<Self> {
        Self::over(Socket::new(NETLINK_ROUTE)?)
    }

    /// In the namespace that `socket` was made in.
    pub(crate) fn over(mut socket: Socket) -> io::Result<Self> {
        netlink::make_strict(&mut socket)?;
        // SAFETY: the socket outlives the borrow, which ends with the next statement.
        #[expect(unsafe_code, reason = "netlink-sys lends its descriptor as a number only")]
        let descriptor = unsafe { BorrowedFd::borrow_raw(socket.as_raw_fd()) };
        let seconds = i64::try_from(ANSWER.as_secs()).unwrap_or(i64::MAX);
        setsockopt(&descriptor, ReceiveTimeout, &TimeVal::seconds(seconds))?;
        Ok(Self { socket, sequence: AtomicU32::new(0) })
    }

    /// One change, and whatever the kernel echoes of it.
    pub(crate) fn change(
        &self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<Vec<RouteNetlinkMessage>, NetError> {
        Ok(self.talk(message, NLM_F_REQUEST | NLM_F_ACK | flags)?.0)
    }

    /// One lookup; `None` where there is no such link.
    pub(crate) fn get(
        &self,
        message: RouteNetlinkMessage,
    ) -> Result<Option<RouteNetlinkMessage>, NetError> {
        match self.talk(message, NLM_F_REQUEST) {
            Ok((mut found, _)) => Ok(found.pop()),
            Err(err) if err.errno() == Some(Errno::ENODEV) => Ok(None),
            Err(err) => Err(err),
        }
    }

    /// A table as it was at one moment.
    pub(crate) fn dump(
        &self,
        message: &RouteNetlinkMessage,
    ) -> Result<Vec<RouteNetlinkMessage>, NetError> {
        for _ in 0..DUMPS {
            match self.talk(message.clone(), NLM_F_REQUEST | NLM_F_DUMP) {
                Ok((found, Whole::Yes)) => return Ok(found),
                Ok((_, Whole::Cut)) => (),
                Err(err) if err.errno() == Some(Errno::EINTR) => (),
                Err(err) => return Err(err),
            }
        }
        Err(NetError::Churn)
    }

    fn talk(&self, message: RouteNetlinkMessage, flags: u16) -> Result<Heard, NetError> {
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed) + 1;
        let mut request = NetlinkMessage::from(message);
        request.header.flags = flags;
        request.header.sequence_number = sequence;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0).map_err(NetError::Socket)?;
        let mut heard = (Vec::new(), Whole::Yes);
        let largest = if flags & NLM_F_DUMP == NLM_F_DUMP { LARGEST_PART } else { LARGEST_ANSWER };
        let mut answers = Vec::with_capacity(largest);
        loop {
            answers.clear();
            self.receive(&mut answers)?;
            if take_all(&answers, sequence, flags, &mut heard)? {
                return Ok(heard);
            }
        }
    }

    fn receive(&self, answers: &mut Vec<u8>) -> Result<(), NetError> {
        loop {
            match self.socket.recv(answers, libc::MSG_TRUNC) {
                Ok(length) if length > answers.capacity() => {
                    return Err(NetError::Socket(io::Error::other("an answer that is too long")));
                }
                Ok(_) => return Ok(()),
                Err(err) if err.kind() == io::ErrorKind::Interrupted => (),
                Err(err) if err.kind() == io::ErrorKind::WouldBlock => {
                    return Err(NetError::NoAnswer);
                }
                Err(err) => return Err(NetError::Socket(err)),
            }
        }
    }
}

/// Whether the answer to request `sequence` is complete. What is left of an earlier one that
/// failed is passed over.
#[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum that may grow")]
fn take_all(
    mut answers: &[u8],
    sequence: u32,
    flags: u16,
    heard: &mut Heard,
) -> Result<bool, NetError> {
    let unreadable =
        |err: netlink_packet_core::DecodeError| NetError::Socket(io::Error::other(err));
    while !answers.is_empty() {
        let length = NetlinkBuffer::new_checked(&answers).map_err(unreadable)?.length() as usize;
        let (one, rest) = answers.split_at(length);
        answers = rest.get(length.next_multiple_of(4) - length..).unwrap_or_default();
        let answer = NetlinkMessage::deserialize(one).map_err(unreadable)?;
        if answer.header.sequence_number != sequence {
            continue;
        }
        let is_last = match &answer.payload {
            NetlinkPayload::InnerMessage(_) => {
                answer.header.flags & NLM_F_MULTIPART == 0 && flags & NLM_F_ACK == 0
            }
            NetlinkPayload::Error(_) | NetlinkPayload::Done(_) => true,
            _ => false,
        };
        netlink::hear(answer, heard)?;
        if is_last {
            return Ok(true);
        }
    }
    Ok(false)
}
