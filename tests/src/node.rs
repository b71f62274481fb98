use std::{
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    time::Duration,
};

use berth_testkit::{in_namespaces, run};
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tonic::transport::Channel;

use crate::{
    Answer, Call, Daemon, Pod, Snapshot, binary, daemon, eventually, mounts::unmount_below,
};

/// What differs from the defaults.
#[derive(Debug, Clone, Default)]
pub struct NodeOptions {
    /// Keys of the daemon's configuration file.
    pub config: Map<String, Value>,
    /// Variables of the daemon's environment.
    pub environment: Vec<(&'static str, &'static str)>,
}

impl NodeOptions {
    /// # Panics
    /// When `config` is not an object.
    pub fn config(config: Value) -> Self {
        let Value::Object(config) = config else { panic!("a configuration is an object") };
        Self { config, ..Self::default() }
    }
}

/// A node: namespaces of its own with an uplink to the [`outside`](Node::outside), and a daemon
/// in them.
#[derive(Debug)]
pub struct Node {
    daemon: Option<Daemon>,
    options: NodeOptions,
    outside: Pod,
    directory: TempDir,
}

impl Node {
    /// Runs `body` on a node whose daemon serves.
    pub fn with(options: NodeOptions, body: impl FnOnce(&mut Self) + Send + 'static) {
        Self::stopped(options, |node| {
            node.start();
            body(node);
        });
    }

    /// Runs `body` on a node whose daemon was not started yet.
    pub fn stopped(options: NodeOptions, body: impl FnOnce(&mut Self) + Send + 'static) {
        in_namespaces(move || {
            let mut node = Self::set_up(options);
            body(&mut node);
        });
    }

    /// In namespaces of this thread's own. `/var/lib` is private too: state is at its default
    /// place, yet lies in a temporary directory of a real file system.
    fn set_up(options: NodeOptions) -> Self {
        let directory = tempfile::Builder::new().prefix("berth-node-").tempdir().unwrap();
        let state = directory.path().join("state");
        fs::create_dir(&state).unwrap();
        run("mount -t tmpfs tmpfs /var/lib");
        run("mkdir /var/lib/berth /var/lib/cni /var/lib/containers");
        run(&format!("mount --bind {} /var/lib/berth", state.display()));
        let outside = Pod::outside();
        Self { daemon: None, options, outside, directory }
    }

    /// What lies beyond the node's uplink: it knows the node, and nothing of pods.
    pub fn outside(&self) -> &Pod {
        &self.outside
    }

    pub fn socket(&self) -> PathBuf {
        PathBuf::from("/run/berth/berth.sock")
    }

    /// For files of the test's own; it ends with the node.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Until the export has the last commit. On a large node it comes late: it takes no more than a
    /// small part of the time.
    pub fn wait_for_export(&self) {
        let state = Path::new("/var/lib/berth");
        eventually(Duration::from_secs(120), || {
            // Two slots, a sector each: a mark of four bytes and the sequence, big endian.
            let slots = fs::read(state.join("sequence")).unwrap();
            let slot = |at: usize| u64::from_be_bytes(slots[at..at + 8].try_into().unwrap());
            let committed = slot(4).max(slot(516));
            let export = fs::read(state.join("export.json")).map_err(|err| err.to_string())?;
            let export: serde_json::Value = serde_json::from_slice(&export).unwrap();
            let exported = export["sequence"].as_u64().unwrap();
            if exported == committed { Ok(()) } else { Err(format!("{exported} of {committed}")) }
        });
    }

