//! A node in a namespace, pods beside it, and packets between them.

use std::{
    fs::File,
    io,
    net::{IpAddr, SocketAddr, UdpSocket},
    path::PathBuf,
    time::Duration,
};

use berth_datapath::{Attached, PodNetns, attach};
use berth_testkit::{ip, run};
use berth_types::{
    AddressSet, AttachmentKey, Bandwidth, HostPrefix, InterfaceName, MacSide, NetConf,
    ResourceKind, host_interface, stable_mac,
};
use nix::sched::{CloneFlags, setns};

pub(crate) struct Pod {
    pub(crate) name: String,
    pub(crate) netns: PodNetns,
    pub(crate) conf: NetConf,
}

impl Pod {
    /// Number `n`, with 10.1.0.n and fd00:1::n and a namespace, but nothing in it.
    pub(crate) fn new(n: u8) -> Self {
        let name = format!("p{n}");
        ip(&format!("netns add {name}"));
        let key = AttachmentKey::new("net", &name, "eth0").unwrap();
        let conf = NetConf {
            kind: ResourceKind::Veth,
            interface: "eth0".parse().unwrap(),
            host_interface: host_interface(&HostPrefix::default(), &key),
            addresses: AddressSet {
                v4: Some([10, 1, 0, n].into()),
                v6: Some([0xfd00, 1, 0, 0, 0, 0, 0, n.into()].into()),
            },
            pod_mac: stable_mac(MacSide::Pod, &key),
            host_mac: stable_mac(MacSide::Host, &key),
            mtu: 1400,
            bandwidth: Bandwidth::default(),
            default_route: true,
            extra_routes: Vec::new(),
            alias: format!("prod/{name}"),
        };
        let netns = PodNetns::open(&path(&name)).unwrap();
        Self { name, netns, conf }
    }

    pub(crate) async fn attached(n: u8) -> Self {
        let pod = Self::new(n);
        pod.attach().await;
        pod
    }

    #[track_caller]
    pub(crate) fn ip(&self, arguments: &str) -> String {
        ip(&format!("-n {} {arguments}", self.name))
    }

    pub(crate) async fn attach(&self) -> Attached {
        attach(&self.netns, &self.conf).await.unwrap()
    }

    pub(crate) fn host(&self) -> &InterfaceName {
        &self.conf.host_interface
    }

    pub(crate) fn addresses(&self) -> Vec<IpAddr> {
        self.conf.addresses.iter().collect()
    }

    pub(crate) fn state(&self) -> String {
        state(&format!("-n {}", self.name))
    }
}

pub(crate) fn path(name: &str) -> PathBuf {
    PathBuf::from("/run/netns").join(name)
}

/// Everything that this crate may change on the host.
pub(crate) fn host_state() -> String {
    let mut text = state("");
    text.push_str(&run("nft list ruleset"));
    text
}

fn state(netns: &str) -> String {
    let mut text = String::new();
    for what in [
        "-d link",
        "addr",
        "route show table all",
        "-6 route show table all",
        "rule",
        "-6 rule",
        "neigh",
    ] {
        text.push_str(&ip(&format!("{netns} {what}")));
    }
    text.push_str(&run(&format!("tc {netns} qdisc")));
    text
}

/// Sends one datagram from one place to another and back, with no second try. Answers the
/// address that the receiver saw.
pub(crate) fn exchange(from: Place<'_>, to: Place<'_>, address: IpAddr) -> io::Result<IpAddr> {
    let limit = Some(Duration::from_millis(900));
    let server = to.socket(SocketAddr::new(address, 0))?;
    server.set_read_timeout(limit)?;
    let anywhere: IpAddr = if address.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    let client = from.socket(SocketAddr::new(anywhere, 0))?;
    client.set_read_timeout(limit)?;
    client.send_to(b"there", server.local_addr()?)?;
    let mut buffer = [0; 16];
    let (_, peer) = server.recv_from(&mut buffer)?;
    server.send_to(b"back", peer)?;
    client.recv_from(&mut buffer)?;
    Ok(peer.ip())
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Place<'a> {
    Here,
    In(&'a str),
}

impl Place<'_> {
    pub(crate) fn socket(self, address: SocketAddr) -> io::Result<UdpSocket> {
        let Self::In(name) = self else { return UdpSocket::bind(address) };
        let netns = File::open(path(name))?;
        let inside = std::thread::spawn(move || {
            setns(netns, CloneFlags::CLONE_NEWNET)?;
            UdpSocket::bind(address)
        });
        inside.join().unwrap()
    }
}
