//! What the machine wants done. [`Effect::Persist`] is the first of its batch: the coordinator makes the event durable before
//! it carries out the rest.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{AssignmentId, AttemptId, CommitId, ContainerId, StoryKey};
use crate::protocol::amp::message::{Escalation, MsgId, ReviewDecision};
use crate::swarm::amp_intent::{AmpIntent, ReviewSpec};
use crate::swarm::event::{ContainerExit, StopLevel};
use crate::verdict::Failure;

#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Append the event just handled to the journal and sync it.
    Persist,
    Start {
        attempt: AttemptId,
        /// The stories to do, in order, each with its previous failure.
        stories: Vec<(StoryKey, Option<String>)>,
        guidance: Vec<String>,
        base: CommitId,
    },
    StartReview {
        attempt: AttemptId,
        review: Box<ReviewSpec>,
    },
    /// Pause the sandbox until the admin decides.
    Pause {
        attempt: AttemptId,
    },
    Unpause {
        attempt: AttemptId,
    },
    SendAmp(Box<AmpIntent>),
    /// Send SIGTERM.
    Terminate {
        attempt: AttemptId,
    },
    /// Send SIGKILL.
    Kill {
        attempt: AttemptId,
    },
    /// Inspect the container, and answer with [`Event::SandboxInspected`](super::Event::SandboxInspected).
    Inspect {
        attempt: AttemptId,
    },
    /// Bring the result, or whatever there is, from the work directory to the host.
    Collect {
        attempt: AttemptId,
        mode: CollectMode,
    },
    /// Merge the tip onto the integration branch of `file`. One at a time for a branch.
    Merge {
        attempt: AttemptId,
        /// The tasks file whose branch it is.
        file: u16,
        onto: CommitId,
        tip: CommitId,
        stories: Vec<StoryKey>,
    },
    /// Remove the container, and the work directory unless `keep_work_dir`.
    Remove {
        attempt: AttemptId,
        /// Not all of it could be salvaged: the directory stays, and the user is told its name.
        keep_work_dir: bool,
    },
    Announce(Announcement),
    Finish(SwarmOutcome),
}

/// What to expect in a work directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CollectMode {
    /// The shim reported its completion: there is a result.
    Result,
    /// The shim died: there may be a result; if there is none, the depot salvages.
    Salvage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SwarmOutcome {
    /// Every story landed, or was done before.
    Landed,
    /// Some story did not land, because of itself.
    SomeFailed,
    /// Some story did not land, because of the machinery.
    MachineryFailed,
    /// What is left waits for the admin; can be resumed.
    Suspended,
    /// Stopped; can be resumed.
    Interrupted,
}

impl SwarmOutcome {
    /// The exit code; see docs/causes.md.
    pub fn exit_code(self) -> u8 {
        match self {
            SwarmOutcome::Landed => 0,
            SwarmOutcome::SomeFailed => 1,
            SwarmOutcome::MachineryFailed => 3,
            SwarmOutcome::Suspended => 4,
            SwarmOutcome::Interrupted => 130,
        }
    }
}

