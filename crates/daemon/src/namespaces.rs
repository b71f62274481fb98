use std::path::Path;

use berth_core::ports::{Namespaces, NetnsError};
use berth_types::{NetnsId, chain};

/// The host's file system.
#[derive(Debug)]
pub(crate) struct HostNamespaces;

impl Namespaces for HostNamespaces {
    fn identify(&self, path: &Path) -> Result<NetnsId, NetnsError> {
        berth_datapath::identify(path).map_err(|err| {
            let path = path.display().to_string();
            match err {
                berth_datapath::NetnsError::Missing(_) => NetnsError::Missing { path },
                berth_datapath::NetnsError::NotANamespace(_) => NetnsError::NotANamespace { path },
                berth_datapath::NetnsError::Own(_) => {
                    NetnsError::Refused { path, why: "it is the host's own network namespace" }
                }
                err @ berth_datapath::NetnsError::Open { .. } => {
                    NetnsError::Unreadable { path, problem: chain(&err) }
                }
            }
        })
    }
}
