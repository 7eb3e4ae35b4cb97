//! What goes wrong with the SSOT. `cli/` shows these; the coordinator asks whether the disk is full.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::protocol::amp::message::MsgId;
use crate::state::StateError;

/// What went wrong.
#[derive(Debug, Error)]
pub enum SsotError {
    /// A file operation failed.
    #[error("cannot {action} `{}`", path.display())]
    Io {
        /// "read", "write", ...
        action: &'static str,
        /// What it was done to.
        path: PathBuf,
        /// The system's word.
        source: io::Error,
    },
    /// `.longshore` cannot be made.
    #[error(transparent)]
    State(#[from] StateError),
    /// A link or something else where a folder of the SSOT must be.
    #[error("`{}` is not a folder, and the SSOT must be in real ones: remove it", .0.display())]
    NotDirectory(PathBuf),
    /// Something else is there under the same id. What is there stays.
    #[error("`{}` is there already and says something else", path.display())]
    Conflict {
        /// The file that is there.
        path: PathBuf,
    },
    /// A file is JSON, and not what it must be.
    #[error("`{}` is not what it must be: {problem}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        problem: String,
    },
    /// An ack of a message that is not there.
    #[error("there is no message `{0}` that could be acknowledged")]
    MessageNotFound(MsgId),
    /// A year has no more task numbers.
    #[error("the year {year} has no {count} task numbers left")]
    TaskNumbersExhausted {
        /// The year.
        year: u16,
        /// How many were wanted.
        count: u32,
    },
    /// A value that cannot be written as JSON.
    #[error("cannot write `{}` as JSON", path.display())]
    Encode {
        /// The file that it was for.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
}

/// The result of an operation on the SSOT.
pub type SsotResult<T> = Result<T, SsotError>;

impl SsotError {
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SsotError {
        let path = path.to_owned();
        move |source| SsotError::Io { action, path, source }
    }

    pub(super) fn damaged(path: &Path, problem: impl ToString) -> SsotError {
        SsotError::Damaged { path: path.to_owned(), problem: problem.to_string() }
    }

    /// Whether the disk is full, which ends a swarm as `disk_full` and not as `host_error`.
    pub fn is_disk_full(&self) -> bool {
        match self {
            SsotError::Io { source, .. } => {
                matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            }
            SsotError::State(error) => error.is_disk_full(),
            _ => false,
        }
    }
}
