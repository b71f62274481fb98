use std::{path::PathBuf, time::Duration};

use berth_core::{Allocate, Commit, Release};
use berth_proto::{self as wire, BadRequest, v1};
use berth_types::{Attachment, NetConf, WiredFacts, one_line};
use tonic::{Request, Response, Status};
use tracing::{info, warn};

use super::{LONGEST_REASON, Service, limit, require_root, status};

/// `sticky` where an annotation says only "true": as long as Terway keeps a StatefulSet pod's
/// address.
const STICKY: Duration = Duration::from_secs(300);

fn bad(err: BadRequest) -> Status {
    status::bad_request(&err)
}

pub(super) fn allocate_request(
    request: v1::AllocIpRequest,
    limit: Duration,
) -> Result<Allocate, BadRequest> {
    if request.netns.is_empty() {
        return Err(BadRequest::Missing("netns"));
    }
    // PATH_MAX of the kernel, and it goes into a record.
    if request.netns.len() > 4096 || request.netns.chars().any(char::is_control) {
        let problem = "longer than 4096 bytes, or with a control character";
        return Err(BadRequest::field("netns", problem));
    }
    if !request.netns.starts_with('/') {
        return Err(BadRequest::field("netns", "an absolute path is needed"));
    }
    Ok(Allocate {
        key: wire::key(request.key)?,
        netns: PathBuf::from(request.netns),
        started: wire::process_start(request.process_start)?,
        pod: wire::pod_identity(request.pod)?,
        addresses: wire::address_set("ips", &request.ips)?,
        mac: wire::optional_mac("mac", &request.mac)?,
        bandwidth: request.bandwidth.unwrap_or_default().into(),
        sticky: sticky(&request.annotations),
        limit,
    })
}

/// A bad value is said in the log and counts as not given: it must not cost the pod its start.
fn sticky(annotations: &std::collections::HashMap<String, String>) -> Option<Duration> {
    let names = ["berth.dev/sticky", "k8s.aliyun.com/pod-ip-reservation"];
    let (name, value) = names.iter().find_map(|name| Some((name, annotations.get(*name)?)))?;
    match value.as_str() {
        "true" => Some(STICKY),
        "false" => None,
        text => match humantime::parse_duration(text) {
            Ok(length) => Some(length),
            Err(err) => {
                let text: String = text.chars().take(64).collect();
                warn!(annotation = name, ?text, %err, "not \"true\", \"false\" or a duration: ignored");
                None
            }
        },
    }
}

#[tonic::async_trait]
impl v1::ipam_server::Ipam for Service {
    async fn alloc_ip(
        &self,
        request: Request<v1::AllocIpRequest>,
    ) -> Result<Response<v1::AllocIpReply>, Status> {
        require_root(&request)?;
        let limit = limit(&request);
        let request = allocate_request(request.into_inner(), limit).map_err(bad)?;
        let ipam = self.ipam.clone();
        let attachment = self
            .run(async move { ipam.allocate(request).await.map_err(|err| status::allocate(&err)) })
            .await?;
        let conf = NetConf::of(&attachment);
        let cidrs = &self.config.config.pod_cidrs;
        let subnet = wire::prefix_set(
            conf.addresses
                .iter()
                .filter_map(|address| cidrs.iter().find(|cidr| cidr.contains(&address))),
        );
        Ok(Response::new(v1::AllocIpReply {
            ip_type: v1::IpType::from(conf.kind).into(),
            ipv4: cidrs.iter().any(|cidr| cidr.addr().is_ipv4()),
            ipv6: cidrs.iter().any(|cidr| cidr.addr().is_ipv6()),
            net_confs: vec![v1::NetConf { subnet: Some(subnet), ..(&conf).into() }],
        }))
    }

