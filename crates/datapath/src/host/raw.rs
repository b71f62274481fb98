use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

use netlink_packet_core::{NLMSG_DONE, NLMSG_ERROR};
use netlink_sys::Socket;
use nix::sys::{
    socket::{setsockopt, sockopt::ReceiveTimeout},
    time::{TimeVal, TimeValLike},
};

/// `struct nlmsghdr`: length, type, flags, sequence number, port.
pub(super) const NETLINK_HEADER: usize = 16;

/// The kernel works while the request is sent; waiting for its answer is never long.
const ANSWER_SECONDS: i64 = 20;

/// A netlink socket for work that keeps the kernel busy for long: deleting links and reading
/// connection tables. It is made on the thread whose namespace is meant and used on one that
/// may block.
#[derive(Debug)]
pub(super) struct Raw(Socket);

impl Raw {
    pub(super) fn open(protocol: isize) -> io::Result<Self> {
        let socket = Socket::new(protocol)?;
        // SAFETY: the socket outlives the borrow, which ends with the next statement.
        #[expect(unsafe_code, reason = "netlink-sys lends its descriptor as a number only")]
        let descriptor = unsafe { BorrowedFd::borrow_raw(socket.as_raw_fd()) };
        setsockopt(&descriptor, ReceiveTimeout, &TimeVal::seconds(ANSWER_SECONDS))?;
        Ok(Self(socket))
    }

    /// Sends one whole message, and reads up to the acknowledgement or the end of a dump; `each`
    /// sees the messages before it without their netlink headers.
    pub(super) fn ask(&self, request: &[u8], each: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        self.0.send(request, 0)?;
        loop {
            let (buffer, _) = self.0.recv_from_full()?;
            if let Some(end) = read(&buffer, each) {
                return end;
            }
        }
    }
}

/// The messages of one datagram; `Some` where the last of all is among them.
pub(super) fn read(mut rest: &[u8], each: &mut dyn FnMut(&[u8])) -> Option<io::Result<()>> {
    while let Some((length, kind)) = head(rest) {
        let message = rest.get(..length)?;
        let body = message.get(NETLINK_HEADER..).unwrap_or_default();
        if kind == NLMSG_DONE || kind == NLMSG_ERROR {
            let code = body.get(..4).and_then(|code| code.try_into().ok());
            return Some(match code.map_or(0, i32::from_ne_bytes) {
                0 => Ok(()),
                code => Err(io::Error::from_raw_os_error(code.saturating_abs())),
            });
        }
        each(body);
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    None
}

fn head(buffer: &[u8]) -> Option<(usize, u16)> {
    let length = u32::from_ne_bytes(buffer.get(..4)?.try_into().ok()?);
    let kind = u16::from_ne_bytes(buffer.get(4..6)?.try_into().ok()?);
    let length = usize::try_from(length).ok()?;
    (length >= NETLINK_HEADER).then_some((length, kind))
}
