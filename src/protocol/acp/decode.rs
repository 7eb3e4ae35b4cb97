//! A line -> an ACP message, with every rule of the spec checked; after this nothing checks again.
//!
//! `wire_record.rs` reads the JSON; here stands what each message must have. Used by `coordinator/` through
//! [`machine`](super::machine), and by `shim/`. Must not: quote a `repoUrl` or a value of `envVars` in a problem, or know
//! what was said before.
//!
//! The first broken rule is told, in this order: JSON, `type`, the envelope, the payload's fields as in the spec's tables.
//! Fields that the spec does not name are let be, so that a newer sender's additions do not end a session; a field of
//! another message type is such a field too.

use std::borrow::Cow;
use std::str::FromStr;

use crate::ids::{BranchName, ContainerId, IdError, StoryId, SwarmId};
use crate::json::text::excerpt;
// Until the mesh uses `crate::protocol::timestamp`.
pub(in crate::protocol) use crate::protocol::timestamp::parse_timestamp;
use crate::wire::{BadLine, BadLineKind, MAX_LINE_BYTES};

use super::fields::{EnvKey, EnvVars, ErrorCode, FieldError};
use super::message::{
    AcpViolation, Completion, CompletionStatus, ContainerMessage, Envelope, ErrorReport, MAX_ERROR_CHARS, MAX_ERRORS,
    MAX_MESSAGE_CHARS, MAX_OUTPUT_CHARS, ProgressUpdate, StoryStatus, TaskRequest,
};
use super::rules;
use super::urls::check_url;
use super::wire_record::{CollectionField, FieldValue, NULL_TYPE, WireRecord};

/// Reads what a container says: `progress-update`, `completion` or `error`. `line` is without its newline.
pub fn decode_container(line: &[u8]) -> Result<(Envelope, ContainerMessage), AcpViolation> {
    let record = parse_line(line)?;
    let decode: fn(WireRecord<'_>) -> Result<ContainerMessage, AcpViolation> =
        match required_text(&record.kind, "type")? {
            "progress-update" => decode_progress,
            "completion" => decode_completion,
            "error" => decode_error,
            "task-request" => {
                return Err(violation(rules::DIRECTION, "type", "`task-request` goes from orchestrator to container"));
            }
            other => return Err(unknown_type(other)),
        };
    let envelope = decode_envelope(&record)?;
    Ok((envelope, decode(record)?))
}

/// Reads what the orchestrator says: `task-request`. `line` is without its newline.
pub fn decode_task_request(line: &[u8]) -> Result<(Envelope, TaskRequest), AcpViolation> {
    let record = parse_line(line)?;
    match required_text(&record.kind, "type")? {
        "task-request" => {}
        kind @ ("progress-update" | "completion" | "error") => {
            return Err(violation(rules::DIRECTION, "type", format!("`{kind}` goes from container to orchestrator")));
        }
        other => return Err(unknown_type(other)),
    }
    let envelope = decode_envelope(&record)?;
    Ok((envelope, decode_task_request_payload(record)?))
}

impl From<BadLine> for AcpViolation {
    /// The line's excerpt is left behind: a line from the orchestrator may hold secrets.
    fn from(line: BadLine) -> Self {
        match line.kind {
            BadLineKind::TooLong => too_long(line.length),
            BadLineKind::NotUtf8 => violation(rules::UTF8, "line", format!("{} bytes that are not UTF-8", line.length)),
        }
    }
}

pub(super) fn violation(rule: &'static str, field: impl Into<String>, problem: impl Into<String>) -> AcpViolation {
    AcpViolation { rule, field: field.into(), problem: problem.into() }
}

fn too_long(length: u64) -> AcpViolation {
    violation(rules::LINE_LENGTH, "line", format!("must have at most {MAX_LINE_BYTES} bytes, found {length}"))
}

fn unknown_type(found: &str) -> AcpViolation {
    let problem =
        format!("must be `task-request`, `progress-update`, `completion` or `error`, found `{}`", excerpt(found));
    violation(rules::TYPE_UNKNOWN, "type", problem)
}

fn parse_line(line: &[u8]) -> Result<WireRecord<'_>, AcpViolation> {
    if line.len() > MAX_LINE_BYTES {
        return Err(too_long(line.len() as u64));
    }
    let text = str::from_utf8(line)
        .map_err(|error| violation(rules::UTF8, "line", format!("not UTF-8 from byte {} on", error.valid_up_to())))?;
    WireRecord::parse(text)
}