    async fn commit_ip(
        &self,
        request: Request<v1::CommitIpRequest>,
    ) -> Result<Response<v1::CommitIpReply>, Status> {
        require_root(&request)?;
        let limit = limit(&request);
        let request = request.into_inner();
        let phases: Vec<(String, u64)> =
            request.phases.into_iter().take(16).map(|it| (it.name, it.microseconds)).collect();
        let commit = (|| {
            Ok(Commit {
                key: wire::key(request.key)?,
                started: wire::process_start(request.process_start)?,
                wired: WiredFacts {
                    host: wire::interface_facts("host", request.host)?,
                    pod: wire::interface_facts("pod", request.pod)?,
                },
                netns_inode: request.netns_inode,
                limit,
            })
        })()
        .map_err(bad)?;
        tracing::debug!(key = %commit.key, ?phases, "wired");
        let ipam = self.ipam.clone();
        self.run(async move { ipam.commit(commit).await.map_err(|err| status::commit(&err)) })
            .await?;
        Ok(Response::new(v1::CommitIpReply {}))
    }

    async fn release_ip(
        &self,
        request: Request<v1::ReleaseIpRequest>,
    ) -> Result<Response<v1::ReleaseIpReply>, Status> {
        require_root(&request)?;
        let limit = limit(&request);
        let request = request.into_inner();
        let release = (|| {
            let started = match request.process_start {
                Some(start) => Some(wire::process_start(Some(start))?),
                None => None,
            };
            Ok(Release {
                key: wire::key(request.key)?,
                started,
                reason: one_line(&request.reason, LONGEST_REASON),
                only_if_dead: false,
                limit,
            })
        })()
        .map_err(bad)?;
        let ipam = self.ipam.clone();
        let released = self
            .run(async move { ipam.release(release).await.map_err(|err| status::release(&err)) })
            .await?;
        Ok(Response::new(v1::ReleaseIpReply {
            released: released.addresses.is_some(),
            addresses: released.addresses.as_ref().map(wire::ip_set),
        }))
    }

    async fn get_ip_info(
        &self,
        request: Request<v1::GetIpInfoRequest>,
    ) -> Result<Response<v1::GetIpInfoReply>, Status> {
        require_root(&request)?;
        let attachments = match request.into_inner().of {
            None => return Err(bad(BadRequest::Missing("key or pod"))),
            Some(v1::get_ip_info_request::Of::Key(key)) => {
                let key = wire::key(Some(key)).map_err(bad)?;
                let found = self.ipam.attachment(&key).map_err(|err| status::read(&err))?;
                let found = found.ok_or_else(|| status::unknown(&key.to_string()))?;
                vec![wire::attachment(&found, self.ipam.age(&found).as_secs())]
            }
            Some(v1::get_ip_info_request::Of::Pod(pod)) => {
                let pod = wire::pod_identity(Some(pod)).map_err(bad)?;
                let of = pod.clone();
                let wanted = move |it: &Attachment| {
                    it.pod.name == of.name && it.pod.namespace == of.namespace
                };
                let found = self.list(wanted).await?;
                if found.is_empty() {
                    return Err(status::unknown(&format!("pod {pod}")));
                }
                found
            }
        };
        Ok(Response::new(v1::GetIpInfoReply { attachments }))
    }

    async fn record_event(
        &self,
        request: Request<v1::RecordEventRequest>,
    ) -> Result<Response<v1::RecordEventReply>, Status> {
        require_root(&request)?;
        let request = request.into_inner();
        let pod = wire::pod_identity(request.pod.clone()).map_err(bad)?;
        match request.target() {
            v1::record_event_request::Target::Unspecified => {
                return Err(bad(BadRequest::Missing("target")));
            }
            v1::record_event_request::Target::Pod if pod.name.is_none() => {
                return Err(bad(BadRequest::Missing("pod.name")));
            }
            v1::record_event_request::Target::Pod | v1::record_event_request::Target::Node => (),
        }
        // Without Kubernetes the log is where people look.
        let cut = |text: &str| text.chars().take(1024).collect::<String>();
        let (reason, message) = (cut(&request.reason), cut(&request.message));
        match request.r#type() {
            v1::record_event_request::Type::Unspecified => {
                return Err(bad(BadRequest::Missing("type")));
            }
            v1::record_event_request::Type::Normal => info!(%pod, ?reason, ?message, "event"),
            v1::record_event_request::Type::Warning => warn!(%pod, ?reason, ?message, "event"),
        }
        Ok(Response::new(v1::RecordEventReply {}))
    }
}
