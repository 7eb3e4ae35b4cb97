//! Splits a draft that is too long for one file into parts, and joins parts into one message.
//!
//! A part is a message with a number of its own; the parts of a message have consecutive numbers. Each part has the subject; the
//! first also has the context and the expected response. The body is cut between lines, or inside a line that does not fit into one
//! file. Used by `store.rs` and `machine.rs`. Pure.

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
    #[error("the message has neither a subject nor a body")]
    Empty,
    #[error("the {section} has {found} {unit}, the limit is {limit}")]
    TooLong { section: &'static str, found: usize, limit: usize, unit: &'static str },
    #[error("the outbox is full: 999999999 is the last number")]
    Full,
}

/// Splits a draft into messages, the first of which has the number `first`.
pub fn split(
    from: &AgentId,
    first: Seq,
    at: Timestamp,
    draft: &MailboxDraft,
) -> Result<Vec<MailboxMessage>, DraftError> {
    let mut content = draft.content.normalized();
    if content.subject.is_empty() {
        let line: String = content.body.lines().next().unwrap_or_default().trim().chars().take(80).collect();
        content.subject = line.trim_end().to_owned();
        if content.subject.is_empty() {
            return Err(DraftError::Empty);
        }
    }
    check_lengths(&content)?;
    // Files have a resolution of one second.
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
    // The most that a part can have besides its body.
    let body = std::mem::take(&mut content.body);
    let longest = MessagePart { number: MAX_PARTS, total: MAX_PARTS, cut_inside_line: true };
    let room = MAX_FILE_BYTES.saturating_sub(render(&message(Seq::LAST, Some(longest), content.clone())).len());
    let pieces = split_body(&body, room);
    let too_long = DraftError::TooLong { section: "body", found: body.len(), limit: MAX_BODY_BYTES, unit: "bytes" };
    let total = u16::try_from(pieces.len()).ok().filter(|total| *total <= MAX_PARTS).ok_or(too_long)?;
    let mut messages = Vec::new();
    let mut next = Some(first);
    for (number, (body, cut_inside_line)) in (1..=total).zip(pieces) {
        let seq = next.ok_or(DraftError::Full)?;
        let part_content = MessageContent { body, ..content.clone() };
        messages.push(message(seq, Some(MessagePart { number, total, cut_inside_line }), part_content));
        (content.context, content.expected_response) = (None, None);
        next = seq.next();
    }
    Ok(messages)
}

fn check_lengths(content: &MessageContent) -> Result<(), DraftError> {
    let check = |section, found, limit, unit| {
        if found > limit { Err(DraftError::TooLong { section, found, limit, unit }) } else { Ok(()) }
    };
    let len = |section: &Option<String>| section.as_ref().map_or(0, String::len);
    check("subject", content.subject.chars().count(), MAX_SUBJECT_CHARS, "characters")?;
    check("body", content.body.len(), MAX_BODY_BYTES, "bytes")?;
    check("context", len(&content.context), MAX_SECTION_BYTES, "bytes")?;
    check("expected response", len(&content.expected_response), MAX_SECTION_BYTES, "bytes")
}

/// Cuts a body into pieces that take at most `room` bytes when rendered. Each says whether it ends inside a line.
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
            // Two bytes for the newline and for a `\` before the line.
            let longest = room.saturating_sub(2).max(4).min(line.len());
            let end = (0..=longest).rev().find(|&at| line.is_char_boundary(at)).unwrap_or(line.len());
            pieces.push((line[..end].to_owned(), true));
            line = &line[end..];
        }
        used += rendered_len(line);
        lines.push(line);
    }
    pieces.push((lines.join("\n"), false));
    pieces
}

/// Joins parts into one message without a part number. It has the header of the first; a note replaces each missing part. `None`
/// without parts.
pub fn join(parts: &[MailboxMessage]) -> Option<MailboxMessage> {
    let first = parts.first()?;
    let total = first.part.map_or(1, |part| part.total);
    let mut body = String::new();
    let mut inside_line = true;
    for number in 1..=total {
        if !inside_line {
            body.push('\n');
        }
        match parts.iter().find(|message| message.part.map_or(1, |part| part.number) == number) {
            Some(message) => {
                body.push_str(&message.content.body);
                inside_line = message.part.is_some_and(|part| part.cut_inside_line);
            }
            None => {
                if !body.is_empty() && !body.ends_with('\n') {
                    body.push('\n');
                }
                body.push_str(&format!("[part {number} of {total} is missing]"));
                inside_line = false;
            }
        }
    }
    let content = MessageContent {
        subject: first.content.subject.clone(),
        body: trim_blank_lines(&body),
        context: parts.iter().find_map(|part| part.content.context.clone()),
        expected_response: parts.iter().find_map(|part| part.content.expected_response.clone()),
    };
    Some(MailboxMessage { part: None, content, ..first.clone() })
}

#[cfg(test)]
mod tests;
