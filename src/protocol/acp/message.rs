//! ACP's messages.

use serde::{Deserialize, Serialize};

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
