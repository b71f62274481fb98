use std::{error::Error, fmt, future::Future, io, path::Path, time::Duration};

use berth_proto::v1::{admin_client::AdminClient, inspect_client::InspectClient};
use tokio::time::{Instant, timeout_at};
use tonic::{
    Code, Response, Status,
    transport::{Channel, Endpoint},
};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};
use tonic_types::StatusExt;

use crate::exit::Exit;

/// The largest answer taken. A node of 16,000 attachments at some 600 bytes each is 10 MB, over
/// tonic's default of 4.
const LARGEST_ANSWER: usize = 64 << 20;

/// A connection to berthd, and the moment at which the whole command gives up.
pub(crate) struct Daemon {
    channel: Channel,
    timeout: Duration,
    give_up: Instant,
}

impl Daemon {
    pub(crate) async fn connect(socket: &Path, timeout: Duration) -> Result<Self, CallError> {
        let give_up = Instant::now() + timeout;
        let shown = socket.display().to_string();
        let connected = async { Endpoint::from_shared(format!("unix:{shown}"))?.connect().await };
        match timeout_at(give_up, connected).await {
            Err(_) => Err(CallError::TimedOut(timeout)),
            Ok(Err(err)) => Err(CallError::cannot_connect(shown, &err)),
            Ok(Ok(channel)) => Ok(Self { channel, timeout, give_up }),
        }
    }

    pub(crate) fn inspect(&self) -> InspectClient<Channel> {
        InspectClient::new(self.channel.clone()).max_decoding_message_size(LARGEST_ANSWER)
    }

    pub(crate) fn admin(&self) -> AdminClient<Channel> {
        AdminClient::new(self.channel.clone()).max_decoding_message_size(LARGEST_ANSWER)
    }

    /// What the daemon says of itself as a whole (the standard gRPC health service).
    pub(crate) async fn health(&self) -> Result<ServingStatus, CallError> {
        let mut health = HealthClient::new(self.channel.clone());
        let reply = self.ask(health.check(HealthCheckRequest { service: String::new() })).await?;
        Ok(reply.status())
    }

    /// Waits for the answer, but no longer than the command may take.
    pub(crate) async fn ask<T>(
        &self,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, CallError> {
        match timeout_at(self.give_up, call).await {
            Err(_) => Err(CallError::TimedOut(self.timeout)),
            Ok(Err(status)) => Err(status.into()),
            Ok(Ok(reply)) => Ok(reply.into_inner()),
        }
    }
}

/// Why the daemon gave no answer, or a bad one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("cannot reach the daemon at {socket}")]
    Unreachable { socket: String, source: Innermost },
    #[error("may not use the daemon's socket {socket}")]
    Forbidden { socket: String, source: Innermost },
    #[error("the daemon did not answer within {0:?}")]
    TimedOut(Duration),
    #[error("lost the daemon before it answered: {0}")]
    Lost(String),
    #[error("not allowed: {0}")]
    NotAllowed(Refusal),
    #[error("nothing found: {0}")]
    NothingFound(Refusal),
    #[error("the daemon refused: {0}")]
    Refused(Refusal),
}

impl CallError {
    fn cannot_connect(socket: String, err: &(dyn Error + 'static)) -> Self {
        let mut cause = err;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        let source = Innermost(cause.to_string());
        let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        if kind == Some(io::ErrorKind::PermissionDenied) {
            Self::Forbidden { socket, source }
        } else {
            Self::Unreachable { socket, source }
        }
    }

    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Unreachable { .. } | Self::TimedOut(_) | Self::Lost(_) => Exit::Unreachable,
            Self::Forbidden { .. } | Self::NotAllowed(_) => Exit::NotAllowed,
            Self::NothingFound(_) => Exit::BadNews,
            Self::Refused(_) => Exit::Refused,
        }
    }
}

/// The last cause of a failed connection; those between it and us are the transport's own.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Innermost(String);

/// What the daemon said when it refused.
#[derive(Debug)]
pub(crate) struct Refusal {
    message: String,
    /// `reason` of google.rpc.ErrorInfo, where there is one.
    reason: Option<String>,
    retry: Option<Duration>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(reason) = &self.reason {
            write!(f, " [{reason}]")?;
        }
        if let Some(retry) = self.retry {
            write!(f, " (try again in {retry:?})")?;
        }
        Ok(())
    }
}

impl From<Status> for CallError {
    fn from(status: Status) -> Self {
        let details = status.get_error_details();
        let reason = details.error_info().map(|info| info.reason.clone());
        let retry = details.retry_info().and_then(|info| info.retry_delay);
        let ours = reason.is_some();
        let refusal = Refusal { message: status.message().to_owned(), reason, retry };
        match status.code() {
            Code::PermissionDenied | Code::Unauthenticated => Self::NotAllowed(refusal),
            Code::NotFound => Self::NothingFound(refusal),
            // The transport makes these itself when the connection breaks; the daemon's own
            // carry a reason.
            Code::Unavailable | Code::Unknown | Code::Cancelled | Code::DeadlineExceeded
                if !ours =>
            {
                Self::Lost(refusal.message)
            }
            Code::Ok
            | Code::Unavailable
            | Code::Unknown
            | Code::Cancelled
            | Code::DeadlineExceeded
            | Code::InvalidArgument
            | Code::AlreadyExists
            | Code::ResourceExhausted
            | Code::FailedPrecondition
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unimplemented
            | Code::Internal
            | Code::DataLoss => Self::Refused(refusal),
        }
    }
}
