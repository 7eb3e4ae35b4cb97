//! The way in for events: one queue for the loop, fair between senders. Each sender may have only so many events waiting, so a
//! sandbox that talks without end holds up itself alone.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::swarm::Event;

/// How many events of one sender may wait.
const MAX_WAITING_EVENTS: usize = 32;

/// An event, with the place that it holds in its sender's share until the loop has taken it.
pub(super) struct QueuedEvent {
    pub event: Event,
    _permit: Option<OwnedSemaphorePermit>,
}

/// The sending side. Clones made by [`EventSender::with_own_share`] have a with_own_share of their own; `clone` keeps the with_own_share.
#[derive(Clone)]
pub(super) struct EventSender {
    queue: mpsc::UnboundedSender<QueuedEvent>,
    permits: Arc<Semaphore>,
}

impl EventSender {
    /// A queue and its first sender. The queue itself has no bound: it is bounded by the shares of those who send.
    pub fn new() -> (Self, mpsc::UnboundedReceiver<QueuedEvent>) {
        let (queue, receiver) = mpsc::unbounded_channel();
        (Self { queue, permits: Arc::new(Semaphore::new(MAX_WAITING_EVENTS)) }, receiver)
    }

    /// A sender with a share of its own.
    pub fn with_own_share(&self) -> Self {
        Self { queue: self.queue.clone(), permits: Arc::new(Semaphore::new(MAX_WAITING_EVENTS)) }
    }

    /// Posts an event, waiting while this sender's share is used up.
    pub async fn send(&self, event: Event) {
        let place = Arc::clone(&self.permits).acquire_owned().await.ok();
        // The loop is gone only when the swarm is over: nobody is left to tell.
        let _ = self.queue.send(QueuedEvent { event, _permit: place });
    }

    /// Posts an event that happens at most a few times in a swarm, without waiting.
    pub fn send_now(&self, event: Event) {
        let _ = self.queue.send(QueuedEvent { event, _permit: None });
    }
}

impl From<Event> for QueuedEvent {
    /// An event of the loop's own, which holds nobody's place.
    fn from(event: Event) -> Self {
        Self { event, _permit: None }
    }
}
