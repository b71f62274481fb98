use std::{borrow::Borrow, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A text from outside that is not a name of its kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {text:?} is not valid: {allowed}")]
pub struct InvalidId {
    kind: &'static str,
    /// Cut to 64 characters, since it may be hostile and ends up in logs.
    text: String,
    allowed: &'static str,
}

impl InvalidId {
    pub(crate) fn new(kind: &'static str, text: &str, allowed: &'static str) -> Self {
        Self { kind, text: text.chars().take(64).collect(), allowed }
    }
}

/// The longest container id or network name taken. The CNI spec sets no limit; runtimes send
/// 64 characters, and the id becomes part of a key and of a file name.
const LONGEST_NAME: usize = 200;

/// `^[a-zA-Z0-9][a-zA-Z0-9_.\-]*$`, the rule for container ids and network names
/// (CNI spec 1.1.0, sections 1 and 2).
fn is_cni_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    text.len() <= LONGEST_NAME
        && bytes.next().is_some_and(|first| first.is_ascii_alphanumeric())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}

/// 1 to 15 bytes, not `.` or `..`, no `/`, `:` or white space: what libcni accepts as an
/// interface name and the kernel (`dev_valid_name`) too. Control characters are refused as well.
fn is_interface_name(text: &str) -> bool {
    (1..=15).contains(&text.len())
        && text != "."
        && text != ".."
        && !text.chars().any(|c| c == '/' || c == ':' || c.is_whitespace() || c.is_control())
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $valid:ident, $allowed:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Box<str>);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                if $valid(text) {
                    Ok(Self(text.into()))
                } else {
                    Err(InvalidId::new($kind, text, $allowed))
                }
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;

            fn try_from(text: String) -> Result<Self, InvalidId> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0.into()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

name_type!(
    /// The `name` of a CNI network configuration.
    NetworkName, "network name", is_cni_name,
    "a letter or digit, then letters, digits, `_`, `.` or `-`, at most 200"
);
name_type!(
    /// `CNI_CONTAINERID`: a sandbox, never used again once it is gone.
    ContainerId, "container id", is_cni_name,
    "a letter or digit, then letters, digits, `_`, `.` or `-`, at most 200"
);
name_type!(
    /// A network interface's name, in a pod or on the host.
    InterfaceName, "interface name", is_interface_name,
    "1 to 15 bytes without `/`, `:` or white space, and not `.` or `..`"
);

/// The identity of an attachment: one interface of one sandbox on one network. The pod's
/// name is an attribute, since pod names are used again and container ids are not.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AttachmentKey {
    pub network: NetworkName,
    pub container_id: ContainerId,
    pub interface: InterfaceName,
}

impl AttachmentKey {
    pub fn new(network: &str, container_id: &str, interface: &str) -> Result<Self, InvalidId> {
        Ok(Self {
            network: network.parse()?,
            container_id: container_id.parse()?,
            interface: interface.parse()?,
        })
    }
}

/// `network/container/interface`: unambiguous, since no part may hold a slash. It is also the
/// row key in the store.
impl fmt::Display for AttachmentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.network, self.container_id, self.interface)
    }
}

impl FromStr for AttachmentKey {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let mut parts = text.splitn(3, '/');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(network), Some(container_id), Some(interface)) => {
                Self::new(network, container_id, interface)
            }
            _ => Err(InvalidId::new("attachment", text, "network/container-id/interface")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_ids_follow_the_cni_rule() {
        for good in ["a", "ABC-1", "3f00", "a.b_c-d"] {
            assert!(good.parse::<ContainerId>().is_ok(), "{good}");
        }
        let long = "a".repeat(201);
        for bad in ["", ".", "../x", "-a", "a/b", "a\n", "a b", "ä", long.as_str()] {
            assert!(bad.parse::<ContainerId>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn interface_names_are_at_most_fifteen_bytes() {
        for good in ["eth0", "abcdefghijklmno", "a@b"] {
            assert!(good.parse::<InterfaceName>().is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "abcdefghijklmnop", "a/b", "a:b", "a b", "a\u{a0}b", "a\0b"] {
            assert!(bad.parse::<InterfaceName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_invalid_name_is_quoted_and_cut_in_its_error() {
        let err = "x\n".repeat(100).parse::<NetworkName>().unwrap_err().to_string();
        assert!(err.starts_with("network name \"x\\nx"), "{err}");
        assert!(err.len() < 300, "{err}");
    }

    #[test]
    fn a_key_survives_its_text() {
        let key = AttachmentKey::new("net", "c1", "eth0").unwrap();
        assert_eq!(key.to_string().parse::<AttachmentKey>().unwrap(), key);
        assert!("net/c1".parse::<AttachmentKey>().is_err());
    }
}
