use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use berth_types::{Attachment, InterfaceName};
use tokio::time;

use crate::ports::{HostError, HostLink, HostNetwork, Unwiring};

#[derive(Default)]
pub(in super::super) struct ModelHost {
    links: Mutex<BTreeMap<InterfaceName, HostLink>>,
    unhooked: Mutex<BTreeSet<InterfaceName>>,
    reaped: Mutex<BTreeSet<InterfaceName>>,
    refuses: Mutex<bool>,
    stuck: Mutex<Option<InterfaceName>>,
}

impl ModelHost {
    pub(in super::super) fn wire(&self, name: &str, address: &str) {
        let addresses = BTreeSet::from([address.parse().unwrap()]);
        let link = HostLink { marked: true, addresses };
        self.links.lock().unwrap().insert(name.parse().unwrap(), link);
    }

    pub(in super::super) fn wire_records(&self, records: &[Attachment]) {
        for record in records {
            let addresses = record.resource.addresses.iter().collect();
            let link = HostLink { marked: true, addresses };
            self.links.lock().unwrap().insert(record.host_interface.clone(), link);
        }
    }

    pub(in super::super) fn take_marks(&self) {
        self.links.lock().unwrap().values_mut().for_each(|link| link.marked = false);
    }

    pub(in super::super) fn unwire(&self, name: &str) {
        self.links.lock().unwrap().remove(name);
    }

    pub(in super::super) fn has(&self, name: &str) -> bool {
        self.links.lock().unwrap().contains_key(name)
    }

    /// There, and not taken off the network.
    pub(in super::super) fn is_hooked(&self, name: &InterfaceName) -> bool {
        self.links.lock().unwrap().contains_key(name)
            && !self.unhooked.lock().unwrap().contains(name)
    }

    pub(in super::super) fn reaped(&self, name: &InterfaceName) -> bool {
        self.reaped.lock().unwrap().contains(name)
    }

    /// This one link cannot be deleted.
    pub(in super::super) fn stick(&self, name: &InterfaceName) {
        *self.stuck.lock().unwrap() = Some(name.clone());
    }

    pub(in super::super) fn refuse_to_reap(&self, refuses: bool) {
        *self.refuses.lock().unwrap() = refuses;
    }
}

#[async_trait]
impl HostNetwork for ModelHost {
    async fn unhook(&self, links: &[InterfaceName]) -> Result<BTreeSet<InterfaceName>, HostError> {
        let present = self.links.lock().unwrap();
        let mut unhooked = self.unhooked.lock().unwrap();
        let there: BTreeSet<InterfaceName> =
            links.iter().filter(|name| present.contains_key(*name)).cloned().collect();
        unhooked.extend(there.iter().cloned());
        Ok(there)
    }

    async fn reap(&self, batch: &[Unwiring]) -> Result<(), HostError> {
        time::sleep(Duration::from_millis(20)).await;
        let stuck = self.stuck.lock().unwrap().clone();
        let has_stuck = batch.iter().any(|left| Some(&left.host_interface) == stuck.as_ref());
        if has_stuck || *self.refuses.lock().unwrap() {
            let source = Arc::new(std::io::Error::other("told to"));
            return Err(HostError { what: "delete links".into(), source });
        }
        for left in batch {
            self.links.lock().unwrap().remove(&left.host_interface);
            self.unhooked.lock().unwrap().remove(&left.host_interface);
            self.reaped.lock().unwrap().insert(left.host_interface.clone());
        }
        Ok(())
    }

    async fn links(
        &self,
        _known: &BTreeSet<InterfaceName>,
    ) -> Result<BTreeMap<InterfaceName, HostLink>, HostError> {
        let unhooked = self.unhooked.lock().unwrap();
        let mut links = self.links.lock().unwrap().clone();
        links.retain(|name, _| !unhooked.contains(name));
        Ok(links)
    }
}
