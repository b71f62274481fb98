//! The daemon, over its socket. Every call has a limit, which the daemon is told.

use std::{
    cell::RefCell,
    path::{Path, PathBuf},
    time::Duration,
};

use berth_proto::{
    BadRequest, DOMAIN,
    v1::{self, admin_client::AdminClient, inspect_client::InspectClient, ipam_client::IpamClient},
};
use berth_types::{AttachmentKey, BootTime, NetConf, ProcessStart};
use tonic::{
    Code, Request, Response, Status,
    transport::{Channel, Endpoint},
};
use tonic_types::StatusExt;

use crate::clock;

/// A daemon that lives accepts at once: its socket has a queue.
const CONNECT_LIMIT: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub(crate) enum DaemonError {
    #[error("berthd cannot be reached at {socket}")]
    Unreachable { socket: String, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("berthd gave no answer to {call} within {:.1} s", limit.as_secs_f32())]
    Silent { call: &'static str, limit: Duration },
    #[error("the connection to berthd broke during {call}: {message}")]
    Broken { call: &'static str, message: String },
    /// berthd's own answer, with its reason where it gave one.
    #[error("{call}: {message} ({})", reason.as_deref().unwrap_or(code_name(*code)))]
    Refused { call: &'static str, code: Code, reason: Option<String>, message: String },
    #[error("berthd's answer to {call} cannot be used")]
    Answer { call: &'static str, source: BadRequest },
}

fn code_name(code: Code) -> &'static str {
    code.description()
}

impl DaemonError {
    /// Nobody is there to do it.
    pub(crate) fn is_away(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Silent { .. } | Self::Broken { .. } => true,
            Self::Refused { code, .. } => *code == Code::Unavailable,
            Self::Answer { .. } => false,
        }
    }

    /// Whether the daemon is on its way out, and another may be on its way in.
    fn is_of_a_restart(&self) -> bool {
        match self {
            Self::Broken { .. } => true,
            Self::Refused { code, .. } => *code == Code::Unavailable,
            Self::Unreachable { .. } | Self::Silent { .. } | Self::Answer { .. } => false,
        }
    }

    /// Whether the same call may succeed later.
    pub(crate) fn is_transient(&self) -> bool {
        let later = |code| {
            [Code::Aborted, Code::ResourceExhausted, Code::DeadlineExceeded, Code::Cancelled]
                .contains(&code)
        };
        self.is_away() || matches!(self, Self::Refused { code, .. } if later(*code))
    }

    /// Whether the daemon may have done it all the same.
    pub(crate) fn is_doubtful(&self) -> bool {
        match self {
            Self::Silent { .. } | Self::Broken { .. } | Self::Answer { .. } => true,
            Self::Refused { code, .. } => {
                [Code::DeadlineExceeded, Code::Cancelled, Code::Unknown].contains(code)
            }
            Self::Unreachable { .. } => false,
        }
    }

    /// A status without our ErrorInfo is not the daemon's: the library makes one of a connection
    /// that broke and of a limit that ran out.
    fn of(call: &'static str, limit: Duration, status: Status) -> Self {
        let info = status.get_details_error_info().filter(|info| info.domain == DOMAIN);
        let (code, message) = (status.code(), status.message().to_owned());
        match (code, &info) {
            (Code::Cancelled, None) => Self::Silent { call, limit },
            (Code::Unknown | Code::Internal | Code::Unavailable, None) => {
                Self::Broken { call, message }
            }
            _ => Self::Refused { call, code, reason: info.map(|info| info.reason), message },
        }
    }
}

/// When the whole of a verb must be over.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit(BootTime);

impl Limit {
    pub(crate) fn after(length: Duration) -> Self {
        Self(clock::now() + length)
    }

    pub(crate) fn starting(at: BootTime, length: Duration) -> Self {
        Self(at + length)
    }

    pub(crate) fn left(self) -> Duration {
        self.0.since(clock::now())
    }

    pub(crate) fn at_most(self, length: Duration) -> Duration {
        self.left().min(length)
    }
}

/// How often a call goes to the next daemon, where one restarts under it.
const RESTARTS: usize = 3;

#[derive(Debug)]
pub(crate) struct Daemon {
    socket: PathBuf,
    channel: RefCell<Channel>,
}

impl Daemon {
    pub(crate) async fn connect(socket: &Path, limit: Limit) -> Result<Self, DaemonError> {
        let channel = connect(socket, limit).await?;
        Ok(Self { socket: socket.to_owned(), channel: RefCell::new(channel) })
    }

    fn channel(&self) -> Channel {
        self.channel.borrow().clone()
    }

    /// Where systemd holds the socket, a connection that is made while the daemon restarts waits
    /// for the next one, so a call that may be repeated is. Where nobody holds it there is nothing
    /// to connect to, and the first error stands.
    async fn through_restarts<Message: Clone, Reply>(
        &self,
        limit: Limit,
        message: Message,
        call: impl AsyncFn(Channel, Message) -> Result<Reply, DaemonError>,
    ) -> Result<Reply, DaemonError> {
        let mut left = RESTARTS;
        loop {
            match call(self.channel(), message.clone()).await {
                Err(err) if left > 0 && err.is_of_a_restart() => {
                    let Ok(channel) = connect(&self.socket, limit).await else { return Err(err) };
                    self.channel.replace(channel);
                    left -= 1;
                }
                done => return done,
            }
        }
    }

    pub(crate) async fn allocate(
        &self,
        request: v1::AllocIpRequest,
        limit: Limit,
    ) -> Result<NetConf, DaemonError> {
        const CALL: &str = "AllocIP";
        let call = async |channel, message| {
            let mut client = IpamClient::new(channel);
            within(CALL, limit, message, |it| client.alloc_ip(it)).await
        };
        let reply = self.through_restarts(limit, request, call).await?;
        let ip_type = reply.ip_type();
        let unusable = |source| DaemonError::Answer { call: CALL, source };
        match <[v1::NetConf; 1]>::try_from(reply.net_confs) {
            Ok([conf]) => berth_proto::net_conf(ip_type, conf).map_err(unusable),
            Err(confs) => {
                let problem = format!("{} interfaces, and this plugin wires one", confs.len());
                Err(unusable(BadRequest::field("net_confs", problem)))
            }
        }
    }

    pub(crate) async fn commit(
        &self,
        request: v1::CommitIpRequest,
        limit: Limit,
    ) -> Result<(), DaemonError> {
        let call = async |channel, message| {
            let mut client = IpamClient::new(channel);
            within("CommitIP", limit, message, |it| client.commit_ip(it)).await
        };
        self.through_restarts(limit, request, call).await.map(|_| ())
    }

    /// Success when the key holds nothing.
    pub(crate) async fn release(
        &self,
        key: &AttachmentKey,
        process: &ProcessStart,
        reason: &str,
        limit: Limit,
    ) -> Result<(), DaemonError> {
        let request = v1::ReleaseIpRequest {
            key: Some(key.into()),
            process_start: Some(process.into()),
            reason: reason.to_owned(),
        };
        let mut client = IpamClient::new(self.channel());
        within("ReleaseIP", limit, request, |it| client.release_ip(it)).await.map(|_| ())
    }

    /// The record of the key and what its wiring should be.
    pub(crate) async fn attachment(
        &self,
        key: &AttachmentKey,
        limit: Limit,
    ) -> Result<(v1::AttachmentState, NetConf), DaemonError> {
        const CALL: &str = "GetIPInfo";
        let unusable = |source| DaemonError::Answer { call: CALL, source };
        let request =
            v1::GetIpInfoRequest { of: Some(v1::get_ip_info_request::Of::Key(key.into())) };
        let mut client = IpamClient::new(self.channel());
        let reply = within(CALL, limit, request, |it| client.get_ip_info(it)).await?;
        let record = reply.attachments.into_iter().next();
        let record = record.ok_or(unusable(BadRequest::Missing("attachments")))?;
        let (state, ip_type) = (record.state(), record.ip_type());
        let conf = record.net_conf.ok_or(unusable(BadRequest::Missing("net_conf")))?;
        Ok((state, berth_proto::net_conf(ip_type, conf).map_err(unusable)?))
    }

    pub(crate) async fn collect_garbage(
        &self,
        runtime: v1::RuntimeAttachments,
        limit: Limit,
    ) -> Result<(), DaemonError> {
        let request = v1::RunGcRequest { dry_run: false, runtime: Some(runtime) };
        let mut client = AdminClient::new(self.channel());
        within("RunGc", limit, request, |it| client.run_gc(it)).await.map(|_| ())
    }

    /// Why a new pod could not get an address now; empty when it could.
    pub(crate) async fn unavailable_reason(&self, limit: Limit) -> Result<String, DaemonError> {
        const CALL: &str = "ListPool";
        let mut client = InspectClient::new(self.channel());
        let request = v1::ListPoolRequest { summary_only: true };
        let reply = within(CALL, limit, request, |it| client.list_pool(it)).await?;
        let missing = DaemonError::Answer { call: CALL, source: BadRequest::Missing("summary") };
        Ok(reply.summary.ok_or(missing)?.unavailable_reason)
    }
}

async fn connect(socket: &Path, limit: Limit) -> Result<Channel, DaemonError> {
    let unreachable = |source: Box<dyn std::error::Error + Send + Sync>| DaemonError::Unreachable {
        socket: socket.display().to_string(),
        source,
    };
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()))
        .map_err(|err| unreachable(err.into()))?;
    match tokio::time::timeout(limit.at_most(CONNECT_LIMIT), endpoint.connect()).await {
        Ok(Ok(channel)) => Ok(channel),
        Ok(Err(err)) => Err(unreachable(err.into())),
        Err(elapsed) => Err(unreachable(elapsed.into())),
    }
}

async fn within<Message, Reply, Answer>(
    call: &'static str,
    limit: Limit,
    message: Message,
    send: impl FnOnce(Request<Message>) -> Answer,
) -> Result<Reply, DaemonError>
where
    Answer: Future<Output = Result<Response<Reply>, Status>>,
{
    let left = limit.left();
    let mut request = Request::new(message);
    request.set_timeout(left);
    match tokio::time::timeout(left, send(request)).await {
        Ok(Ok(reply)) => Ok(reply.into_inner()),
        Ok(Err(status)) => Err(DaemonError::of(call, left, status)),
        Err(_) => Err(DaemonError::Silent { call, limit: left }),
    }
}
