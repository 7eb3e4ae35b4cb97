//! What a reviewer's attempt is given and gives back: [`ReviewAssignment`] in its `assignment.json`, and [`ReviewFile`], which is
//! its `out/result.json`.
//!
//! The first is written by `coordinator/` and read by the shim; the second the other way round, and on the host it is
//! hostile input: size-limited, strictly typed, its verdict read again by AMP's rules, its fix looked at by git.

use serde::{Deserialize, Serialize};

use super::assignment::AgentSpec;
use crate::ids::{AttemptId, CommitId, SwarmId};
use crate::protocol::amp::message::{ReviewRequest, ReviewVerdict, TaskDispatch, TaskResult};
use crate::verdict::{Failure, StoryLogEntry};

/// The version of [`ReviewFile`] that this build writes and reads.
pub const REVIEW_VERSION: u32 = 1;
/// The most bytes of a verdict file that are read.
pub const MAX_VERDICT_BYTES: u64 = 1024 * 1024;

/// What is to be reviewed, and with what in mind. The commit under review is the assignment's `base` too: the clone is
/// checked out at it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReviewAssignment {
    /// What the diff is against.
    pub base: CommitId,
    /// The commit under review. A verdict counts for it alone.
    pub commit: CommitId,
    /// What the executor was asked to do.
    pub dispatch: TaskDispatch,
    /// How the executor sees what it did; of several stories, the newest.
    pub result: TaskResult,
    /// The same of each story, in their order.
    pub results: Vec<TaskResult>,
    /// What the coordinator asks.
    pub request: ReviewRequest,
    /// What the verdict must answer, one by one: the dispatch's acceptance criteria, then the config's.
    pub criteria: Vec<String>,
    /// The verdicts of earlier rounds of this task, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(rename = "earlier")]
    pub earlier_verdicts: Vec<ReviewVerdict>,
    /// What the admin said about this task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guidance: Vec<String>,
    /// The reviewer.
    pub agent: AgentSpec,
}

/// What came of a review. It has a verdict, or a failure that says why not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReviewFile {
    /// [`REVIEW_VERSION`].
    pub schema_version: u32,
    /// The swarm.
    pub swarm_id: SwarmId,
    /// The attempt.
    pub attempt: AttemptId,
    /// The commit that was reviewed.
    pub commit: CommitId,
    /// The verdict as the reviewer wrote it: AMP's `review_verdict` payload, to be read by AMP's rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<serde_json::Value>,
    /// Why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// With `approved_with_fix`: the commit that has the fix, on top of the one under review. In the bundle it is the assigned
    /// branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<CommitId>,
    /// Whether there is a bundle: where there is a fix, and only there.
    pub bundle: bool,
    /// What was done, from the progress updates; at most 200 entries.
    #[serde(default)]
    pub work_log: Vec<StoryLogEntry>,
    /// How long it took, in milliseconds.
    #[serde(default)]
    pub duration_ms: u64,
}
