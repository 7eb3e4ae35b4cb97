//! What a reader makes of the others' outboxes over time: which file to read next, what is delivered, what is asked for again
//! and what is given up. Pure: what is in the folder and what the time is are told to it; what it wants done are [`MailboxEffect`]s.
//!
//! Each sender's messages are taken in order of their numbers. A number that is missing while higher ones are there is a gap:
//! it is asked for again after [`ReaderTimeouts::gap_grace`], and given up with a warning when nothing came for [`ReaderTimeouts::resend_timeout`] after
//! that; of a sender that is gone nothing is asked, and nothing awaited. A file that is no message counts as missing, because
//! it may be half written. One sender's gap holds up nobody else's messages. What comes after it was given up is delivered as
//! late. Behind a gap that was asked for, its sender may say that it has the message no more: then it is given up at once.
//!
//! Where it stands ([`MailboxMachine::snapshot`]) is small, so that a reader that runs for a moment only goes on where the last one
//! stopped. Carried out by `agent_mailbox.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::message::{AgentId, MailboxMessage, MailboxMessageType, MessagePart, MessageRef, Seq};
use super::parts::join;
use super::roster::{AgentStatus, RosterEntry};
use super::rules::MailboxViolation;
use super::store::ReadOutcome;

mod missing_range;

pub use missing_range::MissingRange;

/// The most numbers of a sender that are remembered as given up.
const MAX_LOST_SEQS: usize = 256;

/// The most questions for a sender's messages that are remembered.
const MAX_RESEND_REQUESTS: usize = 32;

/// When that was asked for which will not come.
const ABANDONED: Timestamp = Timestamp::UNIX_EPOCH;

/// How long things are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReaderTimeouts {
    /// From a missing number to asking for it: files may be seen out of order.
    pub gap_grace: Duration,
    /// The same, for a file that is no message: it may be half written.
    pub bad_file_grace: Duration,
    /// From asking to giving up.
    pub resend_timeout: Duration,
    /// From a part to doing without the next.
    pub parts_timeout: Duration,
}

impl Default for ReaderTimeouts {
    fn default() -> Self {
        Self {
            gap_grace: Duration::from_millis(300),
            bad_file_grace: Duration::from_secs(1),
            resend_timeout: Duration::from_secs(30),
            parts_timeout: Duration::from_secs(60),
        }
    }
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MailboxEvent {
    /// An outbox has files with these numbers, and no others.
    OutboxListed(AgentId, BTreeSet<Seq>),
    /// What a file that was to be fetched is.
    Fetched(AgentId, Seq, ReadOutcome),
    /// What the roster says.
    RosterRead(Vec<RosterEntry>),
    /// Time went by.
    Tick,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MailboxEffect {
    /// Read this file, and say what it is.
    Fetch(AgentId, Seq),
    /// Hand this to the reader.
    Deliver(Box<DeliveredMessage>),
    /// Send an ERROR that asks for what is missing.
    RequestResend(MissingRange),
    /// Somebody asks for one's own messages, from the first to the last of these: put back those that are not there.
    Resend {
        /// The message that asks.
        requested_by: MessageRef,
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
    Lost(MissingRange),
    /// It came, but its time was over.
    Expired(MessageRef),
    /// Parts of it did not come; it was delivered without them.
    Incomplete(MessageRef, Vec<u16>),
    /// An agent that was there before has begun anew.
    Returned(AgentId),
}

/// A message for the reader, whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveredMessage {
    /// The message; of one in parts, all of them, with the number of the first.
    pub message: MailboxMessage,
    /// The number of its last part.
    pub last_seq: Seq,
    /// It had been given up.
    pub late: bool,
}

/// Where a reader stands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReaderSnapshot {
    senders: BTreeMap<AgentId, SenderPosition>,
}

/// Where a reader stands with a sender.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct SenderPosition {
    /// The lowest number that is not settled; 0 where none is left.
    next: u32,
    /// Settled ones behind it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    settled: Vec<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    lost: Vec<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "missed")]
    gap: Option<(u32, Timestamp)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(rename = "asked")]
    resend_requests: Vec<(u32, u32, Timestamp)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    peeked: Option<u32>,
    #[serde(default)]
    done: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    started: Option<Timestamp>,
}

