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

/// A line.
#[derive(Debug, Serialize, JsonSchema)]
pub struct EventLine {
    /// [`EVENT_VERSION`].
    pub v: u32,
    /// Its place in the stream, from 1.
    pub seq: u64,
    /// When, RFC 3339.
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
    /// Which try, from 1.
    pub number: u32,
}

/// Why something did not work out.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FailureInfo {
    /// The cause.
    pub cause: Cause,
    /// The evidence for the cause.
    pub evidence: Evidence,
    /// The ref that keeps the work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub salvage: Option<String>,
}

/// What happened. Stories are named by their labels: `US-001`, or `slug/US-001` where there are several tasks files.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum EventBody {
    /// The first.
    SwarmStarted {
        /// Stories to run.
        stories: usize,
        /// Stories done before.
        done: usize,
        /// Assignments.
        assignments: usize,
        /// Sandboxes at once.
        max: usize,
    },
    /// The first after `longshore resume`.
    SwarmResumed {
        /// Stories to run.
        stories: usize,
        /// Stories that are decided, or were done before.
        done: usize,
        /// Sandboxes that went on meanwhile.
        running: usize,
    },
    /// A sandbox is being made.
    SandboxStarting {
        /// Which.
        attempt: AttemptRef,
        /// Its stories.
        stories: Vec<String>,
    },
    /// A sandbox is not started yet: the engine is short of memory or disk.
    StartHeld {
        /// Which.
        attempt: AttemptRef,
        /// What is short.
        reason: String,
    },
    /// A sandbox's container is paused, and not by longshore.
    SandboxPaused {
        /// Which.
        attempt: AttemptRef,
        /// The container's name.
        container: String,
    },
    /// A sandbox runs.
    SandboxStarted {
        /// Which.
        attempt: AttemptRef,
        /// Its container's id.
        container: String,
    },
    /// A sandbox ended.
    SandboxEnded {
        /// Which.
        attempt: AttemptRef,
        /// Null where it vanished.
        exit_code: Option<i64>,
        /// The engine's own flag.
        oom_killed: bool,
        /// It is gone from the engine.
        vanished: bool,
        /// The engine's words.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        error: String,
        /// The last lines of its stderr.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tail: Vec<String>,
    },
    /// A story began.
    StoryStarted {
        /// Which.
        story: String,
        /// Its title.
        title: String,
        /// In which sandbox.
        attempt: AttemptRef,
    },
    /// A story's progress.
    StoryProgress {
        /// Which.
        story: String,
        /// The text as the sandbox sent it.
        text: String,
    },
    /// The sandbox reported the story as finished; it has not landed.
    StoryFinished {
        /// Which.
        story: String,
    },
    /// It is on the integration branch.
    StoryLanded {
        /// Which.
        story: String,
        /// The story's commit.
        commit: String,
        /// The integration branch's head.
        head: String,
        /// In the sandbox.
        duration_ms: u64,
    },
    /// It did not land and is tried again.
    StoryRetried {
        /// Which.
        story: String,
        /// Why.
        failure: FailureInfo,
        /// The next attempt's number.
        next: u32,
        /// The wait before it.
        after_ms: u64,
    },
    /// It did not land.
    StoryFailed {
        /// Which.
        story: String,
        /// Why.
        failure: FailureInfo,
        /// Number of attempts.
        attempts: u32,
    },
    /// It will not be run.
    StorySkipped {
        /// Which.
        story: String,
        /// The story that did not land.
        because: String,
    },
    /// A review began.
    ReviewStarted {
        /// The reviewer's sandbox.
        attempt: AttemptRef,
        /// The stories under review.
        stories: Vec<String>,
        /// Which review of the task it is, from 1.
        round: u32,
    },
    /// A review is over.
    ReviewEnded {
        /// The reviewer's sandbox.
        attempt: AttemptRef,
        /// The stories under review.
        stories: Vec<String>,
        /// The verdict.
        decision: ReviewDecision,
        /// How sure the reviewer is, from 0 to 1.
        confidence: f64,
        /// How many things it found wrong.
        issues: usize,
        /// How often the task was rejected so far.
        rejects: u32,
    },
    /// An AMP escalation.
    Escalated {
        /// The message's id in the SSOT.
        message: String,
        /// The task.
        task: String,
        /// Its stories that have not landed.
        stories: Vec<String>,
        /// What kind.
        escalation: EscalationType,
        /// How bad.
        severity: EscalationSeverity,
        /// In words.
        description: String,
        /// What the admin could do.
        suggested_actions: Vec<String>,
        /// Whether the task waits for the admin.
        auto_suspended: bool,
    },
    /// A decision of the admin's was taken in.
    Decided {
        /// The task.
        task: String,
        /// The cause.
        action: String,
        /// By whom.
        by: String,
    },
    /// A notification of an escalation failed (`--notify`, `--notify-url`). The first time only.
    NotifyFailed {
        /// Who, and why.
        problem: String,
    },
    /// What an earlier swarm learned of a story cannot be read and is not passed on.
    MemoryDamaged {
        /// Where, and why.
        problem: String,
    },
    /// A record of a sandbox broke a rule.
    RecordRefused {
        /// Of which sandbox.
        attempt: AttemptRef,
        /// Which rule.
        reason: String,
        /// How many so far.
        count: u32,
    },
    /// The shim reported an error.
    ErrorReported {
        /// Of which sandbox.
        attempt: AttemptRef,
        /// ACP's code.
        code: String,
        /// Its words.
        message: String,
    },
    /// Work that did not land is kept.
    Salvaged {
        /// Of which sandbox.
        attempt: AttemptRef,
        /// The ref.
        reference: String,
    },
    /// A work folder could not be salvaged, or not all of it, and is kept in the work volume.
    WorkKept {
        /// Of which sandbox.
        attempt: AttemptRef,
        /// The folder.
        folder: String,
        /// Some of it is under a ref.
        partly: bool,
    },
    /// A stop began.
    Stopping {
        /// `graceful` or `kill`.
        #[schemars(with = "String")]
        level: StopLevel,
        /// By whom.
        by: String,
    },
    /// The engine cannot be reached; nothing is started until it can.
    EngineLost {
        /// Why.
        problem: String,
    },
    /// It can be reached again.
    EngineBack,
    /// Nothing can go on.
    MachineryFailed {
        /// Why.
        failure: FailureInfo,
    },
    /// The last.
    SwarmEnded {
        /// `landed`, `some_failed`, `machinery_failed`, `suspended` or `interrupted`.
        #[schemars(with = "String")]
        outcome: SwarmOutcome,
        /// The exit code that belongs to it.
        exit_code: u8,
        /// On the integration branch.
        landed: usize,
        /// Not.
        failed: usize,
        /// Not run.
        skipped: usize,
        /// Not decided.
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
