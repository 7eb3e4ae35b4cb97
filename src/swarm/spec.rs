//! The plan, reduced to what the machine's decisions need. The journal's first record has it, so that a replay starts with the
//! same machine.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{AssignmentId, BranchName, CommitId, StoryKey, SwarmId};
use crate::protocol::amp::message::AmpMessageType;
use crate::swarm::announcement::StoryRef;
use crate::tasks::{DoneStatus, RiskLevel};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SwarmSpec {
    pub swarm: SwarmId,
    /// The tasks files, by [`StoryKey::file`].
    pub files: Vec<TasksFileSpec>,
    /// All stories, done ones included.
    pub stories: Vec<StorySpec>,
    /// The assignments; each story that is to run is in exactly one.
    pub assignments: Vec<AssignmentSpec>,
    pub limits: SwarmLimits,
    /// The AMP settings; `None` in journals of earlier versions, which send no AMP messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amp: Option<AmpSpec>,
    /// How finished work lands. `None` in journals of earlier versions: the checks of the agent's own sandbox count, and a slot is
    /// free once its sandbox has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub landing: Option<LandingSpec>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LandingSpec {
    /// The merged tree is checked before the branch moves. Otherwise each story's own commit is.
    pub merge_check: bool,
    /// The swarm goes on although checks fail before anything was changed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub red_base: bool,
}

impl SwarmSpec {
    /// The story with its label.
    pub fn story_ref(&self, key: &StoryKey) -> StoryRef {
        let label = match self.files.get(usize::from(key.file)) {
            Some(file) if self.files.len() > 1 => format!("{}/{}", file.slug, key.id),
            _ => key.id.to_string(),
        };
        StoryRef { key: key.clone(), label }
    }

    /// The tasks file of an assignment.
    pub fn file_of(&self, assignment: &AssignmentId) -> Option<&TasksFileSpec> {
        let assignment = self.assignments.iter().find(|one| one.id == *assignment)?;
        self.files.get(usize::from(assignment.file))
    }

    /// A tasks file that a story or an assignment refers to and that is not listed.
    pub fn unknown_file(&self) -> Option<u16> {
        let files = self.assignments.iter().map(|one| one.file).chain(self.stories.iter().map(|story| story.key.file));
        files.into_iter().find(|file| usize::from(*file) >= self.files.len())
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AmpSpec {
    /// When the swarm began, in milliseconds since 1970: ids and times of messages count from it.
    pub began_ms: u64,
    #[serde(rename = "acks")]
    pub ack_timeouts: AckTimeouts,
    /// How long an agent may write nothing to the SSOT.
    #[serde(rename = "heartbeat")]
    pub heartbeat_timeout: Duration,
    /// This many rejections lock a task. `None`: finished work lands without a review.
    #[serde(rename = "rounds", default, skip_serializing_if = "Option::is_none")]
    pub review_rounds: Option<u32>,
}

/// The ack timeouts of the four message types that require an ack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AckTimeouts {
    pub dispatch: Duration,
    pub result: Duration,
    pub request: Duration,
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
    /// The timeout of a message type; `None` for an escalation.
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

/// The default of [`AmpSpec::review_rounds`]: `reject_count > 3` locks (spec, "escalation_type reference").
pub const DEFAULT_REVIEW_ROUNDS: u32 = 4;
/// The default of [`AmpSpec::heartbeat_timeout`] (spec, "escalation_type reference").
pub const DEFAULT_HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(30 * 60);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TasksFileSpec {
    pub path: String,
    /// A name that is unique in the swarm and valid in a ref.
    pub slug: String,
    /// `metadata.title`.
    pub title: String,
    /// The integration branch. Files of one swarm may share one.
    pub branch: BranchName,
    /// The head of that branch when the swarm began.
    pub base: CommitId,
    /// There are verify commands that every landing must pass.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_verify: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StorySpec {
    pub key: StoryKey,
    pub title: String,
    /// Stories of the same file that must have landed.
    pub depends_on: Vec<StoryKey>,
    /// Done before the swarm began, and not run.
    pub done: Option<DoneStatus>,
    /// A high risk needs the admin's approval.
    pub risk: RiskLevel,
    /// It runs a command of its own instead of an agent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_command: bool,
    /// It has verify commands of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_verify: bool,
    /// The ids of its criteria that have a test command.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tested_criteria: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AssignmentSpec {
    pub id: AssignmentId,
    pub file: u16,
    pub branch: BranchName,
    /// Its stories, in an order that their dependencies allow.
    pub stories: Vec<StoryKey>,
    /// The lowest of its stories' priorities. The lowest starts first, then the order of `assignments` counts.
    pub priority: i64,
    /// Assignments that must not run at the same time, because their `touches` may overlap. Symmetric.
    #[serde(rename = "apartFrom")]
    pub exclusive_with: Vec<AssignmentId>,
}

/// The default of [`SwarmLimits::idle_timeout`].
pub const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(600);

fn default_idle_timeout() -> Duration {
    DEFAULT_IDLE_TIMEOUT
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SwarmLimits {
    /// Concurrent sandboxes, at least 1.
    #[serde(rename = "max")]
    pub max_sandboxes: usize,
    /// Retries of a story that failed because of itself.
    pub retries: u32,
    /// Retries of an assignment that failed because of the machinery.
    pub machinery_retries: u32,
    /// The wait before the first of those, doubled each time.
    pub backoff: Duration,
    /// How long one story may take. The shim enforces it; the machine adds `slack` and acts if the shim does not.
    pub story_timeout: Duration,
    /// How long a story's agent or a check may have neither output nor CPU use. The shim enforces it. Zero disables it.
    #[serde(default = "default_idle_timeout")]
    pub idle_timeout: Duration,
    /// The time added to a sandbox's stories for start, clone and bundle.
    pub slack: Duration,
    /// The time from SIGTERM to SIGKILL.
    #[serde(rename = "grace")]
    pub grace_period: Duration,
    /// The number of bad records that ends a sandbox.
    pub max_bad_records: u32,
    /// How long a sandbox may send no record. Its shim sends one every 30 s.
    #[serde(rename = "liveness", default = "default_liveness_timeout")]
    pub liveness_timeout: Duration,
}

/// Five missed records of the shim.
pub fn default_liveness_timeout() -> Duration {
    Duration::from_secs(150)
}
