//! What can happen to a swarm. The journal has each event before its effects are carried out.

use serde::{Deserialize, Serialize};

use crate::handoff::result::StoryResult;
use crate::ids::{AssignmentId, AttemptId, CommitId, ContainerId, StoryId, StoryKey};
use crate::protocol::acp::message::{CompletionStatus, StoryStatus};
use crate::protocol::amp::message::DiffSummary;
use crate::swarm::review_outcome::ReviewOutcome;
use crate::verdict::{Cause, CriterionResult, Evidence, Failure};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Event {
    /// The swarm may begin: the objects are in the volume, and the depot answers.
    Began,
    /// The container exists; nothing has run in it yet.
    SandboxCreated {
        attempt: AttemptId,
        container: ContainerId,
        name: String,
    },
    /// The engine is short of memory or disk: the start waits until it is not.
    #[serde(rename = "start_held")]
    StartDelayed {
        attempt: AttemptId,
        /// What is short, and how much is needed.
        reason: String,
    },
    /// The task-request was written.
    SandboxStarted {
        attempt: AttemptId,
    },
    /// The sandbox could not be created or started; nothing of it runs.
    StartFailed {
        attempt: AttemptId,
        fault: MachineryFault,
    },
    /// A valid progress-update (ACP).
    StoryReported {
        attempt: AttemptId,
        /// The number of the record in this sandbox, from 1.
        #[serde(rename = "record")]
        record_number: u64,
        story: StoryKey,
        status: StoryStatus,
        output: String,
    },
    /// A valid error (ACP).
    ErrorReported {
        attempt: AttemptId,
        #[serde(rename = "record")]
        record_number: u64,
        code: String,
        message: String,
    },
    /// A valid completion (ACP), the sandbox's last record.
    CompletionReported {
        attempt: AttemptId,
        #[serde(rename = "record")]
        record_number: u64,
        status: CompletionStatus,
        errors: Vec<String>,
    },
    /// A record that breaks a rule: counted, never fatal by itself.
    RecordRefused {
        attempt: AttemptId,
        #[serde(rename = "record")]
        record_number: u64,
        reason: String,
    },
    /// The state of a running sandbox's container: requested when the sandbox is silent, and reported when someone pauses it.
    #[serde(rename = "examined")]
    SandboxInspected {
        attempt: AttemptId,
        /// Whether its container is paused, and not by longshore.
        paused: bool,
        /// Its process list, as lines.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        processes: Vec<String>,
    },
    /// The container ended, and its streams were drained.
    SandboxEnded {
        attempt: AttemptId,
        exit: ContainerExit,
    },
    /// The result is on the host, verified, and refs keep its commits.
    ResultCollected {
        attempt: AttemptId,
        /// The verified tip of the assigned branch; `None` if it did not move.
        tip: Option<CommitId>,
        /// One for each story of the assignment; salvage names are the host's refs.
        stories: Vec<StoryResult>,
        /// What the work directory had beyond the result, if that was examined.
        #[serde(rename = "rest", default, skip_serializing_if = "Option::is_none")]
        leftover: Option<Leftover>,
        /// What each story changed, as counted by git, in the order of `stories`; shorter if git could not tell.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        diffs: Vec<DiffSummary>,
        /// The tip's tree: the same tree again is the same work again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tree: Option<String>,
        #[serde(rename = "kept", default, skip_serializing_if = "Option::is_none")]
        result_ref: Option<String>,
    },
    /// The review is on the host and was checked.
    ReviewCollected {
        attempt: AttemptId,
        #[serde(rename = "reviewed")]
        outcome: Box<ReviewOutcome>,
    },
    /// There is no valid result. The work directory may have been salvaged anyway.
    CollectFailed {
        attempt: AttemptId,
        /// The reason: `disk_full`, `protocol_violation`, `host_error`, `engine_error`, ...
        fault: MachineryFault,
        /// The host's ref of the salvaged work.
        #[serde(rename = "salvage")]
        salvage_ref: Option<String>,
        /// The work directory is unchanged or was never created. Only then may it be removed without a salvage.
        #[serde(rename = "nothingThere", default)]
        work_dir_empty: bool,
        /// The salvage is incomplete: the work directory must stay.
        #[serde(rename = "leftOut", default, skip_serializing_if = "std::ops::Not::not")]
        salvage_incomplete: bool,
        /// The depot did not answer in time: another try would take as long again.
        #[serde(rename = "noAnswer", default, skip_serializing_if = "std::ops::Not::not")]
        depot_timed_out: bool,
    },
    /// The attempt's tip is on its integration branch, or was already.
    Merged {
        attempt: AttemptId,
        head: CommitId,
    },
    MergeConflicted {
        attempt: AttemptId,
        paths: Vec<String>,
        #[serde(rename = "kept")]
        result_ref: String,
    },
    /// Merging failed because of the host, or someone moved the branch meanwhile.
    MergeFailed {
        attempt: AttemptId,
        fault: MachineryFault,
        #[serde(rename = "kept")]
        result_ref: String,
    },
    /// The candidates of a landing are merged, one onto the other, and a ref keeps them. The branch has not moved.
    LandingPrepared {
        landing: u64,
        /// The branch's head, which the first candidate was merged onto.
        onto: CommitId,
        /// One for each candidate that merges, in their order.
        commits: Vec<CheckableCommit>,
        /// The conflicting files of the candidate after these.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        conflict: Option<Vec<String>>,
    },
    /// The checks of a commit were run, or were found not to run.
    CheckCollected {
        attempt: AttemptId,
        outcome: Box<CheckOutcome>,
    },
    /// The branch is at the landing's commit, or beyond it.
    BranchMoved {
        landing: u64,
        head: CommitId,
    },
    /// Somebody else moved the branch since the landing was prepared.
    BranchAdvanced {
        landing: u64,
        found: CommitId,
    },
    /// Somebody reset the branch while no orchestrator ran.
    BranchRewound {
        /// The tasks file whose branch it is.
        file: u16,
        head: CommitId,
        /// The stories that landed and are not on the branch any more.
        lost: Vec<StoryKey>,
    },
    /// The host could not prepare a landing or move the branch.
    LandingFailed {
        landing: u64,
        fault: MachineryFault,
    },
    SandboxRemoved {
        attempt: AttemptId,
    },
    StopRequested {
        level: StopLevel,
        /// The source: "SIGINT", "longshore stop".
        by: String,
    },
    /// A new orchestrator resumes the swarm after a stop, a machinery failure or a `kill -9`. This cancels the stop, and gives
    /// the effects again that may not have been carried out.
    Resumed,
    #[serde(rename = "decided")]
    DecisionMade {
        decision: TaskDecision,
    },
    /// No orchestrator ran for some time. Comes before [`Event::Resumed`].
    #[serde(rename = "away")]
    OrchestratorAbsent {
        /// The time in milliseconds, by the wall clock.
        ms: u64,
    },
    EngineLost {
        problem: String,
    },
    #[serde(rename = "engine_back")]
    EngineReconnected,
    /// Nothing can continue: the engine or the disk is gone. Running sandboxes are left for `resume`.
    MachineryFailed {
        fault: MachineryFault,
    },
    DeadlinePassed,
}

