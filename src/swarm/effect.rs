//! What the machine wants done. Imperative. [`Effect::Persist`], where it is there, is the first of its batch: the
//! coordinator makes the event durable before it carries out what follows.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{AssignmentId, AttemptId, CommitId, ContainerId, StoryKey};
use crate::protocol::amp::message::{Escalation, MsgId, ReviewDecision};
use crate::swarm::amp_intent::{AmpIntent, ReviewSpec};
use crate::swarm::event::{ContainerExit, StopLevel};
use crate::verdict::Failure;

/// An effect.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Append the event just handled to the journal and sync it.
    Persist,
    /// Make a sandbox and run it.
    Start {
        /// The attempt.
        attempt: AttemptId,
        /// The stories still to do, in order, each with what went wrong the time before.
        stories: Vec<(StoryKey, Option<String>)>,
        /// What the admin said about them.
        guidance: Vec<String>,
        /// Where its branch starts.
        base: CommitId,
    },
    /// Make a reviewer's sandbox and run it.
    StartReview {
        /// The reviewer's attempt.
        attempt: AttemptId,
        /// What it is to review.
        review: Box<ReviewSpec>,
    },
    /// Freeze the sandbox: it is suspended until the admin decides.
    Pause {
        /// The attempt.
        attempt: AttemptId,
    },
    /// Let it go on.
    Unpause {
        /// The attempt.
        attempt: AttemptId,
    },
    /// Say this in AMP.
    SendAmp(Box<AmpIntent>),
    /// SIGTERM.
    Terminate {
        /// The attempt.
        attempt: AttemptId,
    },
    /// SIGKILL.
    Kill {
        /// The attempt.
        attempt: AttemptId,
    },
    /// See what the engine shows of it, and give [`Event::SandboxInspected`](super::Event::SandboxInspected).
    Inspect {
        /// The attempt.
        attempt: AttemptId,
    },
    /// Get the result, or what there is, out of the work folder and onto the host.
    Collect {
        /// The attempt.
        attempt: AttemptId,
        /// What to expect.
        mode: CollectMode,
    },
    /// Merge the tip onto the integration branch of `file`. One at a time for a branch.
    Merge {
        /// The attempt.
        attempt: AttemptId,
        /// Which file's branch.
        file: u16,
        /// The head that the machine knows.
        onto: CommitId,
        /// What to merge.
        tip: CommitId,
        /// The stories that it lands.
        stories: Vec<StoryKey>,
    },
    /// Remove the container, and the work folder unless `keep_work`.
    Remove {
        /// The attempt.
        attempt: AttemptId,
        /// Salvage did not get all of it: the folder is kept, and named to the user.
        keep_work_dir: bool,
    },
    /// Tell the user.
    Announce(Announcement),
    /// The swarm is over.
    Finish(SwarmOutcome),
}

/// What to expect in a work folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CollectMode {
    /// The shim said `completion`: there is a result.
    Result,
    /// The shim died: there may be a result; if not, the depot salvages.
    Salvage,
}

/// How the swarm ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SwarmOutcome {
    /// Every story landed, or was done before.
    Landed,
    /// Some story did not, by its own doing.
    SomeFailed,
    /// Some story did not, by the machinery's doing.
    MachineryFailed,
    /// What is left waits for the admin; can be resumed.
    Suspended,
    /// Stopped; can be resumed.
    Interrupted,
}

