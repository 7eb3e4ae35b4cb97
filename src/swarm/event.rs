//! What can happen to a swarm. Past tense; each is written to the journal before anything that follows from it is done.

use serde::{Deserialize, Serialize};

use crate::handoff::result::StoryResult;
use crate::ids::AssignmentId;
use crate::ids::{AttemptId, CommitId, ContainerId, StoryKey};
use crate::protocol::acp::message::{CompletionStatus, StoryStatus};
use crate::protocol::amp::message::DiffSummary;
use crate::swarm::review_outcome::ReviewOutcome;
use crate::verdict::{Cause, Evidence};

/// An event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Event {
    /// The swarm may begin: objects are in the volume, the depot answers.
    Began,
    /// The container exists; nothing has run in it yet.
    SandboxCreated {
        /// Which attempt.
        attempt: AttemptId,
        /// Its container.
        container: ContainerId,
        /// The container's name.
        name: String,
    },
    /// The engine is short of memory or disk: the start waits until it is not.
    #[serde(rename = "start_held")]
    StartDelayed {
        /// Which attempt.
        attempt: AttemptId,
        /// What is short, and how much is wanted.
        reason: String,
    },
    /// The task-request was written.
    SandboxStarted {
        /// Which attempt.
        attempt: AttemptId,
    },
    /// It could not be created or started; nothing of it runs.
    StartFailed {
        /// Which attempt.
        attempt: AttemptId,
        /// Why.
        fault: MachineryFault,
    },
    /// A valid progress-update (ACP).
    StoryReported {
        /// From which attempt.
        attempt: AttemptId,
        /// Its place among this sandbox's records, from 1.
        #[serde(rename = "record")]
        record_number: u64,
        /// Which story.
        story: StoryKey,
        /// Its status by the sandbox's word.
        status: StoryStatus,
        /// What the sandbox says of it.
        output: String,
    },
    /// A valid error (ACP).
    ErrorReported {
        /// From which attempt.
        attempt: AttemptId,
        /// Its place among this sandbox's records.
        #[serde(rename = "record")]
        record_number: u64,
        /// The code.
        code: String,
        /// The message.
        message: String,
    },
    /// A valid completion (ACP): the sandbox's last record.
    CompletionReported {
        /// From which attempt.
        attempt: AttemptId,
        /// Its place among this sandbox's records.
        #[serde(rename = "record")]
        record_number: u64,
        /// The status.
        status: CompletionStatus,
        /// The errors.
        errors: Vec<String>,
    },
    /// A record that breaks a rule: counted, never fatal by itself.
    RecordRefused {
        /// From which attempt.
        attempt: AttemptId,
        /// Its place among this sandbox's records.
        #[serde(rename = "record")]
        record_number: u64,
        /// Which rule, and where.
        reason: String,
    },
    /// What the engine shows of a sandbox that runs: asked for when it says nothing, and told when it is paused.
    #[serde(rename = "examined")]
    SandboxInspected {
        /// Which attempt.
        attempt: AttemptId,
        /// Whether its container is paused. It is not longshore that did it.
        paused: bool,
        /// Its process list, as lines.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        processes: Vec<String>,
    },
    /// The container ended, and its streams were drained.
    SandboxEnded {
        /// Which attempt.
        attempt: AttemptId,
        /// How.
        exit: ContainerExit,
    },
    /// The result came out, its objects are on the host, verified, under refs of ours.
    ResultCollected {
        /// Of which attempt.
        attempt: AttemptId,
        /// The assigned branch's tip, verified; none where it did not move.
        tip: Option<CommitId>,
        /// One for each story of the assignment; salvage names are the host's refs.
        stories: Vec<StoryResult>,
        /// What the work folder had beyond the result, where that was looked into.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[serde(rename = "rest")]
        leftover: Option<Leftover>,
        /// Git's own count of what each story changed, in the order of `stories`; shorter where it could not be had.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        diffs: Vec<DiffSummary>,
        /// The tip's tree: the same tree again is the same work again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tree: Option<String>,
        /// The ref that keeps the commits.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[serde(rename = "kept")]
        result_ref: Option<String>,
    },
    /// What a reviewer's sandbox left is on the host, checked.
    ReviewCollected {
        /// Of which attempt: the reviewer's.
        attempt: AttemptId,
        /// What it came to.
        #[serde(rename = "reviewed")]
        outcome: Box<ReviewOutcome>,
    },
    /// There is no result that can be believed. What was in the work folder may have been salvaged all the same.
    CollectFailed {
        /// Of which attempt.
        attempt: AttemptId,
        /// Why: `disk_full`, `protocol_violation`, `host_error`, `engine_error`, ...
        fault: MachineryFault,
        /// The host's ref of what was salvaged.
        #[serde(rename = "salvage")]
        salvage_ref: Option<String>,
        /// There was nothing to salvage: the work folder is as it was made, or was never made. Only so may the folder
        /// go without a salvage.
        #[serde(default)]
        #[serde(rename = "nothingThere")]
        work_dir_empty: bool,
        /// The salvage has not all that was in the work folder: that must stay.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[serde(rename = "leftOut")]
        salvage_incomplete: bool,
        /// The depot did not answer in time: to ask again would be to wait as long again.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[serde(rename = "noAnswer")]
        depot_timed_out: bool,
    },
    /// The attempt's tip is on its integration branch, or was already.
    Merged {
        /// Of which attempt.
        attempt: AttemptId,
        /// The integration branch's head now.
        head: CommitId,
    },
    /// The tip does not merge.
    MergeConflicted {
        /// Of which attempt.
        attempt: AttemptId,
        /// Where.
        paths: Vec<String>,
        /// The ref that keeps the commits.
        #[serde(rename = "kept")]
        result_ref: String,
    },
    /// Merging failed by the host's doing, or somebody moved the branch meanwhile.
    MergeFailed {
        /// Of which attempt.
        attempt: AttemptId,
        /// Why.
        fault: MachineryFault,
        /// The ref that keeps the commits.
        #[serde(rename = "kept")]
        result_ref: String,
    },
    /// The container is gone.
    SandboxRemoved {
        /// Of which attempt.
        attempt: AttemptId,
    },
    /// Somebody wants the swarm to stop.
    StopRequested {
        /// How hard.
        level: StopLevel,
        /// Who or what: "SIGINT", "longshore stop".
        by: String,
    },
    /// A new orchestrator has taken the swarm up, after a stop, a machinery failure or a `kill -9`. Takes back what
    /// was decided to stop, and gives again the effects that may not have been carried out.
    Resumed,
    /// The admin has decided something.
    #[serde(rename = "decided")]
    DecisionMade {
        /// What.
        decision: TaskDecision,
    },
    /// No orchestrator ran for so long. Comes before [`Event::Resumed`].
    #[serde(rename = "away")]
    OrchestratorAbsent {
        /// Milliseconds, by the wall clock.
        ms: u64,
    },
    /// The engine cannot be reached.
    EngineLost {
        /// Why.
        problem: String,
    },
    /// The engine can be reached again.
    #[serde(rename = "engine_back")]
    EngineReconnected,
    /// Nothing can go on: the engine or the disk is gone. Running sandboxes are left for `resume`.
    MachineryFailed {
        /// Why.
        fault: MachineryFault,
    },
    /// A deadline of the machine's own is due.
    DeadlinePassed,
}

