//! A small daemon: the rules of berth.v1 that the plugin lives by, in memory, on a real socket.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    net::Ipv4Addr,
    path::Path,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll},
};

use berth_proto::{
    DOMAIN, Reason,
    v1::{
        self,
        admin_server::{Admin, AdminServer},
        inspect_server::{Inspect, InspectServer},
        ipam_server::{Ipam, IpamServer},
    },
};
use berth_types::{
    AddressSet, AttachmentKey, HostPrefix, MacSide, NetConf, ProcessStart, ResourceKind,
    host_interface, stable_mac,
};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Code, Request, Response, Status, body::Body, transport::Server};
use tonic_types::{ErrorDetails, StatusExt};

/// What the daemon holds, and what it was asked.
#[derive(Default)]
pub struct State {
    pub records: BTreeMap<AttachmentKey, Record>,
    pub tombstones: BTreeMap<AttachmentKey, ProcessStart>,
    pub allocations: Vec<v1::AllocIpRequest>,
    /// `grpc-timeout` of each allocation.
    pub deadlines: Vec<Option<String>>,
    pub commits: Vec<v1::CommitIpRequest>,
    pub releases: Vec<v1::ReleaseIpRequest>,
    pub collections: Vec<v1::RunGcRequest>,
    /// Answered instead of doing it, by the method's name.
    pub refuse: BTreeMap<&'static str, Status>,
    /// As [`refuse`](Self::refuse), but once.
    pub refuse_once: BTreeMap<&'static str, Status>,
    pub unavailable_reason: String,
    given: u8,
}

pub struct Record {
    pub conf: NetConf,
    pub committed: bool,
}

/// Serves until it is dropped.
pub struct Model {
    state: Arc<Mutex<State>>,
    runtime: Option<tokio::runtime::Runtime>,
}

/// A status as the daemon makes it.
pub fn status(code: Code, reason: Reason, message: &str) -> Status {
    let details = ErrorDetails::with_error_info(reason.as_str(), DOMAIN, []);
    Status::with_error_details(code, message, details)
}

impl Model {
    pub fn serve(socket: &Path) -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        let listener = {
            let _inside = runtime.enter();
            tokio::net::UnixListener::bind(socket).unwrap()
        };
        let handler = Handler(Arc::clone(&state));
        let services = Services {
            ipam: IpamServer::new(handler.clone()),
            inspect: InspectServer::new(handler.clone()),
            admin: AdminServer::new(handler),
        };
        runtime.spawn(
            Server::builder().serve_with_incoming(services, UnixListenerStream::new(listener)),
        );
        Self { state, runtime: Some(runtime) }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[derive(Clone)]
struct Handler(Arc<Mutex<State>>);

impl Handler {
    fn state(&self, method: &'static str) -> Result<MutexGuard<'_, State>, Status> {
        let mut state = self.0.lock().unwrap();
        match state.refuse_once.remove(method).or_else(|| state.refuse.get(method).cloned()) {
            Some(status) => Err(status),
            None => Ok(state),
        }
    }
}

impl State {
    /// A call of a process that began before the DEL is late.
    fn refuse_late(&self, key: &AttachmentKey, process: &ProcessStart) -> Result<(), Status> {
        if self.tombstones.get(key).is_some_and(|deleted_by| process.is_before(deleted_by)) {
            let message = format!("{key} was released meanwhile");
            return Err(status(Code::FailedPrecondition, Reason::ReleasedMeanwhile, &message));
        }
        Ok(())
    }
}

fn bad(err: berth_proto::BadRequest) -> Status {
    status(Code::InvalidArgument, Reason::BadRequest, &err.to_string())
}

#[tonic::async_trait]
impl Ipam for Handler {
    async fn alloc_ip(
        &self,
        request: Request<v1::AllocIpRequest>,
    ) -> Result<Response<v1::AllocIpReply>, Status> {
        let deadline = request.metadata().get("grpc-timeout");
        let deadline = deadline.map(|it| it.to_str().unwrap().to_owned());
        let request = request.into_inner();
        let mut state = self.state("AllocIP")?;
        state.deadlines.push(deadline);
        state.allocations.push(request.clone());
        let key = berth_proto::key(request.key).map_err(bad)?;
        let process = berth_proto::process_start(request.process_start).map_err(bad)?;
        let pod = berth_proto::pod_identity(request.pod).map_err(bad)?;
        let asked = berth_proto::address_set("ips", &request.ips).map_err(bad)?;
        let mac = berth_proto::optional_mac("mac", &request.mac).map_err(bad)?;
        state.refuse_late(&key, &process)?;
        if !state.records.contains_key(&key) {
            state.given += 1;
            let free = AddressSet {
                v4: Some(Ipv4Addr::new(10, 210, 0, state.given)),
                v6: Some(format!("fd00:210::{:x}", state.given).parse().unwrap()),
            };
            let conf = NetConf {
                kind: ResourceKind::Veth,
                interface: key.interface.clone(),
                host_interface: host_interface(&HostPrefix::default(), &key),
                addresses: if asked.is_empty() { free } else { asked },
                pod_mac: mac.unwrap_or(stable_mac(MacSide::Pod, &key)),
                host_mac: stable_mac(MacSide::Host, &key),
                mtu: 1450,
                bandwidth: request.bandwidth.unwrap_or_default().into(),
                default_route: true,
                extra_routes: Vec::new(),
                alias: pod.to_string(),
            };
            state.records.insert(key.clone(), Record { conf, committed: false });
        }
        let conf = &state.records[&key].conf;
        Ok(Response::new(v1::AllocIpReply {
            ip_type: v1::IpType::VpcIp.into(),
            ipv4: true,
            ipv6: true,
            net_confs: vec![conf.into()],
        }))
    }

