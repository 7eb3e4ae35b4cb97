//! Errors of the SSOT. `cli/` shows them; the coordinator checks whether the disk is full.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::protocol::amp::message::MsgId;
use crate::repo_dir::DirError;

#[derive(Debug, Error)]
pub enum SsotError {
    #[error("cannot {action} `{}`", path.display())]
    Io {
        /// "read", "write", ...
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// `.longshore` cannot be created.
    #[error(transparent)]
    Dir(#[from] DirError),
    #[error("`{}` is not a directory, and the SSOT needs a real one: remove it", .0.display())]
    NotDirectory(PathBuf),
    /// Another content has the same id, and stays.
    #[error("`{}` exists with another content", path.display())]
    Conflict { path: PathBuf },
    /// A file is JSON of the wrong shape.
    #[error("`{}` is damaged: {problem}", path.display())]
    Damaged { path: PathBuf, problem: String },
    #[error("there is no message `{0}` to acknowledge")]
    MessageNotFound(MsgId),
    #[error("the year {year} does not have {count} task numbers left")]
    TaskNumbersExhausted { year: u16, count: u32 },
    #[error("cannot write `{}` as JSON", path.display())]
    Encode { path: PathBuf, source: serde_json::Error },
}

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
            SsotError::Io { source, .. } | SsotError::Dir(DirError::Io { source, .. }) => {
                matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            }
            _ => false,
        }
    }
}
