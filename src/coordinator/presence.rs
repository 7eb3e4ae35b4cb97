//! Whether the engine is there: one task follows its events, asks whether it answers when they end, and tells the loop when it goes away
//! and when it is back. Sessions ask here whether it was away while their sandbox ran, and what it said of memory. Called by
//! `run.rs`. Must not: decide what an absence means; that is the machine's.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::engine::{Engine, EngineError, EngineEvent, EngineEventKind, label};
use crate::ids::SwarmId;
use crate::swarm::Event;

use super::inbox::Postbox;
use super::session::chain;

/// The pause before events are followed again, and between questions to an engine that is away.
const PAUSE: Duration = Duration::from_millis(500);
/// From an engine's return to the last of the ends that it is to blame for.
const LATELY: Duration = Duration::from_secs(60);
/// Of a daemon that is there and does not answer, this many questions in a row are an absence.
const UNANSWERED: u32 = 3;

/// What is known of the engine.
#[derive(Debug, Clone, Default)]
struct Standing {
    away: bool,
    /// How often it went away.
    losses: u64,
    /// When it was seen to be back.
    back: Option<Instant>,
    /// Containers in which the kernel killed a process for memory.
    short_of_memory: BTreeSet<String>,
}

/// What sessions see of it.
#[derive(Clone)]
pub(super) struct Presence {
    standing: watch::Receiver<Standing>,
}

impl Presence {
    /// How often the engine went away so far.
    pub fn losses(&self) -> u64 {
        self.standing.borrow().losses
    }

    /// Whether it is away, or was a moment ago: what ends now may have ended with it.
    pub fn lately_away(&self) -> bool {
        let standing = self.standing.borrow();
        standing.away || standing.back.is_some_and(|at| at.elapsed() < LATELY)
    }

    /// Whether the engine said that the kernel killed a process of this container for memory.
    pub fn ran_out_of_memory(&self, container: &str) -> bool {
        self.standing.borrow().short_of_memory.contains(container)
    }

    /// Waits until the engine is there, and at least a moment.
    pub async fn back(&mut self) {
        tokio::time::sleep(PAUSE).await;
        // The watcher is gone only when the swarm is over.
        let _ = self.standing.wait_for(|standing| !standing.away).await;
    }
}

/// Watches until it is aborted. `look` is told when the engine's things are worth a look.
pub(super) fn watch(
    engine: Arc<dyn Engine>,
    swarm: SwarmId,
    postbox: Postbox,
    look: Arc<tokio::sync::Notify>,
) -> (Presence, impl Future<Output = ()>) {
    let (sender, standing) = watch::channel(Standing::default());
    let watcher = Watcher { engine, swarm: swarm.to_string(), postbox, look, standing: sender };
    (Presence { standing }, watcher.run())
}

struct Watcher {
    engine: Arc<dyn Engine>,
    swarm: String,
    postbox: Postbox,
    look: Arc<tokio::sync::Notify>,
    standing: watch::Sender<Standing>,
}

impl Watcher {
    async fn run(self) {
        let mut since = Timestamp::now();
        loop {
            match self.engine.events(label::SWARM, &self.swarm, since).await {
                Ok(mut events) => {
                    while let Some(Ok(event)) = events.next().await {
                        since = since.max(event.at);
                        self.heard(event);
                    }
                }
                Err(error) => tracing::debug!(error = %chain(&error), "the engine's events cannot be followed"),
            }
            if let Some(problem) = self.absence().await {
                self.standing.send_modify(|standing| {
                    standing.away = true;
                    standing.losses += 1;
                });
                self.postbox.post_now(Event::EngineLost { problem });
                while self.engine.ping().await.is_err() {
                    tokio::time::sleep(PAUSE).await;
                }
                self.standing.send_modify(|standing| {
                    standing.away = false;
                    standing.back = Some(Instant::now());
                });
                self.postbox.post_now(Event::EngineBack);
            } else {
                tokio::time::sleep(PAUSE).await;
            }
            // Events may have been missed.
            self.look.notify_one();
        }
    }

    fn heard(&self, event: EngineEvent) {
        match event.kind {
            EngineEventKind::OutOfMemory => {
                self.standing.send_modify(|standing| {
                    standing.short_of_memory.insert(event.container);
                });
            }
            EngineEventKind::Paused | EngineEventKind::Unpaused => self.look.notify_one(),
            _ => {}
        }
    }

    /// Why the engine is taken to be away; none where it answers.
    async fn absence(&self) -> Option<String> {
        let mut unanswered = 0;
        loop {
            let error = self.engine.ping().await.err()?;
            unanswered += 1;
            let refused = matches!(error, EngineError::Unreachable { .. });
            if refused || unanswered == UNANSWERED {
                return Some(chain(&error));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}
