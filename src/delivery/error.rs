//! What can go wrong between the repo and the sandboxes, in kinds that callers act on.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use crate::ids::CommitId;

/// A failure of this module.
#[derive(Debug, Error)]
pub enum DeliveryError {
    /// There is no `git` on the PATH.
    #[error("`git` cannot be run: install git 2.38 or newer")]
    GitMissing {
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Git is there, and cannot do what is needed (`merge-tree --write-tree`).
    #[error("git 2.38 or newer is needed, found `{found}`")]
    GitTooOld {
        /// What `git version` said.
        found: String,
    },
    /// Not inside a repo.
    #[error("`{path}` is not in a git repository")]
    NotARepo {
        /// The folder looked at.
        path: PathBuf,
    },
    /// A bare repository, or the inside of a `.git` folder.
    #[error("`{path}` has no working tree: run longshore in a checkout of the repository")]
    NoWorkTree {
        /// The folder looked at.
        path: PathBuf,
    },
    /// The repo belongs to another user, and git does not trust it.
    #[error(
        "the repository of `{path}` belongs to another user: `git config --global --add safe.directory <its path>` trusts it"
    )]
    DubiousOwnership {
        /// The folder looked at.
        path: PathBuf,
    },
    /// The repo's path is one that git's output cannot carry.
    #[error("the path of the repository `{path}` has a newline in it")]
    PathWithNewline {
        /// The folder looked at.
        path: PathBuf,
    },
    /// A repo without a commit.
    #[error("the repository `{path}` has no commits yet: make a first commit")]
    NoCommits {
        /// The repo's root.
        path: PathBuf,
    },
    /// A commit that should be in the repo is not.
    #[error("commit `{commit}` is not in the repository")]
    MissingCommit {
        /// Which.
        commit: CommitId,
    },
    /// The branch is not where it was last seen: somebody else moved, made or deleted it.
    #[error("branch `{branch}` was moved by somebody else: expected `{expected}`, found `{}`", format_commit(found))]
    BranchMoved {
        /// Which.
        branch: String,
        /// Where it was expected.
        expected: CommitId,
        /// Where it is; none where it is gone.
        found: Option<CommitId>,
    },
    /// The branch is checked out, so that moving it would pull the ground from under a working tree.
    #[error(
        "branch `{branch}` is checked out in `{at}`: check out another branch there, or name another with --branch"
    )]
    BranchCheckedOut {
        /// Which.
        branch: String,
        /// The working tree that has it.
        at: PathBuf,
    },
    /// Another branch's name makes this one impossible (`a` and `a/b` exclude each other).
    #[error("branch `{branch}` cannot exist beside branch `{with}`: rename one of them, or name another with --branch")]
    BranchNameConflict {
        /// The one wanted.
        branch: String,
        /// The one that is there.
        with: String,
    },
    /// Changes of the user's that are not committed are in the way.
    #[error("changes in the working tree are in the way: {}", format_paths(paths))]
    UncommittedChanges {
        /// The files concerned, sorted.
        paths: Vec<String>,
    },
    /// A merge, a rebase or the like is under way in the working tree.
    #[error("the working tree has conflicts that are not resolved: {}", format_paths(paths))]
    UnresolvedConflicts {
        /// The files concerned, sorted.
        paths: Vec<String>,
    },
    /// A name that no branch can have.
    #[error("`{name}` cannot be the name of a branch")]
    InvalidBranchName {
        /// As typed, shortened.
        name: String,
    },
    /// A ref that is to be made is there already, with something else in it.
    #[error("ref `{name}` is there already, at `{holds}`")]
    RefExists {
        /// Which.
        name: String,
        /// What it holds.
        holds: CommitId,
    },
    /// A name that is not git's, or not one that longshore may write.
    #[error("`{name}` is not a ref that longshore may change")]
    ForbiddenRef {
        /// The name.
        name: String,
    },
    /// The bundle is not what it must be: the sandbox's doing.
    #[error("the result bundle was refused: {0}")]
    BundleRefused(#[from] BundleError),
    /// No space left on the host.
    #[error("{operation}: no space left on the host's disk")]
    DiskFull {
        /// What was tried.
        operation: &'static str,
    },
    /// The host's files do not let us.
    #[error("{operation}: no permission: {detail}")]
    PermissionDenied {
        /// What was tried.
        operation: &'static str,
        /// Git's words.
        detail: String,
    },
    /// Git exited with a status that it should not have.
    #[error("{operation}: `{command}` {}: {tail}", format_exit(code))]
    CommandFailed {
        /// What was tried.
        operation: &'static str,
        /// Subcommand and arguments, shortened.
        command: String,
        /// Its exit code; none where a signal ended it.
        code: Option<i32>,
        /// The end of what it wrote to stderr.
        tail: String,
    },
    /// Git printed something that it should not have.
    #[error("{operation}: git's output was not understood: `{found}`")]
    UnexpectedOutput {
        /// What was tried.
        operation: &'static str,
        /// What was found, shortened.
        found: String,
    },
    /// Git did not end in time, and was killed.
    #[error("{operation}: git did not end within {} s", .after.as_secs())]
    TimedOut {
        /// What was tried.
        operation: &'static str,
        /// How long it was waited for.
        after: Duration,
    },
    /// A file operation failed.
    #[error("{operation}: `{path}`")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On which path.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// What is wrong with a bundle that came out of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BundleError {
    /// The header is not a bundle's header.
    #[error("its header is malformed: {problem}")]
    MalformedHeader {
        /// What is wrong.
        problem: String,
    },
    /// A ref that nobody asked for.
    #[error("it holds `{name}`, which was not asked for")]
    UnexpectedRef {
        /// The name, shortened.
        name: String,
    },
    /// A ref that the result names and the bundle lacks.
    #[error("it lacks `{name}`")]
    MissingRef {
        /// The name.
        name: String,
    },
    /// A ref at another commit than the result says.
    #[error("`{name}` is at `{found}`, and the result says `{expected}`")]
    WrongTip {
        /// The name.
        name: String,
        /// What the result says.
        expected: CommitId,
        /// What the bundle holds.
        found: CommitId,
    },
    /// It builds on commits other than the base.
    #[error("it builds on `{commit}`, which is not in the history of the base")]
    ForeignPrerequisite {
        /// The commit.
        commit: CommitId,
    },
    /// The branch does not descend from where it started.
    #[error("`{tip}` does not descend from the base `{base}`")]
    NotDescendedFromBase {
        /// The tip.
        tip: CommitId,
        /// The base.
        base: CommitId,
    },
    /// A ref at something that is not a new commit.
    #[error("`{tip}` is not a commit that the bundle brings")]
    NotACommit {
        /// The id.
        tip: CommitId,
    },
    /// The pack is damaged, or has objects that git's checks do not let in.
    #[error("its objects do not pass git's checks: {detail}")]
    InvalidObjects {
        /// Git's words.
        detail: String,
    },
    /// Objects that the commits need are neither in the bundle nor in the repo.
    #[error("it is not complete: {detail}")]
    Incomplete {
        /// Git's words.
        detail: String,
    },
    /// More commits than one attempt can have made.
    #[error("it has more than {limit} commits")]
    TooManyCommits {
        /// The limit.
        limit: usize,
    },
}

