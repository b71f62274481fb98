use std::{fs, path::Path, time::Duration};

use berth_proto::v1;
use nix::time::{ClockId, clock_gettime};
use tonic::{
    Request, Status,
    transport::{Channel, Endpoint},
};

/// The network that gRPC calls of tests are about.
const NETWORK: &str = "berth-test";

/// A caller of the daemon's `Ipam` and `Admin` services that is no plugin: it names starts of
/// processes as it likes, and may go away at any time. Clones share one connection.
#[derive(Debug, Clone)]
pub struct Caller {
    channel: Channel,
    limit: Duration,
}

/// The present, as a plugin that starts now tells it.
///
/// # Panics
/// Where there is no Linux below.
pub fn process_start() -> v1::ProcessStart {
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let now = Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME).unwrap());
    v1::ProcessStart {
        boot_id: boot_id.trim().to_owned(),
        boottime_nanoseconds: now.as_nanos().try_into().expect("uptimes are short"),
    }
}

/// The key of `eth0` of a container.
pub fn attachment_key(container: &str) -> v1::AttachmentKey {
    v1::AttachmentKey {
        network: NETWORK.to_owned(),
        container_id: container.to_owned(),
        interface: "eth0".to_owned(),
    }
}

impl Caller {
    /// `limit` is the deadline of each call.
    ///
    /// # Panics
    /// When nobody listens at `socket`.
    pub async fn connect(socket: &Path, limit: Duration) -> Self {
        let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display())).unwrap();
        let channel = endpoint.connect().await.expect("a daemon serves");
        Self { channel, limit }
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(self.limit);
        request
    }

    fn ipam(&self) -> v1::ipam_client::IpamClient<Channel> {
        v1::ipam_client::IpamClient::new(self.channel.clone())
    }

    fn inspect(&self) -> v1::inspect_client::InspectClient<Channel> {
        v1::inspect_client::InspectClient::new(self.channel.clone())
    }

    /// Answers the IPv4 address.
    pub async fn allocate(
        &self,
        container: &str,
        netns: &str,
        pod: &str,
        start: v1::ProcessStart,
    ) -> Result<String, Status> {
        let request = v1::AllocIpRequest {
            key: Some(attachment_key(container)),
            netns: netns.to_owned(),
            process_start: Some(start),
            pod: Some(v1::PodIdentity {
                namespace: "races".to_owned(),
                name: pod.to_owned(),
                ..Default::default()
            }),
            ..Default::default()
        };
        let reply = self.ipam().alloc_ip(self.request(request)).await?.into_inner();
        let pod_ip = reply.net_confs.first().and_then(|conf| conf.pod_ip.clone());
        Ok(pod_ip.expect("an answer has addresses").ipv4)
    }

    /// Says that the namespace with this inode is wired.
    pub async fn commit(
        &self,
        container: &str,
        inode: u64,
        start: v1::ProcessStart,
    ) -> Result<(), Status> {
        let facts = |name: &str, mac: &str| {
            Some(v1::InterfaceFacts { name: name.to_owned(), mac: mac.to_owned() })
        };
        let request = v1::CommitIpRequest {
            key: Some(attachment_key(container)),
            process_start: Some(start),
            host: facts("bth0", "02:00:00:00:00:01"),
            pod: facts("eth0", "02:00:00:00:00:02"),
            netns_inode: inode,
            phases: Vec::new(),
        };
        self.ipam().commit_ip(self.request(request)).await.map(drop)
    }

    /// Answers the IPv4 address that was held.
    pub async fn release(
        &self,
        container: &str,
        start: v1::ProcessStart,
    ) -> Result<Option<String>, Status> {
        let request = v1::ReleaseIpRequest {
            key: Some(attachment_key(container)),
            process_start: Some(start),
            reason: "a test".to_owned(),
        };
        let reply = self.ipam().release_ip(self.request(request)).await?.into_inner();
        Ok(reply.addresses.map(|addresses| addresses.ipv4))
    }

    /// The IPv4 address that the container holds.
    pub async fn held(&self, container: &str) -> Result<Option<String>, Status> {
        let of = v1::get_ip_info_request::Of::Key(attachment_key(container));
        let request = self.request(v1::GetIpInfoRequest { of: Some(of) });
        match self.ipam().get_ip_info(request).await {
            Ok(reply) => Ok(reply.into_inner().attachments.first().map(ipv4)),
            Err(status) if status.code() == tonic::Code::NotFound => Ok(None),
            Err(status) => Err(status),
        }
    }

    /// One pass over everything. Answers how many attachments were collected.
    pub async fn collect(&self) -> Result<usize, Status> {
        let mut admin = v1::admin_client::AdminClient::new(self.channel.clone());
        let reply = admin.run_gc(self.request(v1::RunGcRequest::default())).await?.into_inner();
        Ok(reply.findings.iter().filter(|finding| finding.collected).count())
    }

    pub async fn attachments(&self) -> Result<Vec<v1::Attachment>, Status> {
        let request = self.request(v1::ListAttachmentsRequest::default());
        Ok(self.inspect().list_attachments(request).await?.into_inner().attachments)
    }

    pub async fn pool(&self) -> Result<v1::PoolSummary, Status> {
        let request = self.request(v1::ListPoolRequest { summary_only: true });
        let reply = self.inspect().list_pool(request).await?.into_inner();
        Ok(reply.summary.expect("a pool has a summary"))
    }
}

/// The IPv4 address of an attachment as it is listed.
pub fn ipv4(attachment: &v1::Attachment) -> String {
    let conf = attachment.net_conf.as_ref();
    conf.and_then(|conf| conf.pod_ip.clone()).expect("a record has addresses").ipv4
}
