//! Agents, numbers, times and messages for tests.

use jiff::Timestamp;

use super::super::message::{AgentId, MailboxMessage, MailboxMessageType, MessageContent, MessageRef, Priority, Seq};
use super::super::text::parse_time;

pub fn id(text: &str) -> AgentId {
    text.parse().expect("an id")
}

pub fn seq(number: u32) -> Seq {
    Seq::new(number).expect("a number")
}

pub fn now() -> Timestamp {
    parse_time("2026-02-19T11:32:15").expect("a time")
}

/// An empty STATUS.
pub fn message(reference: &str, to: &str) -> MailboxMessage {
    let MessageRef { from, seq } = reference.parse().expect("a reference");
    MailboxMessage {
        from,
        to: to.parse().expect("a recipient"),
        seq,
        message_type: MailboxMessageType::Status,
        timestamp: now(),
        re: None,
        priority: Priority::Normal,
        ttl: None,
        part: None,
        content: MessageContent::default(),
    }
}
