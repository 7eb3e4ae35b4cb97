//! What can be said in AMP: the envelope, the five payloads, and the ack. Names and shapes are the spec's ("Base Envelope",
//! "01" to "05").
//!
//! A [`AmpMessage`] has no public fields: whoever has one has one that breaks no rule. Payloads are plain values until they
//! are put into one.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ids::AssignmentId;

/// `protocol_version`, the one that this build speaks.
pub const VERSION: &str = "AMP/1.0";

/// Who says something, or to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "orchestrator", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AmpRole {
    /// The person.
    Admin,
    /// The orchestrator, where it decides.
    Coordinator,
    /// A sandbox that does stories.
    Executor,
    /// A sandbox that reviews.
    Reviewer,
    /// The orchestrator, where a mechanism of it speaks (a clock, a check). Says, and is told nothing.
    System,
}

/// The five message types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "orchestrator", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AmpMessageType {
    /// 01.
    TaskDispatch,
    /// 02.
    TaskResult,
    /// 03.
    ReviewRequest,
    /// 04.
    ReviewVerdict,
    /// 05.
    Escalation,
}

impl AmpMessageType {
    /// All five, in the spec's order.
    pub const ALL: [AmpMessageType; 5] = [
        AmpMessageType::TaskDispatch,
        AmpMessageType::TaskResult,
        AmpMessageType::ReviewRequest,
        AmpMessageType::ReviewVerdict,
        AmpMessageType::Escalation,
    ];

    /// The spec's word.
    pub fn as_str(self) -> &'static str {
        match self {
            AmpMessageType::TaskDispatch => "task_dispatch",
            AmpMessageType::TaskResult => "task_result",
            AmpMessageType::ReviewRequest => "review_request",
            AmpMessageType::ReviewVerdict => "review_verdict",
            AmpMessageType::Escalation => "escalation",
        }
    }

    /// How long an ack may take where the message does not say; none for an escalation, which the admin answers when there
    /// is time.
    pub fn ack_timeout(self) -> Option<Duration> {
        let seconds = match self {
            AmpMessageType::TaskDispatch => 300,
            AmpMessageType::TaskResult => 120,
            AmpMessageType::ReviewRequest => 600,
            AmpMessageType::ReviewVerdict => 60,
            AmpMessageType::Escalation => return None,
        };
        Some(Duration::from_secs(seconds))
    }
}

impl fmt::Display for AmpMessageType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A message's id: `{type}-{task_id}-{unix_ms}`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MsgId {
    text: String,
    message_type: AmpMessageType,
    task_id: AssignmentId,
    unix_ms: u64,
}

/// A text that is no message id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a message id is `{{type}}-T-YYYY-NNN-{{milliseconds since 1970}}`, found `{0}`")]
pub struct MsgIdError(String);

impl MsgId {
    /// The id of a message of this type about this task at this time.
    pub fn new(kind: AmpMessageType, task: AssignmentId, unix_ms: u64) -> Self {
        Self { text: format!("{kind}-{task}-{unix_ms}"), message_type: kind, task_id: task, unix_ms }
    }

    /// As it is written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The message's type.
    pub fn message_type(&self) -> AmpMessageType {
        self.message_type
    }

    /// The task that it is about.
    pub fn task_id(&self) -> &AssignmentId {
        &self.task_id
    }

    /// Milliseconds since 1970.
    pub fn unix_ms(&self) -> u64 {
        self.unix_ms
    }

    /// The same as a timestamp; the latest one if it is out of range.
    pub fn timestamp(&self) -> Timestamp {
        i64::try_from(self.unix_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok()).unwrap_or(Timestamp::MAX)
    }
}

impl FromStr for MsgId {
    type Err = MsgIdError;
    fn from_str(text: &str) -> Result<Self, MsgIdError> {
        let wrong = || MsgIdError(text.chars().take(120).collect());
        let kind = AmpMessageType::ALL
            .into_iter()
            .find(|kind| text.strip_prefix(kind.as_str()).is_some_and(|rest| rest.starts_with('-')));
        let kind = kind.ok_or_else(wrong)?;
        let rest = &text[kind.as_str().len() + 1..];
        let (task, unix_ms) = rest.rsplit_once('-').ok_or_else(wrong)?;
        let plain = !unix_ms.is_empty() && unix_ms.bytes().all(|b| b.is_ascii_digit()) && !unix_ms.starts_with('0');
        let unix_ms = unix_ms.parse().ok().filter(|_| plain).ok_or_else(wrong)?;
        Ok(Self::new(kind, task.parse().map_err(|_| wrong())?, unix_ms))
    }
}

impl TryFrom<String> for MsgId {
    type Error = MsgIdError;
    fn try_from(text: String) -> Result<Self, MsgIdError> {
        text.parse()
    }
}

impl From<MsgId> for String {
    fn from(id: MsgId) -> String {
        id.text
    }
}

