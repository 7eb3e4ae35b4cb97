//! `out/result.json`: what came of one attempt. Written by the shim; on the host it is hostile input: size-limited,
//! strictly typed, and nothing in it is believed that the objects do not show.

use serde::{Deserialize, Serialize};

use super::agent_notes::AgentNotes;
use crate::ids::{AttemptId, CommitId, StoryId, SwarmId};
use crate::verdict::{CriterionResult, StoryLogEntry, StoryOutcome};

/// The version that this build writes and reads.
pub const RESULT_VERSION: u32 = 1;
/// The most bytes of `result.json` that the host reads.
pub const MAX_RESULT_BYTES: u64 = 8 * 1024 * 1024;

/// The file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResultFile {
    /// [`RESULT_VERSION`].
    pub schema_version: u32,
    /// The swarm.
    pub swarm_id: SwarmId,
    /// The attempt.
    pub attempt: AttemptId,
    /// Where the branch started.
    pub base: CommitId,
    /// Where the assigned branch ends; equal to `base` where no story finished. The bundle has it unless it is
    /// equal to `base`.
    pub tip: CommitId,
    /// Whether there is a bundle: not where nothing moved and nothing was salvaged.
    pub bundle: bool,
    /// One entry for each story of the assignment, in the order they were run.
    pub stories: Vec<StoryResult>,
}

/// What came of one story.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoryResult {
    /// Which.
    pub id: StoryId,
    /// What came of it.
    pub outcome: StoryOutcome,
    /// Its criteria.
    #[serde(default)]
    pub criteria: Vec<CriterionResult>,
    /// What was done, from the progress updates; at most 200 entries.
    #[serde(default)]
    pub work_log: Vec<StoryLogEntry>,
    /// What its agent said that it learned.
    #[serde(default, skip_serializing_if = "AgentNotes::is_empty")]
    #[serde(rename = "remembered")]
    pub agent_notes: AgentNotes,
    /// The story's commits on the assigned branch, oldest first.
    #[serde(default)]
    pub commits: Vec<CommitId>,
    /// How long it took, in milliseconds, checks included.
    #[serde(default)]
    pub duration_ms: u64,
}
