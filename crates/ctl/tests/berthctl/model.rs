use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    thread::JoinHandle,
};

use berth_proto::{
    DOMAIN, Reason,
    v1::{self, admin_server::AdminServer, explain_request::Of, inspect_server::InspectServer},
};
use tokio::sync::{broadcast, oneshot};
use tokio_stream::{
    Stream, StreamExt,
    wrappers::{BroadcastStream, UnixListenerStream},
};
use tonic::{Code, Request, Response, Status, async_trait, transport::Server};
use tonic_health::ServingStatus;
use tonic_types::{ErrorDetails, StatusExt};

/// What the model knows. Everything it answers follows from this.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) attachments: Vec<v1::Attachment>,
    /// Container ids whose network namespace is gone.
    pub(crate) dead: Vec<String>,
    pub(crate) capacity: u64,
    pub(crate) cooling: Vec<v1::IpSet>,
    /// Whether the peer may change anything.
    pub(crate) root: bool,
    pub(crate) serving: bool,
    /// Whether questions are answered at all.
    pub(crate) silent: bool,
    pub(crate) config: String,
}

/// A daemon with two pods of two networks and one address that rests.
impl Default for Node {
    fn default() -> Self {
        let web = Pod { namespace: "shop", name: "web-0", container: "3f009190ae68b15441", end: 2 };
        let alone = Pod { namespace: "", name: "alone", container: "77aa00", end: 3 };
        let mut podman = alone.attachment("podnet", v1::AttachmentState::Bound, 7);
        podman.net_conf.as_mut().unwrap().pod_ip.as_mut().unwrap().ipv6.clear();
        Self {
            attachments: vec![
                web.attachment("berth", v1::AttachmentState::Committed, 11_000),
                podman,
            ],
            dead: Vec::new(),
            capacity: 4093,
            cooling: vec![addresses(9)],
            root: true,
            serving: true,
            silent: false,
            config: r#"{"daemon_mode":"VPC","ip_stack":"dual","log":{"level":"info"}}"#.into(),
        }
    }
}

pub(crate) struct Pod {
    pub(crate) namespace: &'static str,
    pub(crate) name: &'static str,
    pub(crate) container: &'static str,
    /// Last number of its addresses.
    pub(crate) end: u8,
}

impl Pod {
    pub(crate) fn attachment(
        &self,
        network: &str,
        state: v1::AttachmentState,
        age_seconds: u64,
    ) -> v1::Attachment {
        let end = self.end;
        v1::Attachment {
            key: Some(v1::AttachmentKey {
                network: network.into(),
                container_id: self.container.into(),
                interface: "eth0".into(),
            }),
            state: state.into(),
            ip_type: v1::IpType::VpcIp.into(),
            pod: Some(v1::PodIdentity {
                namespace: self.namespace.into(),
                name: self.name.into(),
                uid: String::new(),
            }),
            netns: format!("/run/netns/{}", self.name),
            age_seconds,
            net_conf: Some(v1::NetConf {
                host_interface: format!("bth00000000000{end}"),
                pod_ip: Some(addresses(end)),
                bandwidth: Some(v1::Bandwidth {
                    ingress_bytes_per_second: 1_250_000,
                    egress_bytes_per_second: 0,
                }),
                mtu: 1500,
                pod_mac: format!("02:00:00:00:00:0{end}"),
                host_mac: format!("02:00:00:00:01:0{end}"),
                ..Default::default()
            }),
        }
    }
}

fn addresses(end: u8) -> v1::IpSet {
    v1::IpSet { ipv4: format!("172.16.240.{end}"), ipv6: format!("fd62:6572:7468::{end}") }
}

