//! The floor: what any plugin and daemon would have to do for the same result, in one process
//! and with nothing in between. A static program that does nothing is executed, a socket asked and
//! answered, a record made durable, and the kernel told what berth's own plan tells it.

use std::{
    fs::{self, File},
    io::{Read, Write},
    net::{Ipv4Addr, Ipv6Addr},
    os::{
        fd::AsRawFd,
        unix::net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use berth_tests::{Pod, Stopwatch};
use nix::{
    net::if_::if_nametoindex,
    sched::{CloneFlags, setns},
};

use crate::{
    cell::{Family, Operation},
    netlink::{CREATE, NEW_ADDRESS, NEW_LINK, NEW_NEIGHBOUR, NEW_ROUTE, Netlink, Request, link},
    noise::cpu_of_this_thread,
    spawn::{Timed, execute},
};

/// The group of links that were taken off the network.
pub(crate) const UNHOOKED: u32 = 0xf100;

/// As long as one of ours, with its answer.
const MESSAGE: usize = 1024;

const IFF_UP: u32 = 1;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const GATEWAY_V4: [u8; 4] = [169, 254, 1, 1];
const GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const MTU: u32 = 1500;

#[derive(Debug)]
pub(crate) struct Floor {
    empty: PathBuf,
    directory: PathBuf,
    family: Family,
}

/// What one worker keeps between its calls.
#[derive(Debug)]
pub(crate) struct Worker {
    record: File,
    host: Netlink,
    namespace: File,
}

impl Floor {
    /// The socket is served until the process ends.
    pub(crate) fn new(empty: &Path, directory: &Path, family: Family) -> Self {
        let directory = directory.join("floor");
        fs::create_dir_all(&directory).unwrap();
        let floor = Self { empty: empty.to_owned(), directory, family };
        let listener = UnixListener::bind(floor.socket()).unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let mut message = [0; MESSAGE];
                // A peer that goes is no matter here: its own side panics.
                let _ = stream.read_exact(&mut message).and_then(|()| stream.write_all(&message));
            }
        });
        floor
    }

    fn socket(&self) -> PathBuf {
        self.directory.join("socket")
    }

    pub(crate) fn worker(&self, number: usize) -> Worker {
        let record = self.directory.join(format!("record-{number}"));
        Worker {
            record: File::options().create(true).append(true).open(record).unwrap(),
            host: Netlink::open(),
            namespace: File::open("/proc/thread-self/ns/net").unwrap(),
        }
    }

    /// `None` where there is no floor to name: what a CHECK reads is its own choice.
    pub(crate) fn call(
        &self,
        worker: &mut Worker,
        operation: Operation,
        index: usize,
        pod: &Pod,
    ) -> Option<Timed> {
        let (stopwatch, before) = (Stopwatch::start(), cpu_of_this_thread());
        let mut child = Duration::ZERO;
        if operation != Operation::AllocRpc {
            child = execute(&self.empty, &[], None).cpu;
        }
        match operation {
            Operation::Version => (),
            Operation::Check => return None,
            Operation::AllocRpc => worker.write_down(),
            Operation::DelAgain => {
                self.ask();
                worker.write_down();
            }
            Operation::Del => {
                self.ask();
                worker.write_down();
                worker.unhook(index);
            }
            Operation::Add => {
                self.ask();
                worker.write_down();
                worker.wire(self.family, index, pod);
            }
        }
        let cpu = child + (cpu_of_this_thread() - before);
        Some(Timed { wall: stopwatch.elapsed(), cpu, stdout: String::new() })
    }

    fn ask(&self) {
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        let mut message = [7; MESSAGE];
        stream.write_all(&message).unwrap();
        stream.read_exact(&mut message).unwrap();
    }
}

fn host_name(index: usize) -> String {
    format!("flr{index}")
}

impl Worker {
    fn write_down(&mut self) {
        self.record.write_all(&[1; 256]).unwrap();
        self.record.sync_data().unwrap();
    }

    /// Down and marked by its name, in one message.
    fn unhook(&self, index: usize) {
        const IFLA_IFNAME: u16 = 3;
        const IFLA_GROUP: u16 = 27;
        let request = Request::new(NEW_LINK, 0, &link(0, 0, IFF_UP))
            .text(IFLA_IFNAME, &host_name(index))
            .number(IFLA_GROUP, UNHOOKED);
        self.host.ask(request);
    }

