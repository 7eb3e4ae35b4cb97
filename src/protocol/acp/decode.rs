//! A line -> an ACP message, with every rule of the spec checked; after this nothing checks again.
//!
//! `record.rs` reads the JSON; here stands what each message must have. Used by `coordinator/` through
//! [`machine`](super::machine), and by `shim/`. Must not: quote a `repoUrl` or a value of `envVars` in a problem, or know
//! what was said before.
//!
//! The first broken rule is told, in this order: JSON, `type`, the envelope, the payload's fields as in the spec's tables.
//! Fields that the spec does not name are let be, so that a newer sender's additions do not end a session; a field of
//! another message type is such a field too.

use std::borrow::Cow;
use std::str::FromStr;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

use crate::ids::{BranchName, ContainerId, IdError, StoryId, SwarmId};
use crate::wire::{BadLine, BadLineKind, MAX_LINE_BYTES};

use super::fields::{EnvKey, EnvVars, ErrorCode, FieldError, shown};
use super::message::{
    BadRecord, Completion, CompletionStatus, ContainerMessage, Envelope, ErrorReport, MAX_ERROR_CHARS, MAX_ERRORS,
    MAX_MESSAGE_CHARS, MAX_OUTPUT_CHARS, ProgressUpdate, StoryStatus, TaskRequest,
};
use super::record::{Field, Many, NULL, WireRecord};
use super::rules;
use super::urls::check_url;

/// Reads what a container says: `progress-update`, `completion` or `error`. `line` is without its newline.
pub fn decode_container(line: &[u8]) -> Result<(Envelope, ContainerMessage), BadRecord> {
    let record = read(line)?;
    let decode: fn(WireRecord<'_>) -> Result<ContainerMessage, BadRecord> = match required(&record.kind, "type")? {
        "progress-update" => progress,
        "completion" => completion,
        "error" => error,
        "task-request" => {
            return Err(bad(rules::DIRECTION, "type", "`task-request` goes from orchestrator to container"));
        }
        other => return Err(unknown_type(other)),
    };
    let envelope = envelope(&record)?;
    Ok((envelope, decode(record)?))
}

/// Reads what the orchestrator says: `task-request`. `line` is without its newline.
pub fn decode_task_request(line: &[u8]) -> Result<(Envelope, TaskRequest), BadRecord> {
    let record = read(line)?;
    match required(&record.kind, "type")? {
        "task-request" => {}
        kind @ ("progress-update" | "completion" | "error") => {
            return Err(bad(rules::DIRECTION, "type", format!("`{kind}` goes from container to orchestrator")));
        }
        other => return Err(unknown_type(other)),
    }
    let envelope = envelope(&record)?;
    Ok((envelope, task_request(record)?))
}

impl From<BadLine> for BadRecord {
    /// The line's excerpt is left behind: a line from the orchestrator may hold secrets.
    fn from(line: BadLine) -> Self {
        match line.kind {
            BadLineKind::TooLong => too_long(line.length),
            BadLineKind::NotUtf8 => bad(rules::UTF8, "line", format!("{} bytes that are not UTF-8", line.length)),
        }
    }
}

pub(super) fn bad(rule: &'static str, field: impl Into<String>, problem: impl Into<String>) -> BadRecord {
    BadRecord { rule, field: field.into(), problem: problem.into() }
}

fn too_long(length: u64) -> BadRecord {
    bad(rules::LINE_LENGTH, "line", format!("must have at most {MAX_LINE_BYTES} bytes, found {length}"))
}

fn unknown_type(found: &str) -> BadRecord {
    let problem =
        format!("must be `task-request`, `progress-update`, `completion` or `error`, found `{}`", shown(found));
    bad(rules::TYPE_UNKNOWN, "type", problem)
}

fn read(line: &[u8]) -> Result<WireRecord<'_>, BadRecord> {
    if line.len() > MAX_LINE_BYTES {
        return Err(too_long(line.len() as u64));
    }
    let text = str::from_utf8(line)
        .map_err(|error| bad(rules::UTF8, "line", format!("not UTF-8 from byte {} on", error.valid_up_to())))?;
    WireRecord::read(text)
}

