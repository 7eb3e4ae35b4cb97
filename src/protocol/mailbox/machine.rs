//! What a reader makes of the others' outboxes over time: which file to read next, what is delivered, what is asked for again
//! and what is given up. Pure: what is in the folder and what the time is are told to it; what it wants done are [`Effect`]s.
//!
//! Each sender's messages are taken in order of their numbers. A number that is missing while higher ones are there is a gap:
//! it is asked for again after [`Limits::grace`], and given up with a warning when nothing came for [`Limits::resend`] after
//! that; of a sender that is gone nothing is asked, and nothing awaited. A file that is no message counts as missing, because
//! it may be half written. One sender's gap holds up nobody else's messages. What comes after it was given up is delivered as
//! late. Behind a gap that was asked for, its sender may say that it has the message no more: then it is given up at once.
//!
//! Where it stands ([`Machine::snapshot`]) is small, so that a reader that runs for a moment only goes on where the last one
//! stopped. Carried out by `reader.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::message::{AgentId, Kind, Message, MessageRef, Part, Seq};
use super::parts::join;
use super::roster::{Row, Status};
use super::rules::Violation;
use super::store::Read;

mod missing;

pub use missing::Missing;

/// The most numbers of a sender that are remembered as given up.
const MAX_LOST: usize = 256;

/// The most questions for a sender's messages that are remembered.
const MAX_ASKED: usize = 32;

/// When that was asked for which will not come.
const DESPAIRED: Timestamp = Timestamp::UNIX_EPOCH;

/// How long things are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// From a missing number to asking for it: files may be seen out of order.
    pub grace: Duration,
    /// The same, for a file that is no message: it may be half written.
    pub torn: Duration,
    /// From asking to giving up.
    pub resend: Duration,
    /// From a part to doing without the next.
    pub parts: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            grace: Duration::from_millis(300),
            torn: Duration::from_secs(1),
            resend: Duration::from_secs(30),
            parts: Duration::from_secs(60),
        }
    }
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// An outbox has files with these numbers, and no others.
    Listed(AgentId, BTreeSet<Seq>),
    /// What a file that was to be fetched is.
    Fetched(AgentId, Seq, Read),
    /// What the roster says.
    Roster(Vec<Row>),
    /// Time went by.
    Tick,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Read this file, and say what it is.
    Fetch(AgentId, Seq),
    /// Hand this to the reader.
    Deliver(Box<Letter>),
    /// Send an ERROR that asks for what is missing.
    Ask(Missing),
    /// Somebody asks for one's own messages, from the first to the last of these: put back those that are not there.
    Resend {
        /// The message that asks.
        asked_by: MessageRef,
        /// The first.
        first: Seq,
        /// The last.
        last: Seq,
    },
    /// Tell the reader.
    Warn(Warning),
}

/// What is told beside the messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// These did not come; what follows them does.
    Lost(Missing),
    /// It came, but its time was over.
    Expired(MessageRef),
    /// Parts of it did not come; it was delivered without them.
    Incomplete(MessageRef, Vec<u16>),
    /// An agent that was there before has begun anew.
    Back(AgentId),
}

/// A message for the reader, whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    /// The message; of one in parts, all of them, with the number of the first.
    pub message: Message,
    /// The number of its last part.
    pub last: Seq,
    /// It had been given up.
    pub late: bool,
}

/// Where a reader stands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    senders: BTreeMap<AgentId, Place>,
}

/// Where a reader stands with a sender.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    /// The lowest number that is not settled; 0 where none is left.
    next: u32,
    /// Settled ones behind it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    settled: Vec<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    lost: Vec<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    missed: Option<(u32, Timestamp)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    asked: Vec<(u32, u32, Timestamp)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    peeked: Option<u32>,
    #[serde(default)]
    done: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    started: Option<Timestamp>,
}

