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

const NODE_MAC: &str = "02:00:00:00:00:01";
const OUTSIDE_MAC: &str = "02:00:00:00:00:02";

/// One end of the uplink, as it is on a node that has been up for a while: every address is there
/// and the other end's MAC known. On fresh links the kernel takes a second for either.
fn end(
    ip: impl Fn(&str),
    link: &str,
    v4: Ipv4Addr,
    v6: Ipv6Addr,
    (other_v4, other_v6, other_mac): (Ipv4Addr, Ipv6Addr, &str),
) {
    ip(&format!("link set {link} addrgenmode none"));
    ip(&format!("addr add {v4}/24 dev {link}"));
    ip(&format!("addr add {v6}/64 dev {link} nodad"));
    ip(&format!("link set {link} up"));
    for other in [other_v4.to_string(), other_v6.to_string()] {
        ip(&format!("neigh add {other} lladdr {other_mac} dev {link} nud permanent"));
    }
}

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
        ip(&format!(
            "link add uplink0 address {NODE_MAC} type veth peer name eth0 address {OUTSIDE_MAC} \
             netns outside"
        ));
        let this = Self { id: name.clone(), name };
        let inside = |command: &str| drop(this.run(&format!("ip {command}")));
        let outright = |command: &str| drop(ip(command));
        end(outright, "uplink0", NODE_V4, NODE_V6, (OUTSIDE_V4, OUTSIDE_V6, OUTSIDE_MAC));
        end(inside, "eth0", OUTSIDE_V4, OUTSIDE_V6, (NODE_V4, NODE_V6, NODE_MAC));
        this.run("ip link set lo up");
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
