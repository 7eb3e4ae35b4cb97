//! Errors of the state folder, shown by `cli/`. The hint of each is the last part of its message.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::repo_dir::DirError;

/// The result of an operation on the state folder.
pub type StateResult<T> = Result<T, StateError>;

/// An error of the state folder.
#[derive(Debug, Error)]
pub enum StateError {
    /// A file operation failed.
    #[error("cannot {action} `{}`", path.display())]
    Io {
        /// "create the folder", "append to", ...
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// A symbolic link in place of a folder or file of longshore.
    #[error("`{}` is a symbolic link, and longshore keeps its state in a real folder: remove the link", .0.display())]
    Symlink(PathBuf),
    /// Not a folder.
    #[error("`{}` is not a folder", .0.display())]
    NotADirectory(PathBuf),
    /// Another process runs this swarm.
    #[error("swarm `{swarm}` is in use by {holder}")]
    Locked {
        /// The swarm.
        swarm: String,
        /// "process 4711" or "another process".
        holder: String,
    },
    /// No swarm matches what the user typed.
    #[error("no swarm `{typed}` in `{}`", root.display())]
    NoSuchSwarm {
        /// As typed.
        typed: String,
        /// The `.longshore` folder.
        root: PathBuf,
    },
    /// Several swarms match what the user typed.
    #[error("`{typed}` names several swarms: {}", matches.join(", "))]
    AmbiguousSwarm {
        /// As typed.
        typed: String,
        /// The swarms.
        matches: Vec<String>,
    },
    /// The folder has no swarms.
    #[error("no swarms found in `{}`", .0.display())]
    NoSwarms(PathBuf),
    /// A file is not what was written.
    #[error("`{}` is damaged at byte {offset} ({location}): {problem}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the damaged line or value begins.
        offset: u64,
        /// "the header", "record 12".
        location: String,
        /// What is wrong there.
        problem: String,
    },
    /// The journal has lost records that were on the disk.
    #[error("`{}` is damaged at its end: it ends at record {found}, and record {expected} had been written", path.display())]
    RecordsLost {
        /// The journal.
        path: PathBuf,
        /// The number of records in the journal.
        found: u64,
        /// The number of records that it is known to have had.
        expected: u64,
    },
    /// A file of a later version of longshore.
    #[error("`{}` has schema version {found}, and this longshore knows {supported}: use the longshore that wrote it", path.display())]
    UnsupportedVersion {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u64,
        /// The newest version that this build reads.
        supported: u32,
    },
    /// A value that cannot be written as JSON, or a record that is too long.
    #[error("cannot write {what} as JSON")]
    Encode {
        /// "the header", "an event", ...
        what: &'static str,
        source: serde_json::Error,
    },
    /// After a failed write the journal's end is unknown.
    #[error("`{}` takes no more records, because an earlier write to it failed", .0.display())]
    JournalFailed(PathBuf),
}

impl From<DirError> for StateError {
    fn from(error: DirError) -> Self {
        match error {
            DirError::Io { action, path, source } => Self::Io { action, path, source },
            DirError::Symlink(path) => Self::Symlink(path),
            DirError::NotADirectory(path) => Self::NotADirectory(path),
        }
    }
}

impl StateError {
    pub(super) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> StateError {
        let path = path.into();
        move |source| StateError::Io { action, path, source }
    }

    /// Whether the disk is full, which ends a swarm as `disk_full` and not as `host_error`.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, StateError::Io { source, .. }
            if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
    }
}
