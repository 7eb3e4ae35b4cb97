//! Pending replies.

use super::super::message::MessageContent;
use super::super::roster::AgentStatus;
use super::super::tests::fixtures;
use super::*;

/// The number is also the time, in seconds.
fn message(reference: &str, to: &str, message_type: MailboxMessageType, re: Option<&str>) -> MailboxMessage {
    let message = fixtures::message(reference, to);
    MailboxMessage {
        message_type,
        timestamp: message.timestamp + jiff::SignedDuration::from_secs(i64::from(message.seq.get())),
        re: re.map(|re| re.parse().expect("a reference")),
        content: MessageContent { subject: reference.to_owned(), ..MessageContent::default() },
        ..message
    }
}

/// A day after the messages.
fn later() -> Timestamp {
    fixtures::now() + jiff::SignedDuration::from_hours(24)
}

fn roster_entries() -> Vec<RosterEntry> {
    let row = |id: &str| RosterEntry::new(id.parse().expect("an id"), "r", None, Timestamp::UNIX_EPOCH);
    vec![row("alpha"), row("bravo"), row("charlie")]
}

fn open(messages: &[MailboxMessage]) -> Vec<String> {
    let open = pending_replies(messages, &roster_entries(), later());
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
        message("alpha/1", "bravo", MailboxMessageType::Request, None),
        message("alpha/2", "bravo", MailboxMessageType::Handoff, None),
        message("bravo/3", "alpha", MailboxMessageType::Status, Some("alpha/001")),
    ];
    assert_eq!(open(&messages), ["alpha/001 by bravo", "alpha/002 by bravo"], "a STATUS answers nothing");
    messages.push(message("bravo/4", "alpha", MailboxMessageType::Ack, Some("alpha/002")));
    assert_eq!(open(&messages), ["alpha/001 by bravo"]);
    messages.push(message("bravo/5", "alpha", MailboxMessageType::Response, None));
    assert_eq!(open(&messages), [""; 0], "without `re`: the oldest");
}

/// Message Types.
#[test]
fn a_broadcast_is_pending_for_everybody_and_marks_who_is_gone() {
    let mut messages = vec![
        message("alpha/1", "*", MailboxMessageType::Request, None),
        message("bravo/2", "alpha", MailboxMessageType::Response, Some("alpha/001")),
    ];
    assert_eq!(open(&messages), ["alpha/001 by charlie"]);
    messages.push(message("charlie/3", "*", MailboxMessageType::Done, None));
    assert_eq!(open(&messages), ["alpha/001 by charlie, gone"]);
    messages[0].ttl = Some(1);
    assert_eq!(open(&messages), [""; 0], "expired");
    let crashed = vec![message("alpha/1", "bravo", MailboxMessageType::Request, None)];
    let mut rows = roster_entries();
    rows[1].status = AgentStatus::Crashed;
    assert!(pending_replies(&crashed, &rows, later())[0].responder_gone);
}

#[test]
fn an_answer_to_a_part_answers_the_message() {
    let mut messages: Vec<MailboxMessage> =
        (1..=2).map(|seq| message(&format!("alpha/{seq}"), "bravo", MailboxMessageType::Request, None)).collect();
    for (number, message) in (1..).zip(&mut messages) {
        message.part = Some(format!("{number}/2").parse().expect("a part"));
    }
    assert_eq!(open(&messages), ["alpha/001 by bravo"]);
    messages.push(message("bravo/3", "alpha", MailboxMessageType::Response, Some("alpha/002")));
    assert_eq!(open(&messages), [""; 0]);
}