/// A model daemon on a socket of its own, gone when dropped.
pub(crate) struct Model {
    service: Service,
    socket: PathBuf,
    _directory: tempfile::TempDir,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Model {
    pub(crate) fn start(node: Node) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("berth.sock");
        let (changes, _) = broadcast::channel(16);
        let service = Service { node: Arc::new(Mutex::new(node)), changes };
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let (serving, at) = (service.clone(), socket.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let listener = tokio::net::UnixListener::bind(at).unwrap();
                let (reporter, health) = tonic_health::server::health_reporter();
                if !serving.node().serving {
                    reporter.set_service_status("", ServingStatus::NotServing).await;
                }
                ready.send(()).unwrap();
                let server = Server::builder()
                    .add_service(health)
                    .add_service(InspectServer::new(serving.clone()))
                    .add_service(AdminServer::new(serving))
                    .serve_with_incoming(UnixListenerStream::new(listener));
                tokio::select! {
                    served = server => served.unwrap(),
                    _ = stopped => (),
                }
            });
        });
        is_ready.recv().expect("the model listens");
        Self { service, socket, _directory: directory, stop: Some(stop), thread: Some(thread) }
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    pub(crate) fn node(&self) -> MutexGuard<'_, Node> {
        self.service.node()
    }

    /// How many watch.
    pub(crate) fn watchers(&self) -> usize {
        self.service.changes.receiver_count()
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[derive(Clone)]
struct Service {
    node: Arc<Mutex<Node>>,
    changes: broadcast::Sender<v1::WatchReply>,
}

impl Service {
    fn node(&self) -> MutexGuard<'_, Node> {
        self.node.lock().unwrap()
    }

    /// Holds a question back for ever where the node is silent.
    async fn heard(&self) {
        if self.node().silent {
            std::future::pending::<()>().await;
        }
    }

    fn root_only(&self) -> Result<(), Status> {
        if self.node().root {
            return Ok(());
        }
        Err(refuse(Code::PermissionDenied, Reason::NotAllowed, "only root may change the daemon"))
    }

    /// Takes the record away, rests its addresses, tells the watchers.
    fn take(&self, key: &v1::AttachmentKey, kind: v1::watch_reply::Kind) -> Option<v1::IpSet> {
        let mut node = self.node();
        let at = node.attachments.iter().position(|held| held.key.as_ref() == Some(key))?;
        let held = node.attachments.remove(at);
        let addresses = held.net_conf.unwrap_or_default().pod_ip.unwrap_or_default();
        node.cooling.push(addresses.clone());
        let _ = self.changes.send(v1::WatchReply {
            kind: kind.into(),
            key: held.key,
            addresses: Some(addresses.clone()),
            pod: held.pod,
            reason: "by hand".into(),
        });
        Some(addresses)
    }
}

fn refuse(code: Code, reason: Reason, message: &str) -> Status {
    let details = ErrorDetails::with_error_info(reason.as_str(), DOMAIN, HashMap::new());
    Status::with_error_details(code, message, details)
}

fn pod_ip(attachment: &v1::Attachment) -> v1::IpSet {
    attachment.net_conf.clone().unwrap_or_default().pod_ip.unwrap_or_default()
}

fn title(attachment: &v1::Attachment) -> String {
    let key = attachment.key.clone().unwrap_or_default();
    format!("{}/{}/{}", key.network, key.container_id, key.interface)
}

#[async_trait]
impl v1::inspect_server::Inspect for Service {
    async fn list_attachments(
        &self,
        request: Request<v1::ListAttachmentsRequest>,
    ) -> Result<Response<v1::ListAttachmentsReply>, Status> {
        self.heard().await;
        let network = request.into_inner().network;
        let mut attachments = self.node().attachments.clone();
        attachments.retain(|held| {
            network.is_empty() || held.key.as_ref().is_some_and(|key| key.network == network)
        });
        Ok(Response::new(v1::ListAttachmentsReply { attachments }))
    }

    async fn list_pool(
        &self,
        request: Request<v1::ListPoolRequest>,
    ) -> Result<Response<v1::ListPoolReply>, Status> {
        let node = self.node();
        let leased = node.attachments.iter().map(|held| v1::PoolSlot {
            addresses: Some(pod_ip(held)),
            state: "leased".into(),
            owner: title(held),
            ..Default::default()
        });
        let cooling = node.cooling.iter().map(|rests| v1::PoolSlot {
            addresses: Some(rests.clone()),
            state: "cooling".into(),
            seconds_left: 17,
            why: "released".into(),
            ..Default::default()
        });
        let mut slots: Vec<v1::PoolSlot> = leased.chain(cooling).collect();
        for slot in &mut slots {
            let v1::IpSet { ipv4, ipv6 } = slot.addresses.clone().unwrap_or_default();
            slot.id = format!("{ipv4},{ipv6}");
        }
        let used = slots.len() as u64;
        let summary = v1::PoolSummary {
            ip_type: v1::IpType::VpcIp.into(),
            capacity: node.capacity,
            leased: node.attachments.len() as u64,
            cooling: node.cooling.len() as u64,
            available: node.capacity - used,
            unavailable_reason: if node.capacity > used { "" } else { "all given out" }.into(),
            ..Default::default()
        };
        if request.into_inner().summary_only {
            slots.clear();
        }
        Ok(Response::new(v1::ListPoolReply { summary: Some(summary), slots }))
    }