/// What the user is shown. Also the body of a `--json` event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Announcement {
    SwarmStarted {
        stories: usize,
        done: usize,
        assignments: usize,
        #[serde(rename = "max")]
        max_sandboxes: usize,
    },
    SwarmResumed {
        stories: usize,
        /// The number of stories that are closed or were done before.
        done: usize,
        /// The number of sandboxes that kept running meanwhile.
        running: usize,
    },
    SandboxStarting {
        attempt: AttemptId,
        stories: Vec<StoryKey>,
    },
    /// A sandbox is not started yet: the engine is short of memory or disk.
    #[serde(rename = "start_held")]
    StartDelayed {
        attempt: AttemptId,
        reason: String,
    },
    /// A sandbox's container is paused, and not by longshore.
    SandboxPaused {
        attempt: AttemptId,
        container: String,
    },
    SandboxStarted {
        attempt: AttemptId,
        container: ContainerId,
    },
    SandboxEnded {
        attempt: AttemptId,
        exit: ContainerExit,
    },
    StoryStarted {
        story: StoryKey,
        attempt: AttemptId,
    },
    /// The newest output about a story.
    StoryProgress {
        story: StoryKey,
        text: String,
    },
    /// The sandbox reported the story as finished; it has not landed yet.
    StoryFinished {
        story: StoryKey,
    },
    /// A story is on the integration branch.
    StoryLanded {
        story: StoryKey,
        commit: CommitId,
        head: CommitId,
        /// The time that it took in the sandbox.
        duration: Duration,
    },
    /// A story did not land and is retried.
    StoryRetried {
        story: StoryKey,
        failure: Failure,
        #[serde(rename = "next")]
        next_attempt: u32,
        #[serde(rename = "after")]
        delay: Duration,
    },
    /// A story did not land, for good.
    StoryFailed {
        story: StoryKey,
        failure: Failure,
        attempts: u32,
    },
    StorySkipped {
        story: StoryKey,
        #[serde(rename = "because")]
        blocked_by: StoryKey,
    },
    ReviewStarted {
        attempt: AttemptId,
        stories: Vec<StoryKey>,
        /// The number of the review, from 1.
        round: u32,
    },
    ReviewEnded {
        attempt: AttemptId,
        stories: Vec<StoryKey>,
        decision: ReviewDecision,
        confidence: f64,
        issues: usize,
        /// How often the task was rejected so far, this review included.
        #[serde(rename = "rejects")]
        reject_count: u32,
    },
    /// Something needs attention.
    Escalated {
        message: MsgId,
        stories: Vec<StoryKey>,
        escalation: Box<Escalation>,
    },
    #[serde(rename = "decided")]
    DecisionApplied {
        task: AssignmentId,
        action: String,
        by: String,
    },
    /// A notification of an escalation failed. The coordinator announces this once.
    NotifyFailed {
        problem: String,
    },
    /// The memory of an earlier swarm cannot be read. The coordinator announces this.
    MemoryDamaged {
        problem: String,
    },
    RecordRefused {
        attempt: AttemptId,
        reason: String,
        /// The number of bad records from this sandbox so far.
        count: u32,
    },
    /// The shim reported an error of its own.
    ErrorReported {
        attempt: AttemptId,
        code: String,
        message: String,
    },
    /// A ref keeps work that did not land.
    Salvaged {
        attempt: AttemptId,
        reference: String,
    },
    /// Not all of a work directory could be salvaged; it stays in the work volume.
    #[serde(rename = "work_kept")]
    WorkDirKept {
        attempt: AttemptId,
        /// The directory's name in the work volume.
        #[serde(rename = "folder")]
        work_dir: String,
        /// A ref keeps some of it.
        #[serde(rename = "partly")]
        partly_salvaged: bool,
    },
    Stopping {
        level: StopLevel,
        by: String,
    },
    /// The engine cannot be reached; nothing starts until it can.
    EngineLost {
        problem: String,
    },
    #[serde(rename = "engine_back")]
    EngineReconnected,
    MachineryFailed {
        failure: Failure,
    },
    SwarmEnded {
        outcome: SwarmOutcome,
        /// The stories on the integration branch, earlier ones included.
        landed: usize,
        failed: usize,
        skipped: usize,
        pending: usize,
    },
}

impl Announcement {
    /// The assignment that it is about, if any.
    pub fn assignment(&self) -> Option<&AssignmentId> {
        match self {
            Announcement::SandboxStarting { attempt, .. }
            | Announcement::StartDelayed { attempt, .. }
            | Announcement::SandboxPaused { attempt, .. }
            | Announcement::SandboxStarted { attempt, .. }
            | Announcement::SandboxEnded { attempt, .. }
            | Announcement::StoryStarted { attempt, .. }
            | Announcement::ReviewStarted { attempt, .. }
            | Announcement::ReviewEnded { attempt, .. }
            | Announcement::RecordRefused { attempt, .. }
            | Announcement::ErrorReported { attempt, .. }
            | Announcement::Salvaged { attempt, .. }
            | Announcement::WorkDirKept { attempt, .. } => Some(&attempt.assignment),
            Announcement::Escalated { message, .. } => Some(message.task_id()),
            Announcement::DecisionApplied { task, .. } => Some(task),
            _ => None,
        }
    }
}
