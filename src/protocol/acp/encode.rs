//! ACP message -> a line that [`decode`](super::decode) accepts, whatever the message holds.
//!
//! Used by `shim/` (container messages) and `coordinator/` (task-requests). Free text of a container is shortened at a
//! character boundary and marked: a shortened report is worth more than a session that ends. Nothing in a task-request can be
//! shortened, so it is refused. Must not: put a value of `envVars` into an error.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::Serialize;
use thiserror::Error;

use crate::wire::MAX_LINE_BYTES;

use super::fields::ErrorCode;
use super::types::{
    Completion, ContainerMessage, Envelope, ErrorReport, MAX_ERROR_CHARS, MAX_ERRORS, MAX_MESSAGE_CHARS,
    MAX_OUTPUT_CHARS, TaskRequest,
};
use super::urls::check_url;
use super::wire_message::{AcpWireMessage, WireCompletion, WireError, WireProgress, WireTaskRequest};

/// The end of a shortened text.
pub const TRUNCATION_MARK: &str = "…[shortened]";

/// Longer error codes are replaced, in bytes: they could fill the line.
const MAX_CODE_BYTES: usize = 1000;
/// A longer `prUrl` becomes null, in bytes.
const MAX_PR_URL_BYTES: usize = 8000;
/// 0000-01-01T00:00:00Z, where the years of RFC 3339 begin.
const YEAR_ZERO: i64 = -62_167_219_200;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EncodeError {
    #[error(
        "the task-request has {bytes} bytes and the limit is {MAX_LINE_BYTES}; the biggest part of it is `{biggest}`"
    )]
    TooLarge {
        bytes: usize,
        /// The name of the longest environment variable or payload field.
        biggest: String,
    },
}

/// A task-request as one line, without its newline.
pub fn encode_task_request(envelope: &Envelope, request: &TaskRequest) -> Result<Vec<u8>, EncodeError> {
    let line = encode_message(
        "task-request",
        envelope,
        WireTaskRequest {
            task_file_path: request.task_file_path.as_str(),
            branch_name: request.branch_name.as_str(),
            repo_url: request.repo_url.as_str(),
            env_vars: request.env_vars.iter().collect(),
        },
    );
    if line.len() <= MAX_LINE_BYTES {
        return Ok(line);
    }
    let fields = [
        ("taskFilePath", request.task_file_path.as_str()),
        ("branchName", request.branch_name.as_str()),
        ("repoUrl", request.repo_url.as_str()),
    ];
    let biggest = fields
        .into_iter()
        .chain(request.env_vars.iter())
        .max_by_key(|(name, value)| name.len() + escaped_len(value))
        .map_or("payload", |(name, _)| name);
    Err(EncodeError::TooLarge { bytes: line.len(), biggest: biggest.to_owned() })
}

/// A container's message as one line, without its newline. Free text over a limit is shortened and ends with
/// [`TRUNCATION_MARK`]; excess errors are replaced by one with their number; an invalid `prUrl` becomes null.
pub fn encode_container(envelope: &Envelope, message: &ContainerMessage) -> Vec<u8> {
    let kind = message.kind();
    match message {
        // 2000 characters are at most 12,000 bytes in JSON, far below the line's limit.
        ContainerMessage::Progress(progress) => encode_message(
            kind,
            envelope,
            WireProgress {
                story_id: progress.story_id.as_str(),
                status: progress.status.as_str(),
                output: truncated(&progress.output, MAX_OUTPUT_CHARS, usize::MAX),
            },
        ),
        ContainerMessage::Error(ErrorReport { code, message }) => {
            let code = if code.as_str().len() <= MAX_CODE_BYTES { code } else { &ErrorCode::UNKNOWN_ERROR };
            let message = truncated(message, MAX_MESSAGE_CHARS, usize::MAX);
            encode_message(kind, envelope, WireError { code: code.as_str(), message })
        }
        ContainerMessage::Completion(completion) => {
            encode_message(kind, envelope, wire_completion(envelope, completion))
        }
    }
}

fn wire_completion<'a>(envelope: &Envelope, completion: &'a Completion) -> WireCompletion<'a> {
    let pr_url = completion.pr_url.as_deref().filter(|url| url.len() <= MAX_PR_URL_BYTES && check_url(url).is_ok());
    let mut out = WireCompletion { status: completion.status.as_str(), pr_url, errors: Vec::new() };
    // 50 entries of 500 characters can exceed the line: then each gets an equal share of the room.
    let room = MAX_LINE_BYTES - encode_message("completion", envelope, &out).len();
    let count = completion.errors.len().clamp(1, MAX_ERRORS);
    let share = room / count - r#""","#.len();
    let whole = if completion.errors.len() > MAX_ERRORS { MAX_ERRORS - 1 } else { MAX_ERRORS };
    let each = completion.errors.iter().take(whole);
    let long = each.clone().map(|error| truncated(error, MAX_ERROR_CHARS, usize::MAX));
    let fits = long.clone().map(|error| escaped_len(&error) + r#""","#.len()).sum::<usize>() <= room - 200;
    out.errors = if fits { long.collect() } else { each.map(|e| truncated(e, MAX_ERROR_CHARS, share)).collect() };
    if completion.errors.len() > whole {
        out.errors.push(Cow::Owned(format!("…[{} more errors]", completion.errors.len() - whole)));
    }
    out
}

/// The text within the limits of characters and of bytes in JSON (without quotes), marked if it was shortened.
pub(super) fn truncated(text: &str, most_chars: usize, most_bytes: usize) -> Cow<'_, str> {
    if text.len() <= most_chars && text.len() * 6 <= most_bytes {
        return Cow::Borrowed(text);
    }
    let room_chars = most_chars.saturating_sub(TRUNCATION_MARK.chars().count());
    let room_bytes = most_bytes.saturating_sub(TRUNCATION_MARK.len());
    let (mut chars, mut bytes, mut cut) = (0, 0, 0);
    for (index, character) in text.char_indices() {
        chars += 1;
        bytes += escaped_char_len(character);
        if chars > most_chars || bytes > most_bytes {
            return Cow::Owned(format!("{}{TRUNCATION_MARK}", &text[..cut]));
        }
        if chars <= room_chars && bytes <= room_bytes {
            cut = index + character.len_utf8();
        }
    }
    Cow::Borrowed(text)
}

/// The bytes of a text in JSON, without quotes.
pub(super) fn escaped_len(text: &str) -> usize {
    text.chars().map(escaped_char_len).sum()
}

/// The bytes of a character in JSON, as serde_json writes it.
fn escaped_char_len(character: char) -> usize {
    match character {
        '"' | '\\' | '\u{8}' | '\t' | '\n' | '\u{c}' | '\r' => 2,
        '\0'..='\u{1f}' => 6,
        other => other.len_utf8(),
    }
}

fn encode_message(kind: &'static str, envelope: &Envelope, payload: impl Serialize) -> Vec<u8> {
    // RFC 3339 cannot express years before 0000.
    let timestamp = if envelope.timestamp.as_second() < YEAR_ZERO {
        Timestamp::from_second(YEAR_ZERO).expect("the year 0000 is within jiff's range")
    } else {
        envelope.timestamp
    };
    let message = AcpWireMessage {
        kind,
        timestamp: timestamp.to_string().into(),
        swarm_id: envelope.swarm_id.to_string().into(),
        container_id: envelope.container_id.as_str(),
        payload,
    };
    serde_json::to_vec(&message).expect("texts and maps with text keys always serialize")
}