/// A sender, as the reader sees it.
#[derive(Debug, Clone)]
struct Sender {
    /// None: all numbers there can be are settled.
    next: Option<Seq>,
    present: BTreeSet<Seq>,
    /// Settled numbers that are not below the first part.
    settled: BTreeSet<Seq>,
    /// Given up; may come yet.
    lost: BTreeSet<Seq>,
    /// The number that was last missing, and since when. A reader that starts again comes to it again.
    missed: Option<(Seq, Timestamp)>,
    /// What the file of `next` breaks.
    bad: Option<Violation>,
    /// It was looked at since the outbox was last listed.
    looked: bool,
    /// How far it was looked behind a gap for word that it will not be mended.
    peeked: Option<Seq>,
    /// From where to where was asked, by whomever, and when.
    asked: Vec<(Seq, Seq, Timestamp)>,
    fetching: bool,
    parts: Vec<Message>,
    parts_at: Timestamp,
    /// Its last message was a DONE.
    done: bool,
    started: Option<Timestamp>,
    status: Option<Status>,
}

impl Default for Sender {
    fn default() -> Self {
        Self {
            next: Some(Seq::FIRST),
            present: BTreeSet::new(),
            settled: BTreeSet::new(),
            lost: BTreeSet::new(),
            missed: None,
            bad: None,
            looked: false,
            peeked: None,
            asked: Vec::new(),
            fetching: false,
            parts: Vec::new(),
            parts_at: Timestamp::UNIX_EPOCH,
            done: false,
            started: None,
            status: None,
        }
    }
}

impl Sender {
    fn of(place: &Place) -> Self {
        let numbers = |of: &[u32]| of.iter().filter_map(|number| Seq::new(*number)).collect();
        Self {
            next: Seq::new(place.next),
            settled: numbers(&place.settled),
            lost: numbers(&place.lost),
            missed: place.missed.and_then(|(number, at)| Some((Seq::new(number)?, at))),
            asked: place.asked.iter().filter_map(|(a, b, at)| Some((Seq::new(*a)?, Seq::new(*b)?, *at))).collect(),
            peeked: place.peeked.and_then(Seq::new),
            done: place.done,
            started: place.started,
            ..Self::default()
        }
    }

    /// Parts that were taken in are taken in again.
    fn place(&self) -> Place {
        let next = self.parts.first().map(|part| part.seq).or(self.next);
        let settled = self.settled.iter().filter(|seq| Some(**seq) > next && next.is_some());
        Place {
            next: next.map_or(0, Seq::get),
            settled: settled.map(|seq| seq.get()).collect(),
            lost: self.lost.iter().map(|seq| seq.get()).collect(),
            missed: self.missed.map(|(seq, at)| (seq.get(), at)),
            asked: self.asked.iter().map(|(first, last, at)| (first.get(), last.get(), *at)).collect(),
            peeked: self.peeked.map(Seq::get),
            done: self.done,
            started: self.started,
        }
    }

    fn is_gone(&self) -> bool {
        self.done || self.status.as_ref().is_some_and(Status::is_gone)
    }

    /// The lowest number that is there and not settled.
    fn ahead(&self) -> Option<Seq> {
        self.present.range(self.next?..).next().copied()
    }

    /// The last of the numbers that are missing from `next` on.
    fn missing_to(&self, next: Seq) -> Seq {
        if self.bad.is_some() {
            return next;
        }
        self.ahead().and_then(|ahead| Seq::new(ahead.get() - 1)).unwrap_or(next).max(next)
    }

    /// Remembers that these were asked for. What is behind the reader is forgotten.
    fn note_asked(&mut self, first: Seq, last: Seq, at: Timestamp) {
        self.asked.retain(|(_, last, _)| Some(*last) >= self.next);
        if self.asked.len() == MAX_ASKED {
            self.asked.remove(0);
        }
        self.asked.push((first, last, at));
    }

    /// Whether this one was asked for: up to which, and when last.
    fn asked_for(&self, seq: Seq) -> Option<(Seq, Timestamp)> {
        let covering = self.asked.iter().filter(|(first, last, _)| (*first..=*last).contains(&seq));
        // Who despaired of it does not wait because others ask.
        covering.map(|(_, last, at)| (*last, *at)).max_by_key(|(_, at)| (*at == DESPAIRED, *at))
    }

