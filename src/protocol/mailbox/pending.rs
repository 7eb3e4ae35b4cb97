//! Pending replies: which messages of a mailbox wait for whose reply. Pure.
//!
//! A REQUEST is pending until its recipient sends a RESPONSE, ERROR or ACK with `re`; so is a HANDOFF, and an ERROR with an
//! expected response. A broadcast is pending for every other participant. A reply without `re` answers the oldest pending message
//! between the two agents, because agents forget it, as the spec's own examples do. A message that a DONE leaves open stays
//! pending and is marked. An expired message is not pending.

use jiff::Timestamp;

use super::message::{AgentId, ExpectedReply, MailboxMessage, MailboxMessageType, MessageRecipient, MessageRef};
use super::roster::RosterEntry;

/// A reply that a sender waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingReply {
    pub message: MessageRef,
    pub subject: String,
    pub responder: AgentId,
    pub expects: ExpectedReply,
    pub since: Timestamp,
    /// The responder signed off, crashed or left.
    pub responder_gone: bool,
}

/// Returns the pending replies, oldest first. The messages may be in any order; only the first part of a message counts.
pub fn pending_replies(messages: &[MailboxMessage], rows: &[RosterEntry], now: Timestamp) -> Vec<PendingReply> {
    let mut ordered: Vec<&MailboxMessage> =
        messages.iter().filter(|message| message.part.is_none_or(|part| part.number == 1)).collect();
    // Within one second, requests come before replies, and a sender's messages by number.
    ordered.sort_by_key(|message| {
        (message.timestamp, message.expects() == ExpectedReply::Nothing, message.seq, message.from.clone())
    });
    let is_gone = |agent: &AgentId| {
        let last = ordered.iter().filter(|message| message.from == *agent).max_by_key(|message| message.seq);
        let row = rows.iter().find(|row| row.id == *agent);
        last.is_some_and(|last| last.message_type == MailboxMessageType::Done)
            || row.is_some_and(|row| row.status.is_gone())
    };
    let mut pending: Vec<PendingReply> = Vec::new();
    for message in &ordered {
        remove_answered(&mut pending, message, messages);
        if message.expects() == ExpectedReply::Nothing || message.is_expired(now) {
            continue;
        }
        let responders = match &message.to {
            MessageRecipient::Agent(one) => vec![one.clone()],
            MessageRecipient::Broadcast => {
                let mut others: Vec<AgentId> =
                    rows.iter().map(|row| row.id.clone()).filter(|id| *id != message.from).collect();
                others.sort();
                others
            }
        };
        pending.extend(responders.into_iter().map(|responder| PendingReply {
            message: message.reference(),
            subject: message.content.subject.clone(),
            responder_gone: is_gone(&responder),
            responder,
            expects: message.expects(),
            since: message.timestamp,
        }));
    }
    pending
}

/// Removes the pending reply that `answer` is, if any.
fn remove_answered(pending: &mut Vec<PendingReply>, answer: &MailboxMessage, messages: &[MailboxMessage]) {
    use MailboxMessageType::{Ack, Error, Response};
    if !matches!(answer.message_type, Response | Ack | Error) {
        return;
    }
    let at = match &answer.re {
        Some(re) => {
            // A reply to a part is a reply to the message, which has the number of its first part.
            let part = messages.iter().find(|message| message.reference() == *re).and_then(|message| message.part);
            let before = part.map_or(0, |part| u32::from(part.number) - 1);
            let first = re.seq.get().saturating_sub(before).max(1);
            pending.iter().position(|pending| {
                pending.responder == answer.from
                    && pending.message.from == re.from
                    && pending.message.seq.get() == first
            })
        }
        None => pending
            .iter()
            .position(|pending| pending.responder == answer.from && answer.to.is_for(&pending.message.from)),
    };
    if let Some(at) = at {
        pending.remove(at);
    }
}

#[cfg(test)]
mod tests;