/// The branch's head if it lands up to some candidate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckableCommit {
    pub commit: CommitId,
    /// All its checks passed before, on the same tree, in the same image.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub checked: bool,
}

/// What the checks of a commit came to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckOutcome {
    /// Why the commit does not pass; `None` if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// The story whose own check failed first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_story: Option<StoryId>,
    /// The verify commands that failed and that all stories share.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_verify: Vec<String>,
    /// The criteria of each story.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub criteria: Vec<CheckedCriteria>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckedCriteria {
    pub story: StoryId,
    pub results: Vec<CriterionResult>,
}

/// What a work directory has that its result does not have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "rest", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Leftover {
    Nothing,
    #[serde(rename = "kept")]
    Salvaged {
        reference: String,
        /// The ref does not have all of it: the directory must stay.
        #[serde(rename = "leftOut", default, skip_serializing_if = "std::ops::Not::not")]
        incomplete: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskDecision {
    pub id: String,
    pub task: AssignmentId,
    pub action: TaskAction,
    pub by: String,
}

/// What the admin can decide about a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum TaskAction {
    /// Approve what waits: a story of high risk may run, a verdict counts, locked work lands.
    Approve,
    /// Continue where it was suspended.
    Resume,
    /// Try again with all counts at zero.
    Retry,
    /// End it without landing.
    Abort,
    /// Put its commits aside and begin again from the integration branch.
    Rollback,
    Answer {
        text: String,
    },
}

impl TaskAction {
    pub fn as_str(&self) -> &'static str {
        match self {
            TaskAction::Approve => "approve",
            TaskAction::Resume => "resume",
            TaskAction::Retry => "retry",
            TaskAction::Abort => "abort",
            TaskAction::Rollback => "rollback",
            TaskAction::Answer { .. } => "answer",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopLevel {
    /// Start nothing; ask the sandboxes to finish within the grace period.
    Graceful,
    /// Kill and salvage.
    Kill,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineryFault {
    pub cause: Cause,
    pub evidence: Evidence,
    pub retryable: bool,
    /// The engine was lost: a retry costs nothing.
    #[serde(rename = "unreachable", default, skip_serializing_if = "std::ops::Not::not")]
    pub engine_unreachable: bool,
}

impl MachineryFault {
    /// A fault whose evidence is one sentence.
    pub fn new(cause: Cause, summary: impl Into<String>, retryable: bool) -> Self {
        Self { cause, evidence: Evidence::from_summary(summary), retryable, engine_unreachable: false }
    }
}

impl From<&MachineryFault> for Failure {
    fn from(fault: &MachineryFault) -> Self {
        Self { cause: fault.cause, evidence: fault.evidence.clone(), salvage: None }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerExit {
    /// The exit code; `None` if the container vanished.
    pub code: Option<i64>,
    pub oom_killed: bool,
    pub vanished: bool,
    /// The engine was lost while it ran: if a signal ended it, the engine did that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub engine_lost: bool,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
    #[serde(rename = "tail", default, skip_serializing_if = "Vec::is_empty")]
    pub stderr_tail: Vec<String>,
}
