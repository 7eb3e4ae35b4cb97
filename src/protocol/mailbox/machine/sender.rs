//! One sender, as the reader sees it: which of its numbers are settled, present, missing or requested.
//!
//! Used by `machine.rs`, which knows all senders. Pure.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::super::message::{AgentId, MailboxMessage, MailboxMessageType, MessagePart, MessageRef, Seq};
use super::super::outbox::ReadOutcome;
use super::super::parts::join;
use super::super::roster::{AgentStatus, RosterEntry};
use super::super::rules::MailboxViolation;
use super::interface::{DeliveredMessage, MailboxEffect, ReaderTimeouts, Warning};
use super::missing_range::MissingRange;

/// How many given-up numbers of a sender are remembered.
const MAX_LOST_SEQS: u32 = 256;
/// How many requests for a sender's messages are remembered.
const MAX_RESEND_REQUESTS: usize = 32;
/// The time of a request whose messages will not come.
const ABANDONED: Timestamp = Timestamp::UNIX_EPOCH;

/// The reader's position in a sender's outbox, as `read.json` keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SenderPosition {
    /// The lowest unsettled number. `None` after the last possible number.
    #[serde(with = "zero_as_none")]
    next: Option<Seq>,
    /// Settled numbers above `next`, or above the first of the pending parts.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    settled: BTreeSet<Seq>,
    /// Given up, but still accepted if they arrive.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    lost: BTreeSet<Seq>,
    /// The number that was missing last, and since when. A reader that restarts reaches it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "missed")]
    gap: Option<(Seq, Timestamp)>,
    /// First and last number of each resend request, by any reader, and its time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(rename = "asked")]
    resend_requests: Vec<(Seq, Seq, Timestamp)>,
    /// How far the files behind a gap were searched for an ERROR that declares the gap permanent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    peeked: Option<Seq>,
    /// The last message was a DONE.
    #[serde(default)]
    done: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    started: Option<Timestamp>,
}

mod zero_as_none {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Seq;

