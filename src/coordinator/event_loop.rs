//! The one loop: [`LoopEvent`] -> the machine's events -> the machine -> the journal -> effects. It owns the machine and the
//! journal, and awaits nothing that a sandbox, the engine or git could delay: the tasks of `effects.rs` do that.
//!
//! Called by `startup.rs`. Must not: decide anything; decisions are the machine's.

use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinError;
use tokio::time::Instant;

use crate::state::SwarmStore;
use crate::swarm::{Effect, Event, MachineryFault, StopLevel, SwarmMachine, SwarmOutcome};
use crate::verdict::Cause;

use super::control::{ControlCommand, ControlReply, ControlRequest};
use super::effects::{EffectExecutor, EngineScan};
use super::error::CoordinatorError;
use super::event_queue::QueuedEvent;
use super::recovery::reconcile::RECONCILE_INTERVAL;
use super::runtime::{SwarmClock, run_blocking, sleep_until_deadline};
use super::snapshot_writer::SnapshotWriter;
use super::stop_signals::StopSignals;

/// The most events that are handled at once: they share one write to the journal.
const MAX_EVENT_BATCH: usize = 256;

/// Everything that wakes the loop.
enum LoopEvent {
    /// Events for the machine, from the tasks.
    Queued(Vec<QueuedEvent>),
    /// The machine's next deadline has passed.
    DeadlinePassed,
    /// The state file is due to be written.
    SnapshotDue,
    /// SIGINT or SIGTERM; no level means to leave at once.
    StopSignal {
        level: Option<StopLevel>,
        by: String,
    },
    /// A command of `longshore stop` or `longshore admin`.
    Control(ControlRequest),
    /// The engine's resources should be compared with the machine's state.
    ReconcileDue,
    /// The engine's resources.
    EngineScanned(EngineScan),
    /// A notification failed, which the user should know.
    NotifyFailed(String),
    TaskEnded(Result<(), JoinError>),
}

/// The sources of [`LoopEvent`], besides the machine's deadlines and the executor's tasks.
pub(super) struct LoopInputs {
    pub events: mpsc::UnboundedReceiver<QueuedEvent>,
    pub commands: mpsc::Receiver<ControlRequest>,
    pub signals: StopSignals,
    pub reconcile_requested: Arc<Notify>,
    pub next_reconcile: Instant,
    pub engine_scans: mpsc::UnboundedReceiver<EngineScan>,
    pub warnings: mpsc::UnboundedReceiver<String>,
}

impl LoopInputs {
    /// Closes the inputs, so that no sender waits, except for the warnings.
    pub fn close(self) -> mpsc::UnboundedReceiver<String> {
        self.warnings
    }
}

/// A running swarm. Built by `startup.rs`, closed by `shutdown.rs`.
pub(super) struct Coordinator {
    pub machine: SwarmMachine,
    pub clock: SwarmClock,
    pub store: SwarmStore,
    pub snapshots: SnapshotWriter,
    pub executor: EffectExecutor,
    pub inputs: LoopInputs,
    /// The events that begin or resume the swarm. The loop applies them before it listens to anything else: a machine that has an
    /// outcome drops every event before `Event::Resumed`, and a sandbox that has ended reports its end only once.
    pub first_events: Vec<Event>,
    /// The last batch had `Event::Resumed`: what its effects start may exist already.
    pub resuming: bool,
    /// `None` while the swarm runs, and after the user left it at once.
    pub outcome: Option<SwarmOutcome>,
    /// The user wants to leave at once.
    pub abandoned: bool,
}

impl Coordinator {
    /// Runs the swarm until the machine has finished, or the user leaves it.
    ///
    /// # Errors
    /// [`CoordinatorError`] if the swarm's record cannot be written.
    pub async fn run_loop(&mut self) -> Result<(), CoordinatorError> {
        let first_events = std::mem::take(&mut self.first_events);
        let effects = self.apply(first_events.into_iter().map(QueuedEvent::from).collect())?;
        self.execute(effects);
        while self.outcome.is_none() && !self.abandoned {
            let event = self.next_event().await;
            let effects = self.handle_event(event)?;
            self.execute(effects);
            if let Some(snapshot) = self.store.snapshot_if_due(&self.machine, self.clock.now())? {
                self.snapshots.write(snapshot);
            }
        }
        Ok(())
    }

