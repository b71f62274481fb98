//! Who may be connected, how many times, and for how long without a word.
//!
//! The socket is root's, so this is about programs that went wrong more than about enemies: one
//! that leaks connections must not use up the daemon's descriptors, and with them everybody's
//! pods.

use std::{
    collections::HashMap,
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{UnixListener, UnixStream, unix::UCred},
    time::{Sleep, sleep},
};
use tokio_stream::Stream;
use tonic::transport::server::{Connected, UdsConnectInfo};
use tracing::warn;

/// Of all peers together. With what the daemon opens besides, it fits the 1,024 descriptors that
/// a process gets where nobody says otherwise (systemd.exec, LimitNOFILE).
const MOST: usize = 768;

/// Of one process. A plugin has one connection, a program that asks in parallel a few.
const MOST_OF_PROCESS: usize = 256;

/// Of all peers without rights together: enough to be told so.
const MOST_OF_STRANGERS: usize = 16;

/// Every client speaks first (RFC 9113, section 3.4), and does it at once.
const PATIENCE: Duration = Duration::from_secs(5);

/// Length of what a client must say first.
const PREFACE: usize = 24;

/// The pause after a failed accept: what is lacking (descriptors, memory) is not there at once.
const BREATH: Duration = Duration::from_millis(100);

/// Whether the peer may do what root may.
pub(crate) fn has_rights(peer: &UCred) -> bool {
    peer.uid() == 0 || peer.uid() == nix::unistd::geteuid().as_raw()
}

/// Whose share a connection counts to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Peer {
    Process(i32),
    /// A process of another pid namespace than ours, or the kernel does not say.
    Unknown,
    Stranger,
}

impl Peer {
    fn of(credentials: io::Result<UCred>) -> Self {
        match credentials {
            Ok(peer) if !has_rights(&peer) => Self::Stranger,
            Ok(peer) => peer.pid().filter(|pid| *pid > 0).map_or(Self::Unknown, Self::Process),
            Err(_) => Self::Stranger,
        }
    }

    fn most(self) -> usize {
        match self {
            Self::Process(_) => MOST_OF_PROCESS,
            Self::Unknown => MOST,
            Self::Stranger => MOST_OF_STRANGERS,
        }
    }
}

/// How many connections each has.
#[derive(Debug, Clone, Default)]
struct Register(Arc<Mutex<HashMap<Peer, usize>>>);

/// A connection's place in the register, given back when dropped.
#[derive(Debug)]
struct Place {
    register: Register,
    peer: Peer,
}

impl Register {
    fn admit(&self, peer: Peer) -> Option<Place> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let total: usize = counts.values().sum();
        let own = counts.get(&peer).copied().unwrap_or(0);
        if total >= MOST || own >= peer.most() {
            return None;
        }
        counts.insert(peer, own + 1);
        Some(Place { register: self.clone(), peer })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.register.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.peer);
            }
        }
    }
}

/// An admitted peer. One that has not said the preface in time fails to be read.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: UnixStream,
    _place: Place,
    /// Until the preface is there: how much of it is, and until when it may come.
    silent: Option<(usize, Pin<Box<Sleep>>)>,
}

/// The peers that come to `listener`. Those beyond their share are hung up on. It never ends and
/// never fails.
pub(crate) fn accept(listener: UnixListener) -> impl Stream<Item = io::Result<Connection>> {
    let start = (listener, Register::default(), 0_u64);
    futures_util::stream::unfold(start, |(listener, register, mut refused)| async move {
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(err) => {
                    warn!(%err, "cannot accept a connection");
                    sleep(BREATH).await;
                    continue;
                }
            };
            let peer = Peer::of(stream.peer_cred());
            if let Some(place) = register.admit(peer) {
                let silent = Some((0, Box::pin(sleep(PATIENCE))));
                let connection = Connection { stream, _place: place, silent };
                return Some((Ok(connection), (listener, register, refused)));
            }
            refused += 1;
            // A flood of connections must not become one of the log.
            if refused.is_power_of_two() {
                warn!(?peer, refused, "too many connections: hung up");
            }
        }
    })
}

impl Connected for Connection {
    type ConnectInfo = UdsConnectInfo;

    fn connect_info(&self) -> UdsConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let Some((_, patience)) = &mut this.silent
            && patience.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        if let Some((said, _)) = &mut this.silent {
            *said += buffer.filled().len() - before;
            if *said >= PREFACE {
                this.silent = None;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_is_given_back_can_be_taken_again() {
        let register = Register::default();
        let process = Peer::Process(7);
        let mut places: Vec<Place> =
            (0..MOST_OF_PROCESS).map(|_| register.admit(process).unwrap()).collect();
        assert!(register.admit(process).is_none());
        // Nobody else suffers.
        drop(register.admit(Peer::Process(8)).unwrap());
        places.pop();
        assert!(register.admit(process).is_some());
        places.clear();
        assert!(register.0.lock().unwrap().is_empty());
    }

    #[test]
    fn strangers_share_few_places_and_all_together_have_an_end() {
        let register = Register::default();
        let strangers: Vec<_> = std::iter::from_fn(|| register.admit(Peer::Stranger)).collect();
        assert_eq!(strangers.len(), MOST_OF_STRANGERS);
        let others: Vec<_> =
            (0..1000).filter_map(|pid| register.admit(Peer::Process(pid))).collect();
        assert_eq!(others.len(), MOST - MOST_OF_STRANGERS);
        assert!(register.admit(Peer::Unknown).is_none());
    }
}
