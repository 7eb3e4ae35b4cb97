//! A tasks file as the rest of the program sees it, whatever its shape.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::header_blocks::HeaderBlocks;
use crate::ids::{AgentId, StoryId};

/// The shape of a tasks file, decided by its content, never by its version number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "orchestrator", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// `schemaVersion`, `metadata`, `userStories` with `status`.
    Canonical,
    /// The same with `passes` and `skipped` booleans (schema 2.x).
    Passes,
    /// Ralph's `prd.json`: root `project|name`, `branchName`, `description`, `userStories`.
    Ralph,
}

/// A valid tasks file: ids are unique, dependencies exist and have no cycle.
#[derive(Debug, Clone, PartialEq)]
pub struct TasksFile {
    /// As the user typed it.
    pub path: PathBuf,
    pub shape: Shape,
    /// `metadata.title`, or the Ralph shape's `project|name`.
    pub title: String,
    /// `metadata.type`: "feat", "fix", ... Empty if the shape has none.
    pub kind: String,
    /// `metadata.branchName`, not validated: a flag may replace it.
    pub branch: Option<String>,
    /// `metadata.description` or the Ralph shape's `description`; part of prompts.
    pub description: String,
    /// `metadata.maxConcurrency`, at least 1.
    pub max_concurrency: Option<usize>,
    /// `metadata.verify`: shell commands that must exit 0 after each story.
    pub verify: Vec<String>,
    /// `metadata.mesh.header`: header blocks for the dispatch of every story.
    pub mesh: HeaderBlocks,
    /// `metadata.mailbox`: whether the agents have a mailbox.
    pub mailbox: Option<bool>,
    /// In the file's order.
    pub stories: Vec<Story>,
}

impl TasksFile {
    /// Whether the agents get a mailbox: as the file says, else if a story configures its agent.
    pub fn wants_mailbox(&self) -> bool {
        let is_configured = || self.stories.iter().any(|story| story.mailbox != AgentIdentity::default());
        self.mailbox.unwrap_or_else(is_configured)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Story {
    pub id: StoryId,
    /// The id in the user's file, if it was not `US-ddd`.
    pub source_id: Option<String>,
    pub title: String,
    pub description: String,
    pub criteria: Vec<Criterion>,
    /// Lower runs first. Without one in the file: the story's position, from 1.
    pub priority: i64,
    /// The status in the file, if the story need not run.
    pub done: Option<DoneStatus>,
    pub depends_on: Vec<StoryId>,
    pub notes: String,
    /// The story's own verify commands, run after those of `metadata`.
    pub verify: Vec<String>,
    /// Run by `sh -c` instead of an agent.
    pub command: Option<String>,
    /// Globs of paths; stories whose globs may overlap do not run at the same time.
    pub touches: Vec<String>,
    pub risk: RiskLevel,
    /// `mesh.header`: header blocks for the story's dispatch, beside those of the file.
    pub mesh: HeaderBlocks,
    pub mailbox: AgentIdentity,
}

impl Story {
    /// A hash of what the story asks for. What it says about itself, such as its status or its notes, does not count.
    #[cfg(feature = "orchestrator")]
    pub fn content_hash(&self) -> String {
        use sha2::{Digest, Sha256};
        let criteria: Vec<_> =
            self.criteria.iter().map(|criterion| (&criterion.text, &criterion.test_command)).collect();
        let asked = (&self.title, &self.description, criteria, &self.verify, &self.command);
        let digest = Sha256::digest(serde_json::to_vec(&asked).expect("strings are always JSON"));
        digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// A story's `mailbox`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentIdentity {
    pub agent: Option<AgentId>,
    /// A few words for the roster.
    pub role: Option<String>,
}

/// An acceptance criterion.
#[derive(Debug, Clone, PartialEq)]
pub struct Criterion {
    /// Its own id, or `AC-n` by its position from 1.
    pub id: String,
    pub text: String,
    /// Run by `sh -c` to check the criterion.
    pub test_command: Option<String>,
}

/// The earlier end of a story that does not run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "orchestrator", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DoneStatus {
    /// `status: completed` or `passes: true`.
    Completed,
    /// `status: skipped` or `skipped: true`.
    Skipped,
}

/// `riskLevel`: how much approval a story needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "orchestrator", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RiskLevel {
    #[default]
    Low,
    Medium,
    /// Waits for the admin.
    High,
}
