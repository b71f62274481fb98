use std::{io, os::fd::IntoRawFd, sync::Arc, time::Duration};

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
use tokio::{
    sync::Mutex,
    time::{sleep, timeout},
};

/// The kernel answers while the request is being sent, but for the lock it may have to wait
/// for: deleting hundreds of links holds that for some tenths of a second.
pub(crate) const ANSWER: Duration = Duration::from_secs(20);

/// A dump is cut when something changes meanwhile. On a node that is starting many pods it may
/// take a few tries to get a whole one.
pub(crate) const DUMPS: usize = 20;

/// The pause for a dump whose caller went away: it ends as fast as it is read.
const LEFT_ALONE: Duration = Duration::from_millis(5);

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
    #[error("the netlink socket failed")]
    Socket(#[source] io::Error),
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
            | Self::Socket(_)
            | Self::NoAnswer
            | Self::Churn => None,
        }
    }
}

/// Lookups and dumps are strict: the kernel filters as asked, or refuses. Texts beside error
/// numbers, and no copy of the request in front of them.
pub(crate) fn make_strict(socket: &mut Socket) -> io::Result<()> {
    socket.set_netlink_get_strict_chk(true)?;
    socket.set_ext_ack(true)?;
    socket.set_cap_ack(true)
}

/// A connection to rtnetlink in one namespace, shared by the tasks of a daemon.
#[derive(Debug, Clone)]
pub(crate) struct Netlink {
    handle: Handle,
    /// The kernel carries one dump at a time on a socket, and refuses the next with EBUSY.
    dumps: Arc<Mutex<()>>,
}

impl Netlink {
    /// In the calling thread's namespace, within a tokio runtime.
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        make_strict(&mut socket)?;
        // SAFETY: the descriptor is an open netlink socket that nobody else owns.
        #[expect(unsafe_code, reason = "the only way to give a TokioSocket an existing socket")]
        let socket: TokioSocket =
            unsafe { std::os::fd::FromRawFd::from_raw_fd(socket.into_raw_fd()) };
        let (connection, handle, _) = rtnetlink::from_socket(socket);
        // Ends with the last handle.
        tokio::spawn(connection);
        Ok(Self { handle, dumps: Arc::default() })
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
        let _turn = self.dumps.lock().await;
        for _ in 0..DUMPS {
            match self.talk(message.clone(), NLM_F_REQUEST | NLM_F_DUMP).await {
                Ok((found, Whole::Yes)) => return Ok(found),
                Ok((_, Whole::Cut)) => (),
                Err(err) if err.errno() == Some(Errno::EINTR) => (),
                // One that nobody waits for any more has not come to its end.
                Err(err) if err.errno() == Some(Errno::EBUSY) => sleep(LEFT_ALONE).await,
                Err(err) => return Err(err),
            }
            tokio::task::yield_now().await;
        }
        Err(NetError::Churn)
    }

    async fn talk(&self, message: RouteNetlinkMessage, flags: u16) -> Result<Heard, NetError> {
        let mut request = NetlinkMessage::from(message);
        request.header.flags = flags;
        let mut answers = self.handle.clone().request(request).map_err(NetError::Connection)?;
        let mut heard = (Vec::new(), Whole::Yes);
        loop {
            let answer = timeout(ANSWER, answers.next()).await.map_err(|_| NetError::NoAnswer)?;
            let Some(answer) = answer else { return Ok(heard) };
            hear(answer, &mut heard)?;
        }
    }
}

/// What one request was answered with.
pub(crate) type Heard = (Vec<RouteNetlinkMessage>, Whole);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whole {
    Yes,
    /// Something changed while it was being read: entries may be missing, or there twice.
    Cut,
}

#[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum that may grow")]
pub(crate) fn hear(
    answer: NetlinkMessage<RouteNetlinkMessage>,
    (found, whole): &mut Heard,
) -> Result<(), NetError> {
    if answer.header.flags & NLM_F_DUMP_INTR != 0 {
        *whole = Whole::Cut;
    }
    match answer.payload {
        NetlinkPayload::InnerMessage(inner) => found.push(inner),
        NetlinkPayload::Error(error) if error.code.is_some() => return Err(refused(&error)),
        NetlinkPayload::Done(done) if done.code != 0 => {
            let errno = Errno::from_raw(done.code.abs());
            return Err(NetError::Refused { errno, explanation: String::new() });
        }
        NetlinkPayload::Overrun(_) => *whole = Whole::Cut,
        // An acknowledgement, or the end.
        _ => (),
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use std::num::NonZeroI32;

    use netlink_packet_core::{DoneMessage, NetlinkHeader};
    use netlink_packet_route::link::LinkMessage;

    use super::*;

    fn link() -> NetlinkMessage<RouteNetlinkMessage> {
        RouteNetlinkMessage::NewLink(LinkMessage::default()).into()
    }

    #[test]
    fn a_dump_with_one_interrupted_message_is_not_whole() {
        let mut heard = (Vec::new(), Whole::Yes);
        hear(link(), &mut heard).unwrap();
        assert_eq!((heard.0.len(), heard.1), (1, Whole::Yes));
        let mut interrupted = link();
        interrupted.header.flags = NLM_F_DUMP_INTR;
        hear(interrupted, &mut heard).unwrap();
        hear(link(), &mut heard).unwrap();
        assert_eq!((heard.0.len(), heard.1), (3, Whole::Cut));

        let mut heard = (Vec::new(), Whole::Yes);
        let mut end = NetlinkMessage::new(
            NetlinkHeader::default(),
            NetlinkPayload::Done(DoneMessage::default()),
        );
        end.header.flags = NLM_F_DUMP_INTR;
        hear(end, &mut heard).unwrap();
        assert_eq!(heard.1, Whole::Cut);
    }

    #[test]
    fn dumps_that_are_asked_for_at_once_or_given_up_do_not_disturb_each_other() {
        berth_testkit::in_netns(|| async {
            for number in 0..60 {
                berth_testkit::ip(&format!("link add a{number} type veth peer b{number}"));
            }
            let netlink = Netlink::open().unwrap();
            let links = crate::message::dump_links();
            for round in 0..30 {
                // Given up at any point of its way.
                let given_up = timeout(Duration::from_micros(round * 20), netlink.dump(&links));
                let whole = (0..6).map(|_| netlink.dump(&links));
                let (_, whole) = tokio::join!(given_up, futures_util::future::join_all(whole));
                for found in whole {
                    assert_eq!(found.unwrap().len(), 121, "round {round}");
                }
            }
        });
    }

    #[test]
    fn a_dump_that_ends_in_an_error_is_an_error() {
        let mut done = DoneMessage::default();
        done.code = -nix::libc::EINTR;
        let end = NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::Done(done));
        let err = hear(end, &mut (Vec::new(), Whole::Yes)).unwrap_err();
        assert_eq!(err.errno(), Some(Errno::EINTR));
    }

    #[test]
    fn a_refusal_carries_the_kernels_own_words() {
        let mut error = ErrorMessage::default();
        error.code = NonZeroI32::new(-nix::libc::EINVAL);
        error.header = vec![0; 16];
        assert_eq!(refused(&error).to_string(), "the kernel refused: Invalid argument");
        error.header.extend([8, 0, 2, 0, 7, 0, 0, 0]);
        error.header.extend([18, 0, 1, 0]);
        error.header.extend(b"No such table\0\0\0");
        assert_eq!(
            refused(&error).to_string(),
            "the kernel refused: Invalid argument: No such table"
        );
    }
}