    /// What `berth_datapath::plan` lists, in its order.
    fn wire(&self, family: Family, index: usize, pod: &Pod) {
        let v6 = family == Family::Dual;
        let name = host_name(index);
        let netns = File::open(pod.netns()).unwrap();
        self.host.ask(pair(&name, netns.as_raw_fd().cast_unsigned()));
        let host = if_nametoindex(name.as_str()).unwrap();
        if v6 {
            setting(&name, "disable_ipv6");
            setting(&name, "accept_ra");
        }
        self.host.ask(host_up(host, v6));
        self.host.ask(address(host, &GATEWAY_V4, 32, 254));
        if v6 {
            self.host.ask(address(host, &GATEWAY_V6.octets(), 64, 0));
        }

        let [high, low] = u16::try_from(index).unwrap().to_be_bytes();
        let own_v4 = Ipv4Addr::new(10, 218, high, low).octets();
        let own_v6 = Ipv6Addr::new(0xfd00, 0xf1, 0, 0, 0, 0, 1, u16::from_be_bytes([high, low]));
        setns(&netns, CloneFlags::CLONE_NEWNET).unwrap();
        let inside = Netlink::open();
        let eth0 = if_nametoindex("eth0").unwrap();
        if v6 {
            setting("lo", "disable_ipv6");
            setting("eth0", "disable_ipv6");
            setting("eth0", "accept_ra");
        }
        inside.ask(Request::new(NEW_LINK, 0, &link(1, IFF_UP, IFF_UP)));
        inside.ask(Request::new(NEW_LINK, 0, &link(eth0, IFF_UP, IFF_UP)));
        inside.ask(address(eth0, &own_v4, 32, 0));
        inside.ask(neighbour(eth0, &GATEWAY_V4));
        inside.ask(route(eth0, Some((&GATEWAY_V4, 32)), None, AF_INET));
        inside.ask(route(eth0, None, Some(&GATEWAY_V4), AF_INET));
        if v6 {
            inside.ask(address(eth0, &own_v6.octets(), 128, 0));
            inside.ask(neighbour(eth0, &GATEWAY_V6.octets()));
            inside.ask(route(eth0, None, Some(&GATEWAY_V6.octets()), AF_INET6));
        }
        setns(&self.namespace, CloneFlags::CLONE_NEWNET).unwrap();

        self.host.ask(route(host, Some((&own_v4, 32)), None, AF_INET));
        if v6 {
            self.host.ask(route(host, Some((&own_v6.octets(), 128)), None, AF_INET6));
        }
    }
}

/// 0, written where it differs.
fn setting(link: &str, name: &str) {
    let path = format!("/proc/sys/net/ipv6/conf/{link}/{name}");
    if fs::read_to_string(&path).unwrap().trim_end() != "0" {
        fs::write(&path, "0").unwrap();
    }
}

fn pair(name: &str, netns: u32) -> Request {
    let mac = |end: u8| [2, 0xf1, 0, 0, 0, end];
    Request::new(NEW_LINK, CREATE, &link(0, 0, 0))
        .text(3, name)
        .number(4, MTU)
        .attribute(1, &mac(1))
        .nested(18, &[], |info| {
            info.text(1, "veth").nested(2, &[], |data| {
                data.nested(1, &link(0, 0, 0), |peer| {
                    peer.text(3, "eth0").number(4, MTU).attribute(1, &mac(2)).number(28, netns)
                })
            })
        })
}

/// Up, with an alias and, for IPv6, no address of the kernel's own.
fn host_up(index: u32, v6: bool) -> Request {
    let request =
        Request::new(NEW_LINK, 0, &link(index, IFF_UP, IFF_UP)).attribute(20, b"bench/pod");
    if !v6 {
        return request;
    }
    request.nested(26, &[], |families| families.nested(10, &[], |six| six.attribute(8, &[1])))
}

fn address(index: u32, bytes: &[u8], length: u8, scope: u8) -> Request {
    let family = if bytes.len() == 4 { AF_INET } else { AF_INET6 };
    let mut fixed = vec![family, length, 0, scope];
    fixed.extend_from_slice(&index.to_ne_bytes());
    let request = Request::new(NEW_ADDRESS, CREATE, &fixed).attribute(1, bytes);
    if family == AF_INET {
        request.attribute(2, bytes)
    } else {
        /// IFA_F_NODAD.
        const NODAD: u32 = 2;
        request.number(8, NODAD)
    }
}

fn neighbour(index: u32, to: &[u8]) -> Request {
    /// NUD_PERMANENT.
    const PERMANENT: u16 = 0x80;
    let mut fixed = vec![if to.len() == 4 { AF_INET } else { AF_INET6 }, 0, 0, 0];
    fixed.extend_from_slice(&index.to_ne_bytes());
    fixed.extend_from_slice(&PERMANENT.to_ne_bytes());
    fixed.extend_from_slice(&[0, 0]);
    Request::new(NEW_NEIGHBOUR, 0x500, &fixed).attribute(1, to).attribute(2, &[2, 0xf1, 0, 0, 0, 1])
}

fn route(index: u32, to: Option<(&[u8], u8)>, via: Option<&[u8]>, family: u8) -> Request {
    const MAIN: u8 = 254;
    const STATIC: u8 = 4;
    const UNICAST: u8 = 1;
    /// RTNH_F_ONLINK.
    const ONLINK: u32 = 4;
    let scope = if via.is_none() && family == AF_INET { 253 } else { 0 };
    let flags = if via.is_some() { ONLINK } else { 0 };
    let length = to.map_or(0, |(_, length)| length);
    let mut fixed = vec![family, length, 0, 0, MAIN, STATIC, scope, UNICAST];
    fixed.extend_from_slice(&flags.to_ne_bytes());
    let mut request = Request::new(NEW_ROUTE, CREATE, &fixed).number(4, index);
    if let Some((to, _)) = to {
        request = request.attribute(1, to);
    }
    if let Some(via) = via {
        request = request.attribute(5, via);
    }
    request
}
