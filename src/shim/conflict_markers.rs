//! Whether a changed file of the work tree may contain merge markers. If none does, `examination.rs` saves a git process.
//!
//! False positives are fine, false negatives are not: git decides about every file that may have markers.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use memchr::memmem;

use super::safe_fs;
use super::special_files::WorkTreeScan;

/// Larger files are not read.
const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;

/// Whether one of the changed paths may have gained both markers. Works for SHA-1 repositories only.
pub fn may_have_markers(repo: &Path, changed: &[PathBuf], scan: &WorkTreeScan) -> bool {
    changed.iter().any(|path| file_may_have_markers(&repo.join(path)))
        || has_reencoding_attributes(repo, scan)
        || index_may_differ(&repo.join(".git"))
}

/// A file that is not regular may have markers: to git, a link's target is text.
fn file_may_have_markers(path: &Path) -> bool {
    file_has_markers(path).unwrap_or(true)
}

/// Whether a file has both markers. `None` if it is not regular, too large, or unreadable.
pub fn file_has_markers(path: &Path) -> Option<bool> {
    let file = safe_fs::open_regular(path).ok()?;
    if file.metadata().ok()?.len() > MAX_FILE_BYTES {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).ok()?;
    Some(has_line_starting_with(&bytes, b"<<<<<<< ") && has_line_starting_with(&bytes, b">>>>>>> "))
}

fn has_line_starting_with(bytes: &[u8], start: &[u8]) -> bool {
    memmem::find_iter(bytes, start).any(|at| at == 0 || bytes[at - 1] == b'\n')
}

/// Whether attributes may make git store other bytes than the file has.
fn has_reencoding_attributes(repo: &Path, scan: &WorkTreeScan) -> bool {
    let reencodes = |path: &PathBuf| {
        safe_fs::read_text(path, MAX_FILE_BYTES).map_or(true, |text| text.contains("working-tree-encoding"))
    };
    let info = repo.join(".git/info/attributes");
    scan.attributes.iter().any(reencodes) || (fs::symlink_metadata(&info).is_ok() && reencodes(&info))
}

/// Whether the index may differ from the work tree, because an agent can make git ignore a file's changes. Only plain indexes of
/// version 2 are read.
fn index_may_differ(git_dir: &Path) -> bool {
    let mut bytes = Vec::new();
    let read = safe_fs::open_regular(&git_dir.join("index")).and_then(|mut file| file.read_to_end(&mut bytes));
    read.is_err() || check_plain_entries(&bytes).is_none()
}

/// Checks that no entry of an index has flags. `None` also for an unknown format.
fn check_plain_entries(index: &[u8]) -> Option<()> {
    let number = |at: usize| Some(u32::from_be_bytes(index.get(at..at + 4)?.try_into().ok()?));
    if index.get(..4)? != b"DIRC" || number(4)? != 2 || memmem::find(index, b"link").is_some() {
        return None;
    }
    let mut at = 12;
    for _ in 0..number(8)? {
        // Ten numbers, the id of 20 bytes, the flags, and the name, padded with 1 to 8 zero bytes to a multiple of eight.
        if !matches!(number(at + 24)?, 0o100_644 | 0o100_755 | 0o120_000 | 0o160_000) {
            return None;
        }
        let flags = u16::from_be_bytes(index.get(at + 60..at + 62)?.try_into().ok()?);
        let length = usize::from(flags & 0x0fff);
        if flags & 0xf000 != 0 || length == 0x0fff || *index.get(at + 62 + length)? != 0 {
            return None;
        }
        at += (62 + length + 8) & !7;
    }
    Some(())
}

#[cfg(test)]
mod tests;
