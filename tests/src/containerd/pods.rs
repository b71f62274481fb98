use std::{collections::HashMap, fs, time::Duration};

use tonic::{Request, transport::Channel};

use super::Containerd;
use crate::{daemon::ask, eventually, image};

#[allow(missing_debug_implementations, unreachable_pub, clippy::all)]
mod cri {
    tonic::include_proto!("runtime.v1");
}

use cri::runtime_service_client::RuntimeServiceClient;

/// kubelet's own deadline for RunPodSandbox is 4 minutes.
const LIMIT: Duration = Duration::from_secs(60);

/// A pod as the runtime has it.
#[derive(Debug, Clone)]
pub struct Sandbox {
    pub id: String,
    config: cri::PodSandboxConfig,
}

/// What a pod wants beside its name.
#[derive(Debug, Clone, Default)]
pub struct PodWishes {
    pub annotations: Vec<(&'static str, &'static str)>,
    /// Port of the node, and of the pod.
    pub ports: Vec<(u16, u16)>,
    /// The caller's deadline.
    pub limit: Option<Duration>,
}

impl Containerd {
    fn try_ask<T, Fut>(
        &self,
        question: impl FnOnce(RuntimeServiceClient<Channel>) -> Fut,
    ) -> Result<T, String>
    where
        Fut: Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    {
        let reply = ask(&self.socket(), |channel| question(RuntimeServiceClient::new(channel)))?;
        Ok(reply.into_inner())
    }

    #[track_caller]
    fn ask<T, Fut>(&self, question: impl FnOnce(RuntimeServiceClient<Channel>) -> Fut) -> T
    where
        Fut: Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    {
        self.try_ask(question).unwrap_or_else(|err| panic!("{err}"))
    }

    /// Whether kubelet would call the node's network ready; the reason where not.
    ///
    /// # Errors
    /// When containerd does not answer.
    pub fn network_ready(&self) -> Result<Result<(), String>, String> {
        let reply = self.try_ask(async |mut cri| cri.status(cri::StatusRequest {}).await)?;
        let conditions = reply.status.unwrap_or_default().conditions;
        let ready = conditions.into_iter().find(|condition| condition.r#type == "NetworkReady");
        Ok(match ready {
            Some(condition) if condition.status => Ok(()),
            other => Err(format!("{other:?}")),
        })
    }

    /// Waits until kubelet would call the node's network ready.
    #[track_caller]
    pub fn wait_until_network_is_ready(&self) {
        eventually(Duration::from_secs(20), || self.network_ready().and_then(|ready| ready));
    }

    /// RunPodSandbox.
    ///
    /// # Errors
    /// What kubelet would see.
    pub fn run_pod(&self, namespace: &str, name: &str) -> Result<Sandbox, String> {
        self.run_pod_with(namespace, name, &PodWishes::default())
    }

    /// [`run_pod`](Self::run_pod) for a pod that wants more.
    ///
    /// # Errors
    /// What kubelet would see.
    pub fn run_pod_with(
        &self,
        namespace: &str,
        name: &str,
        wishes: &PodWishes,
    ) -> Result<Sandbox, String> {
        let uid = format!("uid-of-{namespace}-{name}");
        let logs = self.directory.join("logs").join(&uid);
        fs::create_dir_all(&logs).unwrap();
        let text = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        let port = |&(host, container): &(u16, u16)| cri::PortMapping {
            container_port: container.into(),
            host_port: host.into(),
            host_ip: String::new(),
        };
        let config = cri::PodSandboxConfig {
            metadata: Some(cri::PodSandboxMetadata {
                name: name.to_owned(),
                uid,
                namespace: namespace.to_owned(),
                attempt: 0,
            }),
            hostname: name.to_owned(),
            log_directory: logs.display().to_string(),
            port_mappings: wishes.ports.iter().map(port).collect(),
            annotations: wishes.annotations.iter().map(text).collect::<HashMap<_, _>>(),
            linux: Some(cri::LinuxPodSandboxConfig { cgroup_parent: self.cgroup.clone() }),
        };
        let mut request = Request::new(cri::RunPodSandboxRequest { config: Some(config.clone()) });
        request.set_timeout(wishes.limit.unwrap_or(LIMIT));
        let reply = self.try_ask(async |mut cri| cri.run_pod_sandbox(request).await)?;
        Ok(Sandbox { id: reply.pod_sandbox_id, config })
    }

    /// Ids of all pods that containerd knows, each with whether it is ready.
    #[track_caller]
    pub fn pods(&self) -> Vec<(String, bool)> {
        let request = cri::ListPodSandboxRequest {};
        let reply = self.ask(async |mut cri| cri.list_pod_sandbox(request).await);
        reply.items.into_iter().map(|pod| (pod.id, pod.state == 0)).collect()
    }

    /// Starts a container in the pod.
    #[track_caller]
    pub fn run_container(&self, sandbox: &Sandbox, name: &str, command: &[&str]) {
        let config = cri::ContainerConfig {
            metadata: Some(cri::ContainerMetadata { name: name.to_owned(), attempt: 0 }),
            image: Some(cri::ImageSpec { image: image::NAME.to_owned() }),
            command: command.iter().map(|&word| word.to_owned()).collect(),
            log_path: format!("{name}.log"),
        };
        let request = cri::CreateContainerRequest {
            pod_sandbox_id: sandbox.id.clone(),
            config: Some(config),
            sandbox_config: Some(sandbox.config.clone()),
        };
        let created = self.ask(async |mut cri| cri.create_container(request).await);
        let request = cri::StartContainerRequest { container_id: created.container_id };
        self.ask(async |mut cri| cri.start_container(request).await);
    }

    /// Starts a container in the pod that serves HTTP at port 80.
    #[track_caller]
    pub fn run_server(&self, sandbox: &Sandbox) {
        self.run_container(sandbox, "web", &["/bin/httpd", "-f", "-p", "80", "-h", "/www"]);
    }

    /// The pod's addresses as kubelet reports them, the first one first.
    #[track_caller]
    pub fn addresses(&self, sandbox: &Sandbox) -> Vec<String> {
        let request = cri::PodSandboxStatusRequest { pod_sandbox_id: sandbox.id.clone() };
        let reply = self.ask(async |mut cri| cri.pod_sandbox_status(request).await);
        let network = reply.status.and_then(|status| status.network).unwrap_or_default();
        let more = network.additional_ips.into_iter().map(|more| more.ip);
        std::iter::once(network.ip).chain(more).collect()
    }

    #[track_caller]
    pub fn stop_pod(&self, id: &str) {
        self.try_stop_pod(id).unwrap_or_else(|err| panic!("{err}"));
    }

    /// StopPodSandbox.
    ///
    /// # Errors
    /// What kubelet would see.
    pub fn try_stop_pod(&self, id: &str) -> Result<(), String> {
        let request = cri::StopPodSandboxRequest { pod_sandbox_id: id.to_owned() };
        self.try_ask(async |mut cri| cri.stop_pod_sandbox(request).await).map(drop)
    }

    #[track_caller]
    pub fn remove_pod(&self, id: &str) {
        let request = cri::RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() };
        self.ask(async |mut cri| cri.remove_pod_sandbox(request).await);
    }
}
