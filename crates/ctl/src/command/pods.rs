use berth_proto::v1;
use serde::Serialize;

use super::key::{AddressView, KeyView, PodView, ip_type};
use crate::{
    arguments::Pods,
    daemon::Daemon,
    exit::Exit,
    failure::Failure,
    output::Output,
    table::table,
    text::{age, given},
};

/// One element of `pods -o json`.
#[derive(Debug, Serialize)]
struct PodsView {
    #[serde(flatten)]
    key: KeyView,
    pod: PodView,
    state: &'static str,
    ip_type: &'static str,
    #[serde(flatten)]
    addresses: AddressView,
    host_interface: Option<String>,
    netns: Option<String>,
    age_seconds: u64,
    mtu: u32,
    host_mac: Option<String>,
    pod_mac: Option<String>,
    /// Towards the pod; null is no limit.
    ingress_bytes_per_second: Option<u64>,
    egress_bytes_per_second: Option<u64>,
}

impl From<v1::Attachment> for PodsView {
    fn from(wire: v1::Attachment) -> Self {
        let state = match wire.state() {
            v1::AttachmentState::Unspecified => "unknown",
            v1::AttachmentState::Bound => "bound",
            v1::AttachmentState::Committed => "committed",
        };
        let ip_type = ip_type(wire.ip_type());
        let conf = wire.net_conf.unwrap_or_default();
        let limits = conf.bandwidth.unwrap_or_default();
        let limit = |bytes: u64| (bytes > 0).then_some(bytes);
        Self {
            key: wire.key.into(),
            pod: wire.pod.into(),
            state,
            ip_type,
            addresses: conf.pod_ip.into(),
            host_interface: given(conf.host_interface),
            netns: given(wire.netns),
            age_seconds: wire.age_seconds,
            mtu: conf.mtu,
            host_mac: given(conf.host_mac),
            pod_mac: given(conf.pod_mac),
            ingress_bytes_per_second: limit(limits.ingress_bytes_per_second),
            egress_bytes_per_second: limit(limits.egress_bytes_per_second),
        }
    }
}

pub(super) async fn run(
    daemon: &Daemon,
    arguments: Pods,
    output: &mut Output,
) -> Result<Exit, Failure> {
    let request = v1::ListAttachmentsRequest { network: arguments.network.unwrap_or_default() };
    let reply = daemon.ask(daemon.inspect().list_attachments(request)).await?;
    let mut pods: Vec<PodsView> = reply.attachments.into_iter().map(Into::into).collect();
    pods.sort_by(|one, other| {
        (&one.pod, &one.key.container_id, &one.key.interface).cmp(&(
            &other.pod,
            &other.key.container_id,
            &other.key.interface,
        ))
    });
    output.show(&pods, |pods| {
        table(
            ["POD", "IPV4", "IPV6", "STATE", "TYPE", "HOST", "CONTAINER", "IF", "NETWORK", "AGE"],
            pods.iter().map(|pod| {
                [
                    pod.pod.title(),
                    pod.addresses.ipv4.clone().unwrap_or_default(),
                    pod.addresses.ipv6.clone().unwrap_or_default(),
                    pod.state.into(),
                    pod.ip_type.into(),
                    pod.host_interface.clone().unwrap_or_default(),
                    pod.key.short_container(),
                    pod.key.interface.clone(),
                    pod.key.network.clone(),
                    age(pod.age_seconds),
                ]
            }),
        )
    })?;
    Ok(Exit::Fine)
}
