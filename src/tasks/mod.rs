//! The tasks file: JSON with stories, their dependencies and acceptance criteria, in any of the three shapes that
//! users have, read into one.
//!
//! Bytes -> `shape.rs` (which shape is it) -> `import.rs` (wire values -> [`TasksFile`], all problems at once)
//! -> `plan/`. `write_back.rs` goes the other way, into the user's own shape. Read by the orchestrator and, inside a
//! sandbox, by the shim. Must not: touch Docker or git, or know how stories are run.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::ids::StoryId;

/// Which of the shapes a tasks file has. Decided by what is in it, never by its version number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// `schemaVersion`, `metadata`, `userStories` with `status`.
    Canonical,
    /// The same with `passes` and `skipped` booleans (schema 2.x).
    Passes,
    /// Ralph's `prd.json`: root `project|name`, `branchName`, `description`, `userStories`.
    Ralph,
}

/// A tasks file, read and checked: ids are unique, dependencies exist and have no cycle.
#[derive(Debug, Clone, PartialEq)]
pub struct TasksFile {
    /// The path as the user typed it.
    pub path: PathBuf,
    /// What shape it was in.
    pub shape: Shape,
    /// `metadata.title`, or the Ralph shape's `project|name`.
    pub title: String,
    /// `metadata.type`: "feat", "fix", ... Empty where the shape has none.
    pub kind: String,
    /// `metadata.branchName`, as written: the plan validates it, because a flag may replace it.
    pub branch: Option<String>,
    /// `metadata.description` or the Ralph shape's `description`; goes into prompts.
    pub description: String,
    /// `metadata.maxConcurrency`, at least 1.
    pub max_concurrency: Option<usize>,
    /// `metadata.verify`: shell commands that must exit 0 after each story.
    pub verify: Vec<String>,
    /// The stories, in the file's order.
    pub stories: Vec<Story>,
}

/// One story.
#[derive(Debug, Clone, PartialEq)]
pub struct Story {
    /// `US-ddd`.
    pub id: StoryId,
    /// The id in the user's file, where it was not `US-ddd`.
    pub source_id: Option<String>,
    /// Short.
    pub title: String,
    /// May be empty.
    pub description: String,
    /// May be empty.
    pub criteria: Vec<Criterion>,
    /// Lower runs first among the ready ones. Absent in the file: the story's place, from 1.
    pub priority: i64,
    /// What the file says of it already.
    pub done: Option<Done>,
    /// Stories that must land before this one starts.
    pub depends_on: Vec<StoryId>,
    /// May be empty.
    pub notes: String,
    /// The story's own verify commands, run after those of `metadata`.
    pub verify: Vec<String>,
    /// Run this by `sh -c` instead of an agent.
    pub command: Option<String>,
    /// Globs of paths; stories whose globs may overlap do not run at the same time.
    pub touches: Vec<String>,
    /// How much approval it wants.
    pub risk: RiskLevel,
}

/// An acceptance criterion.
#[derive(Debug, Clone, PartialEq)]
pub struct Criterion {
    /// Its own id, or `AC-n` by its place from 1.
    pub id: String,
    /// What must hold.
    pub text: String,
    /// Checked by running this by `sh -c`, where there is one.
    pub test_command: Option<String>,
}

/// How a story that is not to be run again ended earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Done {
    /// `status: completed` or `passes: true`.
    Completed,
    /// `status: skipped` or `skipped: true`.
    Skipped,
}

/// `riskLevel`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RiskLevel {
    /// The default.
    #[default]
    Low,
    /// Between.
    Medium,
    /// Waits for the admin.
    High,
}