impl DeliveryError {
    /// Whether it is about what the user gave us to work on, so that the user can put it right (README, "Exit codes": 2 and
    /// not 3).
    pub fn is_input_error(&self) -> bool {
        matches!(
            self,
            Self::NotARepo { .. }
                | Self::NoWorkTree { .. }
                | Self::DubiousOwnership { .. }
                | Self::PathWithNewline { .. }
                | Self::NoCommits { .. }
                | Self::BranchCheckedOut { .. }
                | Self::BranchNameConflict { .. }
                | Self::UncommittedChanges { .. }
                | Self::UnresolvedConflicts { .. }
                | Self::InvalidBranchName { .. }
                | Self::RefExists { .. }
                | Self::ForbiddenRef { .. }
        )
    }

    /// A failed file operation, with a full disk and missing permission told apart.
    pub(super) fn from_io(operation: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        let path = path.into();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull { operation },
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::PermissionDenied { operation, detail: format!("`{}`: {source}", path.display()) }
            }
            _ => Self::Io { operation, path, source },
        }
    }
}

/// The first of them, and how many more there are. Control characters are for those who show it to take out.
fn format_paths(paths: &[String]) -> String {
    const SHOWN: usize = 10;
    let first: Vec<String> = paths.iter().take(SHOWN).map(|path| format!("`{path}`")).collect();
    let more = paths.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", first.join(", "))
}

fn format_commit(found: &Option<CommitId>) -> &str {
    found.as_ref().map_or("nothing", CommitId::as_str)
}

fn format_exit(code: &Option<i32>) -> String {
    code.map_or_else(|| "was killed by a signal".to_owned(), |code| format!("exited {code}"))
}