    /// All that the daemon has logged, over every start.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn log_path(&self) -> PathBuf {
        self.directory.path().join("berthd.log")
    }

    fn write_config(&self) -> PathBuf {
        let mut config = json!({
            "cni_conf": {"path": ""},
            "log": {"level": "info", "format": "text"},
        });
        let object = config.as_object_mut().expect("it was written as one");
        object.extend(self.options.config.clone());
        let path = self.directory.path().join("berth.json");
        fs::write(&path, config.to_string()).unwrap();
        path
    }

    /// Starts the daemon and waits until it serves.
    #[track_caller]
    pub fn start(&mut self) {
        self.spawn().wait_until_it_serves();
    }

    /// Starts the daemon and does not wait.
    #[track_caller]
    pub fn spawn(&mut self) -> &mut Daemon {
        assert!(self.daemon.is_none(), "a daemon runs already");
        fs::create_dir_all("/run/berth").unwrap();
        let (config, log) = (self.write_config(), self.log_path());
        let daemon = Daemon::spawn(&config, &self.socket(), &log, &self.options.environment);
        self.daemon.insert(daemon)
    }

    pub fn is_running(&self) -> bool {
        self.daemon.is_some()
    }

    /// # Panics
    /// When none runs.
    #[track_caller]
    pub fn daemon(&mut self) -> &mut Daemon {
        self.daemon.as_mut().expect("the daemon was started")
    }

    /// The boot id of another boot, for whatever starts from now on: as much of a reboot as a
    /// machine that goes on can have. Namespaces, links and processes are the caller's to end.
    pub fn take_another_boot_id(&self) {
        let place = "/proc/sys/kernel/random/boot_id";
        let now = fs::read_to_string(place).unwrap();
        let boot = self.directory.path().join("boot_id");
        let other = if now.starts_with('0') { "1" } else { "0" };
        fs::write(&boot, format!("{other}0000000-1111-2222-3333-444444444444\n")).unwrap();
        run(&format!("mount --bind {} {place}", boot.display()));
    }

    #[track_caller]
    pub fn stop(&mut self) -> ExitStatus {
        self.daemon.take().expect("the daemon was started").stop()
    }

    #[track_caller]
    pub fn kill(&mut self) {
        self.daemon.take().expect("the daemon was started").kill();
    }

    /// A key of the configuration file, for the daemon's next start.
    pub fn set_config(&mut self, key: &str, value: Value) {
        self.options.config.insert(key.to_owned(), value);
    }

    /// Variables for the daemon's next start.
    pub fn set_environment(&mut self, environment: Vec<(&'static str, &'static str)>) {
        self.options.environment = environment;
    }

    pub fn add(&self, pod: &Pod) -> Answer {
        Call::of("ADD", pod).run()
    }

    pub fn del(&self, pod: &Pod) -> Answer {
        Call::of("DEL", pod).run()
    }

    /// The DEL of a runtime that has no namespace to name any more.
    pub fn del_without_netns(&self, id: &str) -> Answer {
        Call::network("DEL")
            .environment("CNI_CONTAINERID", id)
            .environment("CNI_IFNAME", "eth0")
            .environment("CNI_NETNS", "")
            .input(&crate::network_config())
            .run()
    }

    /// What `berthctl -o json` answers.
    ///
    /// # Panics
    /// When it fails or prints something else than JSON.
    #[track_caller]
    pub fn ctl(&self, arguments: &str) -> Value {
        let text = self.ctl_text(&format!("-o json {arguments}"));
        serde_json::from_str(&text).unwrap_or_else(|err| panic!("{err} in {text:?}"))
    }

    /// What `berthctl` prints for people.
    #[track_caller]
    pub fn ctl_text(&self, arguments: &str) -> String {
        let output = Command::new(binary("berthctl"))
            .arg("--socket")
            .arg(self.socket())
            .args(arguments.split_whitespace())
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            output.status.success(),
            "berthctl {arguments}: {}, {}{}",
            output.status,
            text(&output.stdout),
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    /// Records of the container, as `berthctl pods` shows them.
    #[track_caller]
    pub fn records(&self, id: &str) -> Vec<Value> {
        let pods = self.ctl("pods");
        let pods = pods.as_array().unwrap_or_else(|| panic!("not a list: {pods}"));
        pods.iter().filter(|pod| pod["container_id"] == id).cloned().collect()
    }

    /// The one record of the container.
    #[track_caller]
    pub fn record(&self, id: &str) -> Value {
        let mut records = self.records(id);
        assert_eq!(records.len(), 1, "{records:?}");
        records.remove(0)
    }

    /// State of the pool's slot with this address; `None` where it was never used.
    #[track_caller]
    pub fn slot_state(&self, address: IpAddr) -> Option<String> {
        let pool = self.ctl("pool");
        let slots = pool["slots"].as_array().unwrap_or_else(|| panic!("no slots: {pool}"));
        let has = |value: &Value| value.as_str() == Some(&address.to_string());
        let slot = slots.iter().find(|slot| has(&slot["ipv4"]) || has(&slot["ipv6"]))?;
        Some(slot["state"].as_str().unwrap_or_else(|| panic!("no state: {slot}")).to_owned())
    }

    /// Waits until the pool's slot with this address is in that state.
    #[track_caller]
    pub fn wait_for_slot(&self, address: IpAddr, state: &str) {
        eventually(Duration::from_secs(10), || match self.slot_state(address) {
            Some(now) if now == state => Ok(()),
            now => Err(format!("{address} is {now:?}, not {state}")),
        });
    }

    /// One question to the daemon over gRPC.
    #[track_caller]
    pub fn ask<T, Fut>(&self, question: impl FnOnce(Channel) -> Fut) -> T
    where
        Fut: Future<Output = Result<T, tonic::Status>>,
    {
        daemon::ask(&self.socket(), question).unwrap_or_else(|err| panic!("{err}"))
    }

    /// Nothing is recorded, no address held or promised; waits until the kernel is as it was at
    /// `before`.
    #[track_caller]
    pub fn assert_no_trace_since(&self, before: &Snapshot) {
        let pods = self.ctl("pods");
        assert_eq!(pods, json!([]), "records are left");
        // The pool follows the store, within the call that changed it.
        eventually(Duration::from_secs(1), || {
            let summary = self.ctl("pool --summary")["summary"].take();
            let held = [&summary["leased"], &summary["promised"]];
            if held == [&json!(0); 2] { Ok(()) } else { Err(format!("held: {summary}")) }
        });
        before.wait_until_again();
    }
}

impl Drop for Node {
    /// A directory that something is mounted on cannot be removed.
    fn drop(&mut self) {
        self.daemon = None;
        for place in [self.directory.path(), Path::new("/var/lib/berth")] {
            unmount_below(place);
        }
    }
}
