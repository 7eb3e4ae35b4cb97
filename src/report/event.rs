//! A line of `longshore run --json`: the versioned wire form of an announcement. `longshore schema events` prints its schema.
//!
//! Rules: one JSON object a line; `v` is the version, and a later version only adds fields and types; `seq` counts from 1
//! without gaps; stories have the labels that the other reports use. To add a type: a variant of [`EventBody`] and its arm
//! in [`event_body`]. Must not: carry text that is not escaped by JSON, or a value of an environment variable.

use std::time::Duration;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::story_labels::StoryLabels;
use crate::ids::AttemptId;
use crate::protocol::amp::message::{EscalationSeverity, EscalationType, ReviewDecision};
use crate::swarm::event::ContainerExit;
use crate::swarm::{Announcement, StopLevel, SwarmOutcome};
use crate::verdict::{Cause, Evidence, Failure};

/// The version of the stream.
pub const EVENT_VERSION: u32 = 1;

/// One line of the stream.
#[derive(Debug, Serialize, JsonSchema)]
pub struct EventLine {
    /// The version of the stream, [`EVENT_VERSION`].
    pub v: u32,
    /// The line's number in the stream, from 1.
    pub seq: u64,
    /// The time of the event, RFC 3339.
    #[schemars(with = "String")]
    pub at: Timestamp,
    /// The swarm's id.
    pub swarm: String,
    /// What happened.
    #[serde(flatten)]
    pub body: EventBody,
}

/// An attempt at an assignment: one sandbox.
#[derive(Debug, Serialize, JsonSchema)]
pub struct AttemptRef {
    /// The assignment's id.
    pub assignment: String,
    /// The number of the attempt at the assignment, from 1.
    pub number: u32,
}

/// Why something failed.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FailureInfo {
    /// The cause.
    pub cause: Cause,
    /// The evidence for the cause.
    pub evidence: Evidence,
    /// The ref under which the work is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub salvage: Option<String>,
}

