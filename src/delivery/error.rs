//! Errors between the repository and the sandboxes, in kinds that callers act on.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use crate::ids::CommitId;

/// A failure of this module. `operation` names what was tried: "read the head".
#[derive(Debug, Error)]
pub enum DeliveryError {
    #[error("`git` cannot be run: install git 2.38 or newer")]
    GitMissing { source: io::Error },
    /// Older versions lack `merge-tree --write-tree`.
    #[error("git 2.38 or newer is needed, found `{found}`")]
    GitTooOld { found: String },
    #[error("`{path}` is not in a git repository")]
    NotARepo { path: PathBuf },
    /// A bare repository, or the inside of a `.git` directory.
    #[error("`{path}` has no working tree: run longshore in a checkout of the repository")]
    NoWorkTree { path: PathBuf },
    #[error(
        "the repository of `{path}` belongs to another user: `git config --global --add safe.directory <its path>` trusts it"
    )]
    DubiousOwnership { path: PathBuf },
    /// Git prints paths on lines.
    #[error("the path of the repository `{path}` contains a newline: rename the directory")]
    PathWithNewline { path: PathBuf },
    #[error("the repository `{path}` has no commits yet: make a first commit")]
    NoCommits { path: PathBuf },
    #[error("commit `{commit}` is not in the repository")]
    MissingCommit { commit: CommitId },
    /// The branch was moved, created or deleted since it was last read. `found` is `None` if it is gone.
    #[error("branch `{branch}` was moved by somebody else: expected `{expected}`, found `{}`", format_commit(found))]
    BranchMoved { branch: String, expected: CommitId, found: Option<CommitId> },
    /// Moving the branch would change what the working tree at `at` is based on.
    #[error(
        "branch `{branch}` is checked out in `{at}`: check out another branch there, or name another with --branch"
    )]
    BranchCheckedOut { branch: String, at: PathBuf },
    /// `a` and `a/b` exclude each other.
    #[error("branch `{branch}` cannot exist beside branch `{with}`: rename one of them, or name another with --branch")]
    BranchNameConflict { branch: String, with: String },
    /// `paths` is sorted.
    #[error("changes in the working tree are in the way: {}", format_paths(paths))]
    UncommittedChanges { paths: Vec<String> },
    /// A merge, a rebase or the like is in progress. `paths` is sorted.
    #[error("the working tree has unresolved conflicts: {}", format_paths(paths))]
    UnresolvedConflicts { paths: Vec<String> },
    /// `name` is as typed, truncated.
    #[error("`{name}` is not a valid branch name")]
    InvalidBranchName { name: String },
    #[error("ref `{name}` exists already, at `{holds}`")]
    RefExists { name: String, holds: CommitId },
    #[error("longshore may not change the ref `{name}`")]
    ForbiddenRef { name: String },
    /// The sandbox's fault.
    #[error("the result bundle was refused: {0}")]
    BundleRefused(#[from] BundleError),
    #[error("{operation}: no space left on the host's disk")]
    DiskFull { operation: &'static str },
    #[error("{operation}: permission denied: {detail}")]
    PermissionDenied { operation: &'static str, detail: String },
    /// Another process holds the lock of a ref, or left it behind. `age` is `None` if the lock is gone by now.
    #[error("{operation}: `{}` exists{}: another git holds it; remove it if none runs", .lock.display(), format_age(age))]
    RefLocked { operation: &'static str, lock: PathBuf, age: Option<Duration> },
    /// Git ran out of memory, or was killed with SIGKILL.
    #[error("{operation}: git {} on the host", format_memory(*.is_proven))]
    OutOfMemory { operation: &'static str, is_proven: bool },
    /// A `git gc` or `git prune` deletes objects as fast as they are made.
    #[error("objects were deleted while they were needed: does a `git gc` or `git prune` run in the repository?")]
    ObjectsVanished { source: Box<DeliveryError> },
    #[error("git cannot sign: {detail}; check `user.signingkey` and `gpg.format`, or set `[git] sign = false`")]
    SigningFailed { detail: String },
    /// Git failed. `code` is `None` if a signal killed it; `command` is truncated; `tail` is the end of stderr.
    #[error("{operation}: `{command}` {}: {tail}", format_exit(code))]
    CommandFailed { operation: &'static str, command: String, code: Option<i32>, tail: String },
    /// Git's output cannot be parsed. `found` is truncated.
    #[error("{operation}: unexpected output of git: `{found}`")]
    UnexpectedOutput { operation: &'static str, found: String },
    /// Git was killed.
    #[error("{operation}: git did not end within {} s", .after.as_secs())]
    TimedOut { operation: &'static str, after: Duration },
    #[error("{operation}: `{path}`")]
    Io { operation: &'static str, path: PathBuf, source: io::Error },
}

/// Why a bundle from a sandbox is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BundleError {
    #[error("malformed header: {problem}")]
    MalformedHeader { problem: String },
    /// `name` is truncated.
    #[error("unexpected ref `{name}`")]
    UnexpectedRef { name: String },
    #[error("missing ref `{name}`")]
    MissingRef { name: String },
    #[error("ref `{name}` is at `{found}`, but the result says `{expected}`")]
    WrongTip { name: String, expected: CommitId, found: CommitId },
    #[error("it builds on `{commit}`, which is not in the history of the base")]
    ForeignPrerequisite { commit: CommitId },
    #[error("`{tip}` does not descend from the base `{base}`")]
    NotDescendedFromBase { tip: CommitId, base: CommitId },
    #[error("`{tip}` is not a new commit in the bundle")]
    NotACommit { tip: CommitId },
    /// The pack is damaged, or git's checks refuse an object.
    #[error("its objects do not pass git's checks: {detail}")]
    InvalidObjects { detail: String },
    /// Objects that the commits need are neither in the bundle nor in the repository.
    #[error("objects are missing: {detail}")]
    Incomplete { detail: String },
    #[error("it has more than {limit} commits")]
    TooManyCommits { limit: usize },
    /// A pack of a few kilobytes can claim gigabytes.
    #[error("unpacking it needs more than {} MiB of memory", limit >> 20)]
    TooMuchMemory { limit: u64 },
    #[error("its commit messages have more than {} MiB", limit >> 20)]
    TooMuchText { limit: usize },
}

impl DeliveryError {
    /// Whether the same operation may succeed a little later, with nobody repairing longshore's own things: a full disk, a
    /// lock, or what somebody does in the repository for a while.
    pub(crate) fn is_retryable(&self) -> bool {
        match self {
            Self::BranchMoved { .. }
            | Self::BranchCheckedOut { .. }
            | Self::DiskFull { .. }
            | Self::RefLocked { .. }
            | Self::OutOfMemory { .. }
            | Self::ObjectsVanished { .. }
            | Self::CommandFailed { .. }
            | Self::TimedOut { .. }
            | Self::Io { .. } => true,
            Self::GitMissing { .. }
            | Self::GitTooOld { .. }
            | Self::NotARepo { .. }
            | Self::NoWorkTree { .. }
            | Self::DubiousOwnership { .. }
            | Self::PathWithNewline { .. }
            | Self::NoCommits { .. }
            | Self::MissingCommit { .. }
            | Self::BranchNameConflict { .. }
            | Self::UncommittedChanges { .. }
            | Self::UnresolvedConflicts { .. }
            | Self::InvalidBranchName { .. }
            | Self::RefExists { .. }
            | Self::ForbiddenRef { .. }
            | Self::BundleRefused(_)
            | Self::PermissionDenied { .. }
            | Self::SigningFailed { .. }
            | Self::UnexpectedOutput { .. } => false,
        }
    }

    /// Whether git did not find an object that it was told of, or that one of them needs.
    pub(super) fn mentions_missing_object(&self) -> bool {
        const PHRASES: [&str; 16] = [
            "bad object",
            "bad tree object",
            "bad revision",
            "could not read",
            "failed to read object",
            "unable to read",
            "unable to parse",
            "unable to get type",
            "missing",
            "not a tree",
            "not a valid object",
            "not found",
            "nonexistent object",
            // A temporary file of git's own, which `git prune` removes as well.
            "no such file or directory",
            // Left by a try that met the same fate.
            "cannot create keep file",
            "does not exist",
        ];
        let Self::CommandFailed { tail, .. } = self else { return false };
        let tail = tail.to_lowercase();
        PHRASES.iter().any(|phrase| tail.contains(phrase))
    }

    /// A failed file operation. A full disk and a missing permission have variants of their own.
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

/// The first paths and the number of the others. Control characters are kept; whoever prints the message replaces them.
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

fn format_age(age: &Option<Duration>) -> String {
    age.map_or_else(String::new, |age| format!(" since {} s", age.as_secs()))
}

fn format_memory(is_proven: bool) -> &'static str {
    if is_proven { "ran out of memory" } else { "was killed with SIGKILL, probably for memory," }
}