impl SwarmOutcome {
    /// The exit code (README, "Exit codes").
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

/// What the user is told. Also the body of a `--json` event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Announcement {
    /// The first.
    SwarmStarted {
        /// Stories to run.
        stories: usize,
        /// Stories done before.
        done: usize,
        /// Assignments.
        assignments: usize,
        /// At once.
        #[serde(rename = "max")]
        max_sandboxes: usize,
    },
    /// The first of an orchestrator that took the swarm up again.
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
        /// Which attempt.
        attempt: AttemptId,
        /// Its stories.
        stories: Vec<StoryKey>,
    },
    /// A sandbox is not started yet: the engine is short of memory or disk.
    #[serde(rename = "start_held")]
    StartDelayed {
        /// Which attempt.
        attempt: AttemptId,
        /// What is short.
        reason: String,
    },
    /// A sandbox's container is paused, and not by longshore.
    SandboxPaused {
        /// Which attempt.
        attempt: AttemptId,
        /// The container's name.
        container: String,
    },
    /// A sandbox runs.
    SandboxStarted {
        /// Which attempt.
        attempt: AttemptId,
        /// Its container.
        container: ContainerId,
    },
    /// A sandbox ended.
    SandboxEnded {
        /// Which attempt.
        attempt: AttemptId,
        /// How.
        exit: ContainerExit,
    },
    /// A story began.
    StoryStarted {
        /// Which.
        story: StoryKey,
        /// In which attempt.
        attempt: AttemptId,
    },
    /// A story's newest words.
    StoryProgress {
        /// Which.
        story: StoryKey,
        /// The words.
        text: String,
    },
    /// The sandbox says that the story is finished; it has not landed yet.
    StoryFinished {
        /// Which.
        story: StoryKey,
    },
    /// A story is on the integration branch.
    StoryLanded {
        /// Which.
        story: StoryKey,
        /// The story's commit.
        commit: CommitId,
        /// The integration branch's head.
        head: CommitId,
        /// In the sandbox.
        duration: Duration,
    },
    /// A story did not land and will be tried again.
    StoryRetried {
        /// Which.
        story: StoryKey,
        /// Why.
        failure: Failure,
        /// The next attempt's number.
        #[serde(rename = "next")]
        next_attempt: u32,
        /// The wait before it.
        #[serde(rename = "after")]
        delay: Duration,
    },
    /// A story did not land, for good.
    StoryFailed {
        /// Which.
        story: StoryKey,
        /// Why.
        failure: Failure,
        /// Tries.
        attempts: u32,
    },
    /// A story will not be run.
    StorySkipped {
        /// Which.
        story: StoryKey,
        /// The story that did not land.
        #[serde(rename = "because")]
        blocked_by: StoryKey,
    },
    /// A review began.
    ReviewStarted {
        /// The reviewer's attempt.
        attempt: AttemptId,
        /// The stories under review.
        stories: Vec<StoryKey>,
        /// The first is 1.
        round: u32,
    },
    /// A review is over.
    ReviewEnded {
        /// The reviewer's attempt.
        attempt: AttemptId,
        /// The stories under review.
        stories: Vec<StoryKey>,
        /// The verdict's word.
        decision: ReviewDecision,
        /// How sure the reviewer is.
        confidence: f64,
        /// How many things it found wrong.
        issues: usize,
        /// How often the task was rejected so far, this time included.
        #[serde(rename = "rejects")]
        reject_count: u32,
    },
    /// Somebody cannot go on alone.
    Escalated {
        /// The message.
        message: MsgId,
        /// Its stories.
        stories: Vec<StoryKey>,
        /// What it says.
        escalation: Box<Escalation>,
    },
    /// The admin's decision was taken in.
    #[serde(rename = "decided")]
    DecisionApplied {
        /// About which task.
        task: AssignmentId,
        /// The word.
        action: String,
        /// Who decided.
        by: String,
    },
    /// Somebody could not be told of an escalation. Said by the coordinator, once.
    NotifyFailed {
        /// Who, and why.
        problem: String,
    },
    /// What an earlier swarm learned cannot be read. Said by the coordinator.
    MemoryDamaged {
        /// Where, and why.
        problem: String,
    },
    /// A bad record.
    RecordRefused {
        /// From which attempt.
        attempt: AttemptId,
        /// Which rule.
        reason: String,
        /// How many from this sandbox so far.
        count: u32,
    },
    /// The shim reported an error of its own.
    ErrorReported {
        /// From which attempt.
        attempt: AttemptId,
        /// ACP's code.
        code: String,
        /// The words.
        message: String,
    },
    /// Work that did not land is kept here.
    Salvaged {
        /// Of which attempt.
        attempt: AttemptId,
        /// The ref.
        reference: String,
    },
    /// A work folder could not be salvaged, or not all of it, and is kept in the work volume.
    #[serde(rename = "work_kept")]
    WorkDirKept {
        /// Which.
        attempt: AttemptId,
        /// Its folder in the work volume.
        #[serde(rename = "folder")]
        work_dir: String,
        /// Some of it is under a ref.
        #[serde(rename = "partly")]
        partly_salvaged: bool,
    },
    /// A stop began.
    Stopping {
        /// How hard.
        level: StopLevel,
        /// Who.
        by: String,
    },
    /// The engine cannot be reached; nothing is started until it can.
    EngineLost {
        /// Why.
        problem: String,
    },
    /// It can be reached again.
    #[serde(rename = "engine_back")]
    EngineReconnected,
    /// Nothing can go on.
    MachineryFailed {
        /// The words.
        failure: Failure,
    },
    /// The last.
    SwarmEnded {
        /// How.
        outcome: SwarmOutcome,
        /// On the integration branch, earlier ones included.
        landed: usize,
        /// Not.
        failed: usize,
        /// Not run.
        skipped: usize,
        /// Not decided (interrupted).
        pending: usize,
    },
}

impl Announcement {
    /// The assignment that it is about, where it is about one.
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
