//! Who waits for whose answer: all messages of a mailbox -> what is open. Pure.
//!
//! A REQUEST is open until a RESPONSE, ERROR or ACK of the one it is for comes with `re`; a HANDOFF the same, and so an ERROR
//! that says what it expects. Of a broadcast everybody owes an answer who was there. An answer without `re` is taken to be to
//! the oldest that is open between the two: agents forget it, as the spec's own examples do. What a DONE leaves open stays so,
//! and is said to be nobody's any more. What is expired is not waited for.

use jiff::Timestamp;

use super::message::{AgentId, Expects, Kind, Message, MessageRef, Recipient};
use super::roster::Row;

/// An answer that somebody waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// The message that wants it.
    pub message: MessageRef,
    /// What that is about.
    pub subject: String,
    /// Who has to give it.
    pub by: AgentId,
    /// What is to be given.
    pub expects: Expects,
    /// Since when.
    pub since: Timestamp,
    /// Whoever has to give it signed off, crashed or left.
    pub gone: bool,
}

/// What is open, oldest first. `messages` in any order; of messages in parts the first part counts.
pub fn pending(messages: &[Message], rows: &[Row], now: Timestamp) -> Vec<Pending> {
    let mut ordered: Vec<&Message> =
        messages.iter().filter(|message| message.part.is_none_or(|part| part.number == 1)).collect();
    // Of one second, a sender's in order, and what is asked before what is answered.
    ordered.sort_by_key(|message| {
        (message.timestamp, message.expects() == Expects::Nothing, message.seq, message.from.clone())
    });
    let done = |agent: &AgentId| {
        let last = ordered.iter().filter(|message| message.from == *agent).max_by_key(|message| message.seq);
        let row = rows.iter().find(|row| row.id == *agent);
        last.is_some_and(|last| last.kind == Kind::Done) || row.is_some_and(|row| row.status.is_gone())
    };
    let mut open: Vec<Pending> = Vec::new();
    for message in &ordered {
        settle(&mut open, message, messages);
        if message.expects() == Expects::Nothing || message.expired(now) {
            continue;
        }
        let everybody = || {
            let mut ids: Vec<AgentId> =
                rows.iter().map(|row| row.id.clone()).filter(|id| *id != message.from).collect();
            ids.sort();
            ids
        };
        let by = match &message.to {
            Recipient::One(one) => vec![one.clone()],
            Recipient::All => everybody(),
        };
        open.extend(by.into_iter().map(|by| Pending {
            message: message.reference(),
            subject: message.content.subject.clone(),
            gone: done(&by),
            by,
            expects: message.expects(),
            since: message.timestamp,
        }));
    }
    open
}

/// Takes away what a message answers.
fn settle(open: &mut Vec<Pending>, answer: &Message, all: &[Message]) {
    if !matches!(answer.kind, Kind::Response | Kind::Ack | Kind::Error) {
        return;
    }
    let at = match &answer.re {
        Some(re) => {
            // Whoever answers a part answers the message.
            let first = |asked: &Message| {
                asked
                    .part
                    .map_or(asked.seq.get(), |part| asked.seq.get() + 1 - u32::from(part.number).min(asked.seq.get()))
            };
            let asked = all.iter().find(|message| message.reference() == *re).map_or(re.seq.get(), first);
            open.iter().position(|open| {
                open.by == answer.from && open.message.from == re.from && open.message.seq.get() == asked
            })
        }
        None => open.iter().position(|open| open.by == answer.from && answer.to.is_for(&open.message.from)),
    };
    if let Some(at) = at {
        open.remove(at);
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::{Content, Priority, Seq};
    use super::super::roster::Status;
    use super::super::text::parse_time;
    use super::*;

    fn said(from: &str, seq: u32, to: &str, kind: Kind, re: Option<&str>) -> Message {
        Message {
            from: from.parse().expect("an id"),
            to: to.parse().expect("a recipient"),
            seq: Seq::new(seq).expect("a number"),
            kind,
            timestamp: parse_time("2026-02-19T11:32:15").expect("a time")
                + jiff::SignedDuration::from_secs(i64::from(seq)),
            re: re.map(|re| re.parse().expect("a reference")),
            priority: Priority::Normal,
            ttl: None,
            part: None,
            content: Content { subject: format!("{from} {seq}"), ..Content::default() },
        }
    }

    fn rows() -> Vec<Row> {
        let row = |id: &str| Row::new(id.parse().expect("an id"), "r", None, Timestamp::UNIX_EPOCH);
        vec![row("alpha"), row("bravo"), row("charlie")]
    }

    fn open(messages: &[Message]) -> Vec<String> {
        let open = pending(messages, &rows(), Timestamp::now());
        open.iter()
            .map(|open| format!("{} by {}{}", open.message, open.by, if open.gone { ", gone" } else { "" }))
            .collect()
    }

    /// Optional Fields.
    #[test]
    fn what_is_asked_is_open_until_it_is_answered() {
        let mut messages = vec![
            said("alpha", 1, "bravo", Kind::Request, None),
            said("alpha", 2, "bravo", Kind::Handoff, None),
            said("bravo", 3, "alpha", Kind::Status, Some("alpha/001")),
        ];
        assert_eq!(open(&messages), ["alpha/001 by bravo", "alpha/002 by bravo"], "a STATUS answers nothing");
        messages.push(said("bravo", 4, "alpha", Kind::Ack, Some("alpha/002")));
        assert_eq!(open(&messages), ["alpha/001 by bravo"]);
        messages.push(said("bravo", 5, "alpha", Kind::Response, None));
        assert_eq!(open(&messages), [""; 0], "without `re`: the oldest");
    }

    /// Message Types.
    #[test]
    fn of_a_broadcast_everybody_owes_an_answer_and_of_who_is_gone_it_is_said() {
        let mut messages = vec![
            said("alpha", 1, "*", Kind::Request, None),
            said("bravo", 2, "alpha", Kind::Response, Some("alpha/001")),
        ];
        assert_eq!(open(&messages), ["alpha/001 by charlie"]);
        messages.push(said("charlie", 3, "*", Kind::Done, None));
        assert_eq!(open(&messages), ["alpha/001 by charlie, gone"]);
        messages[0].ttl = Some(1);
        assert_eq!(open(&messages), [""; 0], "expired");
        let crashed = vec![said("alpha", 1, "bravo", Kind::Request, None)];
        let mut rows = rows();
        rows[1].status = Status::Crashed;
        assert!(pending(&crashed, &rows, Timestamp::now())[0].gone);
    }

    #[test]
    fn an_answer_to_a_part_answers_the_message() {
        let mut messages: Vec<Message> = (1..=2).map(|seq| said("alpha", seq, "bravo", Kind::Request, None)).collect();
        for (number, message) in (1..).zip(&mut messages) {
            message.part = Some(format!("{number}/2").parse().expect("a part"));
        }
        assert_eq!(open(&messages), ["alpha/001 by bravo"]);
        messages.push(said("bravo", 3, "alpha", Kind::Response, Some("alpha/002")));
        assert_eq!(open(&messages), [""; 0]);
    }
}
