//! A line -> an ACP message, with every rule of the spec checked.
//!
//! Used by `coordinator/` through [`machine`](super::machine), and by `shim/`. Must not: quote a `repoUrl` or a value of
//! `envVars` in a problem, or know earlier messages.
//!
//! The first broken rule is reported, in this order: JSON, `type`, presence and types of fields, values. Unknown fields are
//! ignored, so that a newer sender's additions do not end a session.

use std::str::FromStr;

use serde::Deserialize;

use crate::ids::{BranchName, ContainerId, IdError, StoryId, SwarmId};
use crate::json::deserialize::{DeserializeErrorKind, from_node};
use crate::json::text::{excerpt, take_chars};
use crate::json::{self, JsonNode, JsonPath};
use crate::protocol::rule::Violation;
// Until the mesh uses `crate::protocol::timestamp`.
pub(in crate::protocol) use crate::protocol::timestamp::parse_timestamp;
use crate::protocol::wire_enum::UnknownName;
use crate::wire::{BadLine, BadLineKind, MAX_LINE_BYTES};

use super::fields::{EnvKey, EnvVars, FieldError};
use super::rules;
use super::types::{
    Completion, ContainerMessage, Envelope, ErrorReport, MAX_ERROR_CHARS, MAX_ERRORS, MAX_MESSAGE_CHARS,
    MAX_OUTPUT_CHARS, ProgressUpdate, TaskRequest,
};
use super::urls::check_url;
use super::wire_message::{AcpWireMessage, WireCompletion, WireError, WireProgress, WireTaskRequest};

/// Reads a container's message: `progress-update`, `completion` or `error`. `line` is without its newline.
pub fn decode_container(line: &[u8]) -> Result<(Envelope, ContainerMessage), Violation> {
    let root = parse_line(line)?;
    match message_type(&root)? {
        "progress-update" => {
            let message: AcpWireMessage<'_, WireProgress<'_>> = read(&root)?;
            Ok((decode_envelope(&message)?, decode_progress(message.payload)?))
        }
        "completion" => {
            let message: AcpWireMessage<'_, WireCompletion<'_>> = read(&root)?;
            Ok((decode_envelope(&message)?, decode_completion(message.payload)?))
        }
        "error" => {
            let message: AcpWireMessage<'_, WireError<'_>> = read(&root)?;
            Ok((decode_envelope(&message)?, decode_error(message.payload)?))
        }
        "task-request" => {
            Err(Violation::new(rules::DIRECTION, "type", "`task-request` goes from orchestrator to container"))
        }
        other => Err(unknown_type(other)),
    }
}

/// Reads the orchestrator's message: `task-request`. `line` is without its newline.
pub fn decode_task_request(line: &[u8]) -> Result<(Envelope, TaskRequest), Violation> {
    let root = parse_line(line)?;
    match message_type(&root)? {
        "task-request" => {
            let message: AcpWireMessage<'_, WireTaskRequest<'_>> = read(&root)?;
            Ok((decode_envelope(&message)?, decode_task_request_payload(message.payload)?))
        }
        kind @ ("progress-update" | "completion" | "error") => {
            Err(Violation::new(rules::DIRECTION, "type", format!("`{kind}` goes from container to orchestrator")))
        }
        other => Err(unknown_type(other)),
    }
}

impl From<BadLine> for Violation {
    /// Drops the line's excerpt: a line from the orchestrator may hold secrets.
    fn from(line: BadLine) -> Self {
        match line.kind {
            BadLineKind::TooLong => too_long(line.length),
            BadLineKind::NotUtf8 => {
                Violation::new(rules::UTF8, "line", format!("{} bytes that are not UTF-8", line.length))
            }
        }
    }
}

fn too_long(length: u64) -> Violation {
    Violation::new(rules::LINE_LENGTH, "line", format!("must have at most {MAX_LINE_BYTES} bytes, found {length}"))
}

fn unknown_type(found: &str) -> Violation {
    let problem =
        format!("must be `task-request`, `progress-update`, `completion` or `error`, found `{}`", excerpt(found));
    Violation::new(rules::TYPE_UNKNOWN, "type", problem)
}

fn parse_line(line: &[u8]) -> Result<JsonNode, Violation> {
    if line.len() > MAX_LINE_BYTES {
        return Err(too_long(line.len() as u64));
    }
    let text = str::from_utf8(line).map_err(|error| {
        Violation::new(rules::UTF8, "line", format!("not UTF-8 from byte {} on", error.valid_up_to()))
    })?;
    let root = json::parse(text).map_err(|syntax| {
        Violation::new(rules::JSON, "line", format!("byte {} must be {}", syntax.offset, syntax.expected))
    })?;
    if root.members().is_none() {
        let problem = format!("must be an object, found {}", root.type_name());
        return Err(Violation::new(rules::JSON_OBJECT, "line", problem));
    }
    let payload = root.get("payload");
    let objects = [
        (Some(&root), JsonPath::Root),
        (payload, JsonPath::Key(&JsonPath::Root, "payload")),
        (
            payload.and_then(|node| node.get("envVars")),
            JsonPath::Key(&JsonPath::Key(&JsonPath::Root, "payload"), "envVars"),
        ),
    ];
    for (node, at) in &objects {
        if let Some(key) = node.and_then(JsonNode::duplicate_key) {
            let field = JsonPath::Key(at, key).to_string();
            return Err(Violation::new(rules::DUPLICATE_KEY, field, "is a duplicate key"));
        }
    }
    Ok(root)
}