/// A sender, as the reader sees it.
#[derive(Debug, Clone)]
struct SenderState {
    /// None: all numbers there can be are settled.
    next: Option<Seq>,
    present: BTreeSet<Seq>,
    /// Settled numbers that are not below the first part.
    settled: BTreeSet<Seq>,
    /// Given up; may come yet.
    lost: BTreeSet<Seq>,
    /// The number that was last missing, and since when. A reader that starts again comes to it again.
    gap: Option<(Seq, Timestamp)>,
    /// What the file of `next` breaks.
    violation: Option<MailboxViolation>,
    /// It was looked at since the outbox was last listed.
    examined: bool,
    /// How far it was looked behind a gap for word that it will not be mended.
    peeked: Option<Seq>,
    /// From where to where was asked, by whomever, and when.
    resend_requests: Vec<(Seq, Seq, Timestamp)>,
    fetching: bool,
    parts: Vec<MailboxMessage>,
    last_part_at: Timestamp,
    /// Its last message was a DONE.
    done: bool,
    started: Option<Timestamp>,
    status: Option<AgentStatus>,
}

impl Default for SenderState {
    fn default() -> Self {
        Self {
            next: Some(Seq::FIRST),
            present: BTreeSet::new(),
            settled: BTreeSet::new(),
            lost: BTreeSet::new(),
            gap: None,
            violation: None,
            examined: false,
            peeked: None,
            resend_requests: Vec::new(),
            fetching: false,
            parts: Vec::new(),
            last_part_at: Timestamp::UNIX_EPOCH,
            done: false,
            started: None,
            status: None,
        }
    }
}

impl SenderState {
    fn from_position(place: &SenderPosition) -> Self {
        let numbers = |of: &[u32]| of.iter().filter_map(|number| Seq::new(*number)).collect();
        Self {
            next: Seq::new(place.next),
            settled: numbers(&place.settled),
            lost: numbers(&place.lost),
            gap: place.gap.and_then(|(number, at)| Some((Seq::new(number)?, at))),
            resend_requests: place
                .resend_requests
                .iter()
                .filter_map(|(a, b, at)| Some((Seq::new(*a)?, Seq::new(*b)?, *at)))
                .collect(),
            peeked: place.peeked.and_then(Seq::new),
            done: place.done,
            started: place.started,
            ..Self::default()
        }
    }

    /// Parts that were taken in are taken in again.
    fn to_position(&self) -> SenderPosition {
        let next = self.parts.first().map(|part| part.seq).or(self.next);
        let settled = self.settled.iter().filter(|seq| Some(**seq) > next && next.is_some());
        SenderPosition {
            next: next.map_or(0, Seq::get),
            settled: settled.map(|seq| seq.get()).collect(),
            lost: self.lost.iter().map(|seq| seq.get()).collect(),
            gap: self.gap.map(|(seq, at)| (seq.get(), at)),
            resend_requests: self
                .resend_requests
                .iter()
                .map(|(first, last, at)| (first.get(), last.get(), *at))
                .collect(),
            peeked: self.peeked.map(Seq::get),
            done: self.done,
            started: self.started,
        }
    }

    fn is_gone(&self) -> bool {
        self.done || self.status.as_ref().is_some_and(AgentStatus::is_gone)
    }

    /// The lowest number that is there and not settled.
    fn next_present(&self) -> Option<Seq> {
        self.present.range(self.next?..).next().copied()
    }

    /// The last of the numbers that are missing from `next` on.
    fn last_missing(&self, next: Seq) -> Seq {
        if self.violation.is_some() {
            return next;
        }
        self.next_present().and_then(|ahead| Seq::new(ahead.get() - 1)).unwrap_or(next).max(next)
    }

    /// Remembers that these were asked for. What is behind the reader is forgotten.
    fn record_request(&mut self, first: Seq, last: Seq, at: Timestamp) {
        self.resend_requests.retain(|(_, last, _)| Some(*last) >= self.next);
        if self.resend_requests.len() == MAX_RESEND_REQUESTS {
            self.resend_requests.remove(0);
        }
        self.resend_requests.push((first, last, at));
    }

    /// Whether this one was asked for: up to which, and when last.
    fn covering_request(&self, seq: Seq) -> Option<(Seq, Timestamp)> {
        let covering = self.resend_requests.iter().filter(|(first, last, _)| (*first..=*last).contains(&seq));
        // Who despaired of it does not wait because others ask.
        covering.map(|(_, last, at)| (*last, *at)).max_by_key(|(_, at)| (*at == ABANDONED, *at))
    }

