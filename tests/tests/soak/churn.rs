use std::{
    sync::{
        RwLock, RwLockWriteGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, Scope},
};

use berth_tests::{Call, Pod, network_config};

/// Callers at once. More would wait for the machine and not for Berth.
const WORKERS: usize = 4;

/// Sandboxes of one caller, over and over: the ids come again, as podman's do, so that tombstones
/// are replaced and do not gather for their ten minutes.
const PODS: usize = 4;

pub(crate) struct Churn {
    pods: Vec<Vec<Pod>>,
    /// Held by each caller while a pod comes and goes.
    still: RwLock<()>,
    over: AtomicBool,
    /// Odd while the daemon is restarted.
    restarts: AtomicU64,
    cycles: AtomicU64,
    refused: AtomicU64,
}

/// Ends the callers where the test ends, in whatever way.
pub(crate) struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Churn {
    pub(crate) fn new() -> Self {
        Self {
            pods: (0..WORKERS).map(|_| (0..PODS).map(|_| Pod::new()).collect()).collect(),
            still: RwLock::new(()),
            over: AtomicBool::new(false),
            restarts: AtomicU64::new(0),
            cycles: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    #[must_use]
    pub(crate) fn begin<'a>(&'a self, scope: &'a Scope<'a, '_>) -> Ends<'a> {
        for pods in &self.pods {
            scope.spawn(move || {
                for pod in pods.iter().cycle() {
                    if self.over.load(Ordering::Relaxed) {
                        return;
                    }
                    // One that panicked has said why.
                    let Ok(_coming_and_going) = self.still.read() else { return };
                    self.cycle(pod);
                }
            });
        }
        Ends(&self.over)
    }

    fn cycle(&self, pod: &Pod) {
        let before = self.restarts.load(Ordering::SeqCst);
        let added = Call::of("ADD", pod).run();
        let restarted = || before % 2 == 1 || before != self.restarts.load(Ordering::SeqCst);
        let number = self.cycles.fetch_add(1, Ordering::Relaxed);
        if !added.succeeded() {
            assert!(restarted(), "refused by a daemon that serves: {added:?}");
            self.refused.fetch_add(1, Ordering::Relaxed);
        } else if number.is_multiple_of(4) {
            let mut config = network_config();
            config["prevResult"] = added.result();
            let checked = Call::of("CHECK", pod).input(&config).run();
            assert!(checked.succeeded() || restarted(), "{checked:?}");
        }
        Call::of("DEL", pod).run().nothing();
    }

    /// No pod is there until the guard goes.
    pub(crate) fn pause(&self) -> RwLockWriteGuard<'_, ()> {
        self.still.write().expect("no caller panicked")
    }

    pub(crate) fn restart(&self, restart: impl FnOnce()) {
        self.restarts.fetch_add(1, Ordering::SeqCst);
        restart();
        self.restarts.fetch_add(1, Ordering::SeqCst);
        // Whoever saw it begin has ended before the next look.
        thread::yield_now();
    }

    /// Pods that came and went, and those of them that were refused.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.cycles.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed))
    }
}
