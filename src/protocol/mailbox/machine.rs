//! A reader of the other agents' outboxes: which file to read next, what to deliver, what to request again and what to give up.
//! Pure: the caller reports files and the time as [`MailboxEvent`]s and carries out the [`MailboxEffect`]s.
//!
//! Each sender's messages are taken in the order of their numbers. A missing number below a present one is a gap. It is requested
//! after [`ReaderTimeouts::gap_grace`], and given up with a warning [`ReaderTimeouts::resend_timeout`] later. A gap of a sender
//! that is gone is given up without a request, and a gap that its sender declares permanent is given up at once. A file that is
//! not a message counts as missing, because it may be half written. A gap of one sender delays no other sender. A message that
//! arrives after it was given up is delivered as late.
//!
//! The position ([`MailboxMachine::snapshot`]) is small, so a short-lived reader can resume where the last one stopped. Driven by
//! `agent_mailbox.rs`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::message::{AgentId, MailboxMessage, MailboxMessageType, Seq};
use super::outbox::ReadOutcome;
use super::roster::AgentStatus;

mod interface;
mod missing_range;
mod sender;

pub use interface::{DeliveredMessage, MailboxEffect, MailboxEvent, ReaderTimeouts, Warning};
pub use missing_range::MissingRange;
use sender::{Sender, SenderPosition, saturating_add};

/// The reader's position in all outboxes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReaderSnapshot {
    senders: BTreeMap<AgentId, SenderPosition>,
}

#[derive(Debug, Clone)]
pub struct MailboxMachine {
    me: AgentId,
    timeouts: ReaderTimeouts,
    senders: BTreeMap<AgentId, Sender>,
}

impl MailboxMachine {
    pub fn new(me: AgentId, timeouts: ReaderTimeouts, snapshot: &ReaderSnapshot) -> Self {
        let sender = |(agent, position): (&AgentId, &SenderPosition)| {
            (agent.clone(), Sender::new(agent.clone(), position.clone()))
        };
        Self { me, timeouts, senders: snapshot.senders.iter().map(sender).collect() }
    }

    pub fn snapshot(&self) -> ReaderSnapshot {
        let senders = self.senders.iter().map(|(agent, sender)| (agent.clone(), sender.position())).collect();
        ReaderSnapshot { senders }
    }

    pub fn handle(&mut self, event: MailboxEvent, now: Timestamp) -> Vec<MailboxEffect> {
        let mut effects = Vec::new();
        match event {
            MailboxEvent::OutboxListed(agent, numbers) if agent != self.me => {
                self.sender(&agent).set_present(numbers);
                self.step(&agent, now, &mut effects);
            }
            MailboxEvent::OutboxListed(..) => {}
            MailboxEvent::Fetched(agent, seq, read) => {
                self.handle_fetched(&agent, seq, read, now, &mut effects);
                self.step(&agent, now, &mut effects);
            }
            MailboxEvent::RosterRead(rows) => {
                for row in rows {
                    let agent = row.id.clone();
                    if agent != self.me && self.sender(&agent).set_roster_entry(row) {
                        effects.push(MailboxEffect::Warn(Warning::Returned(agent)));
                    }
                }
                for sender in self.senders.values_mut() {
                    sender.step(&self.timeouts, now, &mut effects);
                }
            }
        }
        effects
    }

    /// When to list the outboxes again even if they do not change.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.senders.values().filter_map(|sender| sender.next_deadline(&self.timeouts)).min()
    }

    /// How an agent ended, if it signed off, crashed or left, and everything it sent was taken in.
    pub fn finished_status(&self, agent: &AgentId) -> Option<AgentStatus> {
        self.senders.get(agent)?.finished_status()
    }

    /// Whether there are other agents and all of them are finished.
    pub fn all_finished(&self) -> bool {
        !self.senders.is_empty() && self.senders.values().all(|sender| sender.finished_status().is_some())
    }

    fn sender(&mut self, agent: &AgentId) -> &mut Sender {
        let new = || Sender::new(agent.clone(), SenderPosition::default());
        self.senders.entry(agent.clone()).or_insert_with(new)
    }

    fn step(&mut self, agent: &AgentId, now: Timestamp, effects: &mut Vec<MailboxEffect>) {
        if let Some(sender) = self.senders.get_mut(agent) {
            sender.step(&self.timeouts, now, effects);
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
        let fetched = self.senders.get_mut(agent).and_then(|sender| sender.take_fetched(seq, read));
        let Some((message, late)) = fetched else { return };
        let for_me = message.to.is_for(&self.me);
        let handled = message.message_type == MailboxMessageType::Error && self.handle_error(&message, now, effects);
        if for_me
            && !handled
            && let Some(sender) = self.senders.get_mut(agent)
        {
            sender.accept(message, late, now, effects);
        }
    }

    /// Carries out an ERROR of the resend protocol. Returns whether the message is only that, and is not to be delivered.
    fn handle_error(&mut self, message: &MailboxMessage, now: Timestamp, effects: &mut Vec<MailboxEffect>) -> bool {
        let resend = |first, last| MailboxEffect::Resend { requested_by: message.reference(), first, last };
        if let Some(missing) = MissingRange::parse_resend_subject(&message.content.subject) {
            if missing.from == self.me {
                effects.push(resend(missing.first, missing.last));
            } else if let Some(sender) = self.senders.get_mut(&missing.from)
                && saturating_add(message.timestamp, self.timeouts.resend_timeout) > now
            {
                // One reader's request is enough for all.
                sender.record_request(missing.first, missing.last, message.timestamp.min(now));
            }
            return true;
        }
        if MissingRange::parse_unavailable_subject(&message.content.subject).is_some() {
            return true;
        }
        if let Some(re) = message.re.as_ref().filter(|re| message.to.is_for(&self.me) && re.from == self.me) {
            effects.push(resend(re.seq, re.seq));
        }
        false
    }
}

#[cfg(test)]
mod tests;
