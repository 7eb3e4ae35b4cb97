//! Writes an attempt's output: `result.json` and the bundle. A reader sees each whole or not at all.
//!
//! Used by `attempt.rs`, `review.rs` and `setup.rs`. An agent could write to the directory, so nothing in it is followed or trusted.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use super::git::{GitError, HardenedGit};
use super::safe_fs;
use crate::handoff::layout;
use crate::ids::CommitId;

/// Given up when no space is left for a result.
const RESERVE_FILE: &str = "reserve";
/// More than the result of several stories takes.
const RESERVE_BYTES: usize = 256 * 1024;

/// Whether a file has to survive a crash of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    Buffered,
    Synced,
}

/// Reserves space, so that a result can be written after an agent has filled the disk.
pub fn reserve_space(out_dir: &Path) {
    // If there is no space now, the next step reports it.
    let _ = safe_fs::ensure_dir(out_dir)
        .and_then(|()| safe_fs::write_replacing(&out_dir.join(RESERVE_FILE), &vec![0; RESERVE_BYTES]));
}

/// Writes `result.json`, into the reserved space if the disk is full. If synced, so is what was written to the directory before.
pub fn write_result(out_dir: &Path, result: &impl serde::Serialize, durability: Durability) -> Result<(), GitError> {
    let to = out_dir.join(layout::RESULT_FILE);
    let temporary = to.with_extension("json-tmp");
    let text = serde_json::to_vec_pretty(result).expect("a result is always JSON");
    open_out_dir(out_dir)?;
    let mut written = safe_fs::write_replacing(&temporary, &text);
    if written.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::StorageFull) {
        let _ = safe_fs::remove_any(&out_dir.join(RESERVE_FILE));
        written = safe_fs::write_replacing(&temporary, &text);
    }
    written.map_err(|error| GitError::file("write", &temporary, error))?;
    rename_into_place(&temporary, &to, durability)?;
    if durability == Durability::Synced { sync(out_dir) } else { Ok(()) }
}

/// Writes a bundle of `refs` without the history of `known`. Only [`write_result`] syncs the directory.
pub fn write_bundle(
    git: &HardenedGit,
    out_dir: &Path,
    known: &[CommitId],
    refs: &[String],
    durability: Durability,
) -> Result<(), GitError> {
    open_out_dir(out_dir)?;
    let to = out_dir.join(layout::BUNDLE_FILE);
    let temporary = to.with_extension("bundle-tmp");
    for path in [&temporary, &to.with_extension("bundle-tmp.lock")] {
        safe_fs::remove_any(path).map_err(|error| GitError::file("remove", path, error))?;
    }
    let mut args = vec!["bundle".to_owned(), "create".into(), "-q".into(), temporary.display().to_string()];
    args.extend(known.iter().map(|commit| format!("^{commit}")));
    args.extend(refs.iter().cloned());
    git.run(&args)?;
    rename_into_place(&temporary, &to, durability)
}

fn open_out_dir(out_dir: &Path) -> Result<(), GitError> {
    safe_fs::ensure_dir(out_dir).map_err(|error| GitError::file("create", out_dir, error))
}

fn rename_into_place(temporary: &Path, to: &Path, durability: Durability) -> Result<(), GitError> {
    if durability == Durability::Synced {
        sync(temporary)?;
    }
    if fs::symlink_metadata(to).is_ok_and(|meta| meta.is_dir()) {
        safe_fs::remove_any(to).map_err(|error| GitError::file("remove", to, error))?;
    }
    fs::rename(temporary, to).map_err(|error| GitError::file("write", to, error))
}

fn sync(path: &Path) -> Result<(), GitError> {
    File::open(path).and_then(|file| file.sync_all()).map_err(|error| GitError::file("sync", path, error))
}
