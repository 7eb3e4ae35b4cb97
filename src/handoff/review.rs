//! What a reviewer's attempt receives and returns: [`ReviewAssignment`] in its `assignment.json`, and [`ReviewFile`], its
//! `out/result.json`.
//!
//! `coordinator/` writes the first and reads the second; the shim does the reverse. On the host, a [`ReviewFile`] is hostile input:
//! its size is limited, its types are strict, its verdict is parsed again by AMP's rules, and git examines its fix.

use serde::{Deserialize, Serialize};

use super::agent_spec::AgentSpec;
use crate::ids::{AttemptId, CommitId, SwarmId};
use crate::protocol::amp::message::{ReviewRequest, ReviewVerdict, TaskDispatch, TaskResult};
use crate::verdict::{Failure, StoryLogEntry};

/// The version of [`ReviewFile`] that this build writes and reads.
pub const REVIEW_VERSION: u32 = 1;
/// The largest verdict file that the shim reads.
pub const MAX_VERDICT_BYTES: u64 = 1024 * 1024;

/// What to review, and with what context. The commit under review is also the assignment's `base`: the clone is checked out at it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReviewAssignment {
    /// The commit that the diff is against.
    pub base: CommitId,
    /// The commit under review. A verdict counts for this commit only.
    pub commit: CommitId,
    /// The executor's task.
    pub dispatch: TaskDispatch,
    /// The executor's own assessment; the newest one if there are several stories.
    pub result: TaskResult,
    /// The assessment of each story, in their order.
    pub results: Vec<TaskResult>,
    /// The coordinator's request.
    pub request: ReviewRequest,
    /// The criteria that the verdict must answer one by one: the dispatch's acceptance criteria, then the config's.
    pub criteria: Vec<String>,
    /// The verdicts of earlier rounds of this task, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(rename = "earlier")]
    pub earlier_verdicts: Vec<ReviewVerdict>,
    /// The admin's comments on this task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guidance: Vec<String>,
    /// The reviewer.
    pub agent: AgentSpec,
}

/// The outcome of a review: a verdict, or a failure that says why there is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReviewFile {
    /// [`REVIEW_VERSION`].
    pub schema_version: u32,
    /// The swarm.
    pub swarm_id: SwarmId,
    /// The reviewer's attempt.
    pub attempt: AttemptId,
    /// The reviewed commit.
    pub commit: CommitId,
    /// The verdict as the reviewer wrote it: AMP's `review_verdict` payload, not yet checked by AMP's rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<serde_json::Value>,
    /// Why there is no verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// With `approved_with_fix`: the commit with the fix, on top of the reviewed one. In the bundle, the assigned branch points to
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<CommitId>,
    /// Whether there is a bundle, which is whether there is a fix.
    pub bundle: bool,
    /// The progress updates; at most 200.
    #[serde(default)]
    pub work_log: Vec<StoryLogEntry>,
    /// How long the review took, in milliseconds.
    #[serde(default)]
    pub duration_ms: u64,
}
