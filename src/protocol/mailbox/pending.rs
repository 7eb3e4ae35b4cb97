//! Who waits for whose answer: all messages of a mailbox -> what is open. Pure.
//!
//! A REQUEST is open until a RESPONSE, ERROR or ACK of the one it is for comes with `re`; a HANDOFF the same, and so an ERROR
//! that says what it expects. Of a broadcast everybody owes an answer who was there. An answer without `re` is taken to be to
//! the oldest that is open between the two: agents forget it, as the spec's own examples do. What a DONE leaves open stays so,
//! and is said to be nobody's any more. What is expired is not waited for.

use jiff::Timestamp;

use super::message::{AgentId, ExpectedReply, MailboxMessage, MailboxMessageType, MessageRecipient, MessageRef};
use super::roster::RosterEntry;

/// An answer that somebody waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingReply {
    /// The message that wants it.
    pub message: MessageRef,
    /// What that is about.
    pub subject: String,
    /// Who has to give it.
    pub responder: AgentId,
    /// What is to be given.
    pub expects: ExpectedReply,
    /// Since when.
    pub since: Timestamp,
    /// Whoever has to give it signed off, crashed or left.
    pub responder_gone: bool,
}

/// What is open, oldest first. `messages` in any order; of messages in parts the first part counts.
pub fn pending_replies(messages: &[MailboxMessage], rows: &[RosterEntry], now: Timestamp) -> Vec<PendingReply> {
    let mut ordered: Vec<&MailboxMessage> =
        messages.iter().filter(|message| message.part.is_none_or(|part| part.number == 1)).collect();
    // Of one second, a sender's in order, and what is asked before what is answered.
    ordered.sort_by_key(|message| {
        (message.timestamp, message.expects() == ExpectedReply::Nothing, message.seq, message.from.clone())
    });
    let done = |agent: &AgentId| {
        let last = ordered.iter().filter(|message| message.from == *agent).max_by_key(|message| message.seq);
        let row = rows.iter().find(|row| row.id == *agent);
        last.is_some_and(|last| last.message_type == MailboxMessageType::Done)
            || row.is_some_and(|row| row.status.is_gone())
    };
    let mut open: Vec<PendingReply> = Vec::new();
    for message in &ordered {
        remove_answered(&mut open, message, messages);
        if message.expects() == ExpectedReply::Nothing || message.is_expired(now) {
            continue;
        }
        let everybody = || {
            let mut ids: Vec<AgentId> =
                rows.iter().map(|row| row.id.clone()).filter(|id| *id != message.from).collect();
            ids.sort();
            ids
        };
        let by = match &message.to {
            MessageRecipient::Agent(one) => vec![one.clone()],
            MessageRecipient::Broadcast => everybody(),
        };
        open.extend(by.into_iter().map(|by| PendingReply {
            message: message.reference(),
            subject: message.content.subject.clone(),
            responder_gone: done(&by),
            responder: by,
            expects: message.expects(),
            since: message.timestamp,
        }));
    }
    open
}

