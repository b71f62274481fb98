use std::{
    collections::HashMap,
    fs::{self, File},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tonic::transport::Channel;

use crate::{
    Recorder,
    daemon::ask,
    eventually, image,
    mounts::{remove_control_groups, unmount_below},
    process::wait_for,
};

#[allow(missing_debug_implementations, unreachable_pub, clippy::all)]
pub(crate) mod cri {
    tonic::include_proto!("runtime.v1");
}

use cri::runtime_service_client::RuntimeServiceClient;

/// Debian's containerd with root, state and socket of its own, driven through its CRI socket as
/// kubelet does.
#[derive(Debug)]
pub struct Containerd {
    directory: PathBuf,
    process: Child,
    cgroup: String,
}

/// A pod as the runtime has it.
#[derive(Debug, Clone)]
pub struct Sandbox {
    pub id: String,
    config: cri::PodSandboxConfig,
}

impl Containerd {
    /// Starts it below `directory` with the plugins `berth` and `loopback`; the conflist is
    /// whoever's who puts it in [`conf_directory`](Self::conf_directory). With it comes what
    /// records the calls of `plugin`.
    pub fn start(directory: &Path, plugin: &Path) -> (Self, Recorder) {
        let directory = directory.join("containerd");
        for part in ["root", "state", "bin", "net.d", "logs"] {
            fs::create_dir_all(directory.join(part)).unwrap();
        }
        let recorder = Recorder::install(&directory.join("bin/berth"), plugin);
        fs::copy("/usr/lib/cni/loopback", directory.join("bin/loopback"))
            .expect("the reference plugins are installed (Debian: containernetworking-plugins)");
        fs::write(directory.join("config.toml"), configuration(&directory)).unwrap();
        let log = File::create(directory.join("containerd.log")).unwrap();
        let process = Command::new("containerd")
            .arg("--config")
            .arg(directory.join("config.toml"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .process_group(0)
            .spawn()
            .expect("containerd is installed (Debian: containerd)");
        let cgroup = format!("/berth-test-{}", process.id());
        let mut this = Self { directory, process, cgroup };
        this.wait_until_it_answers();
        this.load_image();
        (this, recorder)
    }

    fn wait_until_it_answers(&mut self) {
        eventually(Duration::from_secs(60), || {
            if let Some(status) = self.process.try_wait().unwrap() {
                panic!("containerd ended with {status}:\n{}", self.log());
            }
            self.try_ask(async |mut cri| cri.status(cri::StatusRequest {}).await)
        });
    }

    fn load_image(&self) {
        let archive = image::pack(&self.directory);
        let loaded = Command::new("ctr")
            .arg("--address")
            .arg(self.socket())
            .args(["--namespace", "k8s.io", "image", "import"])
            .arg(archive)
            .output()
            .unwrap();
        assert!(loaded.status.success(), "{}", String::from_utf8_lossy(&loaded.stderr));
    }

    pub fn conf_directory(&self) -> PathBuf {
        self.directory.join("net.d")
    }

    fn socket(&self) -> PathBuf {
        self.directory.join("containerd.sock")
    }

    fn log(&self) -> String {
        let text = fs::read_to_string(self.directory.join("containerd.log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

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

    /// Waits until kubelet would call the node's network ready.
    #[track_caller]
    pub fn wait_until_network_is_ready(&self) {
        eventually(Duration::from_secs(20), || {
            let reply = self.try_ask(async |mut cri| cri.status(cri::StatusRequest {}).await)?;
            let conditions = reply.status.unwrap_or_default().conditions;
            match conditions.into_iter().find(|condition| condition.r#type == "NetworkReady") {
                Some(condition) if condition.status => Ok(()),
                other => Err(format!("{other:?}")),
            }
        });
    }

    /// RunPodSandbox.
    ///
    /// # Errors
    /// What kubelet would see.
    pub fn run_pod(&self, namespace: &str, name: &str) -> Result<Sandbox, String> {
        let uid = format!("uid-of-{namespace}-{name}");
        let logs = self.directory.join("logs").join(&uid);
        fs::create_dir_all(&logs).unwrap();
        let config = cri::PodSandboxConfig {
            metadata: Some(cri::PodSandboxMetadata {
                name: name.to_owned(),
                uid,
                namespace: namespace.to_owned(),
                attempt: 0,
            }),
            hostname: name.to_owned(),
            log_directory: logs.display().to_string(),
            annotations: HashMap::new(),
            linux: Some(cri::LinuxPodSandboxConfig { cgroup_parent: self.cgroup.clone() }),
        };
        let request = cri::RunPodSandboxRequest { config: Some(config.clone()) };
        let reply = self.try_ask(async |mut cri| cri.run_pod_sandbox(request).await)?;
        Ok(Sandbox { id: reply.pod_sandbox_id, config })
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
    pub fn stop_pod(&self, sandbox: &Sandbox) {
        let request = cri::StopPodSandboxRequest { pod_sandbox_id: sandbox.id.clone() };
        self.ask(async |mut cri| cri.stop_pod_sandbox(request).await);
    }

    #[track_caller]
    pub fn remove_pod(&self, sandbox: &Sandbox) {
        let request = cri::RemovePodSandboxRequest { pod_sandbox_id: sandbox.id.clone() };
        self.ask(async |mut cri| cri.remove_pod_sandbox(request).await);
    }

    /// Shims carry our socket in their arguments.
    fn shims(&self) -> Vec<Pid> {
        let socket = self.socket().display().to_string();
        processes()
            .filter(|pid| {
                let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                let line = String::from_utf8_lossy(&line).into_owned();
                line.contains("containerd-shim") && line.contains(&socket)
            })
            .collect()
    }
}

fn processes() -> impl Iterator<Item = Pid> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).map(Pid::from_raw)
}

fn children_of(parent: Pid) -> Vec<Pid> {
    let list = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    let list = list.unwrap_or_default();
    list.split_whitespace().filter_map(|pid| pid.parse().ok()).map(Pid::from_raw).collect()
}

impl Drop for Containerd {
    /// Whatever the test has left: containers, shims, mounts and control groups of ours.
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("containerd's log:\n{}", self.log());
        }
        let _ = kill(Pid::from_raw(self.process.id().cast_signed()), Signal::SIGTERM);
        if wait_for(&mut self.process, Duration::from_secs(10)).is_none() {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
        for shim in self.shims() {
            for container in children_of(shim) {
                let _ = kill(container, Signal::SIGKILL);
            }
            let _ = kill(shim, Signal::SIGKILL);
        }
        unmount_below(&self.directory);
        remove_control_groups(&self.cgroup);
    }
}

fn configuration(directory: &Path) -> String {
    let directory = directory.display();
    let image = image::NAME;
    // restrict_oom_score_adj: a machine without CAP_SYS_RESOURCE may not lower it.
    format!(
        r#"version = 2
root = "{directory}/root"
state = "{directory}/state"
disabled_plugins = [
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.aufs",
]
[grpc]
  address = "{directory}/containerd.sock"
[ttrpc]
  address = "{directory}/containerd.sock.ttrpc"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image}"
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  disable_apparmor = true
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{directory}/bin"
    conf_dir = "{directory}/net.d"
    max_conf_num = 1
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = "runc"
        Root = "{directory}/runc"
"#
    )
}