    async fn commit_ip(
        &self,
        request: Request<v1::CommitIpRequest>,
    ) -> Result<Response<v1::CommitIpReply>, Status> {
        let request = request.into_inner();
        let mut state = self.state("CommitIP")?;
        state.commits.push(request.clone());
        let key = berth_proto::key(request.key).map_err(bad)?;
        let process = berth_proto::process_start(request.process_start).map_err(bad)?;
        state.refuse_late(&key, &process)?;
        match state.records.get_mut(&key) {
            Some(record) => record.committed = true,
            None => {
                return Err(status(
                    Code::FailedPrecondition,
                    Reason::ReleasedMeanwhile,
                    "it was released meanwhile",
                ));
            }
        }
        Ok(Response::new(v1::CommitIpReply {}))
    }

    async fn release_ip(
        &self,
        request: Request<v1::ReleaseIpRequest>,
    ) -> Result<Response<v1::ReleaseIpReply>, Status> {
        let request = request.into_inner();
        let mut state = self.state("ReleaseIP")?;
        state.releases.push(request.clone());
        let key = berth_proto::key(request.key).map_err(bad)?;
        let process = berth_proto::process_start(request.process_start).map_err(bad)?;
        let released = state.records.remove(&key).is_some();
        state.tombstones.insert(key, process);
        Ok(Response::new(v1::ReleaseIpReply { released, addresses: None }))
    }

    async fn get_ip_info(
        &self,
        request: Request<v1::GetIpInfoRequest>,
    ) -> Result<Response<v1::GetIpInfoReply>, Status> {
        let state = self.state("GetIPInfo")?;
        let Some(v1::get_ip_info_request::Of::Key(key)) = request.into_inner().of else {
            return Err(bad(berth_proto::BadRequest::Missing("key")));
        };
        let key = berth_proto::key(Some(key)).map_err(bad)?;
        let Some(record) = state.records.get(&key) else {
            let message = format!("there is no record of {key}");
            return Err(status(Code::NotFound, Reason::UnknownAttachment, &message));
        };
        let committed = if record.committed {
            v1::AttachmentState::Committed
        } else {
            v1::AttachmentState::Bound
        };
        let attachment = v1::Attachment {
            key: Some((&key).into()),
            state: committed.into(),
            ip_type: v1::IpType::VpcIp.into(),
            net_conf: Some((&record.conf).into()),
            ..Default::default()
        };
        Ok(Response::new(v1::GetIpInfoReply { attachments: vec![attachment] }))
    }

    async fn record_event(
        &self,
        _: Request<v1::RecordEventRequest>,
    ) -> Result<Response<v1::RecordEventReply>, Status> {
        Ok(Response::new(v1::RecordEventReply {}))
    }
}

#[tonic::async_trait]
impl Inspect for Handler {
    type WatchStream = tokio_stream::Empty<Result<v1::WatchReply, Status>>;

    async fn list_pool(
        &self,
        _: Request<v1::ListPoolRequest>,
    ) -> Result<Response<v1::ListPoolReply>, Status> {
        let state = self.state("ListPool")?;
        let summary = v1::PoolSummary {
            unavailable_reason: state.unavailable_reason.clone(),
            ..Default::default()
        };
        Ok(Response::new(v1::ListPoolReply { summary: Some(summary), slots: Vec::new() }))
    }

    async fn list_attachments(
        &self,
        _: Request<v1::ListAttachmentsRequest>,
    ) -> Result<Response<v1::ListAttachmentsReply>, Status> {
        Err(not_modelled())
    }

    async fn explain(
        &self,
        _: Request<v1::ExplainRequest>,
    ) -> Result<Response<v1::ExplainReply>, Status> {
        Err(not_modelled())
    }

    async fn get_config(
        &self,
        _: Request<v1::GetConfigRequest>,
    ) -> Result<Response<v1::GetConfigReply>, Status> {
        Err(not_modelled())
    }

    async fn watch(
        &self,
        _: Request<v1::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        Err(not_modelled())
    }
}

#[tonic::async_trait]
impl Admin for Handler {
    async fn run_gc(
        &self,
        request: Request<v1::RunGcRequest>,
    ) -> Result<Response<v1::RunGcReply>, Status> {
        let mut state = self.state("RunGc")?;
        state.collections.push(request.into_inner());
        Ok(Response::new(v1::RunGcReply { findings: Vec::new() }))
    }

    async fn release(
        &self,
        _: Request<v1::ReleaseRequest>,
    ) -> Result<Response<v1::ReleaseReply>, Status> {
        Err(not_modelled())
    }

    async fn run_audit(
        &self,
        _: Request<v1::RunAuditRequest>,
    ) -> Result<Response<v1::RunAuditReply>, Status> {
        Err(not_modelled())
    }

    async fn reload(
        &self,
        _: Request<v1::ReloadRequest>,
    ) -> Result<Response<v1::ReloadReply>, Status> {
        Err(not_modelled())
    }

    async fn set_log_level(
        &self,
        _: Request<v1::SetLogLevelRequest>,
    ) -> Result<Response<v1::SetLogLevelReply>, Status> {
        Err(not_modelled())
    }
}

fn not_modelled() -> Status {
    Status::unimplemented("not of this model: the plugin never asks it")
}

/// The three services side by side.
#[derive(Clone)]
struct Services {
    ipam: IpamServer<Handler>,
    inspect: InspectServer<Handler>,
    admin: AdminServer<Handler>,
}

type Answer = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

impl tower_service::Service<http::Request<Body>> for Services {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Answer {
        match request.uri().path().split('/').nth(1) {
            Some("berth.v1.Ipam") => self.ipam.call(request),
            Some("berth.v1.Inspect") => self.inspect.call(request),
            _ => self.admin.call(request),
        }
    }
}
