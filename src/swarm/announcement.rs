//! What the machine reports to the user. Each reporter shows it in its own way; `--json` writes it as it is defined here.
//!
//! Rules: the variants and fields are those of the event stream, by their serde names, and the docstrings are the descriptions in
//! `longshore schema events`. A later version only adds fields and types. To add a type: a variant, its sentence in
//! `report/report_line.rs`, and its line in `tests/golden/events/`. Must not: carry a value of an environment variable.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::ids::{AssignmentId, AttemptId, CommitId, ContainerId, StoryKey};
use crate::protocol::amp::message::{EscalationSeverity, EscalationType, MsgId, ReviewDecision};
use crate::swarm::event::StopLevel;
use crate::swarm::swarm_outcome::SwarmOutcome;
use crate::verdict::Failure;

/// A story with its label: `US-001`, or `slug/US-001` where there are several tasks files. Reports show the label.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct StoryRef {
    #[serde(skip)]
    pub key: StoryKey,
    pub label: String,
}

/// What happened. Stories are named by their labels: `US-001`, or `slug/US-001` where there are several tasks files.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Announcement {
    /// The swarm started. The first event of `longshore run`.
    SwarmStarted {
        /// Stories to run.
        stories: usize,
        /// Stories that were done before the swarm.
        done: usize,
        /// Number of assignments.
        assignments: usize,
        /// The most sandboxes that run at the same time.
        #[serde(rename = "max")]
        max_sandboxes: usize,
    },
    /// The swarm was resumed. The first event of `longshore resume`.
    SwarmResumed {
        /// Stories to run.
        stories: usize,
        /// Stories with an outcome, and those that were done before the swarm.
        done: usize,
        /// Sandboxes that kept running while the orchestrator was gone.
        running: usize,
    },
    /// A sandbox is being created.
    SandboxStarting {
        /// The attempt.
        attempt: AttemptId,
        /// The labels of its stories.
        stories: Vec<StoryRef>,
    },
    /// The start of a sandbox is delayed: the engine is short of memory or disk.
    #[serde(rename = "start_held")]
    StartDelayed {
        /// The attempt.
        attempt: AttemptId,
        /// Which resource is short.
        reason: String,
    },
    /// A sandbox's container was paused by something other than longshore.
    SandboxPaused {
        /// The attempt.
        attempt: AttemptId,
        /// The container's name.
        container: String,
    },
    /// A sandbox started.
    SandboxStarted {
        /// The attempt.
        attempt: AttemptId,
        /// Its container's id.
        container: ContainerId,
    },
    /// A sandbox ended.
    SandboxEnded {
        /// The attempt.
        attempt: AttemptId,
        /// The container's exit code; null if the container vanished.
        exit_code: Option<i64>,
        /// Whether the engine reports that the container ran out of memory.
        oom_killed: bool,
        /// Whether the container is gone from the engine.
        vanished: bool,
        /// The engine's error message.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        error: String,
        /// The last lines of the container's stderr.
        #[serde(rename = "tail", default, skip_serializing_if = "Vec::is_empty")]
        stderr_tail: Vec<String>,
    },
    /// A story started.
    StoryStarted {
        /// The story's label.
        story: StoryRef,
        /// Its title.
        title: String,
        /// The attempt.
        attempt: AttemptId,
    },
    /// An agent reported progress on a story.
    StoryProgress {
        /// The story's label.
        story: StoryRef,
        /// The text as the sandbox sent it.
        text: String,
    },
    /// The sandbox reported the story as finished. It has not landed yet.
    StoryFinished {
        /// The story's label.
        story: StoryRef,
    },
    /// A story landed: its commit is on the integration branch.
    StoryLanded {
        /// The story's label.
        story: StoryRef,
        /// The story's commit.
        commit: CommitId,
        /// The integration branch's head.
        head: CommitId,
        /// How long the story took in its sandbox.
        #[serde(rename = "durationMs", serialize_with = "serialize_millis")]
        #[schemars(with = "u64")]
        duration: Duration,
    },
    /// A story did not land and is tried again.
    StoryRetried {
        /// The story's label.
        story: StoryRef,
        /// The cause of the failure.
        failure: Failure,
        /// The next attempt's number.
        #[serde(rename = "next")]
        next_attempt: u32,
        /// The delay before the next attempt.
        #[serde(rename = "afterMs", serialize_with = "serialize_millis")]
        #[schemars(with = "u64")]
        delay: Duration,
    },
    /// A story did not land and is not tried again.
    StoryFailed {
        /// The story's label.
        story: StoryRef,
        /// The cause of the failure.
        failure: Failure,
        /// Number of attempts.
        attempts: u32,
    },
    /// A story is skipped because a story that it depends on did not land.
    StorySkipped {
        /// The story's label.
        story: StoryRef,
        /// The label of the story that did not land.
        #[serde(rename = "because")]
        blocked_by: StoryRef,
    },
    /// The checks of a commit start in a sandbox of their own.
    CheckStarted {
        /// The check's sandbox.
        attempt: AttemptId,
        /// The labels of the stories in the commit that have not landed; empty for the base.
        stories: Vec<StoryRef>,
        /// The commit.
        commit: CommitId,
    },
    /// The checks of a commit ended.
    CheckEnded {
        /// The check's sandbox.
        attempt: AttemptId,
        /// The labels of the stories in the commit that have not landed; empty for the base.
        stories: Vec<StoryRef>,
        /// Why the commit did not pass; null if it passed.
        failure: Option<Failure>,
    },
    /// The checks that all stories share fail on the branch's head. They are not held against a story.
    BranchRed {
        /// The branch's head.
        commit: CommitId,
        /// The cause of the failure.
        failure: Failure,
    },
    /// Somebody reset the branch. Stories that are not on it any more are done again.
    BranchRewound {
        /// The branch's head.
        commit: CommitId,
        /// The labels of the stories.
        stories: Vec<StoryRef>,
    },
    /// A review started.
    ReviewStarted {
        /// The reviewer's sandbox.
        attempt: AttemptId,
        /// The stories under review.
        stories: Vec<StoryRef>,
        /// Which review of the task it is, from 1.
        round: u32,
    },
    /// A review ended.
    ReviewEnded {
        /// The reviewer's sandbox.
        attempt: AttemptId,
        /// The stories under review.
        stories: Vec<StoryRef>,
        /// The verdict.
        decision: ReviewDecision,
        /// The reviewer's confidence in the verdict, from 0 to 1.
        confidence: f64,
        /// Number of issues that the reviewer found.
        issues: usize,
        /// How often the task was rejected so far, this review included.
        #[serde(rename = "rejects")]
        reject_count: u32,
    },
    /// An AMP escalation was written.
    Escalated {
        /// The message's id in the SSOT.
        #[schemars(with = "String")]
        message: MsgId,
        /// The task's id.
        task: AssignmentId,
        /// The labels of the task's stories that have not landed.
        stories: Vec<StoryRef>,
        /// The type of the escalation.
        #[serde(rename = "escalation")]
        escalation_type: EscalationType,
        /// The severity.
        severity: EscalationSeverity,
        /// The description for the admin.
        description: String,
        /// Suggestions for the admin.
        suggested_actions: Vec<String>,
        /// Whether the task waits for the admin.
        auto_suspended: bool,
    },
    /// A decision of the admin was applied.
    #[serde(rename = "decided")]
    DecisionApplied {
        /// The task's id.
        task: AssignmentId,
        /// The decided action.
        action: String,
        /// Who decided.
        by: String,
    },
    /// A notification of an escalation failed (`--notify`, `--notify-url`). Reported the first time only.
    NotifyFailed {
        /// Which notification failed, and why.
        problem: String,
    },
    /// The memory of a story from an earlier swarm cannot be read and is not passed on.
    MemoryDamaged {
        /// Where the memory is, and why it cannot be read.
        problem: String,
    },
    /// A record from a sandbox broke a rule of ACP and was refused.
    RecordRefused {
        /// The attempt.
        attempt: AttemptId,
        /// The rule that it broke.
        reason: String,
        /// How many records of the attempt were refused so far.
        count: u32,
    },
    /// The shim reported an error.
    ErrorReported {
        /// The attempt.
        attempt: AttemptId,
        /// The ACP error code.
        code: String,
        /// The error message.
        message: String,
    },
    /// Work that did not land was saved under a ref.
    Salvaged {
        /// The attempt.
        attempt: AttemptId,
        /// The name of the ref.
        reference: String,
    },
    /// A work folder could not be salvaged completely and is kept in the work volume.
    #[serde(rename = "work_kept")]
    WorkDirKept {
        /// The attempt.
        attempt: AttemptId,
        /// The folder's name in the volume.
        #[serde(rename = "folder")]
        work_dir: String,
        /// Whether part of it is under a ref.
        #[serde(rename = "partly")]
        partly_salvaged: bool,
    },
    /// The swarm is stopping.
    Stopping {
        /// `graceful` or `kill`.
        #[schemars(with = "String")]
        level: StopLevel,
        /// What requested the stop.
        by: String,
    },
    /// The engine cannot be reached. Nothing starts until it can be reached again.
    EngineLost {
        /// The error.
        problem: String,
    },
    /// The engine can be reached again.
    #[serde(rename = "engine_back")]
    EngineReconnected,
    /// The swarm cannot continue.
    MachineryFailed {
        /// The cause of the failure.
        failure: Failure,
    },
    /// The swarm ended. The last event.
    SwarmEnded {
        /// `landed`, `some_failed`, `red_base`, `machinery_failed`, `suspended` or `interrupted`.
        #[schemars(with = "String")]
        outcome: SwarmOutcome,
        /// The exit code of the outcome.
        exit_code: u8,
        /// Stories that landed, those done before the swarm included.
        landed: usize,
        /// Stories that did not land.
        failed: usize,
        /// Stories that were skipped.
        skipped: usize,
        /// Stories without an outcome.
        pending: usize,
    },
}

fn serialize_millis<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}