fn envelope(record: &WireRecord<'_>) -> Result<Envelope, BadRecord> {
    let text = required(&record.timestamp, "timestamp")?;
    let timestamp = timestamp(text).ok_or_else(|| {
        let problem = "must be an RFC 3339 date-time with its offset, such as `2026-03-01T10:00:00Z`";
        bad(rules::TIMESTAMP, "timestamp", format!("{problem}, found `{}`", shown(text)))
    })?;
    let swarm_id = id::<SwarmId>(&record.swarm_id, rules::SWARM_ID, "swarmId")?;
    let container_id = id::<ContainerId>(&record.container_id, rules::CONTAINER_ID, "containerId")?;
    match record.payload {
        Many::Entries(_) => Ok(Envelope { timestamp, swarm_id, container_id }),
        Many::Absent => Err(missing("payload")),
        Many::Other(kind) => Err(wrong_type("payload", "an object", kind)),
    }
}

fn task_request(record: WireRecord<'_>) -> Result<TaskRequest, BadRecord> {
    Ok(TaskRequest {
        task_file_path: parsed(&record.task_file_path, "payload.taskFilePath")?,
        branch_name: id::<BranchName>(&record.branch_name, rules::BRANCH_NAME, "payload.branchName")?,
        repo_url: parsed(&record.repo_url, "payload.repoUrl")?,
        env_vars: env_vars(record.env_vars)?,
    })
}

fn env_vars(field: Many<(Cow<'_, str>, Field<'_>)>) -> Result<EnvVars, BadRecord> {
    let mut env_vars = EnvVars::new();
    let pairs = match field {
        Many::Absent => return Ok(env_vars),
        Many::Other(kind) => return Err(wrong_type("payload.envVars", "an object", kind)),
        Many::Entries(pairs) => pairs,
    };
    for (key, value) in pairs {
        let field = || format!("payload.envVars.{}", shown(&key));
        let broken = |error: FieldError| bad(error.rule, field(), error.problem);
        let name: EnvKey = key.parse().map_err(broken)?;
        if env_vars.get(&key).is_some() {
            return Err(bad(rules::DUPLICATE_KEY, field(), "must not stand twice"));
        }
        let value = match value {
            Field::Text(value) => value.into_owned(),
            Field::Other(kind) => return Err(wrong_type(&field(), "a string", kind)),
            Field::Absent => return Err(missing(&field())),
        };
        env_vars.insert(name, value).map_err(broken)?;
    }
    Ok(env_vars)
}

fn progress(record: WireRecord<'_>) -> Result<ContainerMessage, BadRecord> {
    let story_id = id::<StoryId>(&record.story_id, rules::STORY_ID, "payload.storyId")?;
    let word = required(&record.status, "payload.status")?;
    let status = StoryStatus::from_word(word).ok_or_else(|| {
        let problem = "must be `pending`, `in_progress`, `completed`, `failed` or `skipped`";
        bad(rules::STORY_STATUS, "payload.status", format!("{problem}, found `{}`", shown(word)))
    })?;
    let output = limited(record.output, rules::OUTPUT_LENGTH, "payload.output", MAX_OUTPUT_CHARS)?;
    Ok(ContainerMessage::Progress(ProgressUpdate { story_id, status, output }))
}

fn completion(record: WireRecord<'_>) -> Result<ContainerMessage, BadRecord> {
    let word = required(&record.status, "payload.status")?;
    let status = CompletionStatus::from_word(word).ok_or_else(|| {
        let problem = "must be `completed`, `failed` or `stopped`";
        bad(rules::COMPLETION_STATUS, "payload.status", format!("{problem}, found `{}`", shown(word)))
    })?;
    let pr_url = match record.pr_url {
        Field::Other(NULL) => None,
        Field::Other(kind) => return Err(wrong_type("payload.prUrl", "a string or null", kind)),
        Field::Absent => return Err(missing("payload.prUrl")),
        Field::Text(text) => {
            check_url(&text).map_err(|problem| {
                bad(rules::PR_URL, "payload.prUrl", format!("{problem}, found `{}`", shown(&text)))
            })?;
            Some(text.into_owned())
        }
    };
    let entries = match record.errors {
        Many::Entries(entries) => entries,
        Many::Absent => return Err(missing("payload.errors")),
        Many::Other(kind) => return Err(wrong_type("payload.errors", "a list", kind)),
    };
    if entries.len() > MAX_ERRORS {
        let problem = format!("must have at most {MAX_ERRORS} entries, found {}", entries.len());
        return Err(bad(rules::ERRORS_COUNT, "payload.errors", problem));
    }
    let errors = entries
        .into_iter()
        .enumerate()
        .map(|(index, entry)| match entry {
            Field::Text(text) if within(&text, MAX_ERROR_CHARS) => Ok(text.into_owned()),
            entry => limited(entry, rules::ERRORS_LENGTH, &format!("payload.errors[{index}]"), MAX_ERROR_CHARS),
        })
        .collect::<Result<_, _>>()?;
    Ok(ContainerMessage::Completion(Completion { status, pr_url, errors }))
}

