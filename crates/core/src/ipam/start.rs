use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    net::IpAddr,
    num::NonZeroUsize,
    sync::{Arc, Mutex, atomic::AtomicBool},
};

use berth_types::{AddressSet, InterfaceName, Resource, chain};
use tokio::sync::broadcast;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{error, info, warn};

use super::{CHANGES_KEPT, Inner, Ipam, Settings};
use crate::{
    fail_point,
    pool::{Counts, Limits, Pool, Quarantine, SlotState},
    pool_task::pool_task,
    ports::{
        Change, Clock, HostError, HostLink, HostNetwork, IntentKind, Loaded, Namespaces, Pods,
        Source, Store, StoreError, Unwiring,
    },
    reaper::{ReaperParts, reaper},
    sweep::Sweeper,
    turn::Turns,
    vital::vital,
};

/// What the daemon wires together.
#[derive(Clone)]
pub struct Parts {
    pub store: Arc<dyn Store>,
    pub source: Arc<dyn Source>,
    pub host: Arc<dyn HostNetwork>,
    pub namespaces: Arc<dyn Namespaces>,
    pub pods: Arc<dyn Pods>,
    pub clock: Arc<dyn Clock>,
    pub settings: Settings,
    pub min_idle: usize,
    pub max_idle: usize,
    /// As many idle resources as there should be when serving begins.
    pub warm_up: usize,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").field("settings", &self.settings).finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot list the host's links")]
    Host(#[from] HostError),
    #[error("cannot write to the store")]
    Store(#[from] StoreError),
}

/// Rebuilds the pool from what the store has and the kernel shows, finishes what a crash left
/// half done, and starts the tasks on `tasks`. Nothing serves before this has returned.
pub async fn start(
    parts: Parts,
    mut loaded: Loaded,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) -> Result<Ipam, StartError> {
    rebase_deadlines(&parts, &mut loaded).await?;
    let left = match &loaded.doubtful {
        None => finish(&parts, unfinished(&loaded)).await,
        Some(why) => {
            error!(%why, "the records may be incomplete: what the kernel has wired is quarantined");
            // What an old record meant to delete may be a live pod's by now.
            Vec::new()
        }
    };
    let known = loaded.attachments.iter().map(|it| it.host_interface.clone()).collect();
    let links = parts.host.links(&known).await?;
    let unaccounted = unaccounted(&links, &loaded);
    let mut pool = rebuilt_pool(&parts, &loaded, &unaccounted, &left);
    warm_up(&parts, &mut pool).await;
    fail_point!("core::start::rebuilt");
    let Counts { leased, cooling, reserved, quarantined, idle, .. } = pool.counts();
    info!(leased, cooling, reserved, quarantined, idle, "pool rebuilt");

    let (pool, task) =
        pool_task(pool, Arc::clone(&parts.source), Arc::clone(&parts.clock), stop.clone());
    tasks.spawn(vital(task));
    let (reaper, task) = reaper(
        ReaperParts {
            host: Arc::clone(&parts.host),
            store: Arc::clone(&parts.store),
            pool: pool.clone(),
        },
        stop.clone(),
    );
    tasks.spawn(vital(task));

    let without_record = without_record(unaccounted, &loaded);
    let (events, _) = broadcast::channel(CHANGES_KEPT);
    let sweeper = Sweeper::new(parts.settings.gc_grace, parts.settings.gc_looks_apart);
    let ipam = Ipam {
        inner: Arc::new(Inner {
            settings: parts.settings,
            store: parts.store,
            pool,
            source: parts.source,
            host: parts.host,
            namespaces: parts.namespaces,
            pods: parts.pods,
            clock: parts.clock,
            turns: Turns::default(),
            reaper,
            tombstones: Mutex::new(
                loaded.tombstones.iter().map(|it| (it.key.clone(), it.clone())).collect(),
            ),
            by_pod: Mutex::new(HashMap::new()),
            sweeper: Mutex::new(sweeper),
            unaccounted: Mutex::new(without_record),
            orphans: Mutex::new(HashMap::new()),
            failures: Mutex::new(VecDeque::new()),
            events,
            stopping: AtomicBool::new(false),
        }),
    };
    for attachment in &loaded.attachments {
        ipam.remember_pod(attachment);
    }
    for one in left {
        ipam.inner.reaper.enqueue(one, None);
    }
    Ok(ipam)
}

/// The first start of a boot writes the deadlines of earlier boots anew, so that the next start
/// does not count their whole length once more.
async fn rebase_deadlines(parts: &Parts, loaded: &mut Loaded) -> Result<(), StoreError> {
    let (boot, now) = (parts.clock.boot_id(), parts.clock.now());
    let mut changes = Vec::new();
    for cooling in loaded.cooling.iter_mut().filter(|it| it.deadline.boot_id != *boot) {
        cooling.deadline = cooling.deadline.rebased(boot, now);
        changes.push(Change::PutCooling(cooling.clone()));
    }
    for reserved in loaded.reservations.iter_mut().filter(|it| it.deadline.boot_id != *boot) {
        reserved.deadline = reserved.deadline.rebased(boot, now);
        changes.push(Change::PutReservation(reserved.clone()));
    }
    if !changes.is_empty() {
        parts.store.commit(changes).await?;
        fail_point!("core::start::rebased");
    }
    Ok(())
}

/// Links that a release before the crash meant to delete. One whose name a record has (again)
/// is in use.
fn unfinished(loaded: &Loaded) -> Vec<Unwiring> {
    let in_use: BTreeSet<_> = loaded.attachments.iter().map(|it| &it.host_interface).collect();
    let unwire = |intent: &crate::ports::Intent| match &intent.what {
        IntentKind::Unwire(left) => left.clone(),
    };
    let all = loaded.intents.iter().map(unwire);
    all.filter(|left| !in_use.contains(&left.host_interface)).collect()
}

/// All at once; where that fails, one by one. Answers what could not be finished: it goes to the
/// reaper and rests until it is gone, and the daemon serves.
async fn finish(parts: &Parts, left: Vec<Unwiring>) -> Vec<Unwiring> {
    if left.is_empty() {
        return Vec::new();
    }
    let Err(err) = finish_batch(parts, &left).await else {
        info!(links = left.len(), "finished the releases that a crash interrupted");
        return Vec::new();
    };
    warn!(err = %chain(&err), "cannot finish at once what a crash interrupted");
    let mut stuck = Vec::new();
    for one in left {
        if let Err(err) = finish_batch(parts, std::slice::from_ref(&one)).await {
            warn!(key = %one.key, err = %chain(&err), "an interrupted release goes to the reaper");
            stuck.push(one);
        }
    }
    stuck
}

async fn finish_batch(parts: &Parts, left: &[Unwiring]) -> Result<(), StartError> {
    let names: Vec<InterfaceName> = left.iter().map(|it| it.host_interface.clone()).collect();
    parts.host.unhook(&names).await?;
    fail_point!("core::start::unhooked");
    parts.host.reap(left).await?;
    fail_point!("core::start::reaped");
    let ends = left.iter().map(|it| Change::EndIntent(crate::reaper::unwire_intent(it).id));
    parts.store.commit(ends.collect()).await?;
    fail_point!("core::start::written");
    Ok(())
}

/// Addresses that the kernel routes to links of ours and that the link's record, if it has one,
/// does not name.
fn unaccounted(
    links: &BTreeMap<InterfaceName, HostLink>,
    loaded: &Loaded,
) -> BTreeMap<InterfaceName, AddressSet> {
    let recorded: BTreeMap<&InterfaceName, &AddressSet> =
        loaded.attachments.iter().map(|it| (&it.host_interface, &it.resource.addresses)).collect();
    let mut found = BTreeMap::new();
    for (name, link) in links {
        let known = recorded.get(name);
        let strange = |address: &&IpAddr| !known.is_some_and(|known| known.contains(**address));
        let addresses: BTreeSet<IpAddr> = link.addresses.iter().filter(strange).copied().collect();
        if known.is_none() || !addresses.is_empty() {
            let addresses = address_set(&addresses);
            warn!(interface = %name, %addresses, "a link of ours that no record explains");
            found.insert(name.clone(), addresses);
        }
    }
    found
}

fn without_record(
    unaccounted: BTreeMap<InterfaceName, AddressSet>,
    loaded: &Loaded,
) -> BTreeSet<InterfaceName> {
    let recorded: BTreeSet<_> = loaded.attachments.iter().map(|it| &it.host_interface).collect();
    unaccounted.into_keys().filter(|name| !recorded.contains(name)).collect()
}

/// One of each family: a link of ours has no more.
pub(super) fn address_set(addresses: &BTreeSet<IpAddr>) -> AddressSet {
    let mut set = AddressSet::default();
    for address in addresses {
        match address {
            IpAddr::V4(address) => set.v4 = set.v4.or(Some(*address)),
            IpAddr::V6(address) => set.v6 = set.v6.or(Some(*address)),
        }
    }
    set
}

/// Records first: what is leased is so whatever else is said of it.
fn rebuilt_pool(
    parts: &Parts,
    loaded: &Loaded,
    unaccounted: &BTreeMap<InterfaceName, AddressSet>,
    left: &[Unwiring],
) -> Pool {
    let (boot, now) = (parts.clock.boot_id(), parts.clock.now());
    let limits = Limits {
        min_idle: parts.min_idle,
        max_idle: parts.max_idle,
        capacity: parts.source.capacity(),
    };
    let mut pool = Pool::new(limits);
    for attachment in &loaded.attachments {
        let to = attachment.key.clone();
        pool.restore(attachment.resource.clone(), SlotState::Leased { to });
    }
    for (interface, addresses) in unaccounted {
        if !addresses.is_empty() {
            let cause = Quarantine::Wired(interface.clone());
            pool.quarantine(Resource::veth(*addresses), cause);
        }
    }
    for row in &loaded.set_aside {
        for address in &row.addresses {
            let cause = Quarantine::SetAside { row: row.key.clone() };
            pool.quarantine(Resource::veth((*address).into()), cause);
        }
    }
    let is_wired =
        |resource: &Resource| left.iter().any(|it| it.resource.as_ref() == Some(&resource.id));
    for reserved in &loaded.reservations {
        let until = reserved.deadline.due(boot, now);
        let (pod, wired) = (reserved.pod.clone(), is_wired(&reserved.resource));
        pool.restore(reserved.resource.clone(), SlotState::Reserved { pod, until, wired });
    }
    for cooling in &loaded.cooling {
        let until = cooling.deadline.due(boot, now);
        let wired = is_wired(&cooling.resource);
        // One that is due has rested: it is as good as one that was never used.
        if until > now || wired {
            let former = cooling.former.clone();
            pool.restore(cooling.resource.clone(), SlotState::Cooling { until, wired, former });
        }
    }
    for one in left.iter().filter(|it| it.resource.is_some()) {
        // Its rest is over and its row may have gone, but its links are still there.
        let state = SlotState::Cooling { until: now, wired: true, former: None };
        pool.restore(Resource::veth(one.addresses), state);
    }
    let out: Vec<Resource> = pool.slots().map(|slot| slot.resource.clone()).collect();
    for id in parts.source.adopt(&out) {
        warn!(%id, "held, but not of the configured pod CIDRs: it is not given out again");
        pool.mark_foreign(&id);
    }
    pool
}

async fn warm_up(parts: &Parts, pool: &mut Pool) {
    let missing = parts.warm_up.min(parts.max_idle).saturating_sub(pool.counts().idle);
    let Some(missing) = NonZeroUsize::new(missing) else { return };
    match parts.source.assign(missing).await {
        Ok(fresh) => pool.grown(fresh),
        Err(err) => warn!(err = %chain(&err), "cannot warm the pool up"),
    }
}
