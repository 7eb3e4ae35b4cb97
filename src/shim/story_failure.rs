//! Why a story failed, as the shim passes it on: the failure, and commits to salvage besides the work tree.
//!
//! Made by `examination.rs` and `story.rs`. Must not: judge; the cause is the maker's.

use super::git::GitError;
use crate::error_chain::error_chain;
use crate::ids::CommitId;
use crate::verdict::{Cause, Evidence, Failure};

/// The most paths that evidence names.
pub const MAX_NAMED_PATHS: usize = 50;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoryFailure {
    pub failure: Box<Failure>,
    /// Commits that only refs other than the assigned branch contain.
    pub stray_commits: Vec<CommitId>,
}

impl StoryFailure {
    pub fn new(cause: Cause, summary: impl Into<String>) -> Self {
        Failure::new(cause, summary).into()
    }

    /// A failure whose evidence names paths.
    pub fn with_paths(cause: Cause, summary: impl Into<String>, mut paths: Vec<String>) -> Self {
        paths.truncate(MAX_NAMED_PATHS);
        let evidence = Evidence { paths, ..Evidence::from_summary(summary.into()) };
        Failure { evidence, ..Failure::new(cause, "") }.into()
    }

    /// The sandbox had to end before `what`.
    pub fn stopped_before(what: &str) -> Self {
        Self::new(Cause::StoppedByUser, format!("the sandbox was stopped before {what}"))
    }
}

impl From<Failure> for StoryFailure {
    fn from(failure: Failure) -> Self {
        Self { failure: Box::new(failure), stray_commits: Vec::new() }
    }
}

impl From<GitError> for StoryFailure {
    fn from(error: GitError) -> Self {
        git_failure(&error, "cannot read the clone").into()
    }
}

/// The failure that follows from an error of git. `what` says what could not be done.
pub fn git_failure(error: &GitError, what: &str) -> Failure {
    let cause = match error {
        error if error.is_disk_full() => Cause::DiskFull,
        // Whose memory it was, no counter says.
        GitError::OutOfMemory { .. } => Cause::OomSuspected,
        GitError::Stopped { .. } => Cause::StoppedByUser,
        GitError::TimedOut { .. } => Cause::Timeout,
        _ => Cause::RepoDamaged,
    };
    Failure::new(cause, format!("{what}: {}", error_chain(error)))
}

/// A failure in one line.
pub fn failure_line(failure: &Failure) -> String {
    let paths = match failure.evidence.paths.as_slice() {
        [] => String::new(),
        paths => format!(" ({})", paths.join(", ")),
    };
    format!("{}: {}{paths}", failure.cause.as_str(), failure.evidence.summary)
}