    /// `next` is settled.
    fn advance(&mut self) {
        if let Some(next) = self.next {
            if !self.parts.is_empty() {
                self.settled.insert(next);
            }
            self.next = next.next();
        }
        self.violation = None;
        self.examined = false;
        self.peeked = None;
    }

    /// What was asked for and `next` is one of is not waited for any more.
    fn abandon_requests(&mut self) {
        let next = self.next;
        let asked =
            self.resend_requests.iter_mut().filter(|(first, last, _)| Some(*first) <= next && next <= Some(*last));
        asked.for_each(|(_, _, at)| *at = ABANDONED);
    }
}

/// A reader of a mailbox.
#[derive(Debug, Clone)]
pub struct MailboxMachine {
    me: AgentId,
    limits: ReaderTimeouts,
    senders: BTreeMap<AgentId, SenderState>,
}

impl MailboxMachine {
    /// That of an agent, where the snapshot stands.
    pub fn new(me: AgentId, limits: ReaderTimeouts, snapshot: &ReaderSnapshot) -> Self {
        let senders =
            snapshot.senders.iter().map(|(agent, place)| (agent.clone(), SenderState::from_position(place))).collect();
        Self { me, limits, senders }
    }

    /// Where it stands.
    pub fn snapshot(&self) -> ReaderSnapshot {
        ReaderSnapshot {
            senders: self.senders.iter().map(|(agent, sender)| (agent.clone(), sender.to_position())).collect(),
        }
    }

    /// Takes in what happened.
    pub fn handle(&mut self, event: MailboxEvent, now: Timestamp) -> Vec<MailboxEffect> {
        let mut effects = Vec::new();
        match event {
            MailboxEvent::OutboxListed(agent, numbers) if agent != self.me => {
                let sender = self.senders.entry(agent.clone()).or_default();
                sender.present = numbers;
                sender.examined = false;
                self.step(&agent, now, &mut effects);
            }
            MailboxEvent::Fetched(agent, seq, read) => {
                self.handle_fetched(&agent, seq, read, now, &mut effects);
                self.step(&agent, now, &mut effects);
            }
            MailboxEvent::OutboxListed(..) => {}
            MailboxEvent::RosterRead(rows) => {
                for row in rows.into_iter().filter(|row| row.id != self.me) {
                    let agent = row.id;
                    let sender = self.senders.entry(agent.clone()).or_default();
                    if row.status == AgentStatus::Active && row.started != sender.started {
                        // It came back.
                        sender.done = sender.done && sender.started.is_none();
                        if sender.started.is_some() {
                            effects.push(MailboxEffect::Warn(Warning::Returned(agent)));
                        }
                        sender.started = row.started;
                    }
                    sender.status = Some(row.status);
                }
                self.step_all(now, &mut effects);
            }
            MailboxEvent::Tick => self.step_all(now, &mut effects),
        }
        effects
    }

