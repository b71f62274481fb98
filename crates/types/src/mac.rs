use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A unicast Ethernet address. Written in lower case: reference plugins compare MACs as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MacAddress([u8; 6]);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "MAC address {0:?} is not valid: six two-digit hex bytes with colons, unicast, not all zero"
)]
pub struct InvalidMac(String);

impl MacAddress {
    /// `None` for a multicast address or all zeros, which no interface can have.
    pub fn new(octets: [u8; 6]) -> Option<Self> {
        (octets[0] & 1 == 0 && octets != [0; 6]).then_some(Self(octets))
    }

    pub fn octets(&self) -> [u8; 6] {
        self.0
    }
}

impl FromStr for MacAddress {
    type Err = InvalidMac;

    fn from_str(text: &str) -> Result<Self, InvalidMac> {
        let invalid = || InvalidMac(text.chars().take(64).collect());
        let mut octets = [0; 6];
        let mut parts = text.split([':', '-']);
        for octet in &mut octets {
            let is_hex =
                |part: &&str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
            let part = parts.next().filter(is_hex).ok_or_else(invalid)?;
            *octet = u8::from_str_radix(part, 16).map_err(|_| invalid())?;
        }
        if parts.next().is_some() {
            return Err(invalid());
        }
        Self::new(octets).ok_or_else(invalid)
    }
}

impl TryFrom<String> for MacAddress {
    type Error = InvalidMac;

    fn try_from(text: String) -> Result<Self, InvalidMac> {
        text.parse()
    }
}

impl From<MacAddress> for String {
    fn from(mac: MacAddress) -> Self {
        mac.to_string()
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_is_written_in_lower_case() {
        assert_eq!(
            "02-00-00-00-AB-77".parse::<MacAddress>().unwrap().to_string(),
            "02:00:00:00:ab:77"
        );
    }

    #[test]
    fn what_no_interface_can_have_is_refused() {
        for bad in [
            "",
            "02:00",
            "01:00:00:00:00:01",
            "00:00:00:00:00:00",
            "02:00:00:00:00:00:01",
            "0x:00:00:00:00:01",
            "+2:00:00:00:00:01",
        ] {
            assert!(bad.parse::<MacAddress>().is_err(), "{bad}");
        }
    }
}
