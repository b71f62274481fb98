use std::path::Path;

use berth_core::ports::{Namespaces, NetnsError};
use berth_types::{NetnsId, chain};

/// The host's file system.
#[derive(Debug)]
pub(crate) struct HostNamespaces {
    /// The daemon's own namespace, which is no pod's.
    own: Option<NetnsId>,
}

impl HostNamespaces {
    pub(crate) fn new() -> Self {
        Self { own: berth_datapath::identify(Path::new("/proc/self/ns/net")).ok() }
    }
}

impl Namespaces for HostNamespaces {
    fn identify(&self, path: &Path) -> Result<NetnsId, NetnsError> {
        let text = || path.display().to_string();
        match berth_datapath::identify(path) {
            Ok(id) if Some(id) == self.own => {
                let why = "it is the host's own network namespace";
                Err(NetnsError::Refused { path: text(), why })
            }
            Ok(id) => Ok(id),
            Err(berth_datapath::NetnsError::Missing(_)) => {
                Err(NetnsError::Missing { path: text() })
            }
            Err(berth_datapath::NetnsError::NotANamespace(_)) => {
                Err(NetnsError::NotANamespace { path: text() })
            }
            Err(
                err
                @ (berth_datapath::NetnsError::Own(_) | berth_datapath::NetnsError::Open { .. }),
            ) => Err(NetnsError::Unreadable { path: text(), problem: chain(&err) }),
        }
    }
}
