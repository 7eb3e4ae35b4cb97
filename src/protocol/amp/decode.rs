//! JSON text -> an [`AmpMessage`], an [`Ack`] or a reviewer's verdict, or the first broken rule with its field.
//!
//! The order: JSON, `protocol_version` and `type`, the envelope's fields, the payload's, then values ([`AmpMessage::new`]).
//! Fields that the spec does not name are refused: a newer sender has another version. `null` is allowed where the spec or
//! its examples have it; an empty optional list equals an absent one. Used by `store/`, `cli/` and `shim/`.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::message::{Ack, AmpDraft, AmpMessage, AmpWireMessage, ProtocolVersion};
use super::message_type::AmpMessageType;
use super::payload::{Payload, ReviewVerdict};
use super::rules;
use crate::json::deserialize::{DeserializeError, DeserializeErrorKind, from_node};
use crate::json::{self, JsonNode, JsonPath, LineIndex};
use crate::protocol::rule::Violation;

const ROOT: &JsonPath<'static> = &JsonPath::Root;

/// What decides how the rest is read.
#[derive(Deserialize)]
struct MessageHeader {
    #[serde(rename = "protocol_version")]
    _version: ProtocolVersion,
    #[serde(rename = "type")]
    message_type: AmpMessageType,
}

impl AmpMessage {
    /// Reads one message. Nothing but whitespace may precede or follow it.
    pub fn parse(text: &str) -> Result<Self, Violation> {
        let root = parse_object(text)?;
        let MessageHeader { message_type, .. } = read(&root, ROOT)?;
        let message: AmpWireMessage<IgnoredAny> = read(&root, ROOT)?;
        let draft = AmpDraft {
            from: message.from,
            to: message.to,
            task_id: message.task_id,
            timestamp: message.timestamp,
            requires_ack: message.requires_ack,
            ack_timeout_sec: message.ack_timeout_sec,
            context_ref: message.context_ref,
            payload: read_payload(message_type, root.get("payload").expect("the field is required"))?,
        };
        Self::new(message.msg_id, draft)
    }
}

impl Ack {
    /// Reads one ack. Nothing but whitespace may precede or follow it.
    pub fn parse(text: &str) -> Result<Self, Violation> {
        let ack: Self = read(&parse_object(text)?, ROOT)?;
        ack.check()?;
        Ok(ack)
    }
}

impl ReviewVerdict {
    /// Reads the payload of a verdict from a file of its own, as a reviewer writes it, and checks it against the criteria: see
    /// [`check`](Self::check) and [`match_criteria`](Self::match_criteria).
    pub fn parse(text: &str, criteria: &[String]) -> Result<Self, Violation> {
        let verdict: Self = read(&parse_object(text)?, ROOT)?;
        verdict.check(criteria)?;
        Ok(verdict)
    }
}

fn read_payload(kind: AmpMessageType, node: &JsonNode) -> Result<Payload, Violation> {
    let at = &JsonPath::Key(ROOT, "payload");
    Ok(match kind {
        AmpMessageType::TaskDispatch => Payload::TaskDispatch(read(node, at)?),
        AmpMessageType::TaskResult => Payload::TaskResult(read(node, at)?),
        AmpMessageType::ReviewRequest => Payload::ReviewRequest(read(node, at)?),
        AmpMessageType::ReviewVerdict => Payload::ReviewVerdict(read(node, at)?),
        AmpMessageType::Escalation => Payload::Escalation(read(node, at)?),
    })
}

/// Breaks `size`, `json`, `duplicate-key` and `json-object`.
fn parse_object(text: &str) -> Result<JsonNode, Violation> {
    if text.len() > rules::MAX_MESSAGE_BYTES {
        return Err(rules::size_violation(text.len()));
    }
    let root = json::parse(text).map_err(|syntax| {
        let lines = LineIndex::new(text);
        let (line, column) = (lines.line(syntax.offset), lines.column(syntax.offset));
        Violation::new(rules::JSON, "message", format!("line {line}, column {column}: must be {}", syntax.expected))
    })?;
    root.check_unique_keys(ROOT).map_err(|path| Violation::new(rules::DUPLICATE_KEY, path, "is a duplicate key"))?;
    if root.members().is_none() {
        let problem = format!("must be an object, found {}", root.type_name());
        return Err(Violation::new(rules::JSON_OBJECT, "message", problem));
    }
    Ok(root)
}

fn read<'t, T: Deserialize<'t>>(node: &'t JsonNode, at: &JsonPath<'_>) -> Result<T, Violation> {
    from_node(node, at).map_err(|error: DeserializeError| {
        let field = error.path.rsplit('.').next().unwrap_or_default();
        let rule = match (error.kind, field) {
            (DeserializeErrorKind::MissingField, _) => rules::REQUIRED,
            (DeserializeErrorKind::UnknownField, _) => rules::UNKNOWN_FIELD,
            (DeserializeErrorKind::WrongType, _) => rules::FIELD_TYPE,
            (DeserializeErrorKind::NumberRange, _) => rules::NUMBER_RANGE,
            (DeserializeErrorKind::UnknownVariant, "protocol_version") => rules::PROTOCOL_VERSION,
            (DeserializeErrorKind::UnknownVariant, "type") => rules::TYPE_UNKNOWN,
            (DeserializeErrorKind::UnknownVariant, "change_type") => rules::DIRECT_FIX_SCOPE,
            (DeserializeErrorKind::UnknownVariant, _) => rules::ENUM_WORD,
            (DeserializeErrorKind::Invalid, "task_id") => rules::TASK_ID,
            (DeserializeErrorKind::Invalid, "timestamp") => rules::TIMESTAMP,
            // Message ids are the only other fields with a type that refuses texts.
            (DeserializeErrorKind::Invalid, _) => rules::MSG_ID,
        };
        Violation::new(rule, error.path, error.problem)
    })
}