fn decode_envelope(record: &WireRecord<'_>) -> Result<Envelope, AcpViolation> {
    let text = required_text(&record.timestamp, "timestamp")?;
    let timestamp = parse_timestamp(text).ok_or_else(|| {
        let problem = "must be an RFC 3339 date-time with its offset, such as `2026-03-01T10:00:00Z`";
        violation(rules::TIMESTAMP, "timestamp", format!("{problem}, found `{}`", excerpt(text)))
    })?;
    let swarm_id = parse_id::<SwarmId>(&record.swarm_id, rules::SWARM_ID, "swarmId")?;
    let container_id = parse_id::<ContainerId>(&record.container_id, rules::CONTAINER_ID, "containerId")?;
    match record.payload {
        CollectionField::Entries(_) => Ok(Envelope { timestamp, swarm_id, container_id }),
        CollectionField::Absent => Err(missing_field("payload")),
        CollectionField::WrongType(kind) => Err(wrong_type("payload", "an object", kind)),
    }
}

fn decode_task_request_payload(record: WireRecord<'_>) -> Result<TaskRequest, AcpViolation> {
    Ok(TaskRequest {
        task_file_path: parse_field(&record.task_file_path, "payload.taskFilePath")?,
        branch_name: parse_id::<BranchName>(&record.branch_name, rules::BRANCH_NAME, "payload.branchName")?,
        repo_url: parse_field(&record.repo_url, "payload.repoUrl")?,
        env_vars: decode_env_vars(record.env_vars)?,
    })
}

fn decode_env_vars(field: CollectionField<(Cow<'_, str>, FieldValue<'_>)>) -> Result<EnvVars, AcpViolation> {
    let mut env_vars = EnvVars::new();
    let pairs = match field {
        CollectionField::Absent => return Ok(env_vars),
        CollectionField::WrongType(kind) => return Err(wrong_type("payload.envVars", "an object", kind)),
        CollectionField::Entries(pairs) => pairs,
    };
    for (key, value) in pairs {
        let field = || format!("payload.envVars.{}", excerpt(&key));
        let broken = |error: FieldError| violation(error.rule, field(), error.problem);
        let name: EnvKey = key.parse().map_err(broken)?;
        if env_vars.get(&key).is_some() {
            return Err(violation(rules::DUPLICATE_KEY, field(), "must not stand twice"));
        }
        let value = match value {
            FieldValue::Text(value) => value.into_owned(),
            FieldValue::WrongType(kind) => return Err(wrong_type(&field(), "a string", kind)),
            FieldValue::Absent => return Err(missing_field(&field())),
        };
        env_vars.insert(name, value).map_err(broken)?;
    }
    Ok(env_vars)
}

fn decode_progress(record: WireRecord<'_>) -> Result<ContainerMessage, AcpViolation> {
    let story_id = parse_id::<StoryId>(&record.story_id, rules::STORY_ID, "payload.storyId")?;
    let word = required_text(&record.status, "payload.status")?;
    let status = StoryStatus::parse(word).ok_or_else(|| {
        let problem = "must be `pending`, `in_progress`, `completed`, `failed` or `skipped`";
        violation(rules::STORY_STATUS, "payload.status", format!("{problem}, found `{}`", excerpt(word)))
    })?;
    let output = bounded_text(record.output, rules::OUTPUT_LENGTH, "payload.output", MAX_OUTPUT_CHARS)?;
    Ok(ContainerMessage::Progress(ProgressUpdate { story_id, status, output }))
}

