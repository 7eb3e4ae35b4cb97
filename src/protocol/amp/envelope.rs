//! The envelope: how a [`AmpMessage`] comes to be, what it can be asked, and who may say what to whom.
//!
//! Used by all who make or read messages. Must not: read a clock; the caller gives id and time.

use std::collections::HashSet;
use std::fmt::Display;
use std::io::{self, Write};
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::Offset;

use super::check;
use super::message::{AmpDraft, AmpMessage, AmpMessageType, AmpRole, MsgId, Payload};
use super::rules::{self, AmpViolation};
use crate::ids::AssignmentId;

impl AmpMessageType {
    /// Who may say it to whom (spec, "01" to "05"). The admin's dispatch to the coordinator is how guidance comes in.
    pub fn routes(self) -> &'static [(AmpRole, AmpRole)] {
        use AmpRole::{Admin, Coordinator, Executor, Reviewer, System};
        match self {
            AmpMessageType::TaskDispatch => &[(Coordinator, Executor), (Admin, Coordinator)],
            AmpMessageType::TaskResult => &[(Executor, Coordinator)],
            AmpMessageType::ReviewRequest => &[(Coordinator, Reviewer)],
            AmpMessageType::ReviewVerdict => &[(Reviewer, Coordinator)],
            AmpMessageType::Escalation => {
                &[(Coordinator, Admin), (Reviewer, Admin), (Executor, Admin), (System, Admin)]
            }
        }
    }
}

impl AmpRole {
    /// The spec's word.
    pub fn as_str(self) -> &'static str {
        match self {
            AmpRole::Admin => "admin",
            AmpRole::Coordinator => "coordinator",
            AmpRole::Executor => "executor",
            AmpRole::Reviewer => "reviewer",
            AmpRole::System => "system",
        }
    }
}

impl AmpMessage {
    /// A message of this id, or the first rule that it would break.
    pub fn new(id: MsgId, draft: AmpDraft) -> Result<Self, AmpViolation> {
        check_envelope(&id, &draft)?;
        check::check_payload(&draft.payload, &draft.task_id)?;
        let message = Self { id, draft };
        // Line breaks and indents can make a deep one many times longer than it came.
        match serde_json::to_writer_pretty(SizeLimitedSink(rules::MAX_MESSAGE_BYTES), &message) {
            Ok(()) => Ok(message),
            Err(_) => Err(size_violation("more")),
        }
    }

    /// `msg_id`.
    pub fn id(&self) -> &MsgId {
        &self.id
    }

    /// `type`.
    pub fn message_type(&self) -> AmpMessageType {
        self.id.message_type()
    }

    /// Who says it.
    pub fn from(&self) -> AmpRole {
        self.draft.from
    }

    /// To whom.
    pub fn to(&self) -> AmpRole {
        self.draft.to
    }

    /// `task_id`.
    pub fn task_id(&self) -> &AssignmentId {
        &self.draft.task_id
    }

    /// `timestamp`.
    pub fn timestamp(&self) -> Timestamp {
        self.draft.timestamp
    }

    /// Whether the receiver must write an ack.
    pub fn requires_ack(&self) -> bool {
        self.draft.requires_ack
    }

    /// How long the ack may take from [`timestamp`](Self::timestamp) on: the message's own time, else its type's. None where no ack is
    /// required, or an escalation waits for the admin without an end.
    pub fn ack_timeout(&self) -> Option<Duration> {
        let own = self.draft.ack_timeout_sec.map(|seconds| Duration::from_secs(seconds.into()));
        own.or_else(|| self.message_type().ack_timeout()).filter(|_| self.draft.requires_ack)
    }

    /// What was said before that belongs to it.
    pub fn context_ref(&self) -> &[MsgId] {
        &self.draft.context_ref
    }

    /// What is said.
    pub fn payload(&self) -> &Payload {
        &self.draft.payload
    }

    /// All but the id.
    pub fn draft(&self) -> &AmpDraft {
        &self.draft
    }
}

/// Counts what is written, and takes no more than there is room for.
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

pub(super) fn size_violation(length: impl Display) -> AmpViolation {
    let problem = format!("must have at most {} bytes, found {length}", rules::MAX_MESSAGE_BYTES);
    AmpViolation::new(rules::SIZE, "message", problem)
}

fn check_envelope(id: &MsgId, draft: &AmpDraft) -> Result<(), AmpViolation> {
    let kind = draft.payload.message_type();
    if id.message_type() != kind {
        let problem = format!("must begin with the message's type `{kind}`, found `{id}`");
        return Err(AmpViolation::new(rules::MSG_ID_TYPE, "msg_id", problem));
    }
    if id.task_id() != &draft.task_id {
        let problem = format!("must have the message's task `{}`, found `{id}`", draft.task_id);
        return Err(AmpViolation::new(rules::MSG_ID_TASK, "msg_id", problem));
    }
    if Offset::UTC.to_datetime(draft.timestamp).year() < 0 {
        return Err(AmpViolation::new(rules::TIMESTAMP, "timestamp", "must not be before the year 0"));
    }
    if draft.to == AmpRole::System {
        return Err(AmpViolation::new(rules::RECEIVER, "to", "must not be `system`, which is told nothing"));
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
        return Err(AmpViolation::new(rules::DIRECTION, "from", problem));
    }
    if !draft.requires_ack && kind != AmpMessageType::Escalation {
        return Err(AmpViolation::new(rules::ACK_REQUIRED, "requires_ack", format!("must be true for `{kind}`")));
    }
    match draft.ack_timeout_sec {
        Some(_) if !draft.requires_ack => {
            let problem = "must not be there without `requires_ack`";
            return Err(AmpViolation::new(rules::ACK_TIMEOUT, "ack_timeout_sec", problem));
        }
        Some(0) => return Err(AmpViolation::new(rules::ACK_TIMEOUT, "ack_timeout_sec", "must be above 0")),
        _ => {}
    }
    check::check_list_length(draft.context_ref.len(), "context_ref")?;
    let mut seen = HashSet::new();
    for (place, earlier) in draft.context_ref.iter().enumerate() {
        let field = || format!("context_ref[{place}]");
        if earlier == id {
            return Err(AmpViolation::new(rules::CONTEXT_REF, field(), "must not be the message itself"));
        }
        if !seen.insert(earlier) {
            return Err(AmpViolation::new(rules::CONTEXT_REF, field(), format!("must not stand twice: `{earlier}`")));
        }
    }
    Ok(())
}
