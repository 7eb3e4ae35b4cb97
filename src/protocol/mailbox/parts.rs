//! Messages that are too long for a file: a draft -> messages of at most 10 KB each, and parts -> one message.
//!
//! A part is a message of its own, with a number of its own; the parts of a message have numbers that follow each other.
//! Each has the subject; context and expected response are in the first. The body is cut between lines, and inside one only
//! where it has no room in a file. Used by `store.rs` and `machine.rs`. Pure.

use jiff::Timestamp;
use thiserror::Error;

use super::message::{
    AgentId, MAX_BODY_BYTES, MAX_FILE_BYTES, MAX_PARTS, MAX_SECTION_BYTES, MAX_SUBJECT_CHARS, MailboxDraft,
    MailboxMessage, MessageContent, MessagePart, Seq, trim_blank_lines,
};
use super::text::{render, rendered_len};

/// Why a draft cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DraftError {
    /// It says nothing.
    #[error("there is neither a subject nor a body")]
    Empty,
    /// Too much of it.
    #[error("the {what} has {found} {unit}: at most {most}")]
    TooLong {
        /// Of what.
        what: &'static str,
        /// How much there is.
        found: usize,
        /// How much there may be.
        most: usize,
        /// Bytes or characters.
        unit: &'static str,
    },
    /// There are no numbers left.
    #[error("the outbox is full: there is no message after 999999999")]
    Full,
}

/// The messages that say it, the first of them with this number.
pub fn split(
    from: &AgentId,
    first: Seq,
    at: Timestamp,
    draft: &MailboxDraft,
) -> Result<Vec<MailboxMessage>, DraftError> {
    let mut content = draft.content.normalized();
    if content.subject.is_empty() {
        // Somebody who has only one thing to say.
        let line: String = content.body.lines().next().unwrap_or_default().trim().chars().take(80).collect();
        content.subject = line.trim_end().to_owned();
        if content.subject.is_empty() {
            return Err(DraftError::Empty);
        }
    }
    check_lengths(&content)?;
    // A file says no more than the second.
    let at = Timestamp::from_second(at.as_second()).unwrap_or(at);
    let message = |seq: Seq, part: Option<MessagePart>, content: MessageContent| MailboxMessage {
        from: from.clone(),
        to: draft.to.clone(),
        seq,
        message_type: draft.message_type,
        timestamp: at,
        re: draft.re.clone(),
        priority: draft.priority,
        ttl: draft.ttl,
        part,
        content,
    };
    let whole = message(first, None, content.clone());
    if render(&whole).len() <= MAX_FILE_BYTES {
        return Ok(vec![whole]);
    }
    // What any part has beside its body, at its longest.
    let body = std::mem::take(&mut content.body);
    let longest = MessagePart { number: MAX_PARTS, total: MAX_PARTS, cut_inside_line: true };
    let room = MAX_FILE_BYTES.saturating_sub(render(&message(Seq::LAST, Some(longest), content.clone())).len());
    let pieces = split_body(&body, room);
    let of = u16::try_from(pieces.len()).ok().filter(|of| *of <= MAX_PARTS);
    let Some(of) = of else {
        return Err(DraftError::TooLong { what: "body", found: body.len(), most: MAX_BODY_BYTES, unit: "bytes" });
    };
    let mut messages = Vec::new();
    let mut seq = Some(first);
    for (number, (body, inside_line)) in (1..=of).zip(pieces) {
        let seq_here = seq.ok_or(DraftError::Full)?;
        let rest = if number == 1 {
            content.clone()
        } else {
            MessageContent { subject: content.subject.clone(), ..MessageContent::default() }
        };
        messages.push(message(
            seq_here,
            Some(MessagePart { number, total: of, cut_inside_line: inside_line }),
            MessageContent { body, ..rest },
        ));
        seq = seq_here.next();
    }
    Ok(messages)
}

fn check_lengths(content: &MessageContent) -> Result<(), DraftError> {
    let long = |what, found, most, unit| {
        if found > most { Err(DraftError::TooLong { what, found, most, unit }) } else { Ok(()) }
    };
    long("subject", content.subject.chars().count(), MAX_SUBJECT_CHARS, "characters")?;
    long("body", content.body.len(), MAX_BODY_BYTES, "bytes")?;
    long("context", content.context.as_ref().map_or(0, String::len), MAX_SECTION_BYTES, "bytes")?;
    long("expected response", content.expected_response.as_ref().map_or(0, String::len), MAX_SECTION_BYTES, "bytes")
}

/// Pieces that take at most `room` bytes when they are written, and whether each ends inside a line.
fn split_body(body: &str, room: usize) -> Vec<(String, bool)> {
    let mut pieces = Vec::new();
    let mut lines: Vec<&str> = Vec::new();
    let mut used = 0;
    for mut line in body.split('\n') {
        if used + rendered_len(line) > room && !lines.is_empty() {
            pieces.push((lines.join("\n"), false));
            lines.clear();
            used = 0;
        }
        while rendered_len(line) > room {
            // Two bytes for the newline and for the `\` that it may take.
            let most = room.saturating_sub(2).max(4).min(line.len());
            let end = (0..=most).rev().find(|&at| line.is_char_boundary(at)).unwrap_or(line.len());
            pieces.push((line[..end].to_owned(), true));
            line = &line[end..];
        }
        used += rendered_len(line);
        lines.push(line);
    }
    pieces.push((lines.join("\n"), false));
    pieces
}

