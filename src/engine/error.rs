//! What an engine can answer instead of what was asked.

use thiserror::Error;

/// An engine's failure, in kinds that callers act on.
#[derive(Debug, Error)]
pub enum EngineError {
    /// Nobody answers there, or nobody does any more: what was asked may have been done or not.
    #[error("no engine answers at `{endpoint}`")]
    Unreachable {
        /// Where.
        endpoint: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Somebody is there, and does not let us in.
    #[error("no permission to use the engine at `{endpoint}`")]
    PermissionDenied {
        /// Where.
        endpoint: String,
    },
    /// The settings that say where the engine is cannot be used.
    #[error("cannot tell which engine to use: {problem}")]
    InvalidSettings {
        /// What is wrong with which setting.
        problem: String,
    },
    /// What it is about is not there.
    #[error("{operation}: `{subject}` is not there")]
    NotFound {
        /// What was tried.
        operation: &'static str,
        /// On what.
        subject: String,
    },
    /// No space left on the engine's side.
    #[error("{operation}: no space left on the engine's disk")]
    DiskFull {
        /// What was tried.
        operation: &'static str,
    },
    /// It did not answer in time.
    #[error("{operation}: no answer from the engine within {} s", .after.as_secs())]
    TimedOut {
        /// What was tried.
        operation: &'static str,
        /// How long it was waited for.
        after: std::time::Duration,
    },
    /// It refused: trying the same again does not help.
    #[error("{operation}: the engine refused: {message}")]
    Refused {
        /// What was tried.
        operation: &'static str,
        /// HTTP status.
        status: u16,
        /// Its words.
        message: String,
    },
    /// It failed: trying again may help.
    #[error("{operation}: the engine failed")]
    Failed {
        /// What was tried.
        operation: &'static str,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The depot said no, or its stream ended.
    #[error("depot, {operation}: {message}")]
    Depot {
        /// What was tried.
        operation: &'static str,
        /// What kind, where the depot itself answered.
        kind: Option<crate::handoff::depot::DepotErrorKind>,
        /// Its words.
        message: String,
    },
}

impl EngineError {
    /// Whether trying the same again may help.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::TimedOut { .. } | Self::Failed { .. })
    }

    /// Whether the engine itself did not answer, as against one that answered with an error.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }
}
