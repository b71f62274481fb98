use std::{net::IpAddr, path::PathBuf, time::Duration};

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Free of Docker's (172.17.0.0/16 to 172.31.0.0/16, 192.168.0.0/16), podman's (10.88.0.0/16,
/// 10.89.0.0/16 and up), flannel's (10.244.0.0/16), k3s' (10.42.0.0/15) and Cilium's (10.0.0.0/8)
/// defaults; docs/decisions tells why these.
const DEFAULT_V4: &str = "172.16.240.0/20";
const DEFAULT_V6: &str = "fd62:6572:7468::/64";

/// The file as written. Every default stands here and nowhere else. Names are Terway's where the
/// meaning is the same.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct File {
    pub(super) version: String,
    pub(super) daemon_mode: String,
    pub(super) ip_stack: Option<IpStack>,
    pub(super) pod_cidrs: Option<Vec<IpNet>>,
    pub(super) exclude: Vec<String>,
    pub(super) masquerade: bool,
    pub(super) mtu: u32,
    pub(super) host_prefix: String,
    pub(super) min_pool_size: usize,
    pub(super) max_pool_size: usize,
    pub(super) ip_warm_up_size: usize,
    pub(super) cool_down: Span,
    pub(super) gc_interval: Span,
    pub(super) gc_grace: Span,
    pub(super) socket: PathBuf,
    pub(super) state_dir: PathBuf,
    pub(super) cni_conf: CniConf,
    pub(super) log: Log,
    pub(super) stop_grace: Span,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct CniConf {
    pub(super) path: PathBuf,
    pub(super) source: Option<PathBuf>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Log {
    pub(super) level: String,
    pub(super) format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum IpStack {
    Ipv4,
    Ipv6,
    Dual,
}

/// 10 years, in humantime's days: for ever, and yet the clocks can count so far.
const LONGEST_SPAN: Duration = Duration::from_secs(3653 * 24 * 3600);

/// A duration with its unit, such as `30s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span(pub(super) Duration);

impl Default for File {
    fn default() -> Self {
        let seconds = |seconds| Span(Duration::from_secs(seconds));
        Self {
            version: "1".into(),
            daemon_mode: "VPC".into(),
            ip_stack: None,
            pod_cidrs: None,
            exclude: Vec::new(),
            masquerade: true,
            mtu: 0,
            host_prefix: berth_types::DEFAULT_HOST_PREFIX.into(),
            min_pool_size: 5,
            max_pool_size: 20,
            ip_warm_up_size: 0,
            cool_down: seconds(30),
            gc_interval: seconds(60),
            gc_grace: seconds(120),
            socket: "/run/berth/berth.sock".into(),
            state_dir: "/var/lib/berth".into(),
            cni_conf: CniConf::default(),
            log: Log::default(),
            stop_grace: seconds(20),
        }
    }
}

impl Default for CniConf {
    fn default() -> Self {
        Self { path: "/etc/cni/net.d/10-berth.conflist".into(), source: None }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { level: "info".into(), format: LogFormat::Text }
    }
}

impl IpStack {
    /// What the given CIDRs are; both where none are given.
    pub(super) fn of(cidrs: Option<&[IpNet]>) -> Self {
        let cidrs = cidrs.unwrap_or_default();
        let v4 = cidrs.iter().any(|cidr| cidr.addr().is_ipv4());
        let v6 = cidrs.iter().any(|cidr| cidr.addr().is_ipv6());
        match (v4, v6) {
            (true, false) => Self::Ipv4,
            (false, true) => Self::Ipv6,
            (true, true) | (false, false) => Self::Dual,
        }
    }

    pub(super) fn has_v4(self) -> bool {
        self != Self::Ipv6
    }

    pub(super) fn has_v6(self) -> bool {
        self != Self::Ipv4
    }

    pub(super) fn has(self, cidr: &IpNet) -> bool {
        if cidr.addr().is_ipv4() { self.has_v4() } else { self.has_v6() }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
            Self::Dual => "dual",
        }
    }

    pub(super) fn default_cidrs(self) -> Vec<IpNet> {
        [DEFAULT_V4, DEFAULT_V6]
            .iter()
            .map(|text| text.parse().expect("the built-in CIDRs are CIDRs"))
            .filter(|cidr| self.has(cidr))
            .collect()
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let span = humantime::parse_duration(&text).map_err(|_| {
            de::Error::custom(format!(
                "{text:?} is not a duration; allowed: a number with a unit, such as 500ms, 30s, \
                 2m or 1h"
            ))
        })?;
        if span > LONGEST_SPAN {
            let most = humantime::format_duration(LONGEST_SPAN);
            return Err(de::Error::custom(format!("{text:?} is more than the {most} allowed")));
        }
        Ok(Self(span))
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&humantime::format_duration(self.0))
    }
}

pub(super) fn net_or_address(text: &str) -> Result<IpNet, String> {
    let address = text.parse::<IpAddr>().map(IpNet::from);
    address
        .or_else(|_| text.parse())
        .map_err(|_| format!("{text:?} is neither an address nor a CIDR"))
}