impl fmt::Display for MsgId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl fmt::Debug for MsgId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A message that breaks no rule.
#[derive(Debug, Clone, PartialEq)]
pub struct AmpMessage {
    pub(super) id: MsgId,
    pub(super) draft: AmpDraft,
}

/// What a message is made of, but for its id.
#[derive(Debug, Clone, PartialEq)]
pub struct AmpDraft {
    /// Who says it.
    pub from: AmpRole,
    /// To whom.
    pub to: AmpRole,
    /// About which task.
    pub task_id: AssignmentId,
    /// When.
    pub timestamp: Timestamp,
    /// Whether the receiver must write an ack.
    pub requires_ack: bool,
    /// By when, from `at` on, in seconds; only with `requires_ack`. None: the type's own time.
    pub ack_timeout_sec: Option<u32>,
    /// What was said before that belongs to it.
    pub context_ref: Vec<MsgId>,
    /// What is said.
    pub payload: Payload,
}

/// What is said.
#[derive(Debug, Clone, PartialEq)]
pub enum Payload {
    /// 01.
    TaskDispatch(TaskDispatch),
    /// 02.
    TaskResult(TaskResult),
    /// 03.
    ReviewRequest(ReviewRequest),
    /// 04.
    ReviewVerdict(ReviewVerdict),
    /// 05.
    Escalation(Escalation),
}

impl Payload {
    /// The message type that it is the payload of.
    pub fn message_type(&self) -> AmpMessageType {
        match self {
            Payload::TaskDispatch(_) => AmpMessageType::TaskDispatch,
            Payload::TaskResult(_) => AmpMessageType::TaskResult,
            Payload::ReviewRequest(_) => AmpMessageType::ReviewRequest,
            Payload::ReviewVerdict(_) => AmpMessageType::ReviewVerdict,
            Payload::Escalation(_) => AmpMessageType::Escalation,
        }
    }
}

/// 01: a task is given out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskDispatch {
    /// What to do, in words.
    pub description: String,
    /// The repo's absolute path.
    pub repo: String,
    /// The branch to work on; never `main` or `master`.
    pub branch: String,
    /// The stories, in order.
    pub subtasks: Vec<Subtask>,
    /// What makes it done; never empty.
    pub acceptance_criteria: Vec<String>,
    /// How much harm it can do.
    pub risk_level: RiskLevel,
    /// What must not be done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forbidden_actions: Vec<String>,
    /// Technical constraints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tech_constraints: Option<serde_json::Map<String, serde_json::Value>>,
}

/// A story of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Subtask {
    /// `T-2026-044-S1`: the task's id and the story's place, from 1.
    pub subtask_id: String,
    /// What to do.
    pub description: String,
    /// About how many lines; 0 where nobody guessed.
    pub estimated_lines: u32,
}

/// How much harm a task can do, which decides who approves it.
pub use crate::tasks::RiskLevel;

/// 02: what came of a story.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskResult {
    /// Which.
    pub subtask_id: String,
    /// How far it got.
    pub completion_status: SubtaskCompletionStatus,
    /// What changed.
    pub diff_summary: DiffSummary,
    /// How the executor sees it, criterion by criterion.
    pub self_assessment: SelfAssessment,
    /// What was done.
    pub work_log: Vec<WorkLogEntry>,
    /// The commit that it ends with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit_hash: Option<String>,
    /// Why it is not complete; there unless it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blockers: Vec<String>,
}

/// How far a story got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "orchestrator", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SubtaskCompletionStatus {
    /// All of it.
    Complete,
    /// Some of it.
    Partial,
    /// None of it.
    Failed,
}

/// What changed, by git's own count.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "orchestrator", derive(schemars::JsonSchema))]
pub struct DiffSummary {
    /// Paths, sorted.
    pub files_changed: Vec<String>,
    /// Lines; those of binary files are not counted.
    pub lines_added: u64,
    /// Lines.
    pub lines_removed: u64,
}

/// How the executor sees its work: an entry for each acceptance criterion, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelfAssessment {
    /// True where a check ran and passed, false where it ran and failed, null where nobody could check.
    pub criteria_met: Vec<Option<bool>>,
    /// A word on each.
    pub notes: Vec<String>,
}

/// A line of a work log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkLogEntry {
    /// When, with an offset.
    pub timestamp: String,
    /// What kind of thing.
    pub action: String,
    /// To which file; empty where it is about none.
    pub file: String,
    /// In words.
    pub detail: String,
}

/// 03: a review is asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReviewRequest {
    /// The dispatch, which has the criteria.
    pub original_dispatch_ref: MsgId,
    /// The result, which has the diff's summary and the self-assessment.
    pub task_result_ref: MsgId,
    /// All of it, or what is new since the last verdict.
    pub review_scope: ReviewScope,
    /// Where the diff is.
    pub diff_url: String,
    /// How often the task was rejected so far.
    pub reject_count: u32,
    /// What else the reviewer should know. From two rejections on it says that the lock is near.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coordinator_notes: Option<String>,
    /// What checks say: a word each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci_status: Option<serde_json::Map<String, serde_json::Value>>,
}

