//! One task owns a pool. Everyone else holds a [`PoolHandle`].

mod shortage;

use std::{
    collections::{BTreeSet, VecDeque},
    num::NonZeroUsize,
    sync::Arc,
    time::Duration,
};

use berth_types::{AddressSet, AttachmentKey, BootTime, InterfaceName, Resource, ResourceId};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    task::JoinSet,
    time,
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

pub use shortage::Shortage;

use crate::{
    pool::{Action, Pool, Quarantine, Refusal, Slot, SlotState, Wish},
    ports::{Clock, Source, SourceError},
};

/// Callers that may wait before the next one is told to come back later: a node starts some 250
/// pods at worst, and each is deleted and added again now and then.
const WAITING_ROOM: usize = 1024;

/// A pause even where nothing is due, so that a clock that was suspended is noticed.
const LONGEST_SLEEP: Duration = Duration::from_secs(600);

#[derive(Debug, Clone)]
pub struct PoolHandle {
    messages: mpsc::UnboundedSender<Message>,
    room: Arc<Semaphore>,
}

/// A resource promised to one caller. Dropping it gives it back.
#[must_use = "dropping a reservation gives the resource back"]
#[derive(Debug)]
pub struct Reservation {
    resource: Resource,
    by: AttachmentKey,
    messages: Option<mpsc::UnboundedSender<Message>>,
}

#[derive(Debug, Clone, thiserror::Error)]
pub enum PoolError {
    #[error("no address is free: {0}")]
    Exhausted(Box<Shortage>),
    #[error("{address} is not available: {by}{}", for_more(*free_in))]
    Held { address: std::net::IpAddr, by: String, free_in: Option<Duration> },
    #[error("the address asked for cannot be given")]
    Refused(#[source] SourceError),
    #[error("too many callers wait for an address")]
    Busy,
    #[error("the address pool is shutting down")]
    Closed,
}

fn for_more(free_in: Option<Duration>) -> String {
    free_in.map_or_else(String::new, |it| format!(", for {} s more", it.as_secs_f64().ceil()))
}

/// The pool as it stands, for people and metrics.
#[derive(Debug, Clone)]
pub struct PoolView {
    pub slots: Vec<Slot>,
    pub shortage: Shortage,
    pub now: BootTime,
}

/// Which quarantines are over.
#[derive(Debug, Clone)]
pub enum Cleared {
    /// Of what was wired without a record: all but these.
    AllButWired(BTreeSet<InterfaceName>),
    /// Of what this attachment's unreadable record held.
    RecordOf(AttachmentKey),
}

impl Cleared {
    fn covers(&self, cause: &Quarantine) -> bool {
        match (self, cause) {
            (Self::AllButWired(wired), Quarantine::Wired(interface)) => !wired.contains(interface),
            (Self::RecordOf(key), Quarantine::SetAside { row }) => *row == key.to_string(),
            (Self::RecordOf(key), Quarantine::HeldInStore { by }) => by == key,
            (Self::AllButWired(_) | Self::RecordOf(_), _) => false,
        }
    }
}

/// One queue for all, so that what one caller sees done is done before what it asks next.
#[derive(Debug)]
enum Message {
    Reserve(Request),
    Settled { id: ResourceId, by: AttachmentKey, keep: bool },
    Condemned { id: ResourceId, by: AttachmentKey, cause: Quarantine },
    Release { id: ResourceId, owner: AttachmentKey, rest: SlotState },
    Transfer { id: ResourceId, from: AttachmentKey, to: AttachmentKey },
    Unwired(ResourceId),
    Quarantine { resource: Resource, cause: Quarantine },
    Clear { cleared: Cleared, until: BootTime },
    IsForeign { id: ResourceId, reply: oneshot::Sender<bool> },
    View(oneshot::Sender<PoolView>),
    Count(oneshot::Sender<Shortage>),
}

#[derive(Debug)]
struct Request {
    wish: Wish,
    reply: oneshot::Sender<Result<Reservation, PoolError>>,
    /// Given back with the request, whatever becomes of it.
    _place: OwnedSemaphorePermit,
}

#[derive(Debug)]
enum Done {
    Grown(Result<Vec<Resource>, SourceError>),
    Exactly(Request, Result<Resource, SourceError>),
    /// Slots went back to the provider, maybe to make room for a request.
    Shrunk(Vec<ResourceId>, Option<Request>),
}

impl Reservation {
    pub fn resource(&self) -> &Resource {
        &self.resource
    }

    /// The record is written: the resource is the caller's until released.
    pub fn commit(mut self) {
        self.settle(true);
    }

    /// Another holds it after all: it goes into quarantine instead of back.
    pub fn condemn(mut self, cause: Quarantine) {
        if let Some(messages) = self.messages.take() {
            let (id, by) = (self.resource.id.clone(), self.by.clone());
            let _ = messages.send(Message::Condemned { id, by, cause });
        }
    }

