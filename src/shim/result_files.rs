//! Writes an attempt's output: `result.json` and the bundle. A reader sees each whole or not at all.
//!
//! Used by `attempt.rs`, `review.rs` and `setup.rs`. Only the shim's user can write to the directory, and git, which runs as the
//! agent's, gets nothing but an open file.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::Stdio;

use super::git::{GitError, HardenedGit};
use super::safe_fs;
use super::users::as_shim;
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
    let _ = as_shim(|| {
        safe_fs::ensure_dir(out_dir)?;
        safe_fs::write_replacing(&out_dir.join(RESERVE_FILE), &vec![0; RESERVE_BYTES])
    });
}

/// Writes `result.json`, into the reserved space if the disk is full. If synced, so is what was written to the directory before.
pub fn write_result(out_dir: &Path, result: &impl serde::Serialize, durability: Durability) -> Result<(), GitError> {
    let text = serde_json::to_vec_pretty(result).expect("a result is always JSON");
    as_shim(|| write_result_text(out_dir, &text, durability))
}

fn write_result_text(out_dir: &Path, text: &[u8], durability: Durability) -> Result<(), GitError> {
    let to = out_dir.join(layout::RESULT_FILE);
    let temporary = to.with_extension("json-tmp");
    open_out_dir(out_dir)?;
    let mut written = safe_fs::write_replacing(&temporary, text);
    if written.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::StorageFull) {
        let _ = safe_fs::remove_any(&out_dir.join(RESERVE_FILE));
        written = safe_fs::write_replacing(&temporary, text);
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
    let to = out_dir.join(layout::BUNDLE_FILE);
    let temporary = to.with_extension("bundle-tmp");
    let file = as_shim(|| {
        open_out_dir(out_dir)?;
        safe_fs::create_replacing(&temporary).map_err(|error| GitError::file("write", &temporary, error))
    })?;
    let mut args = ["bundle", "create", "-q", "-"].map(str::to_owned).to_vec();
    args.extend(known.iter().map(|commit| format!("^{commit}")));
    args.extend(refs.iter().cloned());
    let created = git.run_with_files(&args, Stdio::null(), file.into());
    as_shim(|| match created {
        Ok(_) => rename_into_place(&temporary, &to, durability),
        Err(error) => {
            // The result needs the space.
            let _ = fs::remove_file(&temporary);
            Err(error)
        }
    })
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
