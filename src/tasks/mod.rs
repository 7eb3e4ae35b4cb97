//! The tasks file: JSON with stories, their dependencies and acceptance criteria, in any of the three shapes that
//! users have, read into one.
//!
//! Bytes -> `json.rs` (a tree that remembers its places) -> `shape.rs` (which shape is it) -> `import.rs` and `field_reader.rs`
//! (tree -> [`TasksFile`], all problems at once) -> `graph.rs` (ids, dependencies, cycles, [`topological_order`]) -> `plan/`.
//! `write_back.rs` goes the other way, into the user's own shape; `excerpt.rs` makes a smaller file of some of the stories. `error.rs` has everything that can be wrong,
//! `schema.rs` the canonical shape as a JSON schema. Read by the orchestrator and, inside a sandbox, by the shim.
//! Must not: touch Docker or git, or know how stories are run.

#[cfg(feature = "orchestrator")]
mod excerpt;
mod field_reader;
mod graph;
mod import;
mod header_blocks;
mod error;
#[cfg(feature = "orchestrator")]
mod schema;
mod shape;
#[cfg(test)]
mod tests;
pub mod write_back;

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, StoryId};

pub use error::{TasksDefect, TasksError, TasksProblem};
pub use header_blocks::HeaderBlocks;

/// The largest tasks file that is read, in bytes.
pub const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;
/// The most stories that a tasks file may have: the numbers that `US-ddd` can say, from 1.
pub const MAX_STORIES: usize = 999;

/// Which of the shapes a tasks file has. Decided by what is in it, never by its version number.
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
    /// `metadata.mesh.header`: header blocks for the dispatch of every story.
    pub mesh: HeaderBlocks,
    /// `metadata.mailbox`: whether the agents have a mailbox, where the file says.
    pub mailbox: Option<bool>,
    /// The stories, in the file's order.
    pub stories: Vec<Story>,
}

impl TasksFile {
    /// Whether its agents are to have a mailbox: as it says, or else because a story says who its agent is in one.
    pub fn wants_mailbox(&self) -> bool {
        let named = || self.stories.iter().any(|story| story.mailbox != AgentIdentity::default());
        self.mailbox.unwrap_or_else(named)
    }
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
    pub done: Option<DoneStatus>,
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
    /// `mesh.header`: header blocks for its dispatch, beside those of the file.
    pub mesh: HeaderBlocks,
    /// Who its agent is in a mailbox, as far as the file says.
    pub mailbox: AgentIdentity,
}

/// A story's `mailbox`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentIdentity {
    /// `agent`: its id.
    pub agent: Option<AgentId>,
    /// `role`: in a word or two, for the roster.
    pub role: Option<String>,
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
#[cfg_attr(feature = "orchestrator", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DoneStatus {
    /// `status: completed` or `passes: true`.
    Completed,
    /// `status: skipped` or `skipped: true`.
    Skipped,
}

/// `riskLevel`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "orchestrator", derive(schemars::JsonSchema))]
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

/// Reads and checks a tasks file.
///
/// # Errors
/// All problems at once: with the file itself, or with what is in it.
pub fn read(path: &Path) -> Result<TasksFile, TasksError> {
    load(path).map(|(file, _)| file)
}

/// Reads and checks a tasks file, and gives the bytes that were read with it, so that what is planned, delivered and
/// written back is the same text.
///
/// # Errors
/// As [`read_header_blocks`].
pub fn load(path: &Path) -> Result<(TasksFile, Vec<u8>), TasksError> {
    let unreadable = |error: io::Error| {
        let defect = match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => TasksDefect::NoSuchFile,
            io::ErrorKind::IsADirectory => TasksDefect::IsADirectory,
            _ => TasksDefect::ReadFailed(error),
        };
        TasksError::for_file(path, defect)
    };
    if fs::metadata(path).map_err(unreadable)?.is_dir() {
        return Err(TasksError::for_file(path, TasksDefect::IsADirectory));
    }
    let mut bytes = Vec::new();
    // One byte more than is allowed, so that `parse` sees that it is too much; a pipe has no length to ask for.
    File::open(path).and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)).map_err(unreadable)?;
    let file = parse(&bytes, path)?;
    Ok((file, bytes))
}

/// Checks the bytes of a tasks file; `path` is for messages only.
///
/// # Errors
/// All problems with what is in it.
pub fn parse(bytes: &[u8], path: &Path) -> Result<TasksFile, TasksError> {
    import::import(bytes, path).map(|imported| imported.file)
}

/// Indices into `stories` in an order in which each comes after its dependencies; among those that could come next the
/// lowest priority number first, then the file's order. Stories in a circle, which no file that was read has, are left out.
pub fn topological_order(file: &TasksFile) -> Vec<usize> {
    graph::topological_order(file)
}

/// The canonical shape, as a JSON schema.
#[cfg(feature = "orchestrator")]
pub fn schema() -> schemars::Schema {
    schema::schema()
}
