//! Writes AMP messages to the SSOT, in order, on a thread of its own. An [`EscalationListener`] sees only newly written
//! escalations.
//!
//! The journal has every event before its intents are written, and message ids follow from the events: after a crash the intents
//! of the whole journal are composed again, and only missing messages are written. Of several waiting versions of a task file
//! only the newest is written. Used by `effects.rs`. Must not: delay the loop.

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use jiff::Timestamp;

use crate::coordinator::event_queue::EventSender;
use crate::coordinator::fault::storage_fault;
use crate::coordinator::memory::StoryMemory;
use crate::error_chain::error_chain;
use crate::ids::{AssignmentId, SwarmId};
use crate::protocol::amp::message::{AmpMessage, Payload};
use crate::protocol::amp::rules::AmpViolation;
use crate::protocol::amp::store::{EnsureOutcome, Ssot, SsotError, TaskFile};
use crate::swarm::{AmpIntent, Event};

use super::composer::{AmpComposer, SsotRecord};
use super::escalation_listener::EscalationListener;

enum SsotJob {
    Record(SsotRecord),
    Memory(Arc<StoryMemory>),
    /// The text of a message, and the rule that it breaks.
    Rejected(String, AmpViolation),
}

/// The composer, and the queue to the writer's thread.
pub(crate) struct SsotWriter {
    composer: AmpComposer,
    jobs: mpsc::Sender<SsotJob>,
    thread: JoinHandle<Box<dyn EscalationListener>>,
}

impl SsotWriter {
    /// Starts the thread. A failed write ends the swarm: its record could not be kept.
    pub fn spawn(
        composer: AmpComposer,
        ssot: Arc<Ssot>,
        mut listener: Box<dyn EscalationListener>,
        events: EventSender,
    ) -> Self {
        let (jobs, queue) = mpsc::channel();
        let swarm = composer.swarm();
        let thread = std::thread::spawn(move || {
            if let Err(error) = write_jobs(swarm, &ssot, &queue, listener.as_mut()) {
                let fault = storage_fault(error.is_disk_full(), error_chain(&error), false);
                events.send_now(Event::MachineryFailed { fault });
            }
            listener
        });
        Self { composer, jobs, thread }
    }

    pub fn composer(&self) -> &AmpComposer {
        &self.composer
    }

    pub fn write_intent(&mut self, intent: &AmpIntent) {
        let job = self.composer.compose(intent).map(SsotJob::Record).unwrap_or_else(|(text, violation)| {
            tracing::error!(%violation, "a message that longshore composed breaks a rule and is not written");
            SsotJob::Rejected(text, violation)
        });
        self.send(job);
    }

    /// Writes the memory of a story that landed.
    pub fn write_memory(&self, memory: Arc<StoryMemory>) {
        self.send(SsotJob::Memory(memory));
    }

    fn send(&self, job: SsotJob) {
        // After a failure the thread is gone, and its event is in the queue.
        let _ = self.jobs.send(job);
    }

    /// Blocks until everything is written. Returns the listener.
    pub fn close(self) -> Box<dyn EscalationListener> {
        drop(self.jobs);
        self.thread.join().unwrap_or_else(|_| Box::new(()))
    }
}

/// Writes the messages of a whole journal that the SSOT lacks. For a finished swarm whose orchestrator may have died before it
/// had written them.
///
/// # Errors
/// The SSOT cannot be written.
pub fn restore_messages(mut composer: AmpComposer, ssot: &Ssot, intents: &[AmpIntent]) -> Result<(), SsotError> {
    let (jobs, queue) = mpsc::channel();
    for record in intents.iter().filter_map(|intent| composer.compose(intent).ok()) {
        // The receiver lives until the end of this function.
        let _ = jobs.send(SsotJob::Record(record));
    }
    drop(jobs);
    write_jobs(composer.swarm(), ssot, &queue, &mut ())
}

/// Whether the SSOT has this message as it was composed when the repository was at another path. Messages name the repository and
/// files in it.
fn is_from_another_path(ssot: &Ssot, message: &AmpMessage) -> Result<bool, SsotError> {
    let without_paths = |message: &AmpMessage| {
        let mut value = serde_json::to_value(message).ok()?;
        let payload = value.get_mut("payload")?.as_object_mut()?;
        for name in ["repo", "diff_url"] {
            payload.remove(name);
        }
        Some(value)
    };
    let there = ssot.message(message.id())?;
    Ok(there.is_some_and(|there| without_paths(&there).is_some_and(|there| Some(there) == without_paths(message))))
}

fn write_jobs(
    swarm: SwarmId,
    ssot: &Ssot,
    queue: &mpsc::Receiver<SsotJob>,
    listener: &mut dyn EscalationListener,
) -> Result<(), SsotError> {
    let mut tasks: BTreeMap<AssignmentId, Box<TaskFile>> = BTreeMap::new();
    while let Ok(first) = queue.recv() {
        for job in std::iter::once(first).chain(queue.try_iter()) {
            match job {
                SsotJob::Record(SsotRecord::Message(message)) => {
                    let is_new = match ssot.ensure_message(&message) {
                        Err(SsotError::Conflict { .. }) if is_from_another_path(ssot, &message)? => false,
                        ensured => ensured? == EnsureOutcome::Written,
                    };
                    if is_new && matches!(message.payload(), Payload::Escalation(_)) {
                        listener.on_escalation(&message);
                    }
                }
                SsotJob::Record(SsotRecord::Ack(ack)) => drop(ssot.ensure_ack(&ack)?),
                SsotJob::Record(SsotRecord::Task(task)) => drop(tasks.insert(task.task_id.clone(), task)),
                SsotJob::Memory(memory) => drop(ssot.ensure_memory(swarm, &memory.name, memory.own_gram())?),
                SsotJob::Rejected(text, rule) => ssot.log_rejected(&text, &rule, Timestamp::now(), "coordinator")?,
            }
        }
        for task in std::mem::take(&mut tasks).into_values() {
            ssot.write_task_file(&task)?;
        }
    }
    ssot.sync()
}