    async fn explain(
        &self,
        request: Request<v1::ExplainRequest>,
    ) -> Result<Response<v1::ExplainReply>, Status> {
        let of = request.into_inner().of.ok_or_else(|| Status::invalid_argument("of"))?;
        let node = self.node();
        let held = node.attachments.iter().find(|held| match &of {
            Of::Pod(pod) => held.pod.as_ref() == Some(pod),
            Of::Ip(ip) => pod_ip(held).ipv4 == *ip || pod_ip(held).ipv6 == *ip,
            Of::Key(key) => held.key.as_ref() == Some(key),
        });
        Ok(Response::new(match held {
            Some(held) => v1::ExplainReply {
                found: true,
                verdict: format!("{} holds it", title(held)),
                facts: vec![format!("its namespace is {}", held.netns), "it is\nalive".into()],
            },
            None => v1::ExplainReply {
                found: false,
                verdict: "there is no record of it".into(),
                facts: vec!["the pool is half full".into()],
            },
        }))
    }

    async fn get_config(
        &self,
        _: Request<v1::GetConfigRequest>,
    ) -> Result<Response<v1::GetConfigReply>, Status> {
        let source = |path: &str, from: &str| (path.to_owned(), from.to_owned());
        Ok(Response::new(v1::GetConfigReply {
            json: self.node().config.clone(),
            generation: 4,
            sources: [source("daemon_mode", "default"), source("log", "environment")].into(),
            version: "0.1.0".into(),
        }))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<v1::WatchReply, Status>> + Send>>;

    async fn watch(
        &self,
        _: Request<v1::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let changes = BroadcastStream::new(self.changes.subscribe());
        let changes = changes.map(|change| change.map_err(|_| Status::data_loss("too slow")));
        Ok(Response::new(Box::pin(changes)))
    }
}

#[async_trait]
impl v1::admin_server::Admin for Service {
    async fn run_gc(
        &self,
        request: Request<v1::RunGcRequest>,
    ) -> Result<Response<v1::RunGcReply>, Status> {
        self.root_only()?;
        let dry_run = request.into_inner().dry_run;
        let (attachments, dead) = {
            let node = self.node();
            (node.attachments.clone(), node.dead.clone())
        };
        let mut findings = Vec::new();
        for key in attachments.into_iter().filter_map(|held| held.key) {
            let collected = dead.contains(&key.container_id);
            let evidence = if collected { "its netns is gone" } else { "its netns is alive" };
            if collected && !dry_run {
                self.take(&key, v1::watch_reply::Kind::Collected);
            }
            let evidence = vec![evidence.to_owned()];
            findings.push(v1::GcFinding { key: Some(key), collected, evidence });
        }
        Ok(Response::new(v1::RunGcReply { findings }))
    }

    async fn release(
        &self,
        request: Request<v1::ReleaseRequest>,
    ) -> Result<Response<v1::ReleaseReply>, Status> {
        self.root_only()?;
        let v1::ReleaseRequest { key, reason, force } = request.into_inner();
        let key = key.unwrap_or_default();
        if reason.is_empty() {
            return Err(refuse(
                Code::InvalidArgument,
                Reason::BadRequest,
                "field `reason` is missing",
            ));
        }
        if !force && !self.node().dead.contains(&key.container_id) {
            return Err(refuse(
                Code::FailedPrecondition,
                Reason::AttachedElsewhere,
                "its network namespace is alive",
            ));
        }
        let addresses = self.take(&key, v1::watch_reply::Kind::Released);
        Ok(Response::new(v1::ReleaseReply { released: addresses.is_some(), addresses }))
    }

    async fn run_audit(
        &self,
        _: Request<v1::RunAuditRequest>,
    ) -> Result<Response<v1::RunAuditReply>, Status> {
        Err(Status::unimplemented("stage 2"))
    }

    async fn reload(
        &self,
        _: Request<v1::ReloadRequest>,
    ) -> Result<Response<v1::ReloadReply>, Status> {
        Err(Status::unimplemented("stage 4"))
    }

    async fn set_log_level(
        &self,
        _: Request<v1::SetLogLevelRequest>,
    ) -> Result<Response<v1::SetLogLevelReply>, Status> {
        Err(Status::unimplemented("stage 4"))
    }
}
