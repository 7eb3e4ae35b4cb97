//! `<repo>/.longshore`: the directory that longshore keeps its files in, ignored by git.
//!
//! Used by `state/` and the SSOT. Directories are real ones: through a link, files would land elsewhere.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::atomic_file;

pub(crate) const STATE_DIR: &str = ".longshore";

#[derive(Debug, Error)]
pub enum DirError {
    #[error("cannot {action} `{}`", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("`{}` is a symbolic link, and longshore keeps its state in a real directory: remove the link", .0.display())]
    Symlink(PathBuf),
    #[error("`{}` is not a directory", .0.display())]
    NotADirectory(PathBuf),
}

impl DirError {
    fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}

/// Creates `.longshore` in the repo with this root and returns its path.
pub(crate) fn create_state_dir(repo_root: &Path) -> Result<PathBuf, DirError> {
    let root = repo_root.join(STATE_DIR);
    create_dir(&root)?;
    let ignore = root.join(".gitignore");
    if !ignore.exists() {
        atomic_file::write_durable(&ignore, b"*\n").map_err(DirError::io("write", &ignore))?;
    }
    Ok(root)
}

/// Creates the directory, whose parent must exist, unless it exists.
pub(crate) fn create_dir(path: &Path) -> Result<(), DirError> {
    if is_dir(path)? {
        return Ok(());
    }
    match fs::create_dir(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(DirError::io("create the directory", path)(error))
        }
        _ => Ok(()),
    }
}

/// Whether there is a directory. A link or a file in its place is an error.
pub(crate) fn is_dir(path: &Path) -> Result<bool, DirError> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_symlink() => Err(DirError::Symlink(path.to_owned())),
        Ok(meta) if !meta.is_dir() => Err(DirError::NotADirectory(path.to_owned())),
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(DirError::io("look at", path)(error)),
    }
}
