//! How the depot's errors are made.

use std::io;
use std::path::Path;

use super::super::git::GitError;
use crate::error_chain::error_chain;
use crate::handoff::depot::{DepotError, DepotErrorKind};

pub fn depot_error(kind: DepotErrorKind, message: impl Into<String>) -> DepotError {
    DepotError { kind, message: message.into() }
}

/// An error of kind [`DepotErrorKind::Failed`].
pub fn failed(message: impl Into<String>) -> DepotError {
    depot_error(DepotErrorKind::Failed, message)
}

/// An error of kind [`DepotErrorKind::Refused`].
pub fn refused(message: impl Into<String>) -> DepotError {
    depot_error(DepotErrorKind::Refused, message)
}

pub fn io_error(what: &str, path: &Path, error: &io::Error) -> DepotError {
    let kind = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => DepotErrorKind::DiskFull,
        io::ErrorKind::NotFound => DepotErrorKind::NotFound,
        _ => DepotErrorKind::Failed,
    };
    depot_error(kind, format!("cannot {what} `{}`: {error}", path.display()))
}

impl From<GitError> for DepotError {
    fn from(error: GitError) -> Self {
        let kind = if error.is_disk_full() { DepotErrorKind::DiskFull } else { DepotErrorKind::Failed };
        depot_error(kind, error_chain(&error))
    }
}