/// The message that the parts say, in order of their numbers; where one is missing, its place says so. The result has the
/// header of the first, and no part. None of no parts.
pub fn join(parts: &[MailboxMessage]) -> Option<MailboxMessage> {
    let first = parts.first()?;
    let of = first.part.map_or(1, |part| part.total);
    let mut body = String::new();
    let mut glued = true;
    for number in 1..=of {
        if !glued {
            body.push('\n');
        }
        match parts.iter().find(|message| message.part.map_or(1, |part| part.number) == number) {
            Some(message) => {
                body.push_str(&message.content.body);
                glued = message.part.is_some_and(|part| part.cut_inside_line);
            }
            None => {
                if !body.is_empty() && !body.ends_with('\n') {
                    body.push('\n');
                }
                body.push_str(&format!("[part {number} of {of} is missing]"));
                glued = false;
            }
        }
    }
    let option =
        |of: fn(&MessageContent) -> &Option<String>| parts.iter().find_map(|message| of(&message.content).clone());
    let content = MessageContent {
        subject: first.content.subject.clone(),
        body: trim_blank_lines(&body),
        context: option(|content| &content.context),
        expected_response: option(|content| &content.expected_response),
    };
    Some(MailboxMessage { part: None, content, ..first.clone() })
}

#[cfg(test)]
mod tests {
    use super::super::message::{MailboxMessageType, MessageRecipient};
    use super::super::text::parse;
    use super::*;

    fn alpha() -> AgentId {
        "alpha".parse().expect("an id")
    }

    fn split_and_reparse(body: &str) -> Vec<MailboxMessage> {
        let mut draft = MailboxDraft::new(MessageRecipient::Broadcast, MailboxMessageType::Status, "Long", body);
        draft.content.context = Some("what for".to_owned());
        let messages = split(&alpha(), Seq::FIRST, Timestamp::UNIX_EPOCH, &draft).expect("it can be sent");
        let read = |message: &MailboxMessage| {
            let text = render(message);
            assert!(text.len() <= MAX_FILE_BYTES, "{} bytes", text.len());
            let read = parse(text.as_bytes()).expect("what is written can be read");
            assert_eq!(&read, message);
            read
        };
        messages.iter().map(read).collect()
    }

    /// Design Principles; Error Handling.
    #[test]
    fn long_messages_are_split_and_joined_again() {
        assert_eq!(split_and_reparse("short").len(), 1);
        let lines: String = (0..3000).map(|n| format!("line {n}\n\n")).collect();
        let headings = "## Body\n\\## Context\n".repeat(2000);
        for body in [lines.as_str(), headings.as_str(), &"x".repeat(50_000), &"ä€𝄞".repeat(6000), &"\n".repeat(30_000)]
        {
            let body = &format!("begin{body}end");
            let messages = split_and_reparse(body);
            assert!(messages.len() > 2, "{}", messages.len());
            let numbers: Vec<u32> = messages.iter().map(|message| message.seq.get()).collect();
            assert_eq!(numbers, (1..=messages.len() as u32).collect::<Vec<_>>());
            let joined = join(&messages).expect("there are parts");
            assert!(joined.content.body == *body, "{:.40}", joined.content.body);
            assert_eq!((joined.part, joined.content.context.as_deref()), (None, Some("what for")));
        }
    }

    #[test]
    fn a_missing_part_is_marked_in_the_joined_body() {
        let body: String = (0..3000).map(|n| format!("line {n}\n")).collect();
        let mut messages = split_and_reparse(&body);
        messages.remove(1);
        let joined = join(&messages).expect("there are parts").content.body;
        assert!(joined.starts_with("line 0\n") && joined.ends_with("line 2999"));
        assert!(joined.contains("\n[part 2 of 3 is missing]\nline "), "{:.100}", joined);
    }

    #[test]
    fn empty_and_oversized_drafts_are_rejected() {
        let split = |draft: &MailboxDraft| split(&alpha(), Seq::FIRST, Timestamp::UNIX_EPOCH, draft);
        let draft = |subject: &str, body: &str| {
            MailboxDraft::new(MessageRecipient::Broadcast, MailboxMessageType::Status, subject, body)
        };
        assert_eq!(split(&draft(" ", "\n\n")), Err(DraftError::Empty));
        assert_eq!(split(&draft("", "one\ntwo")).expect("it says something")[0].content.subject, "one");
        assert!(matches!(split(&draft(&"s".repeat(201), "")), Err(DraftError::TooLong { what: "subject", .. })));
        assert!(matches!(
            split(&draft("s", &"x".repeat(MAX_BODY_BYTES + 1))),
            Err(DraftError::TooLong { what: "body", .. })
        ));
        assert!(split(&draft("s", &"x".repeat(MAX_BODY_BYTES))).is_ok_and(|messages| messages.len() < 40));
        let mut long = draft("s", "b");
        long.content.context = Some("x".repeat(MAX_SECTION_BYTES + 1));
        assert!(matches!(split(&long), Err(DraftError::TooLong { what: "context", .. })));
    }
}