    /// `next` is settled.
    fn advance(&mut self) {
        if let Some(next) = self.next {
            if !self.parts.is_empty() {
                self.settled.insert(next);
            }
            self.next = next.next();
        }
        self.bad = None;
        self.looked = false;
        self.peeked = None;
    }

    /// What was asked for and `next` is one of is not waited for any more.
    fn despair(&mut self) {
        let next = self.next;
        let asked = self.asked.iter_mut().filter(|(first, last, _)| Some(*first) <= next && next <= Some(*last));
        asked.for_each(|(_, _, at)| *at = DESPAIRED);
    }
}

/// A reader of a mailbox.
#[derive(Debug, Clone)]
pub struct Machine {
    me: AgentId,
    limits: Limits,
    senders: BTreeMap<AgentId, Sender>,
}

impl Machine {
    /// That of an agent, where the snapshot stands.
    pub fn new(me: AgentId, limits: Limits, snapshot: &Snapshot) -> Self {
        let senders = snapshot.senders.iter().map(|(agent, place)| (agent.clone(), Sender::of(place))).collect();
        Self { me, limits, senders }
    }

    /// Where it stands.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { senders: self.senders.iter().map(|(agent, sender)| (agent.clone(), sender.place())).collect() }
    }

    /// Takes in what happened.
    pub fn handle(&mut self, event: Event, now: Timestamp) -> Vec<Effect> {
        let mut effects = Vec::new();
        match event {
            Event::Listed(agent, numbers) if agent != self.me => {
                let sender = self.senders.entry(agent.clone()).or_default();
                sender.present = numbers;
                sender.looked = false;
                self.step(&agent, now, &mut effects);
            }
            Event::Fetched(agent, seq, read) => {
                self.fetched(&agent, seq, read, now, &mut effects);
                self.step(&agent, now, &mut effects);
            }
            Event::Listed(..) => {}
            Event::Roster(rows) => {
                for row in rows.into_iter().filter(|row| row.id != self.me) {
                    let agent = row.id;
                    let sender = self.senders.entry(agent.clone()).or_default();
                    if row.status == Status::Active && row.started != sender.started {
                        // It came back.
                        sender.done = sender.done && sender.started.is_none();
                        if sender.started.is_some() {
                            effects.push(Effect::Warn(Warning::Back(agent)));
                        }
                        sender.started = row.started;
                    }
                    sender.status = Some(row.status);
                }
                self.step_all(now, &mut effects);
            }
            Event::Tick => self.step_all(now, &mut effects),
        }
        effects
    }

    /// When the next [`Event::Tick`] is due.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.senders
            .values()
            .flat_map(|sender| [self.gap_deadline(sender), self.parts_deadline(sender)])
            .flatten()
            .min()
    }

    fn gap_deadline(&self, sender: &Sender) -> Option<Timestamp> {
        let (next, ahead) = (sender.next?, sender.ahead()?);
        let (_, since) =
            sender.missed.filter(|(missed, _)| *missed == next && (ahead > next || sender.bad.is_some()))?;
        let grace = if sender.bad.is_some() { self.limits.torn } else { self.limits.grace };
        let asked = sender.asked_for(next).filter(|_| !sender.is_gone());
        let due = after(since, grace);
        Some(asked.map_or(due, |(_, at)| due.max(after(at, self.limits.resend))))
    }

    fn parts_deadline(&self, sender: &Sender) -> Option<Timestamp> {
        (!sender.parts.is_empty()).then(|| after(sender.parts_at, self.limits.parts))
    }

    /// Whether an agent signed off, crashed or left and has nothing more to say; and how.
    pub fn finished(&self, agent: &AgentId) -> Option<Status> {
        let sender = self.senders.get(agent)?;
        let more = sender.fetching || sender.ahead().is_some() || !sender.parts.is_empty();
        let status = sender.status.clone().filter(Status::is_gone);
        (sender.is_gone() && !more).then(|| status.unwrap_or(Status::Done))
    }

    /// Whether there are others, and none of them has anything more to say.
    pub fn all_finished(&self) -> bool {
        !self.senders.is_empty() && self.senders.keys().all(|agent| self.finished(agent).is_some())
    }

    fn step_all(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        for agent in self.senders.keys().cloned().collect::<Vec<_>>() {
            self.step(&agent, now, effects);
        }
    }

    /// Does what can be done about a sender.
    fn step(&mut self, agent: &AgentId, now: Timestamp, effects: &mut Vec<Effect>) {
        let deadline = self.senders.get(agent).and_then(|sender| self.parts_deadline(sender));
        let Some(sender) = self.senders.get_mut(agent) else { return };
        if sender.fetching {
            return;
        }
        if let Some(late) = sender.lost.intersection(&sender.present).next().copied() {
            sender.fetching = true;
            effects.push(Effect::Fetch(agent.clone(), late));
            return;
        }
        while let Some(next) = sender.next
            && sender.settled.contains(&next)
        {
            sender.next = next.next();
        }
        let over = deadline.is_some_and(|end| end <= now) || (sender.is_gone() && sender.ahead().is_none());
        if over && !sender.parts.is_empty() {
            flush(sender, now, effects);
        }
        match (sender.next, sender.ahead()) {
            (Some(next), Some(ahead)) if next == ahead && !sender.looked => {
                sender.fetching = true;
                effects.push(Effect::Fetch(agent.clone(), next));
            }
            (Some(next), Some(ahead)) => {
                if next != ahead {
                    // What was there and was bad is not there now.
                    sender.bad = None;
                }
                self.missed(agent, now, effects);
            }
            _ => {}
        }
    }

    /// `next` cannot be had: asks for it, or gives it up.
    fn missed(&mut self, agent: &AgentId, now: Timestamp, effects: &mut Vec<Effect>) {
        let Some(sender) = self.senders.get_mut(agent) else { return };
        if sender.missed.map(|(missed, _)| missed) != sender.next {
            sender.missed = sender.next.map(|next| (next, now));
        }
        let due = self.senders.get(agent).and_then(|sender| self.gap_deadline(sender));
        let Some(sender) = self.senders.get_mut(agent) else { return };
        let Some(next) = sender.next else { return };
        if due.is_none_or(|due| due > now) {
            let seen = sender.peeked.unwrap_or(next).next();
            if sender.asked_for(next).is_some()
                && let Some(behind) = seen.and_then(|seen| sender.present.range(seen..).next().copied())
            {
                (sender.peeked, sender.fetching) = (Some(behind), true);
                effects.push(Effect::Fetch(agent.clone(), behind));
            }
            return;
        }
        let asked = sender.asked_for(next).filter(|_| !sender.is_gone());
        let last = asked.map_or(Seq::LAST, |(last, _)| last).min(sender.missing_to(next));
        let missing = Missing { from: agent.clone(), first: next, last, bad: sender.bad.clone() };
        if sender.is_gone() || asked.is_some() {
            if sender.bad.is_none() {
                // The last of them: those are the likeliest to come.
                let from = last.get().saturating_sub(MAX_LOST as u32 - 1).max(next.get());
                sender.lost.extend((from..=last.get()).filter_map(Seq::new));
                while sender.lost.len() > MAX_LOST {
                    sender.lost.pop_first();
                }
            }
            if !sender.parts.is_empty() && last.get() - next.get() < MAX_LOST as u32 {
                sender.settled.extend((next.get()..=last.get()).filter_map(Seq::new));
            }
            sender.advance();
            sender.next = last.next();
            effects.push(Effect::Warn(Warning::Lost(missing)));
            self.step(agent, now, effects);
        } else {
            sender.note_asked(next, last, now);
            effects.push(Effect::Ask(missing));
        }
    }

    fn fetched(&mut self, agent: &AgentId, seq: Seq, read: Read, now: Timestamp, effects: &mut Vec<Effect>) {
        let Some(sender) = self.senders.get_mut(agent) else { return };
        sender.fetching = false;
        let late = sender.lost.contains(&seq);
        if !late && sender.next != Some(seq) {
            if let Read::Message(message) = &read
                && let Some(next) = sender.next
                && Missing::of_answer(&message.content.subject) == Some(MessageRef { from: agent.clone(), seq: next })
            {
                sender.despair();
            }
            return;
        }
        match read {
            Read::Missing => {
                sender.present.remove(&seq);
            }
            Read::Bad(_) if late => {
                sender.lost.remove(&seq);
            }
            Read::Bad(violation) => {
                sender.bad = Some(violation);
                sender.looked = true;
            }
            Read::Message(message) if late => {
                sender.lost.remove(&seq);
                self.consider(*message, true, now, effects);
            }
            Read::Message(message) => {
                sender.advance();
                match message.kind {
                    Kind::Done => sender.done = true,
                    // Who asks for a message again has not come back for that.
                    Kind::Error => {}
                    _ => sender.done = false,
                }
                self.consider(*message, false, now, effects);
            }
        }
    }

    /// Delivers a message, if it is for the reader and good.
    fn consider(&mut self, message: Message, late: bool, now: Timestamp, effects: &mut Vec<Effect>) {
        let for_me = message.to.is_for(&self.me);
        if message.kind == Kind::Error {
            if let Some(asked) = Missing::of_subject(&message.content.subject) {
                if asked.from == self.me {
                    let asked_by = message.reference();
                    effects.push(Effect::Resend { asked_by, first: asked.first, last: asked.last });
                } else if let Some(sender) = self.senders.get_mut(&asked.from)
                    && after(message.timestamp, self.limits.resend) > now
                {
                    // One who asks is enough.
                    sender.note_asked(asked.first, asked.last, message.timestamp.min(now));
                }
                return;
            }
            if Missing::of_answer(&message.content.subject).is_some() {
                return;
            }
            if let Some(re) = message.re.as_ref().filter(|re| for_me && re.from == self.me) {
                effects.push(Effect::Resend { asked_by: message.reference(), first: re.seq, last: re.seq });
            }
        }
        let Some(sender) = self.senders.get_mut(&message.from) else { return };
        if !for_me {
            return;
        }
        let Some(part) = message.part.filter(|_| !late) else {
            deliver(message.clone(), message.seq, late, now, effects);
            return;
        };
        let goes_on = sender.parts.last().is_some_and(|last| follows(last, &message, part));
        if !goes_on && !sender.parts.is_empty() {
            flush(sender, now, effects);
        }
        sender.settled.remove(&message.seq);
        sender.parts.push(message);
        sender.parts_at = now;
        if part.number == part.of {
            flush(sender, now, effects);
        }
    }
}

