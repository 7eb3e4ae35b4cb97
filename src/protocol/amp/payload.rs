//! The five payloads (spec, "01" to "05"): plain values, checked when they are put into a message.
//!
//! Their derived `Deserialize` and `JsonSchema` define names, types and which fields are required; `check.rs` has the rest.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::message_type::{AmpMessageType, AmpRole};
use super::msg_id::MsgId;
use crate::json::deserialize::{non_null, nullable};
use crate::protocol::wire_enum::wire_enum;
pub use crate::tasks::RiskLevel;

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Payload {
    TaskDispatch(TaskDispatch),
    TaskResult(TaskResult),
    ReviewRequest(ReviewRequest),
    ReviewVerdict(ReviewVerdict),
    Escalation(Escalation),
}

impl Payload {
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

/// 01: a task is assigned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "orchestrator", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TaskDispatch {
    /// What to do.
    pub description: String,
    /// The repo's absolute path.
    pub repo: String,
    /// The branch to work on; never `main` or `master`.
    pub branch: String,
    /// The stories, in order.
    pub subtasks: Vec<Subtask>,
    /// When the task is done; never empty.
    pub acceptance_criteria: Vec<String>,
    pub risk_level: RiskLevel,
    /// Actions that are prohibited.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forbidden_actions: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "non_null")]
    pub tech_constraints: Option<Map<String, Value>>,
}

/// A story of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "orchestrator", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Subtask {
    /// `T-2026-044-S1`: the task's id and the story's position, from 1.
    pub subtask_id: String,
    /// What to do.
    pub description: String,
    /// 0 if there is no estimate.
    pub estimated_lines: u32,
}

/// 02: the result of a story.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "orchestrator", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TaskResult {
    pub subtask_id: String,
    pub completion_status: SubtaskCompletionStatus,
    pub diff_summary: DiffSummary,
    pub self_assessment: SelfAssessment,
    pub work_log: Vec<WorkLogEntry>,
    /// The commit that the story ends with.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "non_null")]
    pub commit_hash: Option<String>,
    /// Why the story is not complete; present unless it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blockers: Vec<String>,
}

wire_enum! {
    /// How much of a story is done.
    pub enum SubtaskCompletionStatus {
        Complete = "complete",
        Partial = "partial",
        Failed = "failed",
    }
}

/// The changes, as git counts them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "orchestrator", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DiffSummary {
    /// Paths, sorted.
    pub files_changed: Vec<String>,
    /// Without the lines of binary files.
    pub lines_added: u64,
    /// Without the lines of binary files.
    pub lines_removed: u64,
}

/// The executor's own assessment: an entry for each acceptance criterion, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "orchestrator", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SelfAssessment {
    /// `true` if a check passed, `false` if it failed, `null` if there was none.
    pub criteria_met: Vec<Option<bool>>,
    /// The grounds of each entry.
    pub notes: Vec<String>,
}

/// An entry of a work log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "orchestrator", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct WorkLogEntry {
    /// With an offset.
    pub timestamp: String,
    /// The kind of action.
    pub action: String,
    /// The file concerned; may be empty.
    pub file: String,
    /// What was done.
    pub detail: String,
}

/// 03: a review is requested.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "orchestrator", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ReviewRequest {
    /// The dispatch, which has the acceptance criteria.
    pub original_dispatch_ref: MsgId,
    /// The result, which has the diff summary and the self-assessment.
    pub task_result_ref: MsgId,
    pub review_scope: ReviewScope,
    /// Where the diff is.
    pub diff_url: String,
    /// How often the task was rejected.
    pub reject_count: u32,
    /// Context for the reviewer. From two rejections on it warns of the lock.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "non_null")]
    pub coordinator_notes: Option<String>,
    /// The state of each CI check.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "non_null")]
    pub ci_status: Option<Map<String, Value>>,
}

wire_enum! {
    /// The part to review.
    pub enum ReviewScope {
        Full = "full",
        /// Changes since the last verdict.
        Incremental = "incremental",
    }
}