    pub(super) fn serialize<S: Serializer>(seq: &Option<Seq>, serializer: S) -> Result<S::Ok, S::Error> {
        seq.map_or(0, Seq::get).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Seq>, D::Error> {
        u32::deserialize(deserializer).map(Seq::new)
    }
}

impl Default for SenderPosition {
    fn default() -> Self {
        Self {
            next: Some(Seq::FIRST),
            settled: BTreeSet::new(),
            lost: BTreeSet::new(),
            gap: None,
            resend_requests: Vec::new(),
            peeked: None,
            done: false,
            started: None,
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Sender {
    agent: AgentId,
    position: SenderPosition,
    present: BTreeSet<Seq>,
    /// Why the file of `next` is not a message.
    violation: Option<MailboxViolation>,
    /// The file of `next` was read since the outbox was last listed.
    examined: bool,
    fetching: bool,
    /// The parts so far of a message that is not complete.
    parts: Vec<MailboxMessage>,
    last_part_at: Timestamp,
    status: Option<AgentStatus>,
}

impl Sender {
    pub(super) fn new(agent: AgentId, position: SenderPosition) -> Self {
        Self {
            agent,
            position,
            present: BTreeSet::new(),
            violation: None,
            examined: false,
            fetching: false,
            parts: Vec::new(),
            last_part_at: Timestamp::UNIX_EPOCH,
            status: None,
        }
    }

    /// The position to resume from. Parts of an incomplete message are read again.
    pub(super) fn position(&self) -> SenderPosition {
        let next = self.parts.first().map(|part| part.seq).or(self.position.next);
        let mut position = SenderPosition { next, ..self.position.clone() };
        position.settled.retain(|seq| next.is_some_and(|next| *seq > next));
        position
    }

    pub(super) fn set_present(&mut self, numbers: BTreeSet<Seq>) {
        self.present = numbers;
        self.examined = false;
    }

    /// Takes in the sender's row of the roster. Returns whether a known sender registered again.
    pub(super) fn set_roster_entry(&mut self, row: RosterEntry) -> bool {
        let position = &mut self.position;
        let restarted = row.status == AgentStatus::Active && row.started != position.started;
        let returned = restarted && position.started.is_some();
        if restarted {
            position.done &= !returned;
            position.started = row.started;
        }
        self.status = Some(row.status);
        returned
    }

    pub(super) fn next_deadline(&self, timeouts: &ReaderTimeouts) -> Option<Timestamp> {
        [self.gap_deadline(timeouts), self.parts_deadline(timeouts)].into_iter().flatten().min()
    }

    fn gap_deadline(&self, timeouts: &ReaderTimeouts) -> Option<Timestamp> {
        let (next, present) = (self.position.next?, self.next_present()?);
        let has_gap = |seq: Seq| seq == next && (present > next || self.violation.is_some());
        let (_, since) = self.position.gap.filter(|(seq, _)| has_gap(*seq))?;
        let grace = if self.violation.is_some() { timeouts.bad_file_grace } else { timeouts.gap_grace };
        let requested = self.covering_request(next).filter(|_| !self.is_gone());
        let due = saturating_add(since, grace);
        Some(requested.map_or(due, |(_, at)| due.max(saturating_add(at, timeouts.resend_timeout))))
    }

    fn parts_deadline(&self, timeouts: &ReaderTimeouts) -> Option<Timestamp> {
        (!self.parts.is_empty()).then(|| saturating_add(self.last_part_at, timeouts.parts_timeout))
    }

    /// How the sender ended, if it signed off, crashed or left, and everything it sent was taken in.
    pub(super) fn finished_status(&self) -> Option<AgentStatus> {
        let has_more = self.fetching || self.next_present().is_some() || !self.parts.is_empty();
        let status = self.status.clone().filter(AgentStatus::is_gone);
        (self.is_gone() && !has_more).then(|| status.unwrap_or(AgentStatus::Done))
    }

    fn is_gone(&self) -> bool {
        self.position.done || self.status.as_ref().is_some_and(AgentStatus::is_gone)
    }

    /// The lowest number that is present and not settled.
    fn next_present(&self) -> Option<Seq> {
        self.present.range(self.position.next?..).next().copied()
    }

    /// The last number of the gap that begins at `next`.
    fn last_missing(&self, next: Seq) -> Seq {
        if self.violation.is_some() {
            return next;
        }
        self.next_present().and_then(|present| Seq::new(present.get() - 1)).unwrap_or(next).max(next)
    }

    /// Remembers a resend request, by any reader. Requests below `next` are dropped.
    pub(super) fn record_request(&mut self, first: Seq, last: Seq, at: Timestamp) {
        let SenderPosition { next, resend_requests, .. } = &mut self.position;
        resend_requests.retain(|(_, last, _)| Some(*last) >= *next);
        if resend_requests.len() == MAX_RESEND_REQUESTS {
            resend_requests.remove(0);
        }
        resend_requests.push((first, last, at));
    }

    /// The request that covers a number: its last number and its time.
    fn covering_request(&self, seq: Seq) -> Option<(Seq, Timestamp)> {
        let covering = self.position.resend_requests.iter().filter(|(first, last, _)| (*first..=*last).contains(&seq));
        // An abandoned request wins: later requests of other readers do not prolong the wait.
        covering.map(|(_, last, at)| (*last, *at)).max_by_key(|(_, at)| (*at == ABANDONED, *at))
    }

    /// Settles `next`.
    fn advance(&mut self) {
        if let Some(next) = self.position.next {
            if !self.parts.is_empty() {
                self.position.settled.insert(next);
            }
            self.position.next = next.next();
        }
        self.violation = None;
        self.examined = false;
        self.position.peeked = None;
    }

    /// Does what can be done now: fetches the next file, requests or gives up missing ones, flushes overdue parts.
    pub(super) fn step(&mut self, timeouts: &ReaderTimeouts, now: Timestamp, effects: &mut Vec<MailboxEffect>) {
        if self.fetching {
            return;
        }
        if let Some(late) = self.position.lost.intersection(&self.present).next().copied() {
            self.fetch(late, effects);
            return;
        }
        while let Some(next) = self.position.next
            && self.position.settled.contains(&next)
        {
            self.position.next = next.next();
        }
        let overdue = self.parts_deadline(timeouts).is_some_and(|end| end <= now)
            || (self.is_gone() && self.next_present().is_none());
        if overdue && !self.parts.is_empty() {
            self.flush_parts(now, effects);
        }
        match (self.position.next, self.next_present()) {
            (Some(next), Some(present)) if next == present && !self.examined => self.fetch(next, effects),
            (Some(next), Some(present)) => {
                if next != present {
                    // The invalid file was removed.
                    self.violation = None;
                }
                self.handle_gap(next, timeouts, now, effects);
            }
            _ => {}
        }
    }

    fn fetch(&mut self, seq: Seq, effects: &mut Vec<MailboxEffect>) {
        self.fetching = true;
        effects.push(MailboxEffect::Fetch(self.agent.clone(), seq));
    }

    /// Requests the missing message `next`, or gives it up.
    fn handle_gap(&mut self, next: Seq, timeouts: &ReaderTimeouts, now: Timestamp, effects: &mut Vec<MailboxEffect>) {
        if self.position.gap.is_none_or(|(seq, _)| seq != next) {
            self.position.gap = Some((next, now));
        }
        if self.gap_deadline(timeouts).is_none_or(|due| due > now) {
            let unseen = self.position.peeked.unwrap_or(next).next();
            if self.covering_request(next).is_some()
                && let Some(behind) = unseen.and_then(|unseen| self.present.range(unseen..).next().copied())
            {
                self.position.peeked = Some(behind);
                self.fetch(behind, effects);
            }
            return;
        }
        let requested = self.covering_request(next).filter(|_| !self.is_gone());
        let last = requested.map_or(Seq::LAST, |(last, _)| last).min(self.last_missing(next));
        let missing = MissingRange { from: self.agent.clone(), first: next, last, violation: self.violation.clone() };
        if !self.is_gone() && requested.is_none() {
            self.record_request(next, last, now);
            effects.push(MailboxEffect::RequestResend(missing));
            return;
        }
        if self.violation.is_none() {
            // Of a long range, the last numbers are the most likely to arrive.
            let first = last.get().saturating_sub(MAX_LOST_SEQS - 1).max(next.get());
            self.position.lost.extend((first..=last.get()).filter_map(Seq::new));
            while self.position.lost.len() > MAX_LOST_SEQS as usize {
                self.position.lost.pop_first();
            }
        }
        if !self.parts.is_empty() && last.get() - next.get() < MAX_LOST_SEQS {
            self.position.settled.extend((next.get()..=last.get()).filter_map(Seq::new));
        }
        self.advance();
        self.position.next = last.next();
        effects.push(MailboxEffect::Warn(Warning::Lost(missing)));
        self.step(timeouts, now, effects);
    }

    /// Takes in a fetched file. Returns its message, if it settles a number, and whether that had been given up.
    pub(super) fn take_fetched(&mut self, seq: Seq, read: ReadOutcome) -> Option<(MailboxMessage, bool)> {
        self.fetching = false;
        let late = self.position.lost.contains(&seq);
        if !late && self.position.next != Some(seq) {
            self.abandon_if_unavailable(&read);
            return None;
        }
        match read {
            ReadOutcome::Missing => {
                self.present.remove(&seq);
                None
            }
            ReadOutcome::Invalid(_) if late => {
                self.position.lost.remove(&seq);
                None
            }
            ReadOutcome::Invalid(violation) => {
                self.violation = Some(violation);
                self.examined = true;
                None
            }
            ReadOutcome::Message(message) if late => {
                self.position.lost.remove(&seq);
                Some((*message, true))
            }
            ReadOutcome::Message(message) => {
                self.advance();
                match message.message_type {
                    MailboxMessageType::Done => self.position.done = true,
                    // A resend request does not mean that a finished agent has returned.
                    MailboxMessageType::Error => {}
                    _ => self.position.done = false,
                }
                Some((*message, false))
            }
        }
    }

    /// Stops waiting for `next` if a message behind the gap says that it cannot be sent again.
    fn abandon_if_unavailable(&mut self, read: &ReadOutcome) {
        let Some(next) = self.position.next else { return };
        let ReadOutcome::Message(message) = read else { return };
        let unavailable = MissingRange::parse_unavailable_subject(&message.content.subject);
        if unavailable != Some(MessageRef { from: self.agent.clone(), seq: next }) {
            return;
        }
        for (first, last, at) in &mut self.position.resend_requests {
            if (*first..=*last).contains(&next) {
                *at = ABANDONED;
            }
        }
    }

    /// Delivers a message for the reader; keeps a part until its message is complete.
    pub(super) fn accept(
        &mut self,
        message: MailboxMessage,
        late: bool,
        now: Timestamp,
        effects: &mut Vec<MailboxEffect>,
    ) {
        let Some(part) = message.part.filter(|_| !late) else {
            let last_seq = message.seq;
            deliver(DeliveredMessage { message, last_seq, late }, now, effects);
            return;
        };
        if self.parts.last().is_some_and(|last| !continues_parts(last, &message, part)) {
            self.flush_parts(now, effects);
        }
        self.position.settled.remove(&message.seq);
        self.parts.push(message);
        self.last_part_at = now;
        if part.number == part.total {
            self.flush_parts(now, effects);
        }
    }

    /// Delivers the parts so far as one message.
    fn flush_parts(&mut self, now: Timestamp, effects: &mut Vec<MailboxEffect>) {
        let parts = std::mem::take(&mut self.parts);
        let next = self.position.next;
        self.position.settled.retain(|seq| next.is_some_and(|next| *seq >= next));
        let (Some(message), Some(last)) = (join(&parts), parts.last()) else { return };
        let has = |number: u16| parts.iter().any(|part| part.part.is_some_and(|part| part.number == number));
        let total = last.part.map_or(1, |part| part.total);
        let missing: Vec<u16> = (1..=total).filter(|number| !has(*number)).collect();
        if !missing.is_empty() {
            effects.push(MailboxEffect::Warn(Warning::Incomplete(message.reference(), missing)));
        }
        deliver(DeliveredMessage { message, last_seq: last.seq, late: false }, now, effects);
    }
}

/// Whether `next` is a later part of the message that `last` belongs to.
fn continues_parts(last: &MailboxMessage, next: &MailboxMessage, part: MessagePart) -> bool {
    last.part.is_some_and(|last| last.total == part.total && last.number < part.number)
        && (last.message_type, &last.to) == (next.message_type, &next.to)
}

fn deliver(delivered: DeliveredMessage, now: Timestamp, effects: &mut Vec<MailboxEffect>) {
    effects.push(if delivered.message.is_expired(now) {
        MailboxEffect::Warn(Warning::Expired(delivered.message.reference()))
    } else {
        MailboxEffect::Deliver(Box::new(delivered))
    });
}

pub(super) fn saturating_add(time: Timestamp, by: Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
    time.checked_add(by).unwrap_or(Timestamp::MAX)
}