fn error(record: WireRecord<'_>) -> Result<ContainerMessage, BadRecord> {
    let code: ErrorCode = parsed(&record.code, "payload.code")?;
    let message = limited(record.message, rules::MESSAGE_LENGTH, "payload.message", MAX_MESSAGE_CHARS)?;
    Ok(ContainerMessage::Error(ErrorReport { code, message }))
}

fn missing(field: &str) -> BadRecord {
    bad(rules::REQUIRED, field, "is required and missing")
}

fn wrong_type(field: &str, wanted: &str, kind: &str) -> BadRecord {
    bad(rules::FIELD_TYPE, field, format!("must be {wanted}, found {kind}"))
}

/// A field that must be there and be a text.
fn required<'r>(field: &'r Field<'_>, name: &str) -> Result<&'r str, BadRecord> {
    match field {
        Field::Text(text) => Ok(text),
        Field::Absent => Err(missing(name)),
        Field::Other(kind) => Err(wrong_type(name, "a string", kind)),
    }
}

/// A field that is an identifier.
fn id<T: FromStr<Err = IdError>>(field: &Field<'_>, rule: &'static str, name: &str) -> Result<T, BadRecord> {
    required(field, name)?
        .parse()
        .map_err(|error: IdError| bad(rule, name, format!("must be {}, found `{}`", error.rule, shown(&error.found))))
}

/// A field with a type of its own.
fn parsed<T: FromStr<Err = FieldError>>(field: &Field<'_>, name: &str) -> Result<T, BadRecord> {
    required(field, name)?.parse().map_err(|error: FieldError| bad(error.rule, name, error.problem))
}

/// A free text of at most so many characters.
fn limited(field: Field<'_>, rule: &'static str, name: &str, most: usize) -> Result<String, BadRecord> {
    let text = required(&field, name)?;
    if !within(text, most) {
        let problem = format!("must have at most {most} characters, found {}", text.chars().count());
        return Err(bad(rule, name, problem));
    }
    match field {
        Field::Text(text) => Ok(text.into_owned()),
        _ => Err(missing(name)),
    }
}

/// Whether a text has at most so many characters: Unicode scalar values, of which there are never more than bytes.
fn within(text: &str, most: usize) -> bool {
    text.len() <= most || text.chars().count() <= most
}

/// An RFC 3339 date-time. Read by hand: jiff's own parser takes more forms than the spec does, such as one without seconds.
/// A leap second counts as the second before it, digits below the nanosecond are dropped.
pub(in crate::protocol) fn timestamp(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let number = |from: usize, length: usize| {
        bytes
            .get(from..from + length)?
            .iter()
            .try_fold(0_i16, |number, digit| digit.is_ascii_digit().then(|| number * 10 + i16::from(digit - b'0')))
    };
    let two = |from: usize| number(from, 2).and_then(|number| i8::try_from(number).ok());
    let is = |at: usize, one_of: &[u8]| bytes.get(at).is_some_and(|byte| one_of.contains(byte));
    let separated = is(4, b"-") && is(7, b"-") && is(10, b"Tt") && is(13, b":") && is(16, b":");
    if !separated {
        return None;
    }
    let (mut nanosecond, mut at) = (0_i32, 19);
    if is(at, b".") {
        let digits = bytes[20..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return None;
        }
        for place in 0..9 {
            let digit = if place < digits { bytes[20 + place] - b'0' } else { 0 };
            nanosecond = nanosecond * 10 + i32::from(digit);
        }
        at += 1 + digits;
    }
    let offset = if is(at, b"Zz") && bytes.len() == at + 1 {
        Offset::UTC
    } else if is(at, b"+-") && is(at + 3, b":") && bytes.len() == at + 6 {
        let (hours, minutes) = (two(at + 1)?, two(at + 4)?);
        if hours > 23 || minutes > 59 {
            return None;
        }
        let seconds = i32::from(hours) * 3600 + i32::from(minutes) * 60;
        Offset::from_seconds(if bytes[at] == b'-' { -seconds } else { seconds }).ok()?
    } else {
        return None;
    };
    let second = match two(17)? {
        60 => 59,
        second => second,
    };
    let civil = DateTime::new(number(0, 4)?, two(5)?, two(8)?, two(11)?, two(14)?, second, nanosecond).ok()?;
    offset.to_timestamp(civil).ok()
}