    fn execute(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Finish(outcome) => self.outcome = Some(outcome),
                effect => self.executor.execute(effect, &self.machine, self.resuming),
            }
        }
    }

    async fn next_event(&mut self) -> LoopEvent {
        let deadline = self.machine.next_deadline().map(|time| self.clock.instant_at(time));
        let snapshot = self.store.snapshot_due_at().map(|time| self.clock.instant_at(time));
        let inputs = &mut self.inputs;
        let mut batch = Vec::new();
        tokio::select! {
            _ = inputs.events.recv_many(&mut batch, MAX_EVENT_BATCH) => LoopEvent::Queued(batch),
            () = sleep_until_deadline(deadline) => LoopEvent::DeadlinePassed,
            () = sleep_until_deadline(snapshot) => LoopEvent::SnapshotDue,
            (level, by) = inputs.signals.next() => LoopEvent::StopSignal { level, by },
            Some(request) = inputs.commands.recv() => LoopEvent::Control(request),
            () = inputs.reconcile_requested.notified() => LoopEvent::ReconcileDue,
            () = tokio::time::sleep_until(inputs.next_reconcile) => LoopEvent::ReconcileDue,
            Some(scan) = inputs.engine_scans.recv() => LoopEvent::EngineScanned(scan),
            Some(problem) = inputs.warnings.recv() => LoopEvent::NotifyFailed(problem),
            ended = self.executor.next_ended_task() => LoopEvent::TaskEnded(ended),
        }
    }

    /// Handles a loop event, and returns the effects of the machine's events in it.
    fn handle_event(&mut self, event: LoopEvent) -> Result<Vec<Effect>, CoordinatorError> {
        let event = match event {
            LoopEvent::Queued(batch) => return self.apply(batch),
            LoopEvent::DeadlinePassed => Some(Event::DeadlinePassed),
            LoopEvent::SnapshotDue => None,
            LoopEvent::StopSignal { level: Some(level), by } => Some(Event::StopRequested { level, by }),
            LoopEvent::StopSignal { level: None, .. } => {
                // The journal is complete; `gc` and salvage find the rest.
                self.abandoned = true;
                None
            }
            LoopEvent::Control(request) => self.handle_command(request),
            LoopEvent::ReconcileDue => {
                self.inputs.next_reconcile = Instant::now() + RECONCILE_INTERVAL;
                self.executor.scan_engine();
                None
            }
            LoopEvent::EngineScanned(scan) => {
                self.executor.reconcile(scan, &self.machine);
                None
            }
            LoopEvent::NotifyFailed(problem) => {
                self.executor.announce_notify_failure(problem);
                None
            }
            LoopEvent::TaskEnded(ended) => ended.is_err_and(|error| error.is_panic()).then(|| {
                // The event that the machine waits for will not come.
                let summary = "a part of longshore failed: see longshore.log";
                Event::MachineryFailed { fault: MachineryFault::new(Cause::HostError, summary, false) }
            }),
        };
        self.apply(event.into_iter().map(QueuedEvent::from).collect())
    }

    fn handle_command(&mut self, request: ControlRequest) -> Option<Event> {
        let ControlRequest { command, reply } = request;
        let (answer, event) = match command {
            ControlCommand::Stop { level } => {
                (ControlReply::Accepted, Some(Event::StopRequested { level, by: "longshore stop".to_owned() }))
            }
            ControlCommand::Decide { decision } => {
                match self.machine.check_decision(&decision.task, &decision.action) {
                    Ok(()) => (ControlReply::Accepted, Some(Event::DecisionMade { decision })),
                    Err(problem) => (ControlReply::Refused { problem }, None),
                }
            }
        };
        // The client may have left.
        let _ = reply.send(answer);
        event
    }

    /// Has the machine handle the events, and makes them durable before their effects are returned.
    fn apply(&mut self, batch: Vec<QueuedEvent>) -> Result<Vec<Effect>, CoordinatorError> {
        let now = self.clock.now();
        let mut durable = Vec::with_capacity(batch.len());
        let mut effects = Vec::new();
        self.resuming = false;
        for QueuedEvent { event, .. } in batch {
            self.resuming |= event == Event::Resumed;
            if let Event::SandboxCreated { attempt, container, .. } = &event {
                self.executor.set_container(attempt, container);
            }
            let mut wanted = self.machine.handle(&event, now);
            if wanted.first() == Some(&Effect::Persist) {
                wanted.remove(0);
                durable.push((event, now));
            }
            effects.extend(wanted);
        }
        // One write and one sync for the batch. It blocks this thread for the disk's milliseconds; what follows has to wait
        // for it anyway.
        if !durable.is_empty() {
            run_blocking(|| self.store.append(&durable, Timestamp::now()))?;
        }
        Ok(effects)
    }
}
