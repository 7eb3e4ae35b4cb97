//! AMP messages and acks (spec, "Base Envelope"). An [`AmpMessage`] has no public fields, so that each one obeys every rule.

use std::collections::HashSet;
use std::io::{self, Write};
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::Offset;
use serde::{Deserialize, Serialize, Serializer};

use super::check;
use super::rules;
use crate::ids::AssignmentId;
use crate::json::deserialize::non_null;
use crate::protocol::rule::Violation;
use crate::protocol::timestamp;
use crate::protocol::wire_enum::wire_enum;

pub use super::message_type::{AmpMessageType, AmpRole};
pub use super::msg_id::{MsgId, MsgIdError};
pub use super::payload::{
    ChangeType, CriterionVerdict, DiffSummary, DirectFix, Escalation, EscalationSeverity, EscalationType, Issue,
    IssueSeverity, Payload, ReviewDecision, ReviewRequest, ReviewScope, ReviewVerdict, RiskLevel, SelfAssessment,
    Subtask, SubtaskCompletionStatus, SystemStateSnapshot, TaskDispatch, TaskResult, WorkLogEntry,
};

/// A message that breaks no rule.
#[derive(Debug, Clone, PartialEq)]
pub struct AmpMessage {
    id: MsgId,
    draft: AmpDraft,
}

/// A message without its id, not checked.
#[derive(Debug, Clone, PartialEq)]
pub struct AmpDraft {
    pub from: AmpRole,
    pub to: AmpRole,
    pub task_id: AssignmentId,
    pub timestamp: Timestamp,
    /// Whether the receiver must write an ack.
    pub requires_ack: bool,
    /// The time for the ack, counted from `timestamp`, with `requires_ack` only. `None`: the type's default.
    pub ack_timeout_sec: Option<u32>,
    /// Earlier messages that belong to this one.
    pub context_ref: Vec<MsgId>,
    pub payload: Payload,
}

wire_enum! {
    /// The versions of the protocol that this build speaks.
    pub enum ProtocolVersion {
        V1 = "AMP/1.0",
    }
}

/// A message of AMP, the Agent Message Protocol.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "orchestrator", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct AmpWireMessage<P> {
    pub msg_id: MsgId,
    pub protocol_version: ProtocolVersion,
    #[serde(rename = "type")]
    pub message_type: AmpMessageType,
    pub from: AmpRole,
    pub to: AmpRole,
    /// The task that the message is about.
    #[cfg_attr(feature = "orchestrator", schemars(with = "String"))]
    pub task_id: AssignmentId,
    /// RFC 3339, with an offset.
    #[serde(with = "timestamp")]
    #[cfg_attr(feature = "orchestrator", schemars(with = "String"))]
    pub timestamp: Timestamp,
    /// Whether the receiver must write an ack.
    pub requires_ack: bool,
    /// The time for the ack. Without it: the type's default.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "non_null")]
    pub ack_timeout_sec: Option<u32>,
    /// Earlier messages that belong to this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub context_ref: Vec<MsgId>,
    pub payload: P,
}

impl Serialize for AmpMessage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let AmpDraft { from, to, timestamp, requires_ack, ack_timeout_sec, .. } = self.draft;
        let message = AmpWireMessage {
            msg_id: self.id.clone(),
            protocol_version: ProtocolVersion::V1,
            message_type: self.message_type(),
            from,
            to,
            task_id: self.draft.task_id.clone(),
            timestamp,
            requires_ack,
            ack_timeout_sec,
            context_ref: self.draft.context_ref.clone(),
            payload: &self.draft.payload,
        };
        message.serialize(serializer)
    }
}

impl AmpMessage {
    /// Checks the draft as the message of this id.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub fn new(id: MsgId, draft: AmpDraft) -> Result<Self, Violation> {
        check_envelope(&id, &draft)?;
        check::check_payload(&draft.payload, &draft.task_id)?;
        let message = Self { id, draft };
        // Line breaks and indents can make a deeply nested message many times longer than it came.
        match serde_json::to_writer_pretty(SizeLimitedSink(rules::MAX_MESSAGE_BYTES), &message) {
            Ok(()) => Ok(message),
            Err(_) => Err(rules::size_violation("more")),
        }
    }

    pub fn id(&self) -> &MsgId {
        &self.id
    }

    pub fn message_type(&self) -> AmpMessageType {
        self.id.message_type()
    }

    pub fn from(&self) -> AmpRole {
        self.draft.from
    }

    pub fn to(&self) -> AmpRole {
        self.draft.to
    }

    pub fn task_id(&self) -> &AssignmentId {
        &self.draft.task_id
    }

    pub fn timestamp(&self) -> Timestamp {
        self.draft.timestamp
    }

    pub fn requires_ack(&self) -> bool {
        self.draft.requires_ack
    }

    /// The time for the ack, counted from [`timestamp`](Self::timestamp): the message's own, else its type's. `None` if no ack
    /// is required, and for an escalation without a time of its own.
    pub fn ack_timeout(&self) -> Option<Duration> {
        let own = self.draft.ack_timeout_sec.map(|seconds| Duration::from_secs(seconds.into()));
        own.or_else(|| self.message_type().ack_timeout()).filter(|_| self.draft.requires_ack)
    }

    pub fn context_ref(&self) -> &[MsgId] {
        &self.draft.context_ref
    }

    pub fn payload(&self) -> &Payload {
        &self.draft.payload
    }

    pub fn draft(&self) -> &AmpDraft {
        &self.draft
    }

    /// As in the SSOT: indented JSON, keys in the spec's order, no newline at the end.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("keys are texts and numbers are finite")
    }
}