/// 04: a reviewer's verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "orchestrator", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ReviewVerdict {
    pub decision: ReviewDecision,
    /// An entry for each acceptance criterion.
    pub criteria_results: Vec<CriterionVerdict>,
    /// Present if the decision is `rejected`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub issues: Vec<Issue>,
    /// What the reviewer fixed; present if, and only if, the decision is `approved_with_fix`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub direct_fixes: Vec<DirectFix>,
    /// Remarks beyond the task.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "non_null")]
    pub architecture_notes: Option<String>,
    /// The reviewer's confidence, from 0 to 1.
    pub confidence: f64,
}

wire_enum! {
    /// A verdict's decision.
    pub enum ReviewDecision {
        Approved = "approved",
        /// Approved with the reviewer's own fixes.
        ApprovedWithFix = "approved_with_fix",
        Rejected = "rejected",
    }
}

/// The verdict on one criterion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "orchestrator", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CriterionVerdict {
    /// The criterion's text.
    pub criterion: String,
    /// `null` if it cannot be decided.
    #[serde(deserialize_with = "nullable")]
    pub passed: Option<bool>,
    pub evidence: String,
}

/// A problem that the reviewer found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "orchestrator", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Issue {
    pub severity: IssueSeverity,
    pub file: String,
    /// `null` if the issue concerns the whole file.
    #[serde(default)]
    pub line: Option<u64>,
    pub description: String,
    pub suggested_fix: String,
}

wire_enum! {
    /// An issue's severity. The first two block.
    pub enum IssueSeverity {
        /// Must be fixed.
        Critical = "critical",
        /// Should be fixed.
        Major = "major",
        /// Does not block.
        Minor = "minor",
    }
}

/// A fix by the reviewer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "orchestrator", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DirectFix {
    pub file: String,
    pub change_type: ChangeType,
    /// Added and removed lines of the diff, under 5.
    pub diff_lines: u32,
}

wire_enum! {
    /// What a reviewer may fix. The spec's table says `import`, its note `import_order`: both are accepted.
    #[cfg_attr(
        feature = "orchestrator",
        schemars(extend("enum" = ["typo", "lint", "whitespace", "import_order", "import"]))
    )]
    pub enum ChangeType {
        Typo = "typo",
        Lint = "lint",
        Whitespace = "whitespace",
        #[serde(alias = "import")]
        ImportOrder = "import_order",
    }
}

/// 05: a situation that the sender cannot resolve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "orchestrator", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Escalation {
    pub escalation_type: EscalationType,
    pub severity: EscalationSeverity,
    /// Never the admin.
    pub triggered_by: AmpRole,
    /// For the admin: concise, specific and actionable.
    pub description: String,
    /// The messages that led to the escalation.
    pub affected_msgs: Vec<MsgId>,
    pub system_state_snapshot: SystemStateSnapshot,
    /// What the admin could do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suggested_actions: Vec<String>,
    /// Whether the sender waits for the admin; `false` with severity `info` only.
    pub auto_suspended: bool,
}

wire_enum! {
    /// The reason of an escalation.
    pub enum EscalationType {
        /// A task was rejected more than three times.
        HallucinationLock = "hallucination_lock",
        AckTimeout = "ack_timeout",
        /// `main`, `master` or another agent's branch was touched.
        BranchViolation = "branch_violation",
        CiFailure = "ci_failure",
        /// Two agents or two branches cannot be reconciled.
        Conflict = "conflict",
        /// An agent wrote nothing to the SSOT for 30 minutes.
        HeartbeatTimeout = "heartbeat_timeout",
        /// An action needs more approval than it has.
        PermissionDenied = "permission_denied",
        Unknown = "unknown",
    }
}

wire_enum! {
    /// An escalation's severity.
    pub enum EscalationSeverity {
        /// Work continues.
        Info = "info",
        /// The task waits or has ended; others continue.
        Warning = "warning",
        /// All agents concerned are suspended.
        Critical = "critical",
    }
}

/// The state of the task when the escalation was sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "orchestrator", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SystemStateSnapshot {
    /// `running`, `failed`, `locked`, `suspended`.
    pub task_status: String,
    /// How often the task was rejected.
    pub reject_count: u32,
    /// The task's newest successful message, if there is one.
    #[serde(deserialize_with = "nullable")]
    pub last_successful_msg_id: Option<MsgId>,
}