    fn settle(&mut self, keep: bool) {
        if let Some(messages) = self.messages.take() {
            let (id, by) = (self.resource.id.clone(), self.by.clone());
            let _ = messages.send(Message::Settled { id, by, keep });
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.settle(false);
    }
}

impl PoolHandle {
    /// Waits while something may still come, and says why not otherwise. Cancel-safe: a
    /// reservation nobody takes goes back.
    pub async fn reserve(&self, wish: Wish) -> Result<Reservation, PoolError> {
        let place = Arc::clone(&self.room).try_acquire_owned().map_err(|_| PoolError::Busy)?;
        let (reply, answer) = oneshot::channel();
        let request = Request { wish, reply, _place: place };
        self.messages.send(Message::Reserve(request)).map_err(|_| PoolError::Closed)?;
        answer.await.unwrap_or(Err(PoolError::Closed))
    }

    /// Lets `owner`'s resource rest. If it is another's by now, nothing happens.
    pub fn release(&self, id: ResourceId, owner: AttachmentKey, rest: SlotState) {
        self.send(Message::Release { id, owner, rest });
    }

    pub fn transfer(&self, id: ResourceId, from: AttachmentKey, to: AttachmentKey) {
        self.send(Message::Transfer { id, from, to });
    }

    /// The links of its last holder are really gone.
    pub fn unwired(&self, id: ResourceId) {
        self.send(Message::Unwired(id));
    }

    /// Nobody gets what is idle or rests of these addresses until [`PoolHandle::clear`].
    pub fn quarantine(&self, resource: Resource, cause: Quarantine) {
        self.send(Message::Quarantine { resource, cause });
    }

    /// Ends quarantines: what they were for rests until `until`, then it is given out again.
    pub fn clear(&self, cleared: Cleared, until: BootTime) {
        self.send(Message::Clear { cleared, until });
    }

    /// Whether the provider does not know it any more.
    pub async fn is_foreign(&self, id: ResourceId) -> Result<bool, PoolError> {
        let (reply, answer) = oneshot::channel();
        self.messages.send(Message::IsForeign { id, reply }).map_err(|_| PoolError::Closed)?;
        answer.await.map_err(|_| PoolError::Closed)
    }

    pub async fn view(&self) -> Result<PoolView, PoolError> {
        self.ask(Message::View).await
    }

    pub async fn count(&self) -> Result<Shortage, PoolError> {
        self.ask(Message::Count).await
    }

    async fn ask<T>(&self, make: fn(oneshot::Sender<T>) -> Message) -> Result<T, PoolError> {
        let (reply, answer) = oneshot::channel();
        self.messages.send(make(reply)).map_err(|_| PoolError::Closed)?;
        answer.await.map_err(|_| PoolError::Closed)
    }

    /// A pool that has stopped needs to hear nothing: the store is the truth.
    fn send(&self, message: Message) {
        let _ = self.messages.send(message);
    }
}

/// Splits a pool into its handle and the future that runs it. The caller spawns the future, and
/// so decides what outlives what.
pub fn pool_task(
    pool: Pool,
    source: Arc<dyn Source>,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
) -> (PoolHandle, impl Future<Output = ()> + Send) {
    let (messages, inbox) = mpsc::unbounded_channel();
    let handle =
        PoolHandle { messages: messages.clone(), room: Arc::new(Semaphore::new(WAITING_ROOM)) };
    let task =
        PoolTask { pool, source, clock, messages, waiting: VecDeque::new(), calls: JoinSet::new() };
    (handle, task.run(inbox, stop))
}

struct PoolTask {
    pool: Pool,
    source: Arc<dyn Source>,
    clock: Arc<dyn Clock>,
    messages: mpsc::UnboundedSender<Message>,
    waiting: VecDeque<Request>,
    calls: JoinSet<Done>,
}

impl PoolTask {
    async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Message>, stop: CancellationToken) {
        loop {
            self.pool.end_due(self.clock.now());
            self.serve_waiting();
            self.act();
            let pause = self.pool.next_change().map_or(LONGEST_SLEEP, |at| {
                at.since(self.clock.now()).clamp(Duration::from_millis(1), LONGEST_SLEEP)
            });
            tokio::select! {
                () = stop.cancelled() => break,
                Some(message) = inbox.recv() => {
                    self.take(message);
                    // A burst is one look at the pool, not one for each caller.
                    while let Ok(message) = inbox.try_recv() {
                        self.take(message);
                    }
                }
                Some(done) = self.calls.join_next() => match done {
                    Ok(done) => self.done(done),
                    // What it would have answered is not known, and who waits for it would wait
                    // for ever: the process ends over it.
                    Err(err) => std::panic::resume_unwind(err.into_panic()),
                },
                () = time::sleep(pause) => (),
            }
        }
        debug!(waiting = self.waiting.len(), "pool stopped");
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Reserve(request) => self.waiting.push_back(request),
            Message::Settled { id, by, keep } => self.pool.settle(&id, &by, keep),
            Message::Condemned { id, by, cause } => self.pool.condemn(&id, &by, cause),
            Message::Release { id, owner, rest } => {
                if !self.pool.release(&id, &owner, rest) {
                    debug!(%id, %owner, "a release of what it does not hold");
                }
            }
            Message::Transfer { id, from, to } => self.pool.transfer(&id, &from, &to),
            Message::Unwired(id) => self.pool.unwired(&id),
            Message::Quarantine { resource, cause } => self.pool.quarantine(resource, cause),
            Message::Clear { cleared, until } => {
                self.pool.clear(|cause| cleared.covers(cause), until);
            }
            Message::IsForeign { id, reply } => {
                let _ = reply.send(self.pool.is_foreign(&id));
            }
            Message::View(reply) => {
                let view = PoolView {
                    slots: self.pool.slots().cloned().collect(),
                    shortage: self.shortage(),
                    now: self.clock.now(),
                };
                let _ = reply.send(view);
            }
            Message::Count(reply) => {
                let _ = reply.send(self.shortage());
            }
        }
    }

