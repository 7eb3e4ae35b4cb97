//! ACP messages as values that were checked. Must not: do I/O, read a clock, or know the order of messages.

use jiff::Timestamp;

use super::fields::{EnvVars, ErrorCode, TaskFilePath};
use super::urls::RepoUrl;
use crate::ids::{BranchName, ContainerId, StoryId, SwarmId};
use crate::protocol::wire_enum::wire_enum;

/// The limit of `output` in a progress-update, in characters (Unicode scalar values).
pub const MAX_OUTPUT_CHARS: usize = 2000;
/// The limit of `message` in an error, in characters.
pub const MAX_MESSAGE_CHARS: usize = 2000;
/// The limit of `errors` in a completion, in entries.
pub const MAX_ERRORS: usize = 50;
/// The limit of an entry of `errors`, in characters.
pub const MAX_ERROR_CHARS: usize = 500;

/// What every message carries besides its `type` (ACP, Message Envelope).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    pub timestamp: Timestamp,
    pub swarm_id: SwarmId,
    /// The container that sends or receives the message.
    pub container_id: ContainerId,
}

/// Orchestrator to container: do the stories of a tasks file (ACP, task-request).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskRequest {
    pub task_file_path: TaskFilePath,
    pub branch_name: BranchName,
    /// The clone's `origin`.
    pub repo_url: RepoUrl,
    /// The environment of every command that the sandbox runs for a story. The values are secrets.
    pub env_vars: EnvVars,
}

/// Container to orchestrator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContainerMessage {
    Progress(ProgressUpdate),
    /// The last message.
    Completion(Completion),
    /// A problem of the container itself.
    Error(ErrorReport),
}

impl ContainerMessage {
    /// The value of `type`.
    pub fn kind(&self) -> &'static str {
        match self {
            ContainerMessage::Progress(_) => "progress-update",
            ContainerMessage::Completion(_) => "completion",
            ContainerMessage::Error(_) => "error",
        }
    }
}

/// ACP, progress-update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgressUpdate {
    pub story_id: StoryId,
    pub status: StoryStatus,
    /// For people; at most [`MAX_OUTPUT_CHARS`] on the wire.
    pub output: String,
}

/// ACP, completion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    pub status: CompletionStatus,
    /// The pull request, if there is one.
    pub pr_url: Option<String>,
    /// At most [`MAX_ERRORS`] of [`MAX_ERROR_CHARS`] on the wire.
    pub errors: Vec<String>,
}

/// ACP, error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorReport {
    pub code: ErrorCode,
    /// For people; at most [`MAX_MESSAGE_CHARS`] on the wire.
    pub message: String,
}

wire_enum! {
    /// A story's status (ACP, progress-update).
    pub enum StoryStatus {
        Pending = "pending",
        InProgress = "in_progress",
        /// In `swarm-state.json`: landed on the integration branch.
        Completed = "completed",
        Failed = "failed",
        Skipped = "skipped",
    }
}

wire_enum! {
    /// How a container ends (ACP, completion).
    pub enum CompletionStatus {
        /// All stories finished; some may have failed.
        Completed = "completed",
        /// The sandbox itself failed.
        Failed = "failed",
        Stopped = "stopped",
    }
}
