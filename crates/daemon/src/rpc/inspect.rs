use std::{net::IpAddr, pin::Pin};

use berth_core::{Event, EventKind, PoolView, Question, Shortage, pool::Slot};
use berth_proto::{self as wire, BadRequest, v1};
use berth_types::{Attachment, BootTime};
use tokio::sync::broadcast::error::RecvError;
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use super::{Service, require_root, status};
use crate::aside::aside;

fn bad(err: BadRequest) -> Status {
    status::bad_request(&err)
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn summary(shortage: &Shortage) -> v1::PoolSummary {
    let counts = shortage.counts;
    let available = shortage.available();
    v1::PoolSummary {
        ip_type: v1::IpType::VpcIp.into(),
        capacity: number(shortage.capacity),
        idle: number(counts.idle),
        promised: number(counts.promised),
        leased: number(counts.leased),
        cooling: number(counts.cooling),
        reserved: number(counts.reserved),
        quarantined: number(counts.quarantined),
        draining: number(counts.draining),
        invalid: number(counts.invalid),
        available: number(available),
        unavailable_reason: if shortage.is_lasting() {
            shortage.to_string()
        } else {
            String::new()
        },
    }
}

fn slot(slot: &Slot, now: BootTime) -> v1::PoolSlot {
    v1::PoolSlot {
        id: slot.resource.id.to_string(),
        addresses: Some(wire::ip_set(&slot.resource.addresses)),
        state: slot.state.name().into(),
        owner: slot.state.owner().unwrap_or_default(),
        seconds_left: slot.state.ends().map_or(0, |at| at.since(now).as_secs()),
        why: slot.state.why().unwrap_or_default(),
    }
}

fn change(event: &Event) -> v1::WatchReply {
    let kind = match event.what {
        EventKind::Allocated => v1::watch_reply::Kind::Allocated,
        EventKind::Committed => v1::watch_reply::Kind::Committed,
        EventKind::Released => v1::watch_reply::Kind::Released,
        EventKind::Collected => v1::watch_reply::Kind::Collected,
    };
    v1::WatchReply {
        kind: kind.into(),
        key: Some((&event.key).into()),
        addresses: Some(wire::ip_set(&event.addresses)),
        pod: Some((&event.pod).into()),
        reason: event.reason.clone(),
    }
}

#[tonic::async_trait]
impl v1::inspect_server::Inspect for Service {
    async fn list_attachments(
        &self,
        request: Request<v1::ListAttachmentsRequest>,
    ) -> Result<Response<v1::ListAttachmentsReply>, Status> {
        require_root(&request)?;
        let network = request.into_inner().network;
        let wanted =
            move |it: &Attachment| network.is_empty() || it.key.network.as_str() == network;
        let attachments = self.list(wanted).await?;
        Ok(Response::new(v1::ListAttachmentsReply { attachments }))
    }

    async fn list_pool(
        &self,
        request: Request<v1::ListPoolRequest>,
    ) -> Result<Response<v1::ListPoolReply>, Status> {
        require_root(&request)?;
        if request.into_inner().summary_only {
            let shortage = self.ipam.shortage().await.map_err(|err| status::look(&err))?;
            let summary = Some(summary(&shortage));
            return Ok(Response::new(v1::ListPoolReply { summary, slots: Vec::new() }));
        }
        let PoolView { slots, shortage, now } =
            self.ipam.pool().await.map_err(|err| status::look(&err))?;
        Ok(Response::new(v1::ListPoolReply {
            summary: Some(summary(&shortage)),
            slots: slots.iter().map(|it| slot(it, now)).collect(),
        }))
    }

    async fn explain(
        &self,
        request: Request<v1::ExplainRequest>,
    ) -> Result<Response<v1::ExplainReply>, Status> {
        require_root(&request)?;
        let question = match request.into_inner().of {
            None => return Err(bad(BadRequest::Missing("pod, ip or key"))),
            Some(v1::explain_request::Of::Key(key)) => {
                Question::Key(wire::key(Some(key)).map_err(bad)?)
            }
            Some(v1::explain_request::Of::Pod(pod)) => {
                Question::Pod(wire::pod_identity(Some(pod)).map_err(bad)?)
            }
            Some(v1::explain_request::Of::Ip(text)) => {
                let address: IpAddr = text.parse().map_err(|_| {
                    let text: String = text.chars().take(64).collect();
                    bad(BadRequest::field("ip", format!("{text:?} is not an IP address")))
                })?;
                Question::Address(address)
            }
        };
        let ipam = self.ipam.clone();
        let answer = aside(async move { ipam.explain(question).await }).await;
        let answer = answer.map_err(|err| status::explain(&err))?;
        Ok(Response::new(v1::ExplainReply {
            verdict: answer.verdict,
            facts: answer.facts,
            found: answer.found,
        }))
    }

    async fn get_config(
        &self,
        request: Request<v1::GetConfigRequest>,
    ) -> Result<Response<v1::GetConfigReply>, Status> {
        require_root(&request)?;
        let sources =
            self.config.sources.iter().map(|(path, from)| (path.clone(), (*from).into())).collect();
        Ok(Response::new(v1::GetConfigReply {
            json: self.config.effective.to_string(),
            // It is read once, at the start: reloading comes in stage 4.
            generation: 1,
            sources,
            version: env!("CARGO_PKG_VERSION").into(),
        }))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<v1::WatchReply, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<v1::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        require_root(&request)?;
        let events = self.ipam.events();
        // An open stream must not hold up the stop: tonic waits for it without a limit.
        let stop = self.stop.clone();
        let changes = futures_util::stream::unfold(Some((events, stop)), |state| async move {
            let (mut events, stop) = state?;
            let received = tokio::select! {
                () = stop.cancelled() => return None,
                received = events.recv() => received,
            };
            match received {
                Ok(event) => Some((Ok(change(&event)), Some((events, stop)))),
                Err(RecvError::Lagged(missed)) => {
                    let problem = format!("{missed} changes were missed: list again, then watch");
                    Some((Err(Status::data_loss(problem)), None))
                }
                Err(RecvError::Closed) => None,
            }
        });
        Ok(Response::new(Box::pin(changes)))
    }
}
