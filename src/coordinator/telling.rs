//! What is said in AMP, on its way to the SSOT: composed on the loop, written by a thread of its own, in the order in which it
//! was said. What is written newly is what others are told of ([`EscalationListener`]).
//!
//! The journal has every event before its words are said, and ids follow from the events: after a crash the words of the whole
//! journal are said again, and only what is missing is written. Task files are pictures: of those that wait, the newest
//! counts. Called by `run.rs`. Must not: hold the loop up.

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::mpsc::UnboundedSender;

use crate::ids::{AssignmentId, SwarmId};
use crate::protocol::amp::message::{AmpMessage, Payload};
use crate::protocol::amp::rules::AmpViolation;
use crate::protocol::amp::store::{EnsureOutcome, Ssot, SsotError, TaskFile};
use crate::swarm::{AmpIntent, Event, MachineryFault};
use crate::verdict::Cause;

use super::bridge::{AmpComposer, SsotRecord};
use super::event_queue::EventSender;
use super::memory::StoryMemory;
use crate::error_chain::error_chain;

/// Who hears of each escalation that is new.
pub trait EscalationListener: Send {
    /// An escalation was written. Called on the writer's thread; must not take long.
    fn on_escalation(&mut self, message: &AmpMessage);
    /// Where to say that somebody could not be told.
    fn set_warning_sender(&mut self, _: UnboundedSender<String>) {}
    /// All is said: waits, within limits, until it is told.
    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async {})
    }
}

/// Nobody.
impl EscalationListener for () {
    fn on_escalation(&mut self, _: &AmpMessage) {}
}

enum SsotJob {
    Record(SsotRecord),
    Memory(Arc<StoryMemory>),
    Refused(String, AmpViolation),
}

/// The way to the SSOT.
pub(super) struct SsotWriter {
    pub(super) composer: AmpComposer,
    jobs: Option<mpsc::Sender<SsotJob>>,
    thread: Option<JoinHandle<Box<dyn EscalationListener>>>,
}

impl SsotWriter {
    /// Starts the writer. A failure of it ends the swarm: its record could not be kept.
    pub(super) fn new(
        bridge: AmpComposer,
        swarm: SwarmId,
        ssot: Arc<Ssot>,
        mut heard: Box<dyn EscalationListener>,
        postbox: EventSender,
    ) -> Self {
        let (items, work) = mpsc::channel();
        let writer = std::thread::spawn(move || {
            if let Err(error) = run_writer(swarm, &ssot, &work, heard.as_mut()) {
                let cause = if error.is_disk_full() { Cause::DiskFull } else { Cause::HostError };
                postbox
                    .send_now(Event::MachineryFailed { fault: MachineryFault::new(cause, error_chain(&error), false) });
            }
            heard
        });
        Self { composer: bridge, jobs: Some(items), thread: Some(writer) }
    }

    /// Says it.
    pub(super) fn write_intent(&mut self, word: &AmpIntent) {
        let work = match self.composer.compose(word) {
            Ok(item) => SsotJob::Record(item),
            Err((text, rule)) => {
                tracing::error!(%rule, "a message of longshore's own breaks a rule; it is not said");
                SsotJob::Refused(text, rule)
            }
        };
        if let Some(items) = &self.jobs {
            // Without a reader there was a failure, which the loop hears of.
            let _ = items.send(work);
        }
    }

    /// Writes down what a story that landed learned.
    pub(super) fn write_memory(&self, known: Arc<StoryMemory>) {
        if let Some(items) = &self.jobs {
            let _ = items.send(SsotJob::Memory(known));
        }
    }

    /// Waits until all is written. Gives who heard of it.
    pub(super) fn close(&mut self) -> Box<dyn EscalationListener> {
        self.jobs = None;
        self.thread.take().and_then(|writer| writer.join().ok()).unwrap_or_else(|| Box::new(()))
    }
}

/// Says the words of a whole journal again: what is missing in the SSOT is written. For a swarm that is over, whose orchestrator may
/// have died before it had said all.
///
/// # Errors
/// The SSOT cannot be written.
pub fn restore_messages(mut bridge: AmpComposer, ssot: &Ssot, words: &[AmpIntent]) -> Result<(), SsotError> {
    let (items, work) = mpsc::channel();
    for item in words.iter().filter_map(|word| bridge.compose(word).ok()) {
        // The reader is there until the end of this function.
        let _ = items.send(SsotJob::Record(item));
    }
    drop(items);
    run_writer(bridge.swarm(), ssot, &work, &mut ())
}

fn run_writer(
    swarm: SwarmId,
    ssot: &Ssot,
    work: &mpsc::Receiver<SsotJob>,
    heard: &mut dyn EscalationListener,
) -> Result<(), SsotError> {
    let mut tasks: BTreeMap<AssignmentId, Box<TaskFile>> = BTreeMap::new();
    while let Ok(first) = work.recv() {
        for next in std::iter::once(first).chain(work.try_iter()) {
            match next {
                SsotJob::Record(SsotRecord::Message(message)) => {
                    let new = ssot.ensure_message(&message)? == EnsureOutcome::Written;
                    if new && matches!(message.payload(), Payload::Escalation(_)) {
                        heard.on_escalation(&message);
                    }
                }
                SsotJob::Record(SsotRecord::Ack(ack)) => drop(ssot.ensure_ack(&ack)?),
                SsotJob::Record(SsotRecord::Task(task)) => drop(tasks.insert(task.task_id.clone(), task)),
                SsotJob::Memory(known) => drop(ssot.ensure_memory(swarm, &known.name, known.own_gram())?),
                SsotJob::Refused(text, rule) => ssot.log_rejected(&text, &rule, Timestamp::now(), "coordinator")?,
            }
        }
        for task in std::mem::take(&mut tasks).into_values() {
            ssot.write_task_file(&task)?;
        }
    }
    ssot.sync()
}
