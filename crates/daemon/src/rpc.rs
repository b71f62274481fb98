//! gRPC on top of [`Ipam`]: parse, call, translate. No decisions here.

mod admin;
mod inspect;
mod ipam;
mod status;

use std::{sync::Arc, time::Duration};

use berth_core::Ipam;
use berth_proto::{self as wire, v1};
use berth_types::Attachment;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{Request, Status, transport::server::UdsConnectInfo};
use tracing::{Instrument, warn};

use crate::{aside::aside, config::Loaded, connections};

/// What the three services share.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    ipam: Ipam,
    requests: TaskTracker,
    config: Arc<Loaded>,
    stop: CancellationToken,
}

/// Characters of a reason that are kept.
const LONGEST_REASON: usize = 256;

/// The longest a call may take: as long as the plugin ever waits.
pub(crate) const LONGEST_CALL: Duration = Duration::from_secs(110);

impl Service {
    pub(crate) fn new(
        ipam: Ipam,
        requests: TaskTracker,
        config: Arc<Loaded>,
        stop: CancellationToken,
    ) -> Self {
        Self { ipam, requests, config, stop }
    }

    /// Runs `work` in a task of its own, since tonic drops a handler when its client goes away
    /// or its deadline passes, and that must not cut an allocation in half.
    async fn run<T, E>(
        &self,
        work: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<T, Status>
    where
        T: Send + 'static,
        E: Into<Status> + Send + 'static,
    {
        let logged = async move {
            let answer: Result<T, Status> = work.await.map_err(Into::into);
            if let Err(status) = &answer {
                // The caller is told, and a runtime may not pass it on: the log has it too.
                warn!(code = ?status.code(), why = ?status.message(), "refused");
            }
            answer
        };
        let task = self.requests.spawn(logged.in_current_span());
        task.await
            .unwrap_or_else(|panic| Err(status::internal(format!("the call panicked: {panic}"))))
    }

    /// The records that are wanted.
    async fn list(
        &self,
        wanted: impl Fn(&Attachment) -> bool + Send + 'static,
    ) -> Result<Vec<v1::Attachment>, Status> {
        let ipam = self.ipam.clone();
        aside(async move {
            let mut found = ipam.attachments().map_err(|err| status::read(&err))?;
            found.retain(wanted);
            Ok(found.iter().map(|it| wire::attachment(it, ipam.age(it).as_secs())).collect())
        })
        .await
    }
}

/// Whether the fuzzer's requests are taken or refused, they are without a panic.
#[cfg(feature = "fuzz")]
pub(crate) fn fuzz_allocate(request: berth_proto::v1::AllocIpRequest) {
    let _ = ipam::allocate_request(request, LONGEST_CALL);
}

#[cfg(feature = "fuzz")]
pub(crate) fn fuzz_gc(request: berth_proto::v1::RunGcRequest) {
    let _ = admin::gc_request(request);
}

/// How long the caller waits: the `grpc-timeout` header, at most [`LONGEST_CALL`].
fn limit<T>(request: &Request<T>) -> Duration {
    let header = request.metadata().get("grpc-timeout").and_then(|value| value.to_str().ok());
    header.and_then(parse_timeout).map_or(LONGEST_CALL, |limit| limit.min(LONGEST_CALL))
}

/// At most 8 digits and a unit (gRPC over HTTP/2, "Timeout").
pub(crate) fn parse_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let count: u64 = digits.parse().ok().filter(|_| digits.len() <= 8)?;
    match unit {
        "H" => Some(Duration::from_secs(count * 3600)),
        "M" => Some(Duration::from_secs(count * 60)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

/// The socket is root's alone; this holds where somebody changed its mode.
fn require_root<T>(request: &Request<T>) -> Result<(), Status> {
    let peer = request.extensions().get::<UdsConnectInfo>().and_then(|info| info.peer_cred);
    match peer {
        Some(peer) if connections::has_rights(&peer) => Ok(()),
        Some(peer) => Err(status::not_allowed(format!("user {} may not do this", peer.uid()))),
        None => Err(status::not_allowed("the caller is not known".into())),
    }
}

/// For the server as a whole: who has no rights is told so before a byte of a message is read.
pub(crate) fn admit(request: Request<()>) -> Result<Request<()>, Status> {
    require_root(&request).map(|()| request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_header_is_read_as_grpc_writes_it() {
        assert_eq!(parse_timeout("5000000u"), Some(Duration::from_secs(5)));
        assert_eq!(parse_timeout("1M"), Some(Duration::from_secs(60)));
        for bad in ["", "5", "u", "123456789u", "-1S", "é"] {
            assert_eq!(parse_timeout(bad), None, "{bad}");
        }
    }
}
