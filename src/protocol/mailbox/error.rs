//! Errors of a mailbox's directory.

use std::io::{self, ErrorKind};
use std::path::PathBuf;

use thiserror::Error;

use super::layout::SharedName;
use super::message::AgentId;
use super::parts::DraftError;

#[derive(Debug, Error)]
pub enum MailboxError {
    #[error("cannot {operation} `{}`", path.display())]
    Io { operation: &'static str, path: PathBuf, source: io::Error },
    #[error("there is no mailbox in `{}`: it has no directory `agents`", .0.display())]
    NoMailbox(PathBuf),
    #[error("`{}` is not a directory", .0.display())]
    NotDirectory(PathBuf),
    #[error("`{}` is not a readable file: it is {found}", path.display())]
    NotFile { path: PathBuf, found: String },
    #[error("timed out waiting for the lock `{}`", .0.display())]
    Locked(PathBuf),
    #[error(transparent)]
    Draft(#[from] DraftError),
    /// Ids must differ in more than case: file systems may not tell them apart.
    #[error("the id `{wanted}` is too similar to `{taken}`, which already takes part")]
    IdTaken { wanted: AgentId, taken: AgentId },
    #[error("`{0}` is not in the roster")]
    NotRegistered(AgentId),
    #[error("the text for `{0}` is larger than 1 MiB")]
    SharedTooLarge(SharedName),
}

pub type MailboxResult<T> = Result<T, MailboxError>;

impl MailboxError {
    /// For `map_err`: an I/O error of this operation on this path.
    pub(super) fn io<E: Into<io::Error>>(operation: &'static str, path: PathBuf) -> impl Fn(E) -> Self {
        move |error| Self::Io { operation, path: path.clone(), source: error.into() }
    }

    pub fn is_permission_denied(&self) -> bool {
        let kinds = [ErrorKind::PermissionDenied, ErrorKind::ReadOnlyFilesystem];
        matches!(self, Self::Io { source, .. } if kinds.contains(&source.kind()))
    }
}
