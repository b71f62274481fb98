//! The daemon without a plugin: many callers, each with a connection of its own.

use std::{path::Path, time::Duration};

use berth_proto::v1::{self, ipam_client::IpamClient};
use berth_tests::{Pod, Stopwatch};
use nix::time::{ClockId, clock_gettime};
use tonic::transport::{Channel, Endpoint};

/// Callers of the daemon who all speak for one pod's namespace.
#[derive(Debug)]
pub(crate) struct Callers {
    netns: String,
    boot_id: String,
    clients: Vec<IpamClient<Channel>>,
    runtime: tokio::runtime::Runtime,
}

#[derive(Debug)]
pub(crate) struct Allocations {
    pub(crate) walls: Vec<Duration>,
    pub(crate) elapsed: Duration,
}

impl Callers {
    pub(crate) fn connect(socket: &Path, pod: &Pod, count: usize) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let clients = runtime.block_on(async {
            let mut clients = Vec::with_capacity(count);
            for _ in 0..count {
                let endpoint =
                    Endpoint::from_shared(format!("unix://{}", socket.display())).unwrap();
                clients.push(IpamClient::new(endpoint.connect().await.unwrap()));
            }
            clients
        });
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let boot_id = boot_id.trim_end().to_owned();
        Self { netns: pod.netns_text(), boot_id, clients, runtime }
    }

    /// AllocIP for each of `ids`, by all callers at once, each one call after the other.
    pub(crate) fn allocate(&self, ids: &[String]) -> Allocations {
        let (walls, elapsed) = self.all(ids, |mut client, id, start| {
            let request = v1::AllocIpRequest {
                key: Some(key(id)),
                netns: self.netns.clone(),
                process_start: Some(start),
                pod: Some(v1::PodIdentity {
                    namespace: "bench".to_owned(),
                    name: id.to_owned(),
                    ..v1::PodIdentity::default()
                }),
                ..v1::AllocIpRequest::default()
            };
            async move { client.alloc_ip(request).await.map(drop) }
        });
        Allocations { walls, elapsed }
    }

    pub(crate) fn release(&self, ids: &[String]) {
        self.all(ids, |mut client, id, start| {
            let request = v1::ReleaseIpRequest {
                key: Some(key(id)),
                process_start: Some(start),
                reason: "bench".to_owned(),
            };
            async move { client.release_ip(request).await.map(drop) }
        });
    }

    fn all<'a, Call: Future<Output = Result<(), tonic::Status>>>(
        &'a self,
        ids: &'a [String],
        call: impl Fn(IpamClient<Channel>, &'a str, v1::ProcessStart) -> Call,
    ) -> (Vec<Duration>, Duration) {
        let next = std::cell::Cell::new(0);
        let (call, next) = (&call, &next);
        let worker = |client: &IpamClient<Channel>| {
            let client = client.clone();
            async move {
                let mut walls = Vec::new();
                while let Some(id) = ids.get(next.replace(next.get() + 1)) {
                    let stopwatch = Stopwatch::start();
                    let answered = call(client.clone(), id, self.now()).await;
                    answered.unwrap_or_else(|status| panic!("{id}: {status}"));
                    walls.push(stopwatch.elapsed());
                }
                walls
            }
        };
        let stopwatch = Stopwatch::start();
        let walls =
            self.runtime.block_on(futures_util::future::join_all(self.clients.iter().map(worker)));
        (walls.into_iter().flatten().collect(), stopwatch.elapsed())
    }

    fn now(&self) -> v1::ProcessStart {
        let now: Duration = clock_gettime(ClockId::CLOCK_BOOTTIME).unwrap().into();
        v1::ProcessStart {
            boot_id: self.boot_id.clone(),
            boottime_nanoseconds: now.as_nanos().try_into().unwrap(),
        }
    }
}

fn key(id: &str) -> v1::AttachmentKey {
    v1::AttachmentKey {
        network: "berth".to_owned(),
        container_id: id.to_owned(),
        interface: "eth0".to_owned(),
    }
}
