use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use serde::{Deserialize, Serialize};

/// An address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    V4,
    V6,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// What one attachment holds: an IPv4 address, an IPv6 address or one of each.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct AddressSet {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v4: Option<Ipv4Addr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v6: Option<Ipv6Addr>,
}

impl AddressSet {
    /// IPv4 first, as runtimes take the first address for the pod's primary one.
    pub fn iter(&self) -> impl Iterator<Item = IpAddr> + use<> {
        self.v4.map(IpAddr::V4).into_iter().chain(self.v6.map(IpAddr::V6))
    }

    pub fn is_empty(&self) -> bool {
        self.v4.is_none() && self.v6.is_none()
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        self.iter().any(|held| held == address)
    }
}

impl From<IpAddr> for AddressSet {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => Self { v4: Some(v4), v6: None },
            IpAddr::V6(v6) => Self { v4: None, v6: Some(v6) },
        }
    }
}

/// `10.0.0.7`, `fd00::7` or `10.0.0.7,fd00::7`.
impl fmt::Display for AddressSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, address) in self.iter().enumerate() {
            if n > 0 {
                f.write_str(",")?;
            }
            write!(f, "{address}")?;
        }
        Ok(())
    }
}
