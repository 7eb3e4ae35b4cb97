//! The way in for events: one queue for the loop, fair between senders. Each sender may have only so many events waiting, so a
//! sandbox that talks without end holds up itself alone.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::swarm::Event;

/// How many events of one sender may wait.
const WAITING: usize = 32;

/// An event, with the place that it holds in its sender's share until the loop has taken it.
pub(super) struct Posted {
    pub event: Event,
    _place: Option<OwnedSemaphorePermit>,
}

/// The sending side. Clones made by [`Postbox::share`] have a share of their own; `clone` keeps the share.
#[derive(Clone)]
pub(super) struct Postbox {
    queue: mpsc::UnboundedSender<Posted>,
    places: Arc<Semaphore>,
}

impl Postbox {
    /// A queue and its first sender. The queue itself has no bound: it is bounded by the shares of those who send.
    pub fn new() -> (Self, mpsc::UnboundedReceiver<Posted>) {
        let (queue, receiver) = mpsc::unbounded_channel();
        (Self { queue, places: Arc::new(Semaphore::new(WAITING)) }, receiver)
    }

    /// A sender with a share of its own.
    pub fn share(&self) -> Self {
        Self { queue: self.queue.clone(), places: Arc::new(Semaphore::new(WAITING)) }
    }

    /// Posts an event, waiting while this sender's share is used up.
    pub async fn post(&self, event: Event) {
        let place = Arc::clone(&self.places).acquire_owned().await.ok();
        // The loop is gone only when the swarm is over: nobody is left to tell.
        let _ = self.queue.send(Posted { event, _place: place });
    }

    /// Posts an event that happens at most a few times in a swarm, without waiting.
    pub fn post_now(&self, event: Event) {
        let _ = self.queue.send(Posted { event, _place: None });
    }
}

impl From<Event> for Posted {
    /// An event of the loop's own, which holds nobody's place.
    fn from(event: Event) -> Self {
        Self { event, _place: None }
    }
}
