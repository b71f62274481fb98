use std::{fmt, str::FromStr};

use sha2::{Digest, Sha256};

use crate::{AttachmentKey, InterfaceName, MacAddress, id::InvalidId};

pub const DEFAULT_HOST_PREFIX: &str = "bth";

/// First letters of every host interface of ours: 2 to 5 lower-case letters or digits. What is
/// left of the kernel's 15 bytes is for the hash, and 10 hex digits are the least that keeps
/// two attachments of one node apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPrefix(Box<str>);

impl HostPrefix {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for HostPrefix {
    fn default() -> Self {
        Self(DEFAULT_HOST_PREFIX.into())
    }
}

impl FromStr for HostPrefix {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let valid = (2..=5).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        if valid {
            Ok(Self(text.into()))
        } else {
            Err(InvalidId::new(
                "host interface prefix",
                text,
                "2 to 5 lower-case letters or digits",
            ))
        }
    }
}

impl fmt::Display for HostPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which end of the pair a MAC address is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MacSide {
    Host,
    Pod,
}

/// The host's end of the attachment's veth pair. It follows from the key alone, so that a DEL
/// that comes with nothing but the key still finds it.
pub fn host_interface(prefix: &HostPrefix, key: &AttachmentKey) -> InterfaceName {
    let mut name = prefix.to_string();
    for byte in digest("host-interface", key) {
        name.push_str(&format!("{byte:02x}"));
    }
    name.truncate(15);
    name.parse().expect("a prefix and hex digits are an interface name")
}

/// The ifb device that shapes what the pod sends; its name follows from the host interface.
pub fn ifb_name(host_interface: &InterfaceName) -> InterfaceName {
    let text = host_interface.as_str();
    let rest = text.get(1..).unwrap_or_default();
    format!("i{rest}").parse().expect("one letter changed keeps an interface name valid")
}

/// A locally administered MAC address that follows from the key: the same for every retry, and
/// set in the create request, so that udev's MACAddressPolicy finds nothing to change.
pub fn stable_mac(side: MacSide, key: &AttachmentKey) -> MacAddress {
    let label = match side {
        MacSide::Host => "mac-host",
        MacSide::Pod => "mac-pod",
    };
    let [_, b, c, d, e, f, ..] = digest(label, key);
    // Second-lowest bit: locally administered; lowest clear: unicast (IEEE 802, 48-bit addresses).
    MacAddress::new([0x02, b, c, d, e, f]).expect("unicast and not zero")
}

fn digest(label: &str, key: &AttachmentKey) -> [u8; 8] {
    let sum = Sha256::new().chain_update(label).chain_update([0]).chain_update(key.to_string());
    let mut first = [0; 8];
    first.copy_from_slice(&sum.finalize()[..8]);
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(container: &str) -> AttachmentKey {
        AttachmentKey::new("net", container, "eth0").unwrap()
    }

    #[test]
    fn host_names_fit_the_kernel_and_follow_from_the_key_alone() {
        let name = host_interface(&HostPrefix::default(), &key("c1"));
        // Golden: a daemon of any later version must find the links of this one.
        assert_eq!(name.as_str(), "bth86104f882590");
        assert_ne!(name, host_interface(&HostPrefix::default(), &key("c2")));
        assert_eq!(ifb_name(&name).as_str(), "ith86104f882590");
    }

    #[test]
    fn macs_are_local_unicast_and_differ_by_side() {
        let host = stable_mac(MacSide::Host, &key("c1"));
        assert_eq!(host.octets()[0], 2);
        assert_ne!(host, stable_mac(MacSide::Pod, &key("c1")));
    }

    #[test]
    fn a_prefix_leaves_room_for_the_hash() {
        for bad in ["", "b", "toolong", "B1", "a/b"] {
            assert!(bad.parse::<HostPrefix>().is_err(), "{bad}");
        }
    }
}
