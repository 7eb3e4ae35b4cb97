//! Watches whether the engine is available: one task follows its events, pings it when they end, and reports to the loop when the
//! engine goes away and when it is back. Sessions ask here about outages during their sandbox's life, and about containers that
//! ran out of memory. Started by `event_loop.rs`. Must not: decide what an outage means; the machine does.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::engine::{Engine, EngineError, EngineEvent, EngineEventKind, EngineResult, label};
use crate::error_chain::error_chain;
use crate::ids::SwarmId;
use crate::swarm::Event;

use super::event_queue::EventSender;

/// The pause before events are followed again, and between pings of an engine that is away.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// How long after the engine's return the end of a sandbox may still be the outage's doing.
const RECENT_OUTAGE_WINDOW: Duration = Duration::from_secs(60);
/// A daemon that accepts connections counts as away after this many unanswered pings in a row.
const MAX_FAILED_PINGS: u32 = 3;

#[derive(Debug, Clone, Default)]
struct EngineState {
    unavailable: bool,
    outage_count: u64,
    recovered_at: Option<Instant>,
    /// Containers in which the kernel killed a process for memory.
    oom_containers: BTreeSet<String>,
}

/// What sessions see of the engine's state.
#[derive(Clone)]
pub(super) struct EngineMonitor {
    state: watch::Receiver<EngineState>,
}

impl EngineMonitor {
    /// A monitor, and the task that feeds it until it is aborted. `reconcile_requested` is notified when the engine's
    /// resources should be compared with the machine's state.
    pub fn new(
        engine: Arc<dyn Engine>,
        swarm: SwarmId,
        events: EventSender,
        reconcile_requested: Arc<Notify>,
    ) -> (Self, impl Future<Output = ()>) {
        let (sender, state) = watch::channel(EngineState::default());
        let watcher = EngineWatcher { engine, swarm: swarm.to_string(), events, reconcile_requested, state: sender };
        (Self { state }, watcher.run())
    }

    /// The number of outages so far.
    pub fn outage_count(&self) -> u64 {
        self.state.borrow().outage_count
    }

    /// Whether the engine is away, or was a moment ago: what ends now may have ended with it.
    pub fn recently_unavailable(&self) -> bool {
        let state = self.state.borrow();
        state.unavailable || state.recovered_at.is_some_and(|at| at.elapsed() < RECENT_OUTAGE_WINDOW)
    }

    /// Whether the kernel killed a process of this container for memory, according to the engine's events.
    pub fn ran_out_of_memory(&self, container: &str) -> bool {
        self.state.borrow().oom_containers.contains(container)
    }

    /// Waits until the engine is available, and at least [`RETRY_INTERVAL`].
    pub async fn wait_until_available(&mut self) {
        tokio::time::sleep(RETRY_INTERVAL).await;
        // The watcher ends only with the swarm.
        let _ = self.state.wait_for(|state| !state.unavailable).await;
    }

    /// Repeats a call while its error is `retryable`, with [`Self::wait_until_available`] in between.
    pub async fn retry<T, F: Future<Output = EngineResult<T>>>(
        &mut self,
        retryable: impl Fn(&EngineError) -> bool,
        mut call: impl FnMut() -> F,
    ) -> EngineResult<T> {
        loop {
            match call().await {
                Err(error) if retryable(&error) => {
                    tracing::info!(error = %error_chain(&error), "a call to the engine failed and is repeated");
                    self.wait_until_available().await;
                }
                other => return other,
            }
        }
    }
}

struct EngineWatcher {
    engine: Arc<dyn Engine>,
    swarm: String,
    events: EventSender,
    reconcile_requested: Arc<Notify>,
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
                Err(error) => tracing::debug!(error = %error_chain(&error), "cannot follow the engine's events"),
            }
            if let Some(problem) = self.detect_outage().await {
                self.state.send_modify(|state| {
                    state.unavailable = true;
                    state.outage_count += 1;
                });
                self.events.send_now(Event::EngineLost { problem });
                while self.engine.ping().await.is_err() {
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
                self.state.send_modify(|state| {
                    state.unavailable = false;
                    state.recovered_at = Some(Instant::now());
                });
                self.events.send_now(Event::EngineReconnected);
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
                self.state.send_modify(|state| {
                    state.oom_containers.insert(event.container);
                });
            }
            EngineEventKind::Paused | EngineEventKind::Unpaused => self.reconcile_requested.notify_one(),
            _ => {}
        }
    }

    /// Why the engine counts as away; `None` if it answers.
    async fn detect_outage(&self) -> Option<String> {
        let mut failed_pings = 0;
        loop {
            let error = self.engine.ping().await.err()?;
            failed_pings += 1;
            if error.is_unreachable() || failed_pings == MAX_FAILED_PINGS {
                return Some(error_chain(&error));
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }
}
