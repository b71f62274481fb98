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
    pool::{Limits, Pool, Quarantine, SlotState},
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
    loaded: Loaded,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) -> Result<Ipam, StartError> {
    if let Some(why) = &loaded.doubtful {
        error!(%why, "the records may be incomplete: what the kernel has wired is quarantined");
    }
    let left = unfinished(&loaded);
    finish(&parts, &left).await?;

    let links = parts.host.links().await?;
    let unaccounted = unaccounted(&links, &loaded);
    let mut pool = rebuilt_pool(&parts, &loaded, &unaccounted);
    warm_up(&parts, &mut pool).await;
    fail_point!("core::start::rebuilt");
    let counts = pool.counts();
    info!(?counts, "pool rebuilt");

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

    let (events, _) = broadcast::channel(CHANGES_KEPT);
    let sweeper = Sweeper::new(parts.settings.gc_grace, parts.settings.gc_looks_apart);
    let ipam = Ipam {
        inner: Arc::new(Inner {
            settings: parts.settings,
            store: parts.store,
            pool,
            host: parts.host,
            namespaces: parts.namespaces,
            pods: parts.pods,
            clock: parts.clock,
            turns: Turns::default(),
            reaper,
            tombstones: Mutex::new(
                loaded.tombstones.into_iter().map(|it| (it.key.clone(), it)).collect(),
            ),
            by_pod: Mutex::new(HashMap::new()),
            sweeper: Mutex::new(sweeper),
            unaccounted: Mutex::new(unaccounted.into_keys().collect()),
            orphans: Mutex::new(HashMap::new()),
            failures: Mutex::new(VecDeque::new()),
            events,
            stopping: AtomicBool::new(false),
        }),
    };
    for attachment in &loaded.attachments {
        ipam.remember_pod(attachment);
    }
    Ok(ipam)
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

async fn finish(parts: &Parts, left: &[Unwiring]) -> Result<(), StartError> {
    if left.is_empty() {
        return Ok(());
    }
    let names: Vec<InterfaceName> = left.iter().map(|it| it.host_interface.clone()).collect();
    parts.host.unhook(&names).await?;
    fail_point!("core::start::unhooked");
    parts.host.reap(left).await?;
    fail_point!("core::start::reaped");
    let ends = left.iter().map(|it| Change::EndIntent(crate::reaper::unwire_intent(it).id));
    parts.store.commit(ends.collect()).await?;
    fail_point!("core::start::written");
    info!(links = left.len(), "finished the releases that a crash interrupted");
    Ok(())
}

/// Host links of ours that no record explains, with the addresses routed to them.
fn unaccounted(
    links: &BTreeMap<InterfaceName, HostLink>,
    loaded: &Loaded,
) -> BTreeMap<InterfaceName, AddressSet> {
    let explained: BTreeSet<_> = loaded.attachments.iter().map(|it| &it.host_interface).collect();
    let strangers = links.iter().filter(|(name, _)| !explained.contains(name));
    strangers
        .map(|(name, link)| {
            let mut set = AddressSet::default();
            for address in &link.addresses {
                match address {
                    IpAddr::V4(address) => set.v4 = set.v4.or(Some(*address)),
                    IpAddr::V6(address) => set.v6 = set.v6.or(Some(*address)),
                }
            }
            warn!(interface = %name, addresses = %set, "a link of ours without a record");
            (name.clone(), set)
        })
        .collect()
}

/// Records first: what is leased is so whatever else is said of it.
fn rebuilt_pool(
    parts: &Parts,
    loaded: &Loaded,
    unaccounted: &BTreeMap<InterfaceName, AddressSet>,
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
    for reserved in &loaded.reservations {
        let until = reserved.deadline.due(boot, now);
        let pod = reserved.pod.clone();
        pool.restore(reserved.resource.clone(), SlotState::Reserved { pod, until, wired: false });
    }
    for cooling in &loaded.cooling {
        let until = cooling.deadline.due(boot, now);
        // One that is due has rested: it is as good as one that was never used.
        if until > now {
            let former = cooling.former.clone();
            let state = SlotState::Cooling { until, wired: false, former };
            pool.restore(cooling.resource.clone(), state);
        }
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