/// What happened. Stories are named by their labels: `US-001`, or `slug/US-001` where there are several tasks files.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum EventBody {
    /// The swarm started. The first event of `longshore run`.
    SwarmStarted {
        /// Stories to run.
        stories: usize,
        /// Stories that were done before the swarm.
        done: usize,
        /// Number of assignments.
        assignments: usize,
        /// The most sandboxes that run at the same time.
        max: usize,
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
        attempt: AttemptRef,
        /// The labels of its stories.
        stories: Vec<String>,
    },
    /// The start of a sandbox is delayed: the engine is short of memory or disk.
    StartHeld {
        /// The attempt.
        attempt: AttemptRef,
        /// Which resource is short.
        reason: String,
    },
    /// A sandbox's container was paused by something other than longshore.
    SandboxPaused {
        /// The attempt.
        attempt: AttemptRef,
        /// The container's name.
        container: String,
    },
    /// A sandbox started.
    SandboxStarted {
        /// The attempt.
        attempt: AttemptRef,
        /// Its container's id.
        container: String,
    },
    /// A sandbox ended.
    SandboxEnded {
        /// The attempt.
        attempt: AttemptRef,
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
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tail: Vec<String>,
    },
    /// A story started.
    StoryStarted {
        /// The story's label.
        story: String,
        /// Its title.
        title: String,
        /// The attempt.
        attempt: AttemptRef,
    },
    /// An agent reported progress on a story.
    StoryProgress {
        /// The story's label.
        story: String,
        /// The text as the sandbox sent it.
        text: String,
    },
    /// The sandbox reported the story as finished. It has not landed yet.
    StoryFinished {
        /// The story's label.
        story: String,
    },
    /// A story landed: its commit is on the integration branch.
    StoryLanded {
        /// The story's label.
        story: String,
        /// The story's commit.
        commit: String,
        /// The integration branch's head.
        head: String,
        /// How long the story took in its sandbox.
        duration_ms: u64,
    },
    /// A story did not land and is tried again.
    StoryRetried {
        /// The story's label.
        story: String,
        /// The cause of the failure.
        failure: FailureInfo,
        /// The next attempt's number.
        next: u32,
        /// The delay before the next attempt.
        after_ms: u64,
    },
    /// A story did not land and is not tried again.
    StoryFailed {
        /// The story's label.
        story: String,
        /// The cause of the failure.
        failure: FailureInfo,
        /// Number of attempts.
        attempts: u32,
    },
    /// A story is skipped because a story that it depends on did not land.
    StorySkipped {
        /// The story's label.
        story: String,
        /// The label of the story that did not land.
        because: String,
    },
    /// A review started.
    ReviewStarted {
        /// The reviewer's sandbox.
        attempt: AttemptRef,
        /// The stories under review.
        stories: Vec<String>,
        /// Which review of the task it is, from 1.
        round: u32,
    },
    /// A review ended.
    ReviewEnded {
        /// The reviewer's sandbox.
        attempt: AttemptRef,
        /// The stories under review.
        stories: Vec<String>,
        /// The verdict.
        decision: ReviewDecision,
        /// The reviewer's confidence in the verdict, from 0 to 1.
        confidence: f64,
        /// Number of issues that the reviewer found.
        issues: usize,
        /// How often the task was rejected so far.
        rejects: u32,
    },
    /// An AMP escalation was written.
    Escalated {
        /// The message's id in the SSOT.
        message: String,
        /// The task's id.
        task: String,
        /// The labels of the task's stories that have not landed.
        stories: Vec<String>,
        /// The type of the escalation.
        escalation: EscalationType,
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
    Decided {
        /// The task's id.
        task: String,
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
        attempt: AttemptRef,
        /// The rule that it broke.
        reason: String,
        /// How many records of the attempt were refused so far.
        count: u32,
    },
    /// The shim reported an error.
    ErrorReported {
        /// The attempt.
        attempt: AttemptRef,
        /// The ACP error code.
        code: String,
        /// The error message.
        message: String,
    },
    /// Work that did not land was saved under a ref.
    Salvaged {
        /// The attempt.
        attempt: AttemptRef,
        /// The name of the ref.
        reference: String,
    },
    /// A work folder could not be salvaged completely and is kept in the work volume.
    WorkKept {
        /// The attempt.
        attempt: AttemptRef,
        /// The folder's name in the volume.
        folder: String,
        /// Whether part of it is under a ref.
        partly: bool,
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
    EngineBack,
    /// The swarm cannot continue.
    MachineryFailed {
        /// The cause of the failure.
        failure: FailureInfo,
    },
    /// The swarm ended. The last event.
    SwarmEnded {
        /// `landed`, `some_failed`, `machinery_failed`, `suspended` or `interrupted`.
        #[schemars(with = "String")]
        outcome: SwarmOutcome,
        /// The exit code of the outcome.
        exit_code: u8,
        /// Stories that landed.
        landed: usize,
        /// Stories that did not land.
        failed: usize,
        /// Stories that were skipped.
        skipped: usize,
        /// Stories without an outcome.
        pending: usize,
    },
}

/// The wire form of an announcement.
pub fn event_body(names: &StoryLabels, announcement: &Announcement) -> EventBody {
    use Announcement as A;
    let label = |story| names.label(story).to_owned();
    match announcement {
        A::SwarmStarted { stories, done, assignments, max_sandboxes: max } => {
            EventBody::SwarmStarted { stories: *stories, done: *done, assignments: *assignments, max: *max }
        }
        A::SwarmResumed { stories, done, running } => {
            EventBody::SwarmResumed { stories: *stories, done: *done, running: *running }
        }
        A::SandboxStarting { attempt: id, stories } => {
            EventBody::SandboxStarting { attempt: attempt_ref(id), stories: stories.iter().map(label).collect() }
        }
        A::StartDelayed { attempt: id, reason } => {
            EventBody::StartHeld { attempt: attempt_ref(id), reason: reason.clone() }
        }
        A::SandboxPaused { attempt: id, container } => {
            EventBody::SandboxPaused { attempt: attempt_ref(id), container: container.clone() }
        }
        A::SandboxStarted { attempt: id, container } => {
            EventBody::SandboxStarted { attempt: attempt_ref(id), container: container.to_string() }
        }
        A::SandboxEnded { attempt: id, exit } => {
            let ContainerExit { code, oom_killed, vanished, engine_lost: _, error, stderr_tail: tail } = exit.clone();
            EventBody::SandboxEnded { attempt: attempt_ref(id), exit_code: code, oom_killed, vanished, error, tail }
        }
        A::StoryStarted { story, attempt: id } => EventBody::StoryStarted {
            story: label(story),
            title: names.title(story).to_owned(),
            attempt: attempt_ref(id),
        },
        A::StoryProgress { story, text } => EventBody::StoryProgress { story: label(story), text: text.clone() },
        A::StoryFinished { story } => EventBody::StoryFinished { story: label(story) },
        A::StoryLanded { story, commit, head, duration } => EventBody::StoryLanded {
            story: label(story),
            commit: commit.to_string(),
            head: head.to_string(),
            duration_ms: to_millis(*duration),
        },
        A::StoryRetried { story, failure, next_attempt: next, delay: after } => EventBody::StoryRetried {
            story: label(story),
            failure: failure_info(failure),
            next: *next,
            after_ms: to_millis(*after),
        },
        A::StoryFailed { story, failure, attempts } => {
            EventBody::StoryFailed { story: label(story), failure: failure_info(failure), attempts: *attempts }
        }
        A::StorySkipped { story, blocked_by: because } => {
            EventBody::StorySkipped { story: label(story), because: label(because) }
        }
        A::ReviewStarted { attempt: id, stories, round } => EventBody::ReviewStarted {
            attempt: attempt_ref(id),
            stories: stories.iter().map(label).collect(),
            round: *round,
        },
        A::ReviewEnded { attempt: id, stories, decision, confidence, issues, reject_count: rejects } => {
            EventBody::ReviewEnded {
                attempt: attempt_ref(id),
                stories: stories.iter().map(label).collect(),
                decision: *decision,
                confidence: *confidence,
                issues: *issues,
                rejects: *rejects,
            }
        }
        A::Escalated { message, stories, escalation } => EventBody::Escalated {
            message: message.to_string(),
            task: message.task_id().to_string(),
            stories: stories.iter().map(label).collect(),
            escalation: escalation.escalation_type,
            severity: escalation.severity,
            description: escalation.description.clone(),
            suggested_actions: escalation.suggested_actions.clone(),
            auto_suspended: escalation.auto_suspended,
        },
        A::DecisionApplied { task, action, by } => {
            EventBody::Decided { task: task.to_string(), action: action.clone(), by: by.clone() }
        }
        A::NotifyFailed { problem } => EventBody::NotifyFailed { problem: problem.clone() },
        A::MemoryDamaged { problem } => EventBody::MemoryDamaged { problem: problem.clone() },
        A::RecordRefused { attempt: id, reason, count } => {
            EventBody::RecordRefused { attempt: attempt_ref(id), reason: reason.clone(), count: *count }
        }
        A::ErrorReported { attempt: id, code, message } => {
            EventBody::ErrorReported { attempt: attempt_ref(id), code: code.clone(), message: message.clone() }
        }
        A::Salvaged { attempt: id, reference } => {
            EventBody::Salvaged { attempt: attempt_ref(id), reference: reference.clone() }
        }
        A::WorkDirKept { attempt: id, work_dir: folder, partly_salvaged: partly } => {
            EventBody::WorkKept { attempt: attempt_ref(id), folder: folder.clone(), partly: *partly }
        }
        A::Stopping { level, by } => EventBody::Stopping { level: *level, by: by.clone() },
        A::EngineLost { problem } => EventBody::EngineLost { problem: problem.clone() },
        A::EngineReconnected => EventBody::EngineBack,
        A::MachineryFailed { failure } => EventBody::MachineryFailed { failure: failure_info(failure) },
        A::SwarmEnded { outcome, landed, failed, skipped, pending } => EventBody::SwarmEnded {
            outcome: *outcome,
            exit_code: outcome.exit_code(),
            landed: *landed,
            failed: *failed,
            skipped: *skipped,
            pending: *pending,
        },
    }
}

fn attempt_ref(id: &AttemptId) -> AttemptRef {
    AttemptRef { assignment: id.assignment.to_string(), number: id.number }
}

fn failure_info(failure: &Failure) -> FailureInfo {
    let Failure { cause, evidence, salvage } = failure.clone();
    FailureInfo { cause, evidence, salvage }
}

fn to_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