/// Whether a part belongs to the message that this one begins or goes on with.
fn follows(last: &Message, next: &Message, part: Part) -> bool {
    last.part.is_some_and(|last| last.of == part.of && last.number < part.number)
        && (last.kind, &last.to) == (next.kind, &next.to)
}

/// Delivers the parts that are there as a message.
fn flush(sender: &mut Sender, now: Timestamp, effects: &mut Vec<Effect>) {
    let parts = std::mem::take(&mut sender.parts);
    sender.settled.retain(|seq| Some(*seq) >= sender.next && sender.next.is_some());
    let (Some(whole), Some(last)) = (join(&parts), parts.last()) else { return };
    let has = |number: u16| parts.iter().any(|part| part.part.is_some_and(|part| part.number == number));
    let of = last.part.map_or(1, |part| part.of);
    let missing: Vec<u16> = (1..=of).filter(|number| !has(*number)).collect();
    if !missing.is_empty() {
        effects.push(Effect::Warn(Warning::Incomplete(whole.reference(), missing)));
    }
    deliver(whole, last.seq, false, now, effects);
}

fn deliver(message: Message, last: Seq, late: bool, now: Timestamp, effects: &mut Vec<Effect>) {
    if message.expired(now) {
        effects.push(Effect::Warn(Warning::Expired(message.reference())));
    } else {
        effects.push(Effect::Deliver(Box::new(Letter { message, last, late })));
    }
}

fn after(time: Timestamp, by: Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
    time.checked_add(by).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
