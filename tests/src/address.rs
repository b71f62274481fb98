use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::Value;

/// The addresses of a CNI result, in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses(pub Vec<IpAddr>);

impl Addresses {
    /// # Panics
    /// When `result` has no `ips`, or one that is not an address with its prefix length.
    #[track_caller]
    pub fn of_result(result: &Value) -> Self {
        let ips = result["ips"].as_array().unwrap_or_else(|| panic!("no ips in {result}"));
        let parse = |ip: &Value| {
            let text = ip["address"].as_str().unwrap_or_else(|| panic!("no address in {result}"));
            let (address, length) = text.split_once('/').expect("an address with its length");
            let address: IpAddr = address.parse().expect("an IP address");
            assert_eq!(length, if address.is_ipv4() { "32" } else { "128" }, "{text}");
            address
        };
        Self(ips.iter().map(parse).collect())
    }

    #[track_caller]
    pub fn v4(&self) -> Ipv4Addr {
        let v4 = |address: &IpAddr| if let IpAddr::V4(v4) = address { Some(*v4) } else { None };
        self.0.iter().find_map(v4).unwrap_or_else(|| panic!("no IPv4 address in {self:?}"))
    }

    #[track_caller]
    pub fn v6(&self) -> Ipv6Addr {
        let v6 = |address: &IpAddr| if let IpAddr::V6(v6) = address { Some(*v6) } else { None };
        self.0.iter().find_map(v6).unwrap_or_else(|| panic!("no IPv6 address in {self:?}"))
    }
}