/// Takes away what a message answers.
fn remove_answered(open: &mut Vec<PendingReply>, answer: &MailboxMessage, all: &[MailboxMessage]) {
    if !matches!(
        answer.message_type,
        MailboxMessageType::Response | MailboxMessageType::Ack | MailboxMessageType::Error
    ) {
        return;
    }
    let at = match &answer.re {
        Some(re) => {
            // Whoever answers a part answers the message.
            let first = |asked: &MailboxMessage| {
                asked
                    .part
                    .map_or(asked.seq.get(), |part| asked.seq.get() + 1 - u32::from(part.number).min(asked.seq.get()))
            };
            let asked = all.iter().find(|message| message.reference() == *re).map_or(re.seq.get(), first);
            open.iter().position(|open| {
                open.responder == answer.from && open.message.from == re.from && open.message.seq.get() == asked
            })
        }
        None => open.iter().position(|open| open.responder == answer.from && answer.to.is_for(&open.message.from)),
    };
    if let Some(at) = at {
        open.remove(at);
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::{MessageContent, Priority, Seq};
    use super::super::roster::AgentStatus;
    use super::super::text::parse_time;
    use super::*;

    fn message(from: &str, seq: u32, to: &str, kind: MailboxMessageType, re: Option<&str>) -> MailboxMessage {
        MailboxMessage {
            from: from.parse().expect("an id"),
            to: to.parse().expect("a recipient"),
            seq: Seq::new(seq).expect("a number"),
            message_type: kind,
            timestamp: parse_time("2026-02-19T11:32:15").expect("a time")
                + jiff::SignedDuration::from_secs(i64::from(seq)),
            re: re.map(|re| re.parse().expect("a reference")),
            priority: Priority::Normal,
            ttl: None,
            part: None,
            content: MessageContent { subject: format!("{from} {seq}"), ..MessageContent::default() },
        }
    }

    fn roster_entries() -> Vec<RosterEntry> {
        let row = |id: &str| RosterEntry::new(id.parse().expect("an id"), "r", None, Timestamp::UNIX_EPOCH);
        vec![row("alpha"), row("bravo"), row("charlie")]
    }

    fn open(messages: &[MailboxMessage]) -> Vec<String> {
        let open = pending_replies(messages, &roster_entries(), Timestamp::now());
        open.iter()
            .map(|open| {
                format!("{} by {}{}", open.message, open.responder, if open.responder_gone { ", gone" } else { "" })
            })
            .collect()
    }

    /// Optional Fields.
    #[test]
    fn requests_are_pending_until_answered() {
        let mut messages = vec![
            message("alpha", 1, "bravo", MailboxMessageType::Request, None),
            message("alpha", 2, "bravo", MailboxMessageType::Handoff, None),
            message("bravo", 3, "alpha", MailboxMessageType::Status, Some("alpha/001")),
        ];
        assert_eq!(open(&messages), ["alpha/001 by bravo", "alpha/002 by bravo"], "a STATUS answers nothing");
        messages.push(message("bravo", 4, "alpha", MailboxMessageType::Ack, Some("alpha/002")));
        assert_eq!(open(&messages), ["alpha/001 by bravo"]);
        messages.push(message("bravo", 5, "alpha", MailboxMessageType::Response, None));
        assert_eq!(open(&messages), [""; 0], "without `re`: the oldest");
    }

    /// Message Types.
    #[test]
    fn a_broadcast_is_pending_for_everybody_and_marks_who_is_gone() {
        let mut messages = vec![
            message("alpha", 1, "*", MailboxMessageType::Request, None),
            message("bravo", 2, "alpha", MailboxMessageType::Response, Some("alpha/001")),
        ];
        assert_eq!(open(&messages), ["alpha/001 by charlie"]);
        messages.push(message("charlie", 3, "*", MailboxMessageType::Done, None));
        assert_eq!(open(&messages), ["alpha/001 by charlie, gone"]);
        messages[0].ttl = Some(1);
        assert_eq!(open(&messages), [""; 0], "expired");
        let crashed = vec![message("alpha", 1, "bravo", MailboxMessageType::Request, None)];
        let mut rows = roster_entries();
        rows[1].status = AgentStatus::Crashed;
        assert!(pending_replies(&crashed, &rows, Timestamp::now())[0].responder_gone);
    }

    #[test]
    fn an_answer_to_a_part_answers_the_message() {
        let mut messages: Vec<MailboxMessage> =
            (1..=2).map(|seq| message("alpha", seq, "bravo", MailboxMessageType::Request, None)).collect();
        for (number, message) in (1..).zip(&mut messages) {
            message.part = Some(format!("{number}/2").parse().expect("a part"));
        }
        assert_eq!(open(&messages), ["alpha/001 by bravo"]);
        messages.push(message("bravo", 3, "alpha", MailboxMessageType::Response, Some("alpha/002")));
        assert_eq!(open(&messages), [""; 0]);
    }
}