/// Fails once more bytes were written than there is room for.
struct SizeLimitedSink(usize);

impl Write for SizeLimitedSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn check_envelope(id: &MsgId, draft: &AmpDraft) -> Result<(), Violation> {
    let kind = draft.payload.message_type();
    if id.message_type() != kind {
        let problem = format!("must begin with the message's type `{kind}`, found `{id}`");
        return Err(Violation::new(rules::MSG_ID_TYPE, "msg_id", problem));
    }
    if id.task_id() != &draft.task_id {
        let problem = format!("must have the message's task `{}`, found `{id}`", draft.task_id);
        return Err(Violation::new(rules::MSG_ID_TASK, "msg_id", problem));
    }
    if Offset::UTC.to_datetime(draft.timestamp).year() < 0 {
        return Err(Violation::new(rules::TIMESTAMP, "timestamp", "must not be before the year 0"));
    }
    if draft.to == AmpRole::System {
        return Err(Violation::new(rules::RECEIVER, "to", "must not be `system`, which only sends"));
    }
    if !kind.routes().contains(&(draft.from, draft.to)) {
        let ways: Vec<String> =
            kind.routes().iter().map(|(from, to)| format!("`{}` to `{}`", from.as_str(), to.as_str())).collect();
        let problem = format!(
            "`{kind}` goes from {}, found `{}` to `{}`",
            ways.join(" or "),
            draft.from.as_str(),
            draft.to.as_str()
        );
        return Err(Violation::new(rules::DIRECTION, "from", problem));
    }
    if !draft.requires_ack && kind != AmpMessageType::Escalation {
        return Err(Violation::new(rules::ACK_REQUIRED, "requires_ack", format!("must be true for `{kind}`")));
    }
    match draft.ack_timeout_sec {
        Some(_) if !draft.requires_ack => {
            let problem = "must be absent without `requires_ack`";
            return Err(Violation::new(rules::ACK_TIMEOUT, "ack_timeout_sec", problem));
        }
        Some(0) => return Err(Violation::new(rules::ACK_TIMEOUT, "ack_timeout_sec", "must be above 0")),
        _ => {}
    }
    check::check_list_length(draft.context_ref.len(), "context_ref")?;
    let mut seen = HashSet::new();
    for (place, earlier) in draft.context_ref.iter().enumerate() {
        let field = || format!("context_ref[{place}]");
        if earlier == id {
            return Err(Violation::new(rules::CONTEXT_REF, field(), "must not be the message itself"));
        }
        if !seen.insert(earlier) {
            return Err(Violation::new(rules::CONTEXT_REF, field(), format!("must be unique, found `{earlier}`")));
        }
    }
    Ok(())
}

/// The receiver's confirmation that a message arrived; of a dispatch, that work started (spec, "ACK on Start").
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "orchestrator", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Ack {
    /// The message.
    pub ack_of: MsgId,
    /// The receiver.
    pub by: AmpRole,
    /// RFC 3339, with an offset.
    #[serde(with = "timestamp")]
    #[cfg_attr(feature = "orchestrator", schemars(with = "String"))]
    pub timestamp: Timestamp,
    /// A remark; the admin's decision on an escalation.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "non_null")]
    pub note: Option<String>,
}

impl Ack {
    /// As in the SSOT: indented JSON, no newline at the end.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("keys are texts")
    }

    /// # Errors
    /// The first rule that the ack breaks.
    pub fn check(&self) -> Result<(), Violation> {
        let ways = self.ack_of.message_type().routes();
        if !ways.iter().any(|(_, to)| *to == self.by) {
            let problem =
                format!("must be a receiver of `{}`, found `{}`", self.ack_of.message_type(), self.by.as_str());
            return Err(Violation::new(rules::ACK_BY, "by", problem));
        }
        self.note.as_deref().map_or(Ok(()), |note| check::check_text(note, "note"))
    }
}
