//! What is said in AMP, on its way to the SSOT: composed on the loop, written by a thread of its own, in the order in which it
//! was said. What is written newly is what others are told of ([`Heard`]).
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
use crate::protocol::amp::message::{Message, Payload};
use crate::protocol::amp::rules::Violation;
use crate::protocol::amp::store::{Ensured, Ssot, SsotError, TaskFile};
use crate::swarm::{Event, Fault, Word};
use crate::verdict::Cause;

use super::bridge::{Bridge, Item};
use super::inbox::Postbox;
use super::memory::Known;
use super::session::chain;

/// Who hears of each escalation that is new.
pub trait Heard: Send {
    /// An escalation was written. Called on the writer's thread; must not take long.
    fn escalation(&mut self, message: &Message);
    /// Where to say that somebody could not be told.
    fn warn(&mut self, _: UnboundedSender<String>) {}
    /// All is said: waits, within limits, until it is told.
    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async {})
    }
}

/// Nobody.
impl Heard for () {
    fn escalation(&mut self, _: &Message) {}
}

enum Work {
    Item(Item),
    Memory(Arc<Known>),
    Refused(String, Violation),
}

/// The way to the SSOT.
pub(super) struct Telling {
    pub(super) bridge: Bridge,
    items: Option<mpsc::Sender<Work>>,
    writer: Option<JoinHandle<Box<dyn Heard>>>,
}

impl Telling {
    /// Starts the writer. A failure of it ends the swarm: its record could not be kept.
    pub(super) fn new(
        bridge: Bridge,
        swarm: SwarmId,
        ssot: Arc<Ssot>,
        mut heard: Box<dyn Heard>,
        postbox: Postbox,
    ) -> Self {
        let (items, work) = mpsc::channel();
        let writer = std::thread::spawn(move || {
            if let Err(error) = write_all(swarm, &ssot, &work, heard.as_mut()) {
                let cause = if error.disk_full() { Cause::DiskFull } else { Cause::HostError };
                postbox.post_now(Event::MachineryFailed { fault: Fault::new(cause, chain(&error), false) });
            }
            heard
        });
        Self { bridge, items: Some(items), writer: Some(writer) }
    }

    /// Says it.
    pub(super) fn tell(&mut self, word: &Word) {
        let work = match self.bridge.compose(word) {
            Ok(item) => Work::Item(item),
            Err((text, rule)) => {
                tracing::error!(%rule, "a message of longshore's own breaks a rule; it is not said");
                Work::Refused(text, rule)
            }
        };
        if let Some(items) = &self.items {
            // Without a reader there was a failure, which the loop hears of.
            let _ = items.send(work);
        }
    }

    /// Writes down what a story that landed learned.
    pub(super) fn keep(&self, known: Arc<Known>) {
        if let Some(items) = &self.items {
            let _ = items.send(Work::Memory(known));
        }
    }

    /// Waits until all is written. Gives who heard of it.
    pub(super) fn close(&mut self) -> Box<dyn Heard> {
        self.items = None;
        self.writer.take().and_then(|writer| writer.join().ok()).unwrap_or_else(|| Box::new(()))
    }
}

/// Says the words of a whole journal again: what is missing in the SSOT is written. For a swarm that is over, whose orchestrator may
/// have died before it had said all.
///
/// # Errors
/// The SSOT cannot be written.
pub fn tell_again(mut bridge: Bridge, ssot: &Ssot, words: &[Word]) -> Result<(), SsotError> {
    let (items, work) = mpsc::channel();
    for item in words.iter().filter_map(|word| bridge.compose(word).ok()) {
        // The reader is there until the end of this function.
        let _ = items.send(Work::Item(item));
    }
    drop(items);
    write_all(bridge.swarm(), ssot, &work, &mut ())
}

fn write_all(swarm: SwarmId, ssot: &Ssot, work: &mpsc::Receiver<Work>, heard: &mut dyn Heard) -> Result<(), SsotError> {
    let mut tasks: BTreeMap<AssignmentId, Box<TaskFile>> = BTreeMap::new();
    while let Ok(first) = work.recv() {
        for next in std::iter::once(first).chain(work.try_iter()) {
            match next {
                Work::Item(Item::Message(message)) => {
                    let new = ssot.ensure_message(&message)? == Ensured::Written;
                    if new && matches!(message.payload(), Payload::Escalation(_)) {
                        heard.escalation(&message);
                    }
                }
                Work::Item(Item::Ack(ack)) => drop(ssot.ensure_ack(&ack)?),
                Work::Item(Item::Task(task)) => drop(tasks.insert(task.task_id.clone(), task)),
                Work::Memory(known) => drop(ssot.ensure_memory(swarm, &known.name, known.own())?),
                Work::Refused(text, rule) => ssot.refuse(&text, &rule, Timestamp::now(), "coordinator")?,
            }
        }
        for task in std::mem::take(&mut tasks).into_values() {
            ssot.put_task(&task)?;
        }
    }
    ssot.sync()
}
