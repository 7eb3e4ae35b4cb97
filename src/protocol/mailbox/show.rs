//! A mailbox's content as text and as JSON. What agents write may be hostile: text for a terminal has no control characters and no
//! characters that reorder text; JSON escapes them.
//!
//! Used by `shim/mail` and `cli/mailbox`. Pure.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::machine::{DeliveredMessage, MissingRange, Warning};
use super::message::{ExpectedReply, MailboxMessage};
use super::outbox::InvalidFile;
use super::participant::Participant;
use super::pending::PendingReply;
use super::roster::AgentStatus;
use super::text::{render, render_time};

/// Removes control characters other than line breaks and tabs, and characters that reorder text.
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

/// A received message for output: a line of JSON, or text and a blank line.
pub fn format_delivered(delivered: &DeliveredMessage, reply_command: &str, json: bool) -> String {
    if !json {
        return render_delivered(delivered, reply_command) + "\n";
    }
    let mut value = message_json(&delivered.message);
    value["last_seq"] = delivered.last_seq.get().into();
    value["late"] = delivered.late.into();
    format!("{value}\n")
}

/// A line with the reference, the message as the spec writes it, and how to reply: `reply_command` and its arguments.
fn render_delivered(delivered: &DeliveredMessage, reply_command: &str) -> String {
    let DeliveredMessage { message, last_seq, late } = delivered;
    let reference = message.reference();
    let mut text = format!("==== {reference}");
    if *last_seq != message.seq {
        text.push_str(&format!(" to {last_seq}"));
    }
    text.push_str(if *late { ", late\n" } else { "\n" });
    text.push_str(&strip_control_chars(&render(message)));
    match message.expects() {
        ExpectedReply::Response => text.push_str(&format!("\n(reply: {reply_command} --re {reference} TEXT)\n")),
        ExpectedReply::Ack => text.push_str(&format!("\n(accept: {reply_command} --re {reference} --type ACK TEXT)\n")),
        ExpectedReply::Nothing => {}
    }
    text
}

pub fn message_json(message: &MailboxMessage) -> Value {
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
        "expects": expected_word(message.expects()),
    })
}

fn expected_word(expects: ExpectedReply) -> Option<&'static str> {
    match expects {
        ExpectedReply::Nothing => None,
        ExpectedReply::Response => Some("response"),
        ExpectedReply::Ack => Some("ack"),
    }
}

/// A message on one line: `2026-02-19T11:32:15  alpha/003  REQUEST   -> bravo  re bravo/002  Search the brain`.
#[cfg(feature = "orchestrator")]
pub fn message_summary(message: &MailboxMessage) -> String {
    let MailboxMessage { to, message_type, timestamp, re, part, .. } = message;
    let mut text = format!("{}  {}  {message_type:8}  -> {to}", render_time(*timestamp), message.reference());
    if let Some(re) = re {
        text.push_str(&format!("  re {re}"));
    }
    if let Some(part) = part {
        text.push_str(&format!("  part {part}"));
    }
    text + "  " + &single_line(&message.content.subject)
}

/// The references of sent messages for output.
pub fn format_sent(sent: &[MailboxMessage], json: bool) -> String {
    let references: Vec<String> = sent.iter().map(|message| message.reference().to_string()).collect();
    if json { format!("{}\n", json!({ "sent": references })) } else { references.join("\n") + "\n" }
}

pub fn render_warning(warning: &Warning) -> String {
    match warning {
        Warning::Lost(MissingRange { from, first, violation: Some(violation), .. }) => {
            format!("{from}/{first} is not a message and was skipped: {}", single_line(&violation.to_string()))
        }
        Warning::Lost(MissingRange { from, first, last, .. }) if first == last => {
            format!("{from}/{first} is missing and was not sent again; later messages were delivered")
        }
        Warning::Lost(MissingRange { from, first, last, .. }) => {
            format!(
                "{from}/{first} to {from}/{last} are missing and were not sent again; later messages were delivered"
            )
        }
        Warning::Returned(agent) => {
            format!("{agent} was gone and has started again: it may not know what was said before")
        }
        Warning::Expired(reference) => format!("{reference} was not delivered: it had expired"),
        Warning::Incomplete(reference, missing) => {
            let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
            format!("{reference} was delivered without its part {}", missing.join(", "))
        }
    }
}

/// A pending reply on one line.
pub fn render_pending(pending: &PendingReply, now: Timestamp) -> String {
    let reply = if pending.expects == ExpectedReply::Ack { "an ACK" } else { "a reply" };
    let minutes = now.duration_since(pending.since).as_mins().max(0);
    let gone = if pending.responder_gone { ", who is gone" } else { "" };
    let PendingReply { message, responder, subject, .. } = pending;
    format!("{message} waits for {reply} from {responder}{gone}, {minutes} min: {}", single_line(subject))
}

pub fn pending_json(pending: &PendingReply) -> Value {
    json!({
        "ref": pending.message.to_string(),
        "by": pending.responder,
        "expects": expected_word(pending.expects),
        "since": pending.since.to_string(),
        "gone": pending.responder_gone,
        "subject": pending.subject,
    })
}

/// The participants for output: a line of JSON each, or a table.
pub fn format_participants(participants: &[Participant], json: bool) -> String {
    if json {
        return participants.iter().map(|participant| format!("{}\n", participant_json(participant))).collect();
    }
    let time = |time: Option<Timestamp>| time.map_or_else(|| "-".to_owned(), render_time);
    let mut rows = vec![["ID", "STATUS", "SENT", "LAST SENT", "STARTED", "ROLE"].map(str::to_owned)];
    for Participant { entry, registered, sent, last_sent, said_done } in participants {
        let status = match (registered, said_done) {
            (false, true) => "done, not in the roster".to_owned(),
            (false, false) => "not in the roster".to_owned(),
            (true, true) if entry.status == AgentStatus::Active => "active, said DONE".to_owned(),
            (true, _) => single_line(entry.status.word()),
        };
        let id = entry.id.to_string();
        rows.push([id, status, sent.to_string(), time(*last_sent), time(entry.started), single_line(&entry.role)]);
    }
    let widths: Vec<usize> =
        (0..6).map(|at| rows.iter().map(|cells| cells[at].chars().count()).max().unwrap_or(0)).collect();
    let pad = |cells: &[String; 6]| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(pad).collect()
}

fn participant_json(participant: &Participant) -> Value {
    let Participant { entry, registered, sent, last_sent, said_done } = participant;
    json!({
        "id": entry.id,
        "role": entry.role,
        "pid": entry.pid,
        "started": entry.started.map(|time| time.to_string()),
        "status": registered.then(|| entry.status.word()),
        "sent": sent,
        "last_sent": last_sent.map(|time| time.to_string()),
        "said_done": said_done,
    })
}

pub fn render_invalid_file(invalid: &InvalidFile) -> String {
    let InvalidFile { agent, name, violation } = invalid;
    format!("agents/{agent}/{} is not a message: {}", single_line(name), single_line(&violation.to_string()))
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
        let delivered = DeliveredMessage { last_seq: message.seq, message: message.clone(), late: true };
        let shown = render_delivered(&delivered, "answer");
        assert!(shown.starts_with("==== a/001, late\n<!-- amp-version: 1 -->\n"), "{shown}");
        assert!(shown.ends_with("(accept: answer --re a/001 --type ACK TEXT)\n"), "{shown}");
        assert!(!shown.contains(['\u{1b}', '\u{7}']) && !message_summary(&message).contains('\u{1b}'));
        assert!(!message_json(&message).to_string().contains('\u{1b}'));
    }
}
