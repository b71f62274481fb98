use std::{net::IpAddr, sync::Mutex};

use async_trait::async_trait;
use berth_types::BootId;

use super::*;
use crate::pool::Limits;

/// A provider with a fixed stock, each call of which takes a second.
#[derive(Debug, Default)]
struct Stock {
    left: Mutex<Vec<Resource>>,
    calls: Mutex<Vec<usize>>,
}

#[async_trait]
impl Source for Stock {
    async fn assign(&self, count: NonZeroUsize) -> Result<Vec<Resource>, SourceError> {
        self.calls.lock().unwrap().push(count.get());
        time::sleep(Duration::from_secs(1)).await;
        let mut left = self.left.lock().unwrap();
        if left.is_empty() {
            return Err(SourceError::Exhausted);
        }
        let keep = left.len().saturating_sub(count.get());
        Ok(left.split_off(keep))
    }

    async fn assign_exactly(&self, wanted: AddressSet) -> Result<Resource, SourceError> {
        time::sleep(Duration::from_secs(1)).await;
        let address = wanted.iter().next().unwrap();
        let mut left = self.left.lock().unwrap();
        let at = left.iter().position(|it| it.addresses.contains(address));
        at.map(|at| left.remove(at)).ok_or(SourceError::Taken(address))
    }

    async fn unassign(&self, resources: Vec<Resource>) -> Result<(), SourceError> {
        self.left.lock().unwrap().extend(resources);
        Ok(())
    }

    fn knows(&self, _: IpAddr) -> Result<(), SourceError> {
        Ok(())
    }

    fn adopt(&self, _: &[Resource]) -> Vec<ResourceId> {
        Vec::new()
    }

    fn capacity(&self) -> usize {
        8
    }
}

struct PausedClock(time::Instant, BootId);

impl Clock for PausedClock {
    fn now(&self) -> BootTime {
        BootTime::default() + self.0.elapsed()
    }

    fn boot_id(&self) -> &BootId {
        &self.1
    }
}

fn resource(n: u8) -> Resource {
    Resource::veth(AddressSet { v4: Some([10, 0, 0, n].into()), v6: None })
}

fn wish(n: u8) -> Wish {
    Wish {
        key: AttachmentKey::new("net", &format!("c{n}"), "eth0").unwrap(),
        pod: None,
        addresses: AddressSet::default(),
    }
}

fn start(stock: Vec<Resource>, capacity: usize) -> (PoolHandle, CancellationToken, Arc<Stock>) {
    let source = Arc::new(Stock { left: Mutex::new(stock), ..Stock::default() });
    let stop = CancellationToken::new();
    let pool = Pool::new(Limits { min_idle: 0, max_idle: 4, capacity });
    let clock = Arc::new(PausedClock(time::Instant::now(), "b".parse().unwrap()));
    let (handle, task) = pool_task(pool, Arc::clone(&source) as _, clock, stop.clone());
    tokio::spawn(task);
    (handle, stop, source)
}

#[tokio::test(start_paused = true)]
async fn a_dropped_reservation_serves_the_next_caller() {
    let (pool, _stop, _) = start(vec![resource(1)], 1);
    let first = pool.reserve(wish(1)).await.unwrap();
    drop(first);
    assert_eq!(pool.reserve(wish(2)).await.unwrap().resource(), &resource(1));
}

#[tokio::test(start_paused = true)]
async fn many_who_wait_are_served_by_one_call() {
    let (pool, _stop, source) = start((1..=6).map(resource).collect(), 8);
    let all: Vec<_> = (1..=6)
        .map(|n| {
            let pool = pool.clone();
            tokio::spawn(async move { pool.reserve(wish(n)).await.map(Reservation::commit) })
        })
        .collect();
    for one in all {
        one.await.unwrap().unwrap();
    }
    assert_eq!(*source.calls.lock().unwrap(), [6]);
}

#[tokio::test(start_paused = true)]
async fn an_empty_provider_is_an_answer_not_a_hang() {
    let (pool, _stop, _) = start(vec![], 8);
    let err = pool.reserve(wish(1)).await.unwrap_err();
    assert_eq!(
        err.to_string(),
        "no address is free: capacity 8, 0 leased, 0 cooling, 0 reserved, 0 in quarantine; \
         the provider says: every address of the pod CIDRs is given out"
    );
}

#[tokio::test(start_paused = true)]
async fn a_full_node_says_when_the_first_address_has_rested() {
    let (pool, _stop, _) = start(vec![resource(1)], 1);
    pool.reserve(wish(1)).await.unwrap().commit();
    let until = BootTime::default() + Duration::from_secs(31);
    let rest = SlotState::Cooling { until, wired: false, former: None };
    pool.release(resource(1).id, wish(1).key, rest);
    let err = pool.reserve(wish(2)).await.unwrap_err().to_string();
    assert!(err.contains("1 cooling (the first for 30 s more)"), "{err}");
    time::sleep(Duration::from_secs(31)).await;
    assert_eq!(pool.reserve(wish(2)).await.unwrap().resource(), &resource(1));
}

#[tokio::test(start_paused = true)]
async fn an_address_asked_for_by_name_comes_from_the_provider_or_its_holder_is_named() {
    let (pool, _stop, _) = start((1..=4).map(resource).collect(), 8);
    let by_name = |n| Wish { addresses: resource(3).addresses, ..wish(n) };
    let got = pool.reserve(by_name(1)).await.unwrap();
    assert_eq!(got.resource(), &resource(3));
    got.commit();
    let err = pool.reserve(by_name(2)).await.unwrap_err().to_string();
    assert_eq!(err, "10.0.0.3 is not available: leased to net/c1/eth0");
}

#[tokio::test(start_paused = true)]
async fn callers_left_waiting_at_shutdown_are_told() {
    let (pool, stop, _) = start(vec![], 8);
    let waiter = tokio::spawn(async move { pool.reserve(wish(1)).await.map(drop) });
    time::sleep(Duration::from_millis(10)).await;
    stop.cancel();
    assert!(matches!(waiter.await.unwrap(), Err(PoolError::Closed)));
}