fn decode_completion(record: WireRecord<'_>) -> Result<ContainerMessage, AcpViolation> {
    let word = required_text(&record.status, "payload.status")?;
    let status = CompletionStatus::parse(word).ok_or_else(|| {
        let problem = "must be `completed`, `failed` or `stopped`";
        violation(rules::COMPLETION_STATUS, "payload.status", format!("{problem}, found `{}`", excerpt(word)))
    })?;
    let pr_url = match record.pr_url {
        FieldValue::WrongType(NULL_TYPE) => None,
        FieldValue::WrongType(kind) => return Err(wrong_type("payload.prUrl", "a string or null", kind)),
        FieldValue::Absent => return Err(missing_field("payload.prUrl")),
        FieldValue::Text(text) => {
            check_url(&text).map_err(|problem| {
                violation(rules::PR_URL, "payload.prUrl", format!("{problem}, found `{}`", excerpt(&text)))
            })?;
            Some(text.into_owned())
        }
    };
    let entries = match record.errors {
        CollectionField::Entries(entries) => entries,
        CollectionField::Absent => return Err(missing_field("payload.errors")),
        CollectionField::WrongType(kind) => return Err(wrong_type("payload.errors", "a list", kind)),
    };
    if entries.len() > MAX_ERRORS {
        let problem = format!("must have at most {MAX_ERRORS} entries, found {}", entries.len());
        return Err(violation(rules::ERRORS_COUNT, "payload.errors", problem));
    }
    let errors = entries
        .into_iter()
        .enumerate()
        .map(|(index, entry)| match entry {
            FieldValue::Text(text) if fits(&text, MAX_ERROR_CHARS) => Ok(text.into_owned()),
            entry => bounded_text(entry, rules::ERRORS_LENGTH, &format!("payload.errors[{index}]"), MAX_ERROR_CHARS),
        })
        .collect::<Result<_, _>>()?;
    Ok(ContainerMessage::Completion(Completion { status, pr_url, errors }))
}

fn decode_error(record: WireRecord<'_>) -> Result<ContainerMessage, AcpViolation> {
    let code: ErrorCode = parse_field(&record.code, "payload.code")?;
    let message = bounded_text(record.message, rules::MESSAGE_LENGTH, "payload.message", MAX_MESSAGE_CHARS)?;
    Ok(ContainerMessage::Error(ErrorReport { code, message }))
}

fn missing_field(field: &str) -> AcpViolation {
    violation(rules::REQUIRED, field, "is required and missing")
}

fn wrong_type(field: &str, wanted: &str, kind: &str) -> AcpViolation {
    violation(rules::FIELD_TYPE, field, format!("must be {wanted}, found {kind}"))
}

/// A field that must be there and be a text.
fn required_text<'r>(field: &'r FieldValue<'_>, name: &str) -> Result<&'r str, AcpViolation> {
    match field {
        FieldValue::Text(text) => Ok(text),
        FieldValue::Absent => Err(missing_field(name)),
        FieldValue::WrongType(kind) => Err(wrong_type(name, "a string", kind)),
    }
}

/// A field that is an identifier.
fn parse_id<T: FromStr<Err = IdError>>(
    field: &FieldValue<'_>,
    rule: &'static str,
    name: &str,
) -> Result<T, AcpViolation> {
    required_text(field, name)?.parse().map_err(|error: IdError| {
        violation(rule, name, format!("must be {}, found `{}`", error.rule, excerpt(&error.found)))
    })
}

/// A field with a type of its own.
fn parse_field<T: FromStr<Err = FieldError>>(field: &FieldValue<'_>, name: &str) -> Result<T, AcpViolation> {
    required_text(field, name)?.parse().map_err(|error: FieldError| violation(error.rule, name, error.problem))
}

/// A free text of at most so many characters.
fn bounded_text(field: FieldValue<'_>, rule: &'static str, name: &str, most: usize) -> Result<String, AcpViolation> {
    let text = required_text(&field, name)?;
    if !fits(text, most) {
        let problem = format!("must have at most {most} characters, found {}", text.chars().count());
        return Err(violation(rule, name, problem));
    }
    match field {
        FieldValue::Text(text) => Ok(text.into_owned()),
        _ => Err(missing_field(name)),
    }
}

/// Whether a text has at most so many characters: Unicode scalar values, of which there are never more than bytes.
fn fits(text: &str, most: usize) -> bool {
    text.len() <= most || text.chars().count() <= most
}
