//! What a check sandbox receives and returns: [`CheckAssignment`] in its `assignment.json`, and [`CheckFile`], its `out/result.json`.
//!
//! No agent ever runs in a check sandbox: it makes a fresh clone of one commit and runs the checks there. `coordinator/` writes the
//! first and reads the second; the shim does the reverse. On the host, a [`CheckFile`] is hostile input all the same: a check runs
//! code of the commit.

use serde::{Deserialize, Serialize};

use crate::ids::{AttemptId, CommitId, StoryId, SwarmId};
use crate::verdict::{CriterionResult, Failure};

/// The version of [`CheckFile`] that this build writes and reads.
pub const CHECK_VERSION: u32 = 1;

/// What to check. The commit is also the assignment's `base`: the clone is made at it.
///
/// The checks are the verify commands of the tasks file and of the assignment, once, and then the criteria and verify commands of
/// each assigned story.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CheckAssignment {
    /// The commit to check.
    pub commit: CommitId,
    /// Shared verify commands that failed before anything was changed. Their failure is recorded, and is none of the commit's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerated: Vec<String>,
}

/// The outcome of a check sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CheckFile {
    /// [`CHECK_VERSION`].
    pub schema_version: u32,
    /// The swarm.
    pub swarm_id: SwarmId,
    /// The check's attempt.
    pub attempt: AttemptId,
    /// The commit.
    pub commit: CommitId,
    /// Each check that ran, in their order.
    pub checks: Vec<CheckRun>,
    /// Each assigned story, in their order, with its criteria.
    pub stories: Vec<CheckedStory>,
    /// Why the commit did not pass: the first check that failed, or what kept the checks from running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// The story whose own check failed; `None` if it was a check that all stories share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_story: Option<StoryId>,
    /// How long all checks took, in milliseconds.
    #[serde(default)]
    pub duration_ms: u64,
}

/// One check that ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CheckRun {
    /// The shell command.
    pub command: String,
    /// The story that it belongs to; `None` if all stories share it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub story: Option<StoryId>,
    /// The id of the criterion that it checks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub criterion: Option<String>,
    /// Whether it exited with 0.
    pub passed: bool,
    /// How long it took, in milliseconds.
    #[serde(default)]
    pub duration_ms: u64,
}

/// A story of the checked commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CheckedStory {
    /// The story's id in the tasks file.
    pub id: StoryId,
    /// Which acceptance criteria are met.
    #[serde(default)]
    pub criteria: Vec<CriterionResult>,
}