/// How much is to be reviewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "orchestrator", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ReviewScope {
    /// All of it.
    Full,
    /// What is new since the last verdict.
    Incremental,
}

/// 04: a reviewer's verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReviewVerdict {
    /// What it is.
    pub decision: ReviewDecision,
    /// An entry for each acceptance criterion.
    pub criteria_results: Vec<CriterionVerdict>,
    /// What is wrong; there when it is rejected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub issues: Vec<Issue>,
    /// What the reviewer mended; there when it is approved with a fix, and only then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub direct_fixes: Vec<DirectFix>,
    /// What goes beyond the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture_notes: Option<String>,
    /// How sure the reviewer is, from 0 to 1.
    pub confidence: f64,
}

/// A verdict's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "orchestrator", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ReviewDecision {
    /// It may land.
    Approved,
    /// It may land with what the reviewer mended.
    ApprovedWithFix,
    /// It goes back.
    Rejected,
}

/// A criterion by the reviewer's eye.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CriterionVerdict {
    /// The criterion's words.
    pub criterion: String,
    /// Null where it cannot be told.
    pub passed: Option<bool>,
    /// Why.
    pub evidence: String,
}

/// Something wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Issue {
    /// How bad.
    pub severity: IssueSeverity,
    /// Where.
    pub file: String,
    /// Where in it; none where it is about all of it.
    #[serde(default)]
    pub line: Option<u64>,
    /// What.
    pub description: String,
    /// What would mend it.
    pub suggested_fix: String,
}

/// How bad an issue is. The first two block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "orchestrator", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum IssueSeverity {
    /// Must be mended.
    Critical,
    /// Should be mended.
    Major,
    /// Could be mended.
    Minor,
}

impl IssueSeverity {
    /// The spec's word.
    pub fn as_str(self) -> &'static str {
        match self {
            IssueSeverity::Critical => "critical",
            IssueSeverity::Major => "major",
            IssueSeverity::Minor => "minor",
        }
    }
}

/// Something that the reviewer mended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectFix {
    /// Where.
    pub file: String,
    /// What kind.
    pub change_type: ChangeType,
    /// How many lines of the diff, added and removed ones: under 5.
    pub diff_lines: u32,
}

/// What a reviewer may mend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "orchestrator", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ChangeType {
    /// A word.
    Typo,
    /// What a linter would say.
    Lint,
    /// White space alone.
    Whitespace,
    /// The order of imports. The spec's table calls it `import`, its note `import_order`: both are read.
    #[serde(alias = "import")]
    ImportOrder,
}

/// 05: something that the sender cannot resolve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Escalation {
    /// What kind.
    pub escalation_type: EscalationType,
    /// How bad. Critical suspends all agents concerned.
    pub severity: EscalationSeverity,
    /// Whose doing.
    pub triggered_by: AmpRole,
    /// For the admin: short, specific, and such that something can be done.
    pub description: String,
    /// The messages that led to it.
    pub affected_msgs: Vec<MsgId>,
    /// How things stand.
    pub system_state_snapshot: SystemStateSnapshot,
    /// What the admin could do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suggested_actions: Vec<String>,
    /// Whether the sender waits for the admin; false only with severity info.
    pub auto_suspended: bool,
}

/// What kind of escalation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "orchestrator", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EscalationType {
    /// A task was rejected more than three times.
    HallucinationLock,
    /// No ack in time.
    AckTimeout,
    /// `main`, `master` or another's branch.
    BranchViolation,
    /// Checks failed.
    CiFailure,
    /// Two agents, or two branches, cannot be reconciled.
    Conflict,
    /// Nothing in the SSOT from an agent for 30 minutes.
    HeartbeatTimeout,
    /// More than the risk level allows.
    PermissionDenied,
    /// Anything else.
    Unknown,
}

/// How bad an escalation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "orchestrator", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EscalationSeverity {
    /// For the record; things go on.
    Info,
    /// The task waits, or is over; others go on.
    Warning,
    /// All agents concerned are suspended.
    Critical,
}

/// How things stood at an escalation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemStateSnapshot {
    /// A word: running, failed, locked, suspended.
    pub task_status: String,
    /// How often the task was rejected.
    pub reject_count: u32,
    /// The newest message of the task that went well; null before there is one.
    pub last_successful_msg_id: Option<MsgId>,
}

/// A receiver's word that a message arrived; for a dispatch, that it has begun (spec, "ACK on Start").
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ack {
    /// Which message.
    pub ack_of: MsgId,
    /// Who has it.
    pub by: AmpRole,
    /// When, with an offset.
    #[serde(serialize_with = "super::encode::serialize_timestamp")]
    pub timestamp: Timestamp,
    /// What the receiver adds: the admin's decision, on an escalation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}
