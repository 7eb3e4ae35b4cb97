//! What can be said in ACP: the messages as the rest of the program sees them, already checked.
//!
//! Built by [`decode`](super::decode) from a line, and turned into one by [`encode`](super::encode); both are re-exported
//! here. Used by `coordinator/` (writes task-requests, reads the rest), `shim/` (the other way round) and
//! [`machine`](super::machine). Must not: do I/O, read a clock, or know the order of messages.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ids::{BranchName, ContainerId, StoryId, SwarmId};

pub use super::decode::{decode_container, decode_task_request};
pub use super::encode::{EncodeError, encode_container, encode_task_request};
pub use super::fields::{EnvKey, EnvVars, ErrorCode, FieldError, TaskFilePath};
pub use super::urls::RepoUrl;

/// Most characters (Unicode scalar values) of `output` in a progress-update (ACP, progress-update, Validation).
pub const MAX_OUTPUT_CHARS: usize = 2000;
/// Most characters of `message` in an error (ACP, error, Validation).
pub const MAX_MESSAGE_CHARS: usize = 2000;
/// Most entries of `errors` in a completion (ACP, completion, Validation).
pub const MAX_ERRORS: usize = 50;
/// Most characters of one entry of `errors` (ACP, completion, Validation).
pub const MAX_ERROR_CHARS: usize = 500;

/// What every message carries (ACP, Message Envelope), but for its `type`, which the message itself says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// When the message was made.
    pub timestamp: Timestamp,
    /// The swarm that it belongs to.
    pub swarm_id: SwarmId,
    /// The container that sent it or is to receive it.
    pub container_id: ContainerId,
}

/// Orchestrator to container: do the stories of a tasks file (ACP, task-request).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskRequest {
    /// Where the tasks file lies, relative to the repo.
    pub task_file_path: TaskFilePath,
    /// The branch to work on.
    pub branch_name: BranchName,
    /// The remote that the clone names as `origin`.
    pub repo_url: RepoUrl,
    /// The environment of everything that the sandbox runs for a story. Its values are secrets.
    pub env_vars: EnvVars,
}

/// Container to orchestrator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContainerMessage {
    /// A story's status changed, or there is news of it.
    Progress(ProgressUpdate),
    /// The last message.
    Completion(Completion),
    /// The container itself has a problem.
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
    /// The story.
    pub story_id: StoryId,
    /// Its new status.
    pub status: StoryStatus,
    /// What happened, for people; at most [`MAX_OUTPUT_CHARS`] on the wire.
    pub output: String,
}

/// ACP, completion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// How the container ends.
    pub status: CompletionStatus,
    /// The pull request, where one was made.
    pub pr_url: Option<String>,
    /// What went wrong; at most [`MAX_ERRORS`] of [`MAX_ERROR_CHARS`] on the wire.
    pub errors: Vec<String>,
}

/// ACP, error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorReport {
    /// For programs.
    pub code: ErrorCode,
    /// For people; at most [`MAX_MESSAGE_CHARS`] on the wire.
    pub message: String,
}

/// A story's status (ACP, progress-update).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "orchestrator", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StoryStatus {
    /// Not begun.
    Pending,
    /// Being worked on.
    InProgress,
    /// Done. In `swarm-state.json`: landed on the integration branch.
    Completed,
    /// Tried, not done.
    Failed,
    /// Not tried.
    Skipped,
}

impl StoryStatus {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            StoryStatus::Pending => "pending",
            StoryStatus::InProgress => "in_progress",
            StoryStatus::Completed => "completed",
            StoryStatus::Failed => "failed",
            StoryStatus::Skipped => "skipped",
        }
    }

    /// The status that a word stands for.
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "pending" => StoryStatus::Pending,
            "in_progress" => StoryStatus::InProgress,
            "completed" => StoryStatus::Completed,
            "failed" => StoryStatus::Failed,
            "skipped" => StoryStatus::Skipped,
            _ => return None,
        })
    }
}

impl fmt::Display for StoryStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A sandbox's last word (ACP, completion).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "orchestrator", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CompletionStatus {
    /// All stories finished; some may have failed.
    Completed,
    /// The sandbox failed.
    Failed,
    /// It was stopped.
    Stopped,
}

impl CompletionStatus {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            CompletionStatus::Completed => "completed",
            CompletionStatus::Failed => "failed",
            CompletionStatus::Stopped => "stopped",
        }
    }

    /// The status that a word stands for.
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "completed" => CompletionStatus::Completed,
            "failed" => CompletionStatus::Failed,
            "stopped" => CompletionStatus::Stopped,
            _ => return None,
        })
    }
}

impl fmt::Display for CompletionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A record that breaks a rule. Data, not a fault of ours: it never ends a session.
///
/// Nothing in it comes from a value of an environment variable or from a URL that may hold credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcpViolation {
    /// The rule's name: one of [`RULES`](super::rules::RULES).
    pub rule: &'static str,
    /// Where: `payload.status`, `payload.errors[3]`; `line` where the line as a whole is wrong.
    pub field: String,
    /// What is wrong, as a fragment.
    pub problem: String,
}

impl fmt::Display for AcpViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} (rule `{}`)", self.field, self.problem, self.rule)
    }
}
