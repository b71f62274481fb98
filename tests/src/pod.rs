use std::{
    fs::File,
    io::Read,
    net::{Ipv4Addr, Ipv6Addr},
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use berth_testkit::{ip, run};
use nix::sched::{CloneFlags, setns};

/// A sandbox as a runtime makes it: a container id and a named network namespace.
#[derive(Debug)]
pub struct Pod {
    pub id: String,
    name: String,
}

/// A container id that was never used: 64 hex digits, as runtimes have them.
pub fn fresh_id() -> String {
    let mut bytes = [0; 32];
    let mut random = File::open("/dev/urandom").expect("every Linux has /dev/urandom");
    random.read_exact(&mut bytes).expect("/dev/urandom never ends");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The node, as the outside sees it.
pub const NODE_V4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
pub const NODE_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
pub const OUTSIDE_V4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
pub const OUTSIDE_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

impl Pod {
    pub fn new() -> Self {
        Self::of(&fresh_id())
    }

    /// A further namespace for the container `id`, as podman makes one at each start.
    pub fn of(id: &str) -> Self {
        let name = format!("pod-{}", &fresh_id()[..12]);
        ip(&format!("netns add {name}"));
        Self { id: id.to_owned(), name }
    }

    /// No pod, but a host on the other end of the node's uplink, with the addresses
    /// [`OUTSIDE_V4`] and [`OUTSIDE_V6`].
    pub(crate) fn outside() -> Self {
        let name = "outside".to_owned();
        ip("netns add outside");
        ip("link add uplink0 type veth peer name eth0 netns outside");
        let this = Self { id: name.clone(), name };
        ip(&format!("addr add {NODE_V4}/24 dev uplink0"));
        ip(&format!("addr add {NODE_V6}/64 dev uplink0 nodad"));
        ip("link set uplink0 up");
        this.run(&format!("ip addr add {OUTSIDE_V4}/24 dev eth0"));
        this.run(&format!("ip addr add {OUTSIDE_V6}/64 dev eth0 nodad"));
        this.run("ip link set lo up");
        this.run("ip link set eth0 up");
        ip("route add default via 198.51.100.2");
        ip("route add default via 2001:db8::2");
        this
    }

    pub fn netns(&self) -> PathBuf {
        Path::new("/run/netns").join(&self.name)
    }

    /// CNI_NETNS.
    pub fn netns_text(&self) -> String {
        self.netns().display().to_string()
    }

    /// The namespace and with it the pod's end of everything is gone, as after a reboot or when a
    /// runtime was killed.
    pub fn destroy(&self) {
        ip(&format!("netns delete {}", self.name));
    }

    /// A command line inside the pod; its stdout.
    #[track_caller]
    pub fn run(&self, command: &str) -> String {
        run(&format!("ip netns exec {} {command}", self.name))
    }

    /// Like [`run`](Self::run), where failing is an answer too.
    pub fn runs(&self, command: &str) -> bool {
        let line = format!("netns exec {} {command}", self.name);
        Command::new("ip").args(line.split_whitespace()).output().is_ok_and(|o| o.status.success())
    }

    /// Runs `work` on a thread inside the pod's network namespace.
    pub fn enter<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> thread::JoinHandle<T> {
        let netns = File::open(self.netns()).expect("a pod has its namespace");
        thread::spawn(move || {
            setns(netns, CloneFlags::CLONE_NEWNET)
                .expect("entering a namespace takes CAP_SYS_ADMIN");
            work()
        })
    }
}

impl Default for Pod {
    fn default() -> Self {
        Self::new()
    }
}
