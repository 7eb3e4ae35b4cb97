//! The queue of machine events, fair between senders: each sender may have only [`MAX_WAITING_EVENTS`] in the queue, so a sandbox
//! that writes without end delays itself only.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::swarm::Event;

/// How many events of one sender may wait.
const MAX_WAITING_EVENTS: usize = 32;

/// An event. Until it is dropped it counts against its sender's share.
pub(super) struct QueuedEvent {
    pub event: Event,
    _permit: Option<OwnedSemaphorePermit>,
}

/// The sending side. A clone uses the same share of the queue; [`EventSender::with_own_share`] gets a share of its own.
#[derive(Clone)]
pub(super) struct EventSender {
    queue: mpsc::UnboundedSender<QueuedEvent>,
    permits: Arc<Semaphore>,
}

impl EventSender {
    /// The queue itself is unbounded: the senders' shares bound it.
    pub fn new() -> (Self, mpsc::UnboundedReceiver<QueuedEvent>) {
        let (queue, receiver) = mpsc::unbounded_channel();
        (Self { queue, permits: Arc::new(Semaphore::new(MAX_WAITING_EVENTS)) }, receiver)
    }

    pub fn with_own_share(&self) -> Self {
        Self { queue: self.queue.clone(), permits: Arc::new(Semaphore::new(MAX_WAITING_EVENTS)) }
    }

    /// Sends an event. Waits while this sender's share is used up.
    pub async fn send(&self, event: Event) {
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok();
        // The loop drops the receiver only when the swarm is over.
        let _ = self.queue.send(QueuedEvent { event, _permit: permit });
    }

    /// Sends an event without waiting. For events that occur a few times in a swarm.
    pub fn send_now(&self, event: Event) {
        let _ = self.queue.send(QueuedEvent::from(event));
    }
}

impl From<Event> for QueuedEvent {
    /// An event that counts against nobody's share.
    fn from(event: Event) -> Self {
        Self { event, _permit: None }
    }
}
