use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use async_trait::async_trait;
use berth_core::ports::{HostError, HostLink, HostNetwork, Unwiring};
use berth_datapath::Host;
use berth_types::InterfaceName;

/// The kernel, as the core's port.
#[derive(Debug)]
pub(crate) struct KernelHost(pub(crate) Host);

fn failed<E: std::error::Error + Send + Sync + 'static>(
    what: &'static str,
) -> impl FnOnce(E) -> HostError {
    move |err| HostError { what: what.into(), source: Arc::new(err) }
}

#[async_trait]
impl HostNetwork for KernelHost {
    async fn unhook(&self, links: &[InterfaceName]) -> Result<BTreeSet<InterfaceName>, HostError> {
        self.0.unhook(links).await.map_err(failed("take links off the network"))
    }

    async fn reap(&self, batch: &[Unwiring]) -> Result<(), HostError> {
        let links: Vec<InterfaceName> =
            batch.iter().map(|left| left.host_interface.clone()).collect();
        let addresses: Vec<IpAddr> = batch.iter().flat_map(|left| left.addresses.iter()).collect();
        self.0.reap(&links, &addresses).await.map_err(failed("delete links"))
    }

    async fn links(
        &self,
        known: &BTreeSet<InterfaceName>,
    ) -> Result<BTreeMap<InterfaceName, HostLink>, HostError> {
        let wired = self.0.wired(known).await.map_err(failed("list links"))?;
        let link =
            |it: berth_datapath::Wired| HostLink { marked: it.marked, addresses: it.addresses };
        Ok(wired.into_iter().map(|(name, it)| (name, link(it))).collect())
    }
}
