//! What is in a mailbox, as people and programs are shown it. What agents write is hostile: control characters and those that
//! reorder text are taken out of what goes to a terminal; JSON escapes them.
//!
//! Used by `shim/mail` and `cli/mailbox`. Pure.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::agent_mailbox::InvalidFile;
use super::machine::{DeliveredMessage, MissingRange, Warning};
use super::message::{ExpectedReply, MailboxMessage};
use super::pending::PendingReply;
use super::roster::{AgentStatus, RosterEntry};
use super::text::{render, render_time};

/// The text without control characters, but for line breaks and tabs, and without those that reorder it.
pub fn strip_control_chars(text: &str) -> String {
    let bad = |c: char| {
        (c.is_control() && c != '\n' && c != '\t')
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    text.chars().filter(|c| !bad(*c)).collect()
}

/// [`strip_control_chars`], on one line.
pub fn single_line(text: &str) -> String {
    strip_control_chars(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A message as it is read: a line that says where it is from, the message as the spec writes it, and what to do about it;
/// `answer` is the command that answers it, without the text.
pub fn render_delivered(letter: &DeliveredMessage, answer: &str) -> String {
    let DeliveredMessage { message, last_seq: last, late } = letter;
    let reference = message.reference();
    let mut text = format!("==== {reference}");
    if *last != message.seq {
        text.push_str(&format!(" to {last}"));
    }
    text.push_str(if *late { ", late\n" } else { "\n" });
    text.push_str(&strip_control_chars(&render(message)));
    match message.expects() {
        ExpectedReply::Response => text.push_str(&format!("\n(answer: {answer} --re {reference} TEXT)\n")),
        ExpectedReply::Ack => text.push_str(&format!("\n(take it: {answer} --re {reference} --type ACK TEXT)\n")),
        ExpectedReply::Nothing => {}
    }
    text
}

/// A message for programs.
pub fn message_json(message: &MailboxMessage) -> Value {
    let expects = match message.expects() {
        ExpectedReply::Nothing => Value::Null,
        ExpectedReply::Response => "response".into(),
        ExpectedReply::Ack => "ack".into(),
    };
    json!({
        "ref": message.reference().to_string(),
        "from": message.from,
        "to": message.to.to_string(),
        "seq": message.seq.get(),
        "type": message.message_type.word(),
        "timestamp": message.timestamp.to_string(),
        "re": message.re.as_ref().map(ToString::to_string),
        "priority": message.priority.word(),
        "ttl": message.ttl,
        "part": message.part.map(|part| part.to_string()),
        "subject": message.content.subject,
        "body": message.content.body,
        "context": message.content.context,
        "expected_response": message.content.expected_response,
        "expects": expects,
    })
}

/// A message that was delivered, for programs.
pub fn delivered_json(letter: &DeliveredMessage) -> Value {
    let mut value = message_json(&letter.message);
    value["last_seq"] = letter.last_seq.get().into();
    value["late"] = letter.late.into();
    value
}

/// A message in one line: `2026-02-19T11:32:15  alpha/003  REQUEST   -> bravo  re bravo/002  Search the brain`.
pub fn message_summary(message: &MailboxMessage) -> String {
    let MailboxMessage { to, message_type: kind, timestamp, re, part, .. } = message;
    let reference = message.reference();
    let mut text = format!("{}  {reference}  {kind:8}  -> {to}", render_time(*timestamp));
    if let Some(re) = re {
        text.push_str(&format!("  re {re}"));
    }
    if let Some(part) = part {
        text.push_str(&format!("  part {part}"));
    }
    text.push_str("  ");
    text.push_str(&single_line(&message.content.subject));
    text
}

/// A warning, on one line.
pub fn render_warning(warning: &Warning) -> String {
    match warning {
        Warning::Lost(MissingRange { from, first, violation: Some(violation), .. }) => {
            format!("{from}/{first} is no message and was passed over: {}", single_line(&violation.to_string()))
        }
        Warning::Lost(MissingRange { from, first, last, .. }) if first == last => {
            format!("{from}/{first} is missing and did not come again; what follows it was delivered")
        }
        Warning::Lost(MissingRange { from, first, last, .. }) => {
            format!(
                "{from}/{first} to {from}/{last} are missing and did not come again; what follows them was delivered"
            )
        }
        Warning::Returned(agent) => {
            format!("{agent} was gone and is tried again: it may know nothing of what was said before")
        }
        Warning::Expired(reference) => format!("{reference} was not delivered: its time was over"),
        Warning::Incomplete(reference, missing) => {
            let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
            format!("{reference} was delivered without its part {}", missing.join(", "))
        }
    }
}

/// A warning for programs.
pub fn warning_json(of: &Warning) -> Value {
    let kind = match of {
        Warning::Lost(_) => "lost",
        Warning::Returned(_) => "back",
        Warning::Expired(_) => "expired",
        Warning::Incomplete(..) => "incomplete",
    };
    json!({ "warning": kind, "text": render_warning(of) })
}

/// An answer that is waited for, on one line.
pub fn render_pending(pending: &PendingReply, now: Timestamp) -> String {
    let what = if pending.expects == ExpectedReply::Ack { "an ACK" } else { "an answer" };
    let minutes = now.duration_since(pending.since).as_mins().max(0);
    let gone = if pending.responder_gone { ", who is gone" } else { "" };
    let PendingReply { message, responder: by, subject, .. } = pending;
    format!("{message} waits for {what} of {by}{gone}, {minutes} min: {}", single_line(subject))
}

/// The same for programs.
pub fn pending_json(pending: &PendingReply) -> Value {
    json!({
        "ref": pending.message.to_string(),
        "by": pending.responder,
        "expects": if pending.expects == ExpectedReply::Ack { "ack" } else { "response" },
        "since": pending.since.to_string(),
        "gone": pending.responder_gone,
        "subject": pending.subject,
    })
}

/// Somebody who takes part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Participant {
    /// As it is registered; one that is not has an outbox.
    pub entry: RosterEntry,
    /// Whether it is.
    pub registered: bool,
    /// How many messages it sent.
    pub sent: usize,
    /// When it sent the last.
    pub last_sent: Option<Timestamp>,
    /// Whether that was a DONE.
    pub said_done: bool,
}

/// Everybody who is registered or has an outbox.
pub fn participants(
    rows: Vec<RosterEntry>,
    outboxes: &[super::message::AgentId],
    messages: &[MailboxMessage],
) -> Vec<Participant> {
    let mut all: Vec<(RosterEntry, bool)> = rows.into_iter().map(|row| (row, true)).collect();
    for agent in outboxes {
        if !all.iter().any(|(row, _)| row.id == *agent) {
            let row = RosterEntry {
                id: agent.clone(),
                role: String::new(),
                pid: None,
                started: None,
                status: AgentStatus::Other("-".into()),
            };
            all.push((row, false));
        }
    }
    let participant = |(row, registered): (RosterEntry, bool)| {
        let own = || messages.iter().filter(|message| message.from == row.id);
        let last = own().max_by_key(|message| message.seq);
        let done = last.is_some_and(|last| last.message_type == super::message::MailboxMessageType::Done);
        Participant {
            registered,
            sent: own().count(),
            last_sent: last.map(|last| last.timestamp),
            said_done: done,
            entry: row,
        }
    };
    all.into_iter().map(participant).collect()
}

/// A table of who takes part.
pub fn render_roster(participants: &[Participant]) -> String {
    let time = |time: Option<Timestamp>| time.map_or_else(|| "-".to_owned(), render_time);
    let mut lines = vec![["ID", "STATUS", "SENT", "LAST SENT", "STARTED", "ROLE"].map(str::to_owned)];
    for Participant { entry: row, registered, sent, last_sent: heard, said_done: done } in participants {
        let status = match (registered, done) {
            (false, true) => "done, not in the roster".to_owned(),
            (false, false) => "not in the roster".to_owned(),
            (true, true) if row.status == AgentStatus::Active => "active, said DONE".to_owned(),
            (true, _) => single_line(row.status.word()),
        };
        lines.push([
            row.id.to_string(),
            status,
            sent.to_string(),
            time(*heard),
            time(row.started),
            single_line(&row.role),
        ]);
    }
    let widths: Vec<usize> =
        (0..6).map(|at| lines.iter().map(|cells| cells[at].chars().count()).max().unwrap_or(0)).collect();
    let pad = |cells: &[String; 6]| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    lines.iter().map(pad).collect()
}

/// The same for programs.
pub fn participant_json(participant: &Participant) -> Value {
    let Participant { entry: row, registered, sent, last_sent: heard, said_done: done } = participant;
    json!({
        "id": row.id,
        "role": row.role,
        "pid": row.pid,
        "started": row.started.map(|time| time.to_string()),
        "status": registered.then(|| row.status.word()),
        "sent": sent,
        "last_sent": heard.map(|time| time.to_string()),
        "said_done": done,
    })
}

/// A file in an outbox that is no message, on one line.
pub fn render_invalid_file(bad: &InvalidFile) -> String {
    format!(
        "agents/{}/{} is no message: {}",
        bad.agent,
        single_line(&bad.name),
        single_line(&bad.violation.to_string())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_stripped_for_terminals() {
        let hostile = "a\u{1b}[2J\u{9b}31mb\r\nc\td\u{202e}e\u{7}";
        assert_eq!(strip_control_chars(hostile), "a[2J31mb\nc\tde");
        assert_eq!(single_line(" a\n\u{1b}b "), "a b");
        let text = "<!-- amp-version: 1 -->\n<!-- from: a -->\n<!-- to: b -->\n<!-- seq: 001 -->\n<!-- type: HANDOFF -->\n\
                    <!-- timestamp: 2026-02-19T11:32:15 -->\n\n## Subject\nx\u{1b}]0;y\u{7}\n";
        let message = super::super::text::parse(text.as_bytes()).expect("a message");
        let shown = render_delivered(
            &DeliveredMessage { last_seq: message.seq, message: message.clone(), late: true },
            "answer",
        );
        assert!(shown.starts_with("==== a/001, late\n<!-- amp-version: 1 -->\n"), "{shown}");
        assert!(shown.ends_with("(take it: answer --re a/001 --type ACK TEXT)\n"), "{shown}");
        assert!(!shown.contains(['\u{1b}', '\u{7}']) && !message_summary(&message).contains('\u{1b}'));
        assert!(!message_json(&message).to_string().contains('\u{1b}'));
    }
}
