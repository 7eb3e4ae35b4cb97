//! The errors of an engine and of the depot, in kinds that callers act on.

use std::error::Error as StdError;
use std::time::Duration;

use thiserror::Error;

use crate::handoff::depot::DepotErrorKind;

/// A failure of an engine. `operation` names the call: "starting a container".
#[derive(Debug, Error)]
pub enum EngineError {
    /// The engine does not answer, or no longer. The call may have taken effect.
    #[error("no engine answers at `{endpoint}`")]
    Unreachable { endpoint: String, source: Box<dyn StdError + Send + Sync> },
    #[error("no permission to use the engine at `{endpoint}`")]
    PermissionDenied { endpoint: String },
    /// The settings that select the engine are unusable.
    #[error("cannot tell which engine to use: {problem}")]
    InvalidSettings { problem: String },
    #[error("{operation}: `{subject}` is not there")]
    NotFound { operation: &'static str, subject: String },
    #[error("{operation}: no space left on the engine's disk")]
    DiskFull { operation: &'static str },
    #[error("{operation}: no answer from the engine within {} s", .after.as_secs())]
    TimedOut { operation: &'static str, after: Duration },
    /// Another try does not help. `status` is the HTTP status.
    #[error("{operation}: the engine refused: {message}")]
    Refused { operation: &'static str, status: u16, message: String },
    /// Another try may help.
    #[error("{operation}: the engine failed")]
    Failed { operation: &'static str, source: Box<dyn StdError + Send + Sync> },
    /// An error of the depot. `kind` is `None` if the depot did not answer: its connection closed, or the answer is invalid.
    #[error("depot, {operation}: {message}")]
    Depot { operation: &'static str, kind: Option<DepotErrorKind>, message: String },
}

impl EngineError {
    /// Whether another try may help.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::TimedOut { .. } | Self::Failed { .. })
    }

    /// Whether the engine itself did not answer.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }
}
