mod pods;

use std::{
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
use serde_json::{Value, json};

use crate::{
    Node, Recorder, binary, eventually, image,
    mounts::{remove_control_groups, unmount_below},
    process::{kill_with_children, wait_for, with_command_line},
};

pub use pods::{PodWishes, Sandbox};

/// Debian's containerd with root, state and socket of its own, driven through its CRI socket as
/// kubelet does.
#[derive(Debug)]
pub struct Containerd {
    program: PathBuf,
    directory: PathBuf,
    /// `None` while it is killed.
    process: Option<Child>,
    cgroup: String,
}

impl Containerd {
    /// Starts it below `directory` with the plugins `berth` and `loopback`; the conflist is
    /// whoever's who puts it in [`conf_directory`](Self::conf_directory). With it comes what
    /// records the calls of `plugin`.
    pub fn start(directory: &Path, plugin: &Path) -> (Self, Recorder) {
        let (mut this, recorder) = Self::set_up("containerd".into(), directory, plugin);
        this.restart();
        this.load_image();
        (this, recorder)
    }

    /// [`start`](Self::start) of another containerd than Debian's, without an image for pods.
    pub fn start_program(program: &Path, directory: &Path, plugin: &Path) -> (Self, Recorder) {
        let (mut this, recorder) = Self::set_up(program.to_owned(), directory, plugin);
        this.restart();
        (this, recorder)
    }

    fn set_up(program: PathBuf, directory: &Path, plugin: &Path) -> (Self, Recorder) {
        let directory = directory.join("containerd");
        for part in ["root", "state", "bin", "net.d", "logs"] {
            fs::create_dir_all(directory.join(part)).unwrap();
        }
        let recorder = Recorder::install(&directory.join("bin/berth"), plugin);
        fs::copy("/usr/lib/cni/loopback", directory.join("bin/loopback"))
            .expect("the reference plugins are installed (Debian: containernetworking-plugins)");
        fs::write(directory.join("config.toml"), configuration(&directory)).unwrap();
        let cgroup = format!("/berth-test-{}", crate::fresh_id().split_at(8).0);
        (Self { program, directory, process: None, cgroup }, recorder)
    }

    /// On `node`, whose daemon is started and puts its conflist where containerd looks: the one at
    /// `list`, or the built-in one. With it comes what records the calls of our plugin.
    pub fn beside(node: &mut Node, list: Option<&Path>) -> (Self, Recorder) {
        let (this, recorder) = Self::start(node.directory(), &binary("berth"));
        let mut place = json!({"path": this.conflist()});
        if let Some(list) = list {
            place["source"] = Value::from(list.display().to_string());
        }
        node.set_config("cni_conf", place);
        node.start();
        this.wait_until_network_is_ready();
        (this, recorder)
    }

    /// Starts it again over what the last one left.
    #[track_caller]
    pub fn restart(&mut self) {
        assert!(self.process.is_none(), "it runs already");
        let log = self.directory.join("containerd.log");
        let log = File::options().create(true).append(true).open(log).unwrap();
        let process = Command::new(&self.program)
            .arg("--config")
            .arg(self.directory.join("config.toml"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .process_group(0)
            .spawn()
            .expect("containerd is installed (Debian: containerd)");
        self.process = Some(process);
        eventually(Duration::from_secs(60), || {
            let process = self.process.as_mut().expect("it was started above");
            if let Some(status) = process.try_wait().unwrap() {
                panic!("containerd ended with {status}:\n{}", self.log());
            }
            self.network_ready().map(drop)
        });
    }

    /// SIGKILL to containerd alone: pods, and plugins that run, live on.
    pub fn kill(&mut self) {
        self.kill_while_asked();
        self.process.take().expect("it runs").wait().unwrap();
    }

    /// The signal of [`kill`](Self::kill), which is still to follow, while someone waits for an
    /// answer.
    pub fn kill_while_asked(&self) {
        let process = self.process.as_ref().expect("it runs");
        kill(Pid::from_raw(process.id().cast_signed()), Signal::SIGKILL).unwrap();
    }

    /// SIGKILL to containerd, and to every shim and container of it.
    pub fn kill_with_pods(&mut self) {
        self.kill();
        kill_with_children(&self.shims());
    }

    /// After [`kill_with_pods`](Self::kill_with_pods): what a reboot leaves of its files. The state
    /// directory is gone with every mount in it, root lies on disk and stays.
    pub fn wipe(&self) {
        for part in ["state", "runc"] {
            let part = self.directory.join(part);
            unmount_below(&part);
            fs::remove_dir_all(&part).unwrap();
        }
        unmount_below(&self.directory);
    }

    /// Puts a plugin of Debian's beside ours; what records its calls.
    pub fn install_reference(&self, name: &str) -> Recorder {
        let plugin = Path::new("/usr/lib/cni").join(name);
        Recorder::install(&self.directory.join("bin").join(name), &plugin)
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

    /// Where the daemon puts the network list.
    pub fn conflist(&self) -> PathBuf {
        self.conf_directory().join("10-berth.conflist")
    }

    fn socket(&self) -> PathBuf {
        self.directory.join("containerd.sock")
    }

    fn log(&self) -> String {
        let text = fs::read_to_string(self.directory.join("containerd.log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Shims carry our socket in their arguments.
    fn shims(&self) -> Vec<Pid> {
        let socket = self.socket().display().to_string();
        with_command_line(&["containerd-shim", &socket])
    }
}

impl Drop for Containerd {
    /// Whatever the test has left: containers, shims, mounts and control groups of ours.
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("containerd's log:\n{}", self.log());
        }
        if let Some(process) = &mut self.process {
            let _ = kill(Pid::from_raw(process.id().cast_signed()), Signal::SIGTERM);
            if wait_for(process, Duration::from_secs(10)).is_none() {
                let _ = process.kill();
                let _ = process.wait();
            }
        }
        kill_with_children(&self.shims());
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
