//! What the machine knows from the start: the plan, cut down to what decisions need. Serialised into the journal's first
//! record, so that the same machine can be made again.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{AssignmentId, BranchName, CommitId, StoryKey, SwarmId};
use crate::protocol::amp::message::AmpMessageType;
use crate::tasks::{DoneStatus, RiskLevel};

/// The whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SwarmSpec {
    /// The swarm.
    pub swarm: SwarmId,
    /// The tasks files, by [`StoryKey::file`].
    pub files: Vec<TasksFileSpec>,
    /// Every story, done ones included.
    pub stories: Vec<StorySpec>,
    /// The assignments, each story that is to run in exactly one.
    pub assignments: Vec<AssignmentSpec>,
    /// How much at once, how often, how long.
    pub limits: SwarmLimits,
    /// What is said in AMP; none for the journals of before, which say nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amp: Option<AmpSpec>,
}

/// What the machine needs to speak AMP.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AmpSpec {
    /// When the swarm began, in milliseconds since 1970: ids and times of messages count from it.
    pub began_ms: u64,
    /// How long acks may take.
    #[serde(rename = "acks")]
    pub ack_timeouts: AckTimeouts,
    /// How long an agent may write nothing to the SSOT.
    #[serde(rename = "heartbeat")]
    pub heartbeat_timeout: Duration,
    /// Finished work is reviewed before it lands; so many rejections lock a task. None: no review.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "rounds")]
    pub review_rounds: Option<u32>,
}

/// How long the acks of the four types that require one may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AckTimeouts {
    /// Of a `task_dispatch`.
    pub dispatch: Duration,
    /// Of a `task_result`.
    pub result: Duration,
    /// Of a `review_request`.
    pub request: Duration,
    /// Of a `review_verdict`.
    pub verdict: Duration,
}

impl Default for AckTimeouts {
    fn default() -> Self {
        let of = |kind: AmpMessageType| kind.ack_timeout().unwrap_or_default();
        Self {
            dispatch: of(AmpMessageType::TaskDispatch),
            result: of(AmpMessageType::TaskResult),
            request: of(AmpMessageType::ReviewRequest),
            verdict: of(AmpMessageType::ReviewVerdict),
        }
    }
}

impl AckTimeouts {
    /// That of this type; none for an escalation.
    pub fn for_kind(&self, kind: AmpMessageType) -> Option<Duration> {
        match kind {
            AmpMessageType::TaskDispatch => Some(self.dispatch),
            AmpMessageType::TaskResult => Some(self.result),
            AmpMessageType::ReviewRequest => Some(self.request),
            AmpMessageType::ReviewVerdict => Some(self.verdict),
            AmpMessageType::Escalation => None,
        }
    }
}

/// [`AmpSpec::review_rounds`] where nobody said: `reject_count > 3` locks (spec, "escalation_type reference").
pub const DEFAULT_REVIEW_ROUNDS: u32 = 4;
/// [`AmpSpec::heartbeat_timeout`] where nobody said (spec, "escalation_type reference").
pub const DEFAULT_HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// A tasks file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TasksFileSpec {
    /// As typed.
    pub path: String,
    /// A word for it that is unique in the swarm and fit for a ref name.
    pub slug: String,
    /// `metadata.title`.
    pub title: String,
    /// The integration branch. Files of one swarm may share one.
    pub branch: BranchName,
    /// Its head when the swarm began.
    pub base: CommitId,
}

/// A story.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StorySpec {
    /// Which.
    pub key: StoryKey,
    /// For people.
    pub title: String,
    /// Stories of the same file that must have landed.
    pub depends_on: Vec<StoryKey>,
    /// Done before the swarm began, and not run.
    pub done: Option<DoneStatus>,
    /// Approval wanted.
    pub risk: RiskLevel,
}

/// An assignment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AssignmentSpec {
    /// Which.
    pub id: AssignmentId,
    /// Its tasks file.
    pub file: u16,
    /// The branch that its sandboxes work on.
    pub branch: BranchName,
    /// Its stories, in an order that their dependencies allow.
    pub stories: Vec<StoryKey>,
    /// The best of its stories' priorities; lower starts first, then the order of `assignments`.
    pub priority: i64,
    /// Assignments that must not run while this one does, because their `touches` may overlap. Symmetric.
    #[serde(rename = "apartFrom")]
    pub exclusive_with: Vec<AssignmentId>,
}

/// [`SwarmLimits::idle_timeout`] where nobody said.
pub const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(600);

fn default_idle_timeout() -> Duration {
    DEFAULT_IDLE_TIMEOUT
}

/// Numbers that the user can set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SwarmLimits {
    /// Sandboxes at once, at least 1.
    #[serde(rename = "max")]
    pub max_sandboxes: usize,
    /// More tries for a story that failed by its own doing.
    pub retries: u32,
    /// More tries for an assignment that the machinery failed.
    pub machinery_retries: u32,
    /// The wait before the first of those, doubled each time.
    pub backoff: Duration,
    /// How long one story may take. The shim keeps it; the machine adds `slack` and acts when the shim does not.
    pub story_timeout: Duration,
    /// How long a story's agent or a check may do nothing: no output, no CPU use. The shim looks. Zero: for ever.
    #[serde(default = "default_idle_timeout")]
    pub idle_timeout: Duration,
    /// What the machine adds to a sandbox's time for start, clone and bundle.
    pub slack: Duration,
    /// From the polite signal to the kill.
    #[serde(rename = "grace")]
    pub grace_period: Duration,
    /// Bad records after which a sandbox is ended.
    pub max_bad_records: u32,
    /// How long a sandbox may say nothing at all. Its shim says something every 30 s.
    #[serde(default = "default_liveness_timeout")]
    #[serde(rename = "liveness")]
    pub liveness_timeout: Duration,
}

/// Five words of the shim missed.
pub fn default_liveness_timeout() -> Duration {
    Duration::from_secs(150)
}
