//! `out/result.json`: the outcome of one attempt. The shim writes it. On the host it is hostile input: its size is limited, its types
//! are strict, and every claim in it is checked against the objects.

use serde::{Deserialize, Serialize};

use super::agent_notes::AgentNotes;
use crate::ids::{AttemptId, CommitId, StoryId, SwarmId};
use crate::verdict::{CriterionResult, StoryLogEntry, StoryOutcome};

/// The version that this build writes and reads.
pub const RESULT_VERSION: u32 = 1;
/// The largest `result.json` that the host reads.
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
    /// The commit at which the branch started.
    pub base: CommitId,
    /// The head of the assigned branch; equal to `base` if no story finished. The bundle contains it unless it equals `base`.
    pub tip: CommitId,
    /// Whether there is a bundle. There is none if the branch did not move and nothing was salvaged.
    pub bundle: bool,
    /// One entry for each story of the assignment, in the order in which they ran.
    pub stories: Vec<StoryResult>,
}

/// The result of one story.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoryResult {
    /// The story's id in the tasks file.
    pub id: StoryId,
    /// How the story ended.
    pub outcome: StoryOutcome,
    /// Which acceptance criteria are met.
    #[serde(default)]
    pub criteria: Vec<CriterionResult>,
    /// The progress updates; at most 200.
    #[serde(default)]
    pub work_log: Vec<StoryLogEntry>,
    /// What the agent asked to remember.
    #[serde(default, skip_serializing_if = "AgentNotes::is_empty")]
    #[serde(rename = "remembered")]
    pub agent_notes: AgentNotes,
    /// The story's commits on the assigned branch, oldest first.
    #[serde(default)]
    pub commits: Vec<CommitId>,
    /// How long the story took with its checks, in milliseconds.
    #[serde(default)]
    pub duration_ms: u64,
}

impl StoryResult {
    /// The result of a story that did not run.
    pub fn not_run(id: StoryId, outcome: StoryOutcome) -> Self {
        Self {
            id,
            outcome,
            criteria: Vec::new(),
            work_log: Vec::new(),
            commits: Vec::new(),
            duration_ms: 0,
            agent_notes: AgentNotes::default(),
        }
    }
}
