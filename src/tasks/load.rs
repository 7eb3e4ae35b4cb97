//! Reads tasks files from the disk.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use super::error::{MAX_FILE_BYTES, TasksError, TasksProblemKind};
use super::import;
use super::tasks_file::TasksFile;

/// Reads and checks a tasks file.
///
/// # Errors
/// All problems at once.
pub fn read(path: &Path) -> Result<TasksFile, TasksError> {
    load(path).map(|(file, _)| file)
}

/// Like [`read`], with the bytes that were read, so that planning, delivery and write-back use the same text.
///
/// # Errors
/// All problems at once.
pub fn load(path: &Path) -> Result<(TasksFile, Vec<u8>), TasksError> {
    let unreadable = |error: io::Error| {
        let kind = match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => TasksProblemKind::NoSuchFile,
            io::ErrorKind::IsADirectory => TasksProblemKind::IsADirectory,
            _ => TasksProblemKind::ReadFailed(error),
        };
        TasksError::for_file(path, kind)
    };
    if fs::metadata(path).map_err(unreadable)?.is_dir() {
        return Err(TasksError::for_file(path, TasksProblemKind::IsADirectory));
    }
    let mut bytes = Vec::new();
    // A byte more than is allowed, so that `parse` rejects a file that is too large; a pipe has no length to check.
    File::open(path).and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)).map_err(unreadable)?;
    let file = parse(&bytes, path)?;
    Ok((file, bytes))
}

/// Checks the bytes of a tasks file; `path` is for messages only.
///
/// # Errors
/// All problems at once.
pub fn parse(bytes: &[u8], path: &Path) -> Result<TasksFile, TasksError> {
    import::import(bytes, path).map(|imported| imported.file)
}