    /// When the next [`MailboxEvent::Tick`] is due.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.senders
            .values()
            .flat_map(|sender| [self.gap_deadline(sender), self.parts_deadline(sender)])
            .flatten()
            .min()
    }

    fn gap_deadline(&self, sender: &SenderState) -> Option<Timestamp> {
        let (next, ahead) = (sender.next?, sender.next_present()?);
        let (_, since) =
            sender.gap.filter(|(missed, _)| *missed == next && (ahead > next || sender.violation.is_some()))?;
        let grace = if sender.violation.is_some() { self.limits.bad_file_grace } else { self.limits.gap_grace };
        let asked = sender.covering_request(next).filter(|_| !sender.is_gone());
        let due = saturating_add(since, grace);
        Some(asked.map_or(due, |(_, at)| due.max(saturating_add(at, self.limits.resend_timeout))))
    }

    fn parts_deadline(&self, sender: &SenderState) -> Option<Timestamp> {
        (!sender.parts.is_empty()).then(|| saturating_add(sender.last_part_at, self.limits.parts_timeout))
    }

    /// Whether an agent signed off, crashed or left and has nothing more to say; and how.
    pub fn finished_status(&self, agent: &AgentId) -> Option<AgentStatus> {
        let sender = self.senders.get(agent)?;
        let more = sender.fetching || sender.next_present().is_some() || !sender.parts.is_empty();
        let status = sender.status.clone().filter(AgentStatus::is_gone);
        (sender.is_gone() && !more).then(|| status.unwrap_or(AgentStatus::Done))
    }

    /// Whether there are others, and none of them has anything more to say.
    pub fn all_finished(&self) -> bool {
        !self.senders.is_empty() && self.senders.keys().all(|agent| self.finished_status(agent).is_some())
    }

    fn step_all(&mut self, now: Timestamp, effects: &mut Vec<MailboxEffect>) {
        for agent in self.senders.keys().cloned().collect::<Vec<_>>() {
            self.step(&agent, now, effects);
        }
    }

    /// Does what can be done about a sender.
    fn step(&mut self, agent: &AgentId, now: Timestamp, effects: &mut Vec<MailboxEffect>) {
        let deadline = self.senders.get(agent).and_then(|sender| self.parts_deadline(sender));
        let Some(sender) = self.senders.get_mut(agent) else { return };
        if sender.fetching {
            return;
        }
        if let Some(late) = sender.lost.intersection(&sender.present).next().copied() {
            sender.fetching = true;
            effects.push(MailboxEffect::Fetch(agent.clone(), late));
            return;
        }
        while let Some(next) = sender.next
            && sender.settled.contains(&next)
        {
            sender.next = next.next();
        }
        let over = deadline.is_some_and(|end| end <= now) || (sender.is_gone() && sender.next_present().is_none());
        if over && !sender.parts.is_empty() {
            flush_parts(sender, now, effects);
        }
        match (sender.next, sender.next_present()) {
            (Some(next), Some(ahead)) if next == ahead && !sender.examined => {
                sender.fetching = true;
                effects.push(MailboxEffect::Fetch(agent.clone(), next));
            }
            (Some(next), Some(ahead)) => {
                if next != ahead {
                    // What was there and was bad is not there now.
                    sender.violation = None;
                }
                self.handle_gap(agent, now, effects);
            }
            _ => {}
        }
    }

    /// `next` cannot be had: asks for it, or gives it up.
    fn handle_gap(&mut self, agent: &AgentId, now: Timestamp, effects: &mut Vec<MailboxEffect>) {
        let Some(sender) = self.senders.get_mut(agent) else { return };
        if sender.gap.map(|(missed, _)| missed) != sender.next {
            sender.gap = sender.next.map(|next| (next, now));
        }
        let due = self.senders.get(agent).and_then(|sender| self.gap_deadline(sender));
        let Some(sender) = self.senders.get_mut(agent) else { return };
        let Some(next) = sender.next else { return };
        if due.is_none_or(|due| due > now) {
            let seen = sender.peeked.unwrap_or(next).next();
            if sender.covering_request(next).is_some()
                && let Some(behind) = seen.and_then(|seen| sender.present.range(seen..).next().copied())
            {
                (sender.peeked, sender.fetching) = (Some(behind), true);
                effects.push(MailboxEffect::Fetch(agent.clone(), behind));
            }
            return;
        }
        let asked = sender.covering_request(next).filter(|_| !sender.is_gone());
        let last = asked.map_or(Seq::LAST, |(last, _)| last).min(sender.last_missing(next));
        let missing = MissingRange { from: agent.clone(), first: next, last, violation: sender.violation.clone() };
        if sender.is_gone() || asked.is_some() {
            if sender.violation.is_none() {
                // The last of them: those are the likeliest to come.
                let from = last.get().saturating_sub(MAX_LOST_SEQS as u32 - 1).max(next.get());
                sender.lost.extend((from..=last.get()).filter_map(Seq::new));
                while sender.lost.len() > MAX_LOST_SEQS {
                    sender.lost.pop_first();
                }
            }
            if !sender.parts.is_empty() && last.get() - next.get() < MAX_LOST_SEQS as u32 {
                sender.settled.extend((next.get()..=last.get()).filter_map(Seq::new));
            }
            sender.advance();
            sender.next = last.next();
            effects.push(MailboxEffect::Warn(Warning::Lost(missing)));
            self.step(agent, now, effects);
        } else {
            sender.record_request(next, last, now);
            effects.push(MailboxEffect::RequestResend(missing));
        }
    }

    fn handle_fetched(
        &mut self,
        agent: &AgentId,
        seq: Seq,
        read: ReadOutcome,
        now: Timestamp,
        effects: &mut Vec<MailboxEffect>,
    ) {
        let Some(sender) = self.senders.get_mut(agent) else { return };
        sender.fetching = false;
        let late = sender.lost.contains(&seq);
        if !late && sender.next != Some(seq) {
            if let ReadOutcome::Message(message) = &read
                && let Some(next) = sender.next
                && MissingRange::parse_unavailable_subject(&message.content.subject)
                    == Some(MessageRef { from: agent.clone(), seq: next })
            {
                sender.abandon_requests();
            }
            return;
        }
        match read {
            ReadOutcome::Missing => {
                sender.present.remove(&seq);
            }
            ReadOutcome::Invalid(_) if late => {
                sender.lost.remove(&seq);
            }
            ReadOutcome::Invalid(violation) => {
                sender.violation = Some(violation);
                sender.examined = true;
            }
            ReadOutcome::Message(message) if late => {
                sender.lost.remove(&seq);
                self.process_message(*message, true, now, effects);
            }
            ReadOutcome::Message(message) => {
                sender.advance();
                match message.message_type {
                    MailboxMessageType::Done => sender.done = true,
                    // Who asks for a message again has not come back for that.
                    MailboxMessageType::Error => {}
                    _ => sender.done = false,
                }
                self.process_message(*message, false, now, effects);
            }
        }
    }

    /// Delivers a message, if it is for the reader and good.
    fn process_message(
        &mut self,
        message: MailboxMessage,
        late: bool,
        now: Timestamp,
        effects: &mut Vec<MailboxEffect>,
    ) {
        let for_me = message.to.is_for(&self.me);
        if message.message_type == MailboxMessageType::Error {
            if let Some(asked) = MissingRange::parse_resend_subject(&message.content.subject) {
                if asked.from == self.me {
                    let asked_by = message.reference();
                    effects.push(MailboxEffect::Resend {
                        requested_by: asked_by,
                        first: asked.first,
                        last: asked.last,
                    });
                } else if let Some(sender) = self.senders.get_mut(&asked.from)
                    && saturating_add(message.timestamp, self.limits.resend_timeout) > now
                {
                    // One who asks is enough.
                    sender.record_request(asked.first, asked.last, message.timestamp.min(now));
                }
                return;
            }
            if MissingRange::parse_unavailable_subject(&message.content.subject).is_some() {
                return;
            }
            if let Some(re) = message.re.as_ref().filter(|re| for_me && re.from == self.me) {
                effects.push(MailboxEffect::Resend { requested_by: message.reference(), first: re.seq, last: re.seq });
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
        let goes_on = sender.parts.last().is_some_and(|last| continues_parts(last, &message, part));
        if !goes_on && !sender.parts.is_empty() {
            flush_parts(sender, now, effects);
        }
        sender.settled.remove(&message.seq);
        sender.parts.push(message);
        sender.last_part_at = now;
        if part.number == part.total {
            flush_parts(sender, now, effects);
        }
    }
}

/// Whether a part belongs to the message that this one begins or goes on with.
fn continues_parts(last: &MailboxMessage, next: &MailboxMessage, part: MessagePart) -> bool {
    last.part.is_some_and(|last| last.total == part.total && last.number < part.number)
        && (last.message_type, &last.to) == (next.message_type, &next.to)
}

/// Delivers the parts that are there as a message.
fn flush_parts(sender: &mut SenderState, now: Timestamp, effects: &mut Vec<MailboxEffect>) {
    let parts = std::mem::take(&mut sender.parts);
    sender.settled.retain(|seq| Some(*seq) >= sender.next && sender.next.is_some());
    let (Some(whole), Some(last)) = (join(&parts), parts.last()) else { return };
    let has = |number: u16| parts.iter().any(|part| part.part.is_some_and(|part| part.number == number));
    let of = last.part.map_or(1, |part| part.total);
    let missing: Vec<u16> = (1..=of).filter(|number| !has(*number)).collect();
    if !missing.is_empty() {
        effects.push(MailboxEffect::Warn(Warning::Incomplete(whole.reference(), missing)));
    }
    deliver(whole, last.seq, false, now, effects);
}

fn deliver(message: MailboxMessage, last: Seq, late: bool, now: Timestamp, effects: &mut Vec<MailboxEffect>) {
    if message.is_expired(now) {
        effects.push(MailboxEffect::Warn(Warning::Expired(message.reference())));
    } else {
        effects.push(MailboxEffect::Deliver(Box::new(DeliveredMessage { message, last_seq: last, late })));
    }
}

fn saturating_add(time: Timestamp, by: Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
    time.checked_add(by).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
