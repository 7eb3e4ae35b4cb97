//! What goes wrong with the state folder. `cli/` shows these; the hint of each is the last part of its message.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::repo_dir::DirError;

/// The result of an operation on the state folder.
pub type StateResult<T> = Result<T, StateError>;

/// What went wrong.
#[derive(Debug, Error)]
pub enum StateError {
    /// A file operation failed.
    #[error("cannot {action} `{}`", path.display())]
    Io {
        /// "create the folder", "append to", ...
        action: &'static str,
        /// What it was done to.
        path: PathBuf,
        /// The system's word.
        source: io::Error,
    },
    /// A link where a folder or a file of ours must be.
    #[error("`{}` is a symbolic link, and longshore keeps its state in a real folder: remove the link", .0.display())]
    Symlink(PathBuf),
    /// Something else where a folder must be.
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
    /// The user typed something that names no swarm.
    #[error("no swarm `{typed}` in `{}`", root.display())]
    NoSuchSwarm {
        /// As typed.
        typed: String,
        /// The `.longshore` folder.
        root: PathBuf,
    },
    /// The user typed something that names several.
    #[error("`{typed}` names several swarms: {}", matches.join(", "))]
    AmbiguousSwarm {
        /// As typed.
        typed: String,
        /// The swarms.
        matches: Vec<String>,
    },
    /// There is no swarm at all.
    #[error("no swarm has been run here: `{}` has none", .0.display())]
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
    #[error("`{}` is damaged at its end: it has {found} records, and the state file beside it was made after record {expected}", path.display())]
    RecordsLost {
        /// The journal.
        path: PathBuf,
        /// How many it has.
        found: u64,
        /// How many it had.
        expected: u64,
    },
    /// A file of a later version of longshore.
    #[error("`{}` has schema version {found}, and this longshore knows {supported}: use the longshore that wrote it", path.display())]
    UnsupportedVersion {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u64,
        /// Ours.
        supported: u32,
    },
    /// A value that cannot be written as JSON, or a record that is too long.
    #[error("cannot write {what} as JSON")]
    Encode {
        /// "the header", "an event", ...
        what: &'static str,
        /// Why.
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
