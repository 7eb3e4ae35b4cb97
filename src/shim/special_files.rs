//! Finds FIFOs, sockets and devices where git would open them and wait.
//!
//! Used by `clone_dir.rs`, `check_runner.rs`, `examination.rs` and `salvage.rs` before git looks at what an agent left. Must not: open anything.

use std::fs::{self, FileType};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Files of a work tree that git reads while it looks at others.
const GIT_RULE_FILES: &[&str] = &[".gitignore", ".gitattributes", ".gitmodules", ".mailmap"];
/// Subdirectories of a git directory in which git opens files.
const GIT_READ_DIRS: &[&str] = &["refs", "objects", "info", "logs", "worktrees"];

/// Whether it is neither a regular file nor a directory nor a link.
pub fn is_special(kind: FileType) -> bool {
    kind.is_fifo() || kind.is_socket() || kind.is_block_device() || kind.is_char_device()
}

/// The type of the file that git would open: a link's target.
fn resolved_file_type(entry: &fs::DirEntry) -> Option<FileType> {
    let kind = entry.file_type().ok()?;
    if kind.is_symlink() { fs::metadata(entry.path()).ok().map(|meta| meta.file_type()) } else { Some(kind) }
}

/// The special files in a git directory that git may open, and its subdirectories that are links.
pub fn find_in_git_dir(git_dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![git_dir.to_owned()];
    dirs.extend(GIT_READ_DIRS.iter().map(|name| git_dir.join(name)));
    while let Some(dir) = dirs.pop() {
        let is_below = dir != *git_dir;
        if is_below && !fs::symlink_metadata(&dir).is_ok_and(|meta| meta.is_dir()) {
            continue;
        }
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        for entry in entries.flatten() {
            let Some(kind) = resolved_file_type(&entry) else { continue };
            let is_link = || entry.file_type().is_ok_and(|kind| kind.is_symlink());
            let is_read = is_below || GIT_READ_DIRS.iter().any(|name| entry.file_name() == *name);
            if is_special(kind) || (kind.is_dir() && is_read && is_link()) {
                found.push(entry.path());
            } else if kind.is_dir() && is_below {
                dirs.push(entry.path());
            }
        }
    }
    found
}

#[derive(Debug, Default)]
pub struct WorkTreeScan {
    /// Special files that git reads as rules, and those in the git directories of nested repositories.
    pub special: Vec<PathBuf>,
    /// The other special files. Git overlooks them.
    pub overlooked: Vec<PathBuf>,
    /// The `.gitattributes` files.
    pub attributes: Vec<PathBuf>,
}

/// Scans a work tree without its own git directory.
pub fn scan_work_tree(repo: &Path) -> WorkTreeScan {
    let mut scan = WorkTreeScan::default();
    // The flag says whether the directory is a git directory, or below one.
    let mut dirs = vec![(repo.to_owned(), false)];
    while let Some((dir, in_git_dir)) = dirs.pop() {
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Ok(kind) = entry.file_type() else { continue };
            let is_git = name == ".git";
            if is_git && dir == *repo {
                continue;
            }
            if kind.is_dir() {
                dirs.push((entry.path(), in_git_dir || is_git));
                continue;
            }
            let is_read = in_git_dir || is_git || GIT_RULE_FILES.iter().any(|rule| name == *rule);
            if is_read && resolved_file_type(&entry).is_some_and(is_special) {
                scan.special.push(entry.path());
            } else if is_special(kind) {
                scan.overlooked.push(entry.path());
            } else if name == ".gitattributes" {
                scan.attributes.push(entry.path());
            }
        }
    }
    scan
}