    fn shortage(&self) -> Shortage {
        Shortage::of(&self.pool, self.clock.now())
    }

    fn serve_waiting(&mut self) {
        for request in std::mem::take(&mut self.waiting) {
            if request.reply.is_closed() {
                continue;
            }
            match self.pool.promise(&request.wish) {
                Ok(resource) => self.answer(request, resource),
                Err(Refusal::NothingIdle) if self.pool.may_grow(self.clock.now()) => {
                    self.waiting.push_back(request);
                }
                Err(Refusal::NothingIdle) => {
                    let shortage = Box::new(self.shortage());
                    let _ = request.reply.send(Err(PoolError::Exhausted(shortage)));
                }
                Err(Refusal::Held { address, by, until }) => {
                    let free_in = until.map(|until| until.since(self.clock.now()));
                    let _ = request.reply.send(Err(PoolError::Held { address, by, free_in }));
                }
                Err(Refusal::NotHere) => self.ask_exactly(request),
                Err(Refusal::Apart(slots)) => {
                    self.pool.take_apart(&slots);
                    self.give_back(slots, Some(request));
                }
            }
        }
    }

    fn answer(&self, request: Request, resource: Resource) {
        let by = request.wish.key.clone();
        let reservation = Reservation { resource, by, messages: Some(self.messages.clone()) };
        // A caller gone by now drops the reservation, which gives it back.
        let _ = request.reply.send(Ok(reservation));
    }

    fn act(&mut self) {
        match self.pool.next_action(self.clock.now(), self.waiting.len()) {
            Some(Action::Grow(count)) => self.grow(count),
            Some(Action::Shrink(gone)) => self.give_back(gone, None),
            None => (),
        }
    }

    fn grow(&mut self, count: NonZeroUsize) {
        let source = Arc::clone(&self.source);
        self.calls.spawn(async move { Done::Grown(source.assign(count).await) });
    }

    fn ask_exactly(&mut self, request: Request) {
        let (source, addresses): (_, AddressSet) =
            (Arc::clone(&self.source), request.wish.addresses);
        self.calls.spawn(async move {
            let answer = source.assign_exactly(addresses).await;
            Done::Exactly(request, answer)
        });
    }

    fn give_back(&mut self, resources: Vec<Resource>, then: Option<Request>) {
        let source = Arc::clone(&self.source);
        self.calls.spawn(async move {
            let ids = resources.iter().map(|resource| resource.id.clone()).collect();
            if let Err(err) = source.unassign(resources).await {
                warn!(%err, "cannot give addresses back to the provider");
            }
            Done::Shrunk(ids, then)
        });
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::Grown(Ok(fresh)) => self.pool.grown(fresh),
            Done::Grown(Err(err)) => {
                // Those who wait are told by the next look: the pool may not grow now.
                debug!(%err, "the provider gives no more addresses");
                self.pool.grow_failed(self.clock.now(), err);
            }
            Done::Exactly(request, Ok(resource)) => {
                match self.pool.promise_fresh(resource.clone(), &request.wish) {
                    Ok(resource) => self.answer(request, resource),
                    Err(Refusal::Held { address, by, .. }) => {
                        self.give_back(vec![resource], None);
                        let held = PoolError::Held { address, by, free_in: None };
                        let _ = request.reply.send(Err(held));
                    }
                    Err(Refusal::NothingIdle | Refusal::NotHere | Refusal::Apart(_)) => {
                        self.waiting.push_back(request);
                    }
                }
            }
            Done::Exactly(request, Err(err)) => {
                let _ = request.reply.send(Err(PoolError::Refused(err)));
            }
            Done::Shrunk(ids, then) => {
                self.pool.drained(&ids);
                self.waiting.extend(then);
            }
        }
    }
}

#[cfg(test)]
mod tests;
