use std::{io, os::fd::IntoRawFd, time::Duration};

use berth_types::InterfaceName;
use futures_util::StreamExt;
use netlink_packet_core::{
    ErrorMessage, NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkMessage,
    NetlinkPayload, NlasIterator,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, TokioSocket, protocols::NETLINK_ROUTE};
use nix::errno::Errno;
use rtnetlink::Handle;
use tokio::time::timeout;

/// The kernel answers while the request is being sent, but for the lock it may have to wait
/// for: deleting hundreds of links holds that for some tenths of a second.
const ANSWER: Duration = Duration::from_secs(20);

/// A dump is cut when something changes meanwhile. On a node that is starting many pods it may
/// take a few tries to get a whole one.
const DUMPS: usize = 20;

#[derive(Debug, thiserror::Error)]
pub enum NetError {
    #[error("the kernel refused: {}{explanation}", .errno.desc())]
    Refused {
        errno: Errno,
        /// The kernel's own words, with `: ` before them, or nothing.
        explanation: String,
    },
    #[error("no link {0}")]
    NoLink(InterfaceName),
    /// The name is taken in the pod by something that is not ours.
    #[error("interface {0} exists already in the pod")]
    PodInterfaceExists(InterfaceName),
    /// The name is taken on the host by something that is not ours.
    #[error("interface {0} exists already on the host and is not ours")]
    HostInterfaceExists(InterfaceName),
    /// Something that is not ours leads elsewhere.
    #[error("there is another one already: {0}")]
    Foreign(String),
    #[error("cannot set {path}")]
    Sysctl { path: String, source: io::Error },
    #[error("the netlink connection failed")]
    Connection(#[source] rtnetlink::Error),
    #[error("the kernel did not answer within {} s", ANSWER.as_secs())]
    NoAnswer,
    #[error("the kernel's tables changed during each of {DUMPS} attempts to read them")]
    Churn,
}

impl NetError {
    /// What the kernel said no with, if that is what happened.
    pub(crate) fn errno(&self) -> Option<Errno> {
        match self {
            Self::Refused { errno, .. } => Some(*errno),
            Self::NoLink(_)
            | Self::PodInterfaceExists(_)
            | Self::HostInterfaceExists(_)
            | Self::Foreign(_)
            | Self::Sysctl { .. }
            | Self::Connection(_)
            | Self::NoAnswer
            | Self::Churn => None,
        }
    }
}

/// A connection to rtnetlink in one namespace. Lookups and dumps are strict: the kernel filters
/// as asked, or refuses.
#[derive(Debug, Clone)]
pub(crate) struct Netlink {
    handle: Handle,
}

impl Netlink {
    /// In the calling thread's namespace, within a tokio runtime.
    pub(crate) fn open() -> io::Result<Self> {
        Self::over(Socket::new(NETLINK_ROUTE)?)
    }

    /// In the namespace that `socket` was made in.
    pub(crate) fn over(socket: Socket) -> io::Result<Self> {
        socket.set_netlink_get_strict_chk(true)?;
        // Texts beside error numbers, and no copy of the request in front of them.
        socket.set_ext_ack(true)?;
        socket.set_cap_ack(true)?;
        // SAFETY: the descriptor is an open netlink socket that nobody else owns.
        #[expect(unsafe_code, reason = "the only way to give a TokioSocket an existing socket")]
        let socket: TokioSocket =
            unsafe { std::os::fd::FromRawFd::from_raw_fd(socket.into_raw_fd()) };
        let (connection, handle, _) = rtnetlink::from_socket(socket);
        // Ends with the last handle.
        tokio::spawn(connection);
        Ok(Self { handle })
    }

    /// One change, and whatever the kernel echoes of it.
    pub(crate) async fn change(
        &self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<Vec<RouteNetlinkMessage>, NetError> {
        Ok(self.talk(message, NLM_F_REQUEST | NLM_F_ACK | flags).await?.0)
    }

    /// One lookup; `None` where there is no such link.
    pub(crate) async fn get(
        &self,
        message: RouteNetlinkMessage,
    ) -> Result<Option<RouteNetlinkMessage>, NetError> {
        match self.talk(message, NLM_F_REQUEST).await {
            Ok((mut found, _)) => Ok(found.pop()),
            Err(err) if err.errno() == Some(Errno::ENODEV) => Ok(None),
            Err(err) => Err(err),
        }
    }

    /// A table as it was at one moment.
    pub(crate) async fn dump(
        &self,
        message: &RouteNetlinkMessage,
    ) -> Result<Vec<RouteNetlinkMessage>, NetError> {
        for _ in 0..DUMPS {
            match self.talk(message.clone(), NLM_F_REQUEST | NLM_F_DUMP).await {
                Ok((found, Whole::Yes)) => return Ok(found),
                Ok((_, Whole::Cut)) => (),
                Err(err) if err.errno() == Some(Errno::EINTR) => (),
                Err(err) => return Err(err),
            }
            tokio::task::yield_now().await;
        }
        Err(NetError::Churn)
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum that may grow")]
    async fn talk(
        &self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<(Vec<RouteNetlinkMessage>, Whole), NetError> {
        let mut request = NetlinkMessage::from(message);
        request.header.flags = flags;
        let mut answers = self.handle.clone().request(request).map_err(NetError::Connection)?;
        let mut found = Vec::new();
        let mut whole = Whole::Yes;
        loop {
            let answer = timeout(ANSWER, answers.next()).await.map_err(|_| NetError::NoAnswer)?;
            let Some(answer) = answer else { return Ok((found, whole)) };
            if answer.header.flags & NLM_F_DUMP_INTR != 0 {
                whole = Whole::Cut;
            }
            match answer.payload {
                NetlinkPayload::InnerMessage(inner) => found.push(inner),
                NetlinkPayload::Error(error) if error.code.is_some() => {
                    return Err(refused(&error));
                }
                NetlinkPayload::Done(done) if done.code != 0 => {
                    let errno = Errno::from_raw(done.code.abs());
                    return Err(NetError::Refused { errno, explanation: String::new() });
                }
                NetlinkPayload::Overrun(_) => whole = Whole::Cut,
                NetlinkPayload::Done(_) | NetlinkPayload::Error(_) => (),
                // Not exhaustive; what has no content has nothing to say.
                _ => (),
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whole {
    Yes,
    Cut,
}

fn refused(error: &ErrorMessage) -> NetError {
    // linux/netlink.h: NLMSGERR_ATTR_MSG. The attributes follow the request's 16-byte header.
    const MESSAGE: u16 = 1;
    const HEADER: usize = 16;
    let attributes = error.header.get(HEADER..).unwrap_or_default();
    let text = NlasIterator::new(attributes).flatten().find(|nla| nla.kind() == MESSAGE);
    let explanation = text.map_or(String::new(), |nla| {
        let text = String::from_utf8_lossy(nla.value());
        format!(": {}", text.trim_end_matches('\0'))
    });
    NetError::Refused { errno: Errno::from_raw(error.raw_code().abs()), explanation }
}
