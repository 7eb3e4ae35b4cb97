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

use super::event_queue::EventSender;
use crate::error_chain::error_chain;

/// The pause before events are followed again, and between questions to an engine that is away.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// From an engine's return to the last of the ends that it is to blame for.
const RECENT_OUTAGE_WINDOW: Duration = Duration::from_secs(60);
/// Of a daemon that is there and does not answer, this many questions in a row are an absence.
const MAX_FAILED_PINGS: u32 = 3;

/// What is known of the engine.
#[derive(Debug, Clone, Default)]
struct EngineState {
    unavailable: bool,
    /// How often it went away.
    outage_count: u64,
    /// When it was seen to be back.
    recovered_at: Option<Instant>,
    /// Containers in which the kernel killed a process for memory.
    oom_containers: BTreeSet<String>,
}

/// What sessions see of it.
#[derive(Clone)]
pub(super) struct EngineMonitor {
    state: watch::Receiver<EngineState>,
}

impl EngineMonitor {
    /// How often the engine went away so far.
    pub fn outage_count(&self) -> u64 {
        self.state.borrow().outage_count
    }

    /// Whether it is away, or was a moment ago: what ends now may have ended with it.
    pub fn recently_unavailable(&self) -> bool {
        let standing = self.state.borrow();
        standing.unavailable || standing.recovered_at.is_some_and(|at| at.elapsed() < RECENT_OUTAGE_WINDOW)
    }

    /// Whether the engine said that the kernel killed a process of this container for memory.
    pub fn ran_out_of_memory(&self, container: &str) -> bool {
        self.state.borrow().oom_containers.contains(container)
    }

    /// Waits until the engine is there, and at least a moment.
    pub async fn wait_until_available(&mut self) {
        tokio::time::sleep(RETRY_INTERVAL).await;
        // The watcher is gone only when the swarm is over.
        let _ = self.state.wait_for(|standing| !standing.unavailable).await;
    }
}

/// Watches until it is aborted. `look` is told when the engine's things are worth a look.
pub(super) fn watch_engine(
    engine: Arc<dyn Engine>,
    swarm: SwarmId,
    postbox: EventSender,
    look: Arc<tokio::sync::Notify>,
) -> (EngineMonitor, impl Future<Output = ()>) {
    let (sender, standing) = watch::channel(EngineState::default());
    let watcher = EngineWatcher { engine, swarm: swarm.to_string(), postbox, reconcile_requested: look, state: sender };
    (EngineMonitor { state: standing }, watcher.run())
}

struct EngineWatcher {
    engine: Arc<dyn Engine>,
    swarm: String,
    postbox: EventSender,
    reconcile_requested: Arc<tokio::sync::Notify>,
    state: watch::Sender<EngineState>,
}

impl EngineWatcher {
    async fn run(self) {
        let mut since = Timestamp::now();
        loop {
            match self.engine.events(label::SWARM, &self.swarm, since).await {
                Ok(mut events) => {
                    while let Some(Ok(event)) = events.next().await {
                        since = since.max(event.at);
                        self.handle_engine_event(event);
                    }
                }
                Err(error) => tracing::debug!(error = %error_chain(&error), "the engine's events cannot be followed"),
            }
            if let Some(problem) = self.detect_outage().await {
                self.state.send_modify(|standing| {
                    standing.unavailable = true;
                    standing.outage_count += 1;
                });
                self.postbox.send_now(Event::EngineLost { problem });
                while self.engine.ping().await.is_err() {
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
                self.state.send_modify(|standing| {
                    standing.unavailable = false;
                    standing.recovered_at = Some(Instant::now());
                });
                self.postbox.send_now(Event::EngineReconnected);
            } else {
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
            // Events may have been missed.
            self.reconcile_requested.notify_one();
        }
    }

    fn handle_engine_event(&self, event: EngineEvent) {
        match event.kind {
            EngineEventKind::OutOfMemory => {
                self.state.send_modify(|standing| {
                    standing.oom_containers.insert(event.container);
                });
            }
            EngineEventKind::Paused | EngineEventKind::Unpaused => self.reconcile_requested.notify_one(),
            _ => {}
        }
    }

    /// Why the engine is taken to be away; none where it answers.
    async fn detect_outage(&self) -> Option<String> {
        let mut unanswered = 0;
        loop {
            let error = self.engine.ping().await.err()?;
            unanswered += 1;
            let refused = matches!(error, EngineError::Unreachable { .. });
            if refused || unanswered == MAX_FAILED_PINGS {
                return Some(error_chain(&error));
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }
}
