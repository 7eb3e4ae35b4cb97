//! The envelope: how a [`Message`] comes to be, what it can be asked, and who may say what to whom.
//!
//! Used by all who make or read messages. Must not: read a clock; the caller gives id and time.

use std::collections::HashSet;
use std::fmt::Display;
use std::io::{self, Write};
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::Offset;

use super::check;
use super::message::{Draft, Kind, Message, MsgId, Payload, Role};
use super::rules::{self, Violation};
use crate::ids::AssignmentId;

impl Kind {
    /// Who may say it to whom (spec, "01" to "05"). The admin's dispatch to the coordinator is how guidance comes in.
    pub fn ways(self) -> &'static [(Role, Role)] {
        use Role::{Admin, Coordinator, Executor, Reviewer, System};
        match self {
            Kind::TaskDispatch => &[(Coordinator, Executor), (Admin, Coordinator)],
            Kind::TaskResult => &[(Executor, Coordinator)],
            Kind::ReviewRequest => &[(Coordinator, Reviewer)],
            Kind::ReviewVerdict => &[(Reviewer, Coordinator)],
            Kind::Escalation => &[(Coordinator, Admin), (Reviewer, Admin), (Executor, Admin), (System, Admin)],
        }
    }
}

impl Role {
    /// The spec's word.
    pub fn word(self) -> &'static str {
        match self {
            Role::Admin => "admin",
            Role::Coordinator => "coordinator",
            Role::Executor => "executor",
            Role::Reviewer => "reviewer",
            Role::System => "system",
        }
    }
}

impl Message {
    /// A message of this id, or the first rule that it would break.
    pub fn new(id: MsgId, draft: Draft) -> Result<Self, Violation> {
        envelope(&id, &draft)?;
        check::payload(&draft.payload, &draft.task)?;
        let message = Self { id, draft };
        // Line breaks and indents can make a deep one many times longer than it came.
        match serde_json::to_writer_pretty(Room(rules::MAX_BYTES), &message) {
            Ok(()) => Ok(message),
            Err(_) => Err(too_large("more")),
        }
    }

    /// `msg_id`.
    pub fn id(&self) -> &MsgId {
        &self.id
    }

    /// `type`.
    pub fn kind(&self) -> Kind {
        self.id.kind()
    }

    /// Who says it.
    pub fn from(&self) -> Role {
        self.draft.from
    }

    /// To whom.
    pub fn to(&self) -> Role {
        self.draft.to
    }

    /// `task_id`.
    pub fn task(&self) -> &AssignmentId {
        &self.draft.task
    }

    /// `timestamp`.
    pub fn at(&self) -> Timestamp {
        self.draft.at
    }

    /// Whether the receiver must write an ack.
    pub fn requires_ack(&self) -> bool {
        self.draft.requires_ack
    }

    /// How long the ack may take from [`at`](Self::at) on: the message's own time, else its type's. None where no ack is
    /// required, or an escalation waits for the admin without an end.
    pub fn ack_timeout(&self) -> Option<Duration> {
        let own = self.draft.ack_timeout_sec.map(|seconds| Duration::from_secs(seconds.into()));
        own.or_else(|| self.kind().ack_timeout()).filter(|_| self.draft.requires_ack)
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
    pub fn draft(&self) -> &Draft {
        &self.draft
    }
}

/// Counts what is written, and takes no more than there is room for.
struct Room(usize);

impl Write for Room {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(super) fn too_large(length: impl Display) -> Violation {
    let problem = format!("must have at most {} bytes, found {length}", rules::MAX_BYTES);
    Violation::new(rules::SIZE, "message", problem)
}

fn envelope(id: &MsgId, draft: &Draft) -> Result<(), Violation> {
    let kind = draft.payload.kind();
    if id.kind() != kind {
        let problem = format!("must begin with the message's type `{kind}`, found `{id}`");
        return Err(Violation::new(rules::MSG_ID_TYPE, "msg_id", problem));
    }
    if id.task() != &draft.task {
        let problem = format!("must have the message's task `{}`, found `{id}`", draft.task);
        return Err(Violation::new(rules::MSG_ID_TASK, "msg_id", problem));
    }
    if Offset::UTC.to_datetime(draft.at).year() < 0 {
        return Err(Violation::new(rules::TIMESTAMP, "timestamp", "must not be before the year 0"));
    }
    if draft.to == Role::System {
        return Err(Violation::new(rules::RECEIVER, "to", "must not be `system`, which is told nothing"));
    }
    if !kind.ways().contains(&(draft.from, draft.to)) {
        let ways: Vec<String> =
            kind.ways().iter().map(|(from, to)| format!("`{}` to `{}`", from.word(), to.word())).collect();
        let problem =
            format!("`{kind}` goes from {}, found `{}` to `{}`", ways.join(" or "), draft.from.word(), draft.to.word());
        return Err(Violation::new(rules::DIRECTION, "from", problem));
    }
    if !draft.requires_ack && kind != Kind::Escalation {
        return Err(Violation::new(rules::ACK_REQUIRED, "requires_ack", format!("must be true for `{kind}`")));
    }
    match draft.ack_timeout_sec {
        Some(_) if !draft.requires_ack => {
            let problem = "must not be there without `requires_ack`";
            return Err(Violation::new(rules::ACK_TIMEOUT, "ack_timeout_sec", problem));
        }
        Some(0) => return Err(Violation::new(rules::ACK_TIMEOUT, "ack_timeout_sec", "must be above 0")),
        _ => {}
    }
    check::entries(draft.context_ref.len(), "context_ref")?;
    let mut seen = HashSet::new();
    for (place, earlier) in draft.context_ref.iter().enumerate() {
        let field = || format!("context_ref[{place}]");
        if earlier == id {
            return Err(Violation::new(rules::CONTEXT_REF, field(), "must not be the message itself"));
        }
        if !seen.insert(earlier) {
            return Err(Violation::new(rules::CONTEXT_REF, field(), format!("must not stand twice: `{earlier}`")));
        }
    }
    Ok(())
}