/// What a work folder has that its result does not have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "rest", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Leftover {
    /// Nothing.
    Nothing,
    /// It is on the host.
    #[serde(rename = "kept")]
    Salvaged {
        /// The ref.
        reference: String,
        /// The ref has not all of it: the folder must stay.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[serde(rename = "leftOut")]
        incomplete: bool,
    },
}

/// A decision of the admin's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskDecision {
    /// Its id: it is taken in once, however often it comes.
    pub id: String,
    /// About which task.
    pub task: AssignmentId,
    /// What is to be done.
    pub action: TaskAction,
    /// Who decided.
    pub by: String,
}

/// What the admin can decide about a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum TaskAction {
    /// What waits for an approval has it: a plan of high risk may run, a verdict counts, locked work lands.
    Approve,
    /// It goes on where it was suspended.
    Resume,
    /// It begins a new count: as if nothing had failed or been rejected.
    Retry,
    /// It is over, and did not land.
    Abort,
    /// Its commits are put aside, and it begins again from the integration branch.
    Rollback,
    /// It goes on with these words.
    Answer {
        /// The words.
        text: String,
    },
}

impl TaskAction {
    /// The word of `longshore admin`.
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

/// How hard to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopLevel {
    /// Start nothing; ask the sandboxes to finish within the grace period.
    Graceful,
    /// Kill and salvage.
    Kill,
}

/// A machinery failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineryFault {
    /// The word.
    pub cause: Cause,
    /// The proof.
    pub evidence: Evidence,
    /// Whether trying again could help.
    pub retryable: bool,
    /// The engine was away: trying again costs nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[serde(rename = "unreachable")]
    pub engine_unreachable: bool,
}

impl MachineryFault {
    /// A fault whose evidence is one sentence.
    pub fn new(cause: Cause, summary: impl Into<String>, retryable: bool) -> Self {
        Self { cause, evidence: Evidence::from_summary(summary), retryable, engine_unreachable: false }
    }
}

/// How a container ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerExit {
    /// The exit code; none where the container vanished.
    pub code: Option<i64>,
    /// The engine's own OOM flag.
    pub oom_killed: bool,
    /// Whether the container is gone from the engine.
    pub vanished: bool,
    /// The engine was away while it ran: an end by a signal is the engine's doing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub engine_lost: bool,
    /// The engine's error text, where it has one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// The last lines of its stderr.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(rename = "tail")]
    pub stderr_tail: Vec<String>,
}
