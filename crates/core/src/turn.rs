use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use berth_types::{AttachmentKey, PodInterface};
use tokio::{sync::oneshot, time};

/// What one call at a time may change.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Subject {
    Attachment(AttachmentKey),
    /// A second sandbox of the pod must see what became of the first, while the pod's other
    /// networks may go on beside it.
    Pod(PodInterface),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attachment(key) => write!(f, "attachment {key}"),
            Self::Pod(pod) => write!(f, "pod {pod}"),
        }
    }
}

/// At most one call per subject at a time, in order of arrival.
#[derive(Debug, Clone, Default)]
pub(crate) struct Turns {
    taken: Arc<Mutex<HashMap<Subject, Queue>>>,
}

#[derive(Debug)]
struct Queue {
    holder: &'static str,
    waiting: VecDeque<(&'static str, oneshot::Sender<Turn>)>,
}

/// Holds the turn until dropped, then hands it to whoever waits longest.
#[must_use = "the turn ends when this is dropped"]
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Turns,
    subject: Option<Subject>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{subject} is busy with {holder}")]
pub struct Busy {
    subject: String,
    holder: &'static str,
}

impl Turns {
    /// Waits at most `limit`, then says who holds the turn.
    pub(crate) async fn take(
        &self,
        subject: Subject,
        who: &'static str,
        limit: Duration,
    ) -> Result<Turn, Busy> {
        let turn = match self.enter(&subject, who) {
            Ok(turn) => return Ok(turn),
            Err(waiting) => waiting,
        };
        // Cancelled while waiting: the sender finds the receiver gone and passes the turn on.
        // Granted at the same moment: the turn is in the channel and is dropped with it.
        match time::timeout(limit, turn).await {
            Ok(Ok(turn)) => Ok(turn),
            Ok(Err(_)) | Err(_) => Err(self.busy(&subject)),
        }
    }

    /// Takes the turn if nobody has it.
    pub(crate) fn try_take(&self, subject: Subject, who: &'static str) -> Option<Turn> {
        let mut taken = self.lock();
        if taken.contains_key(&subject) {
            return None;
        }
        taken.insert(subject.clone(), Queue { holder: who, waiting: VecDeque::new() });
        drop(taken);
        Some(Turn { turns: self.clone(), subject: Some(subject) })
    }

    fn enter(&self, subject: &Subject, who: &'static str) -> Result<Turn, oneshot::Receiver<Turn>> {
        let mut taken = self.lock();
        if let Some(queue) = taken.get_mut(subject) {
            let (sender, receiver) = oneshot::channel();
            queue.waiting.push_back((who, sender));
            return Err(receiver);
        }
        taken.insert(subject.clone(), Queue { holder: who, waiting: VecDeque::new() });
        Ok(Turn { turns: self.clone(), subject: Some(subject.clone()) })
    }

    fn busy(&self, subject: &Subject) -> Busy {
        let holder = self.lock().get(subject).map_or("another call", |queue| queue.holder);
        Busy { subject: subject.to_string(), holder }
    }

    fn pass_on(&self, subject: Subject) {
        loop {
            let next = {
                let mut taken = self.lock();
                let Some(queue) = taken.get_mut(&subject) else { return };
                match queue.waiting.pop_front() {
                    Some((who, sender)) => {
                        queue.holder = who;
                        sender
                    }
                    None => {
                        taken.remove(&subject);
                        return;
                    }
                }
            };
            let turn = Turn { turns: self.clone(), subject: Some(subject.clone()) };
            match next.send(turn) {
                Ok(()) => return,
                // It gave up waiting: take the turn out again without ending it.
                Err(mut turn) => turn.subject = None,
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Subject, Queue>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(subject) = self.subject.take() {
            self.turns.pass_on(subject);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject() -> Subject {
        Subject::Attachment(AttachmentKey::new("net", "c1", "eth0").unwrap())
    }

    const LIMIT: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn the_second_waits_for_the_first() {
        let turns = Turns::default();
        let first = turns.take(subject(), "ADD", LIMIT).await.unwrap();
        let second = tokio::spawn({
            let turns = turns.clone();
            async move { turns.take(subject(), "DEL", LIMIT).await.map(drop) }
        });
        time::sleep(Duration::from_secs(1)).await;
        assert!(!second.is_finished());
        drop(first);
        second.await.unwrap().unwrap();
        assert!(turns.lock().is_empty(), "nothing is kept of a turn that ended");
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_too_long_is_told_who_has_the_turn() {
        let turns = Turns::default();
        let _first = turns.take(subject(), "ADD", LIMIT).await.unwrap();
        let err = turns.take(subject(), "DEL", LIMIT).await.unwrap_err();
        assert_eq!(err.to_string(), "attachment net/c1/eth0 is busy with ADD");
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_that_gave_up_does_not_keep_the_turn() {
        let turns = Turns::default();
        let first = turns.take(subject(), "ADD", LIMIT).await.unwrap();
        assert!(turns.take(subject(), "DEL", Duration::from_secs(1)).await.is_err());
        let third = tokio::spawn({
            let turns = turns.clone();
            async move { turns.take(subject(), "GC", LIMIT).await.map(drop) }
        });
        time::sleep(Duration::from_millis(1)).await;
        drop(first);
        third.await.unwrap().unwrap();
        assert!(turns.try_take(subject(), "ADD").is_some());
    }
}