fn read<'t, T: Deserialize<'t>>(root: &'t JsonNode) -> Result<T, Violation> {
    from_node(root, &JsonPath::Root).map_err(|error| {
        let is_missing = error.kind == DeserializeErrorKind::MissingField;
        Violation::new(if is_missing { rules::REQUIRED } else { rules::FIELD_TYPE }, error.path, error.problem)
    })
}

fn message_type(root: &JsonNode) -> Result<&str, Violation> {
    #[derive(Deserialize)]
    struct TypeField<'t> {
        r#type: &'t str,
    }
    read(root).map(|TypeField { r#type }| r#type)
}

fn decode_envelope<P>(message: &AcpWireMessage<'_, P>) -> Result<Envelope, Violation> {
    let timestamp = parse_timestamp(&message.timestamp).ok_or_else(|| {
        let problem = "must be an RFC 3339 date-time with its offset, such as `2026-03-01T10:00:00Z`";
        Violation::new(rules::TIMESTAMP, "timestamp", format!("{problem}, found `{}`", excerpt(&message.timestamp)))
    })?;
    Ok(Envelope {
        timestamp,
        swarm_id: parse_id::<SwarmId>(&message.swarm_id, rules::SWARM_ID, "swarmId")?,
        container_id: parse_id::<ContainerId>(message.container_id, rules::CONTAINER_ID, "containerId")?,
    })
}

fn decode_task_request_payload(payload: WireTaskRequest<'_>) -> Result<TaskRequest, Violation> {
    let mut env_vars = EnvVars::new();
    for (key, value) in payload.env_vars {
        let broken =
            |error: FieldError| Violation::new(error.rule, format!("payload.envVars.{}", excerpt(key)), error.problem);
        let name: EnvKey = key.parse().map_err(broken)?;
        env_vars.insert(name, value.to_owned()).map_err(broken)?;
    }
    Ok(TaskRequest {
        task_file_path: parse_field(payload.task_file_path, "payload.taskFilePath")?,
        branch_name: parse_id::<BranchName>(payload.branch_name, rules::BRANCH_NAME, "payload.branchName")?,
        repo_url: parse_field(payload.repo_url, "payload.repoUrl")?,
        env_vars,
    })
}

fn decode_progress(payload: WireProgress<'_>) -> Result<ContainerMessage, Violation> {
    Ok(ContainerMessage::Progress(ProgressUpdate {
        story_id: parse_id::<StoryId>(payload.story_id, rules::STORY_ID, "payload.storyId")?,
        status: parse_status(payload.status, rules::STORY_STATUS)?,
        output: bounded_text(&payload.output, rules::OUTPUT_LENGTH, "payload.output", MAX_OUTPUT_CHARS)?,
    }))
}

fn decode_completion(payload: WireCompletion<'_>) -> Result<ContainerMessage, Violation> {
    let status = parse_status(payload.status, rules::COMPLETION_STATUS)?;
    if let Some(url) = payload.pr_url {
        check_url(url).map_err(|problem| {
            Violation::new(rules::PR_URL, "payload.prUrl", format!("{problem}, found `{}`", excerpt(url)))
        })?;
    }
    if payload.errors.len() > MAX_ERRORS {
        let problem = format!("must have at most {MAX_ERRORS} entries, found {}", payload.errors.len());
        return Err(Violation::new(rules::ERRORS_COUNT, "payload.errors", problem));
    }
    let errors = payload.errors.iter().enumerate().map(|(index, text)| {
        bounded_text(text, rules::ERRORS_LENGTH, &format!("payload.errors[{index}]"), MAX_ERROR_CHARS)
    });
    let errors = errors.collect::<Result<_, _>>()?;
    Ok(ContainerMessage::Completion(Completion { status, pr_url: payload.pr_url.map(str::to_owned), errors }))
}

fn decode_error(payload: WireError<'_>) -> Result<ContainerMessage, Violation> {
    Ok(ContainerMessage::Error(ErrorReport {
        code: parse_field(payload.code, "payload.code")?,
        message: bounded_text(&payload.message, rules::MESSAGE_LENGTH, "payload.message", MAX_MESSAGE_CHARS)?,
    }))
}

fn parse_id<T: FromStr<Err = IdError>>(text: &str, rule: &'static str, name: &str) -> Result<T, Violation> {
    text.parse().map_err(|error: IdError| {
        Violation::new(rule, name, format!("must be {}, found `{}`", error.rule, excerpt(&error.found)))
    })
}

fn parse_field<T: FromStr<Err = FieldError>>(text: &str, name: &str) -> Result<T, Violation> {
    text.parse().map_err(|error: FieldError| Violation::new(error.rule, name, error.problem))
}

fn parse_status<T: FromStr<Err = UnknownName>>(name: &str, rule: &'static str) -> Result<T, Violation> {
    name.parse().map_err(|error: UnknownName| Violation::new(rule, "payload.status", error.to_string()))
}

/// Free text of at most `max` characters (Unicode scalar values).
fn bounded_text(text: &str, rule: &'static str, name: &str, max: usize) -> Result<String, Violation> {
    if take_chars(text, max).len() < text.len() {
        let problem = format!("must have at most {max} characters, found {}", text.chars().count());
        return Err(Violation::new(rule, name, problem));
    }
    Ok(text.to_owned())
}
