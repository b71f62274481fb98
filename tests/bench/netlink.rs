//! rtnetlink by hand, blocking: what the floor is made of. It shares no code with the product.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};

pub(crate) const NEW_LINK: u16 = 16;
pub(crate) const NEW_ADDRESS: u16 = 20;
pub(crate) const NEW_ROUTE: u16 = 24;
pub(crate) const NEW_NEIGHBOUR: u16 = 28;
/// NLM_F_CREATE | NLM_F_EXCL.
pub(crate) const CREATE: u16 = 0x600;

#[derive(Debug)]
pub(crate) struct Netlink(OwnedFd);

/// One request: header, fixed part, attributes.
#[derive(Debug)]
pub(crate) struct Request(Vec<u8>);

impl Request {
    pub(crate) fn new(kind: u16, flags: u16, fixed: &[u8]) -> Self {
        /// NLM_F_REQUEST | NLM_F_ACK.
        const ALWAYS: u16 = 5;
        let mut bytes = vec![0; 16];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(flags | ALWAYS).to_ne_bytes());
        bytes.extend_from_slice(fixed);
        Self(bytes)
    }

    pub(crate) fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        let length = u16::try_from(value.len() + 4).unwrap();
        self.0.extend_from_slice(&length.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    pub(crate) fn text(self, kind: u16, value: &str) -> Self {
        self.attribute(kind, format!("{value}\0").as_bytes())
    }

    pub(crate) fn number(self, kind: u16, value: u32) -> Self {
        self.attribute(kind, &value.to_ne_bytes())
    }

    /// An attribute that holds `head` and then what `fill` adds.
    pub(crate) fn nested(
        mut self,
        kind: u16,
        head: &[u8],
        fill: impl FnOnce(Self) -> Self,
    ) -> Self {
        let start = self.0.len();
        self = fill(self.attribute(kind, head));
        let length = u16::try_from(self.0.len() - start).unwrap();
        self.0[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self
    }
}

impl Netlink {
    /// In this thread's namespace.
    pub(crate) fn open() -> Self {
        let (family, flags) = (AddressFamily::Netlink, SockFlag::SOCK_CLOEXEC);
        Self(socket(family, SockType::Raw, flags, SockProtocol::NetlinkRoute).unwrap())
    }

    /// # Panics
    /// When the kernel refuses.
    #[track_caller]
    pub(crate) fn ask(&self, request: Request) {
        let mut bytes = request.0;
        let length = u32::try_from(bytes.len()).unwrap();
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        send(self.0.as_raw_fd(), &bytes, MsgFlags::empty()).unwrap();
        let mut answer = [0; 4096];
        let length = recv(self.0.as_raw_fd(), &mut answer, MsgFlags::empty()).unwrap();
        assert!(length >= 20, "an answer of {length} bytes");
        let code = i32::from_ne_bytes(answer[16..20].try_into().unwrap());
        assert_eq!(code, 0, "{}", std::io::Error::from_raw_os_error(-code));
    }
}

/// `struct ifinfomsg`.
pub(crate) fn link(index: u32, flags: u32, change: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[4..8].copy_from_slice(&index.to_ne_bytes());
    bytes[8..12].copy_from_slice(&flags.to_ne_bytes());
    bytes[12..].copy_from_slice(&change.to_ne_bytes());
    bytes
}
