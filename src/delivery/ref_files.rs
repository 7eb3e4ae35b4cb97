//! Reads a ref from git's files, without a process.
//!
//! Called by `refs.rs`, for repositories whose refs are files. Whatever is out of the ordinary is left to git. Must not: write.

use std::fs;
use std::io;
use std::path::Path;

use crate::ids::CommitId;

/// The commit of the ref: `Some(None)` if there is no such ref, `None` if git has to say.
pub(super) fn read_ref(common_dir: &Path, name: &str) -> Option<Option<CommitId>> {
    // The loose file first: `git pack-refs` removes it only after it has written the packed one.
    match fs::read_to_string(common_dir.join(name)) {
        // A symbolic ref, or a file cut short, does not parse.
        Ok(text) => return text.trim_end().parse().ok().map(Some),
        // A directory: refs are below this name.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory
            ) => {}
        Err(_) => return None,
    }
    let packed = match fs::read(common_dir.join("packed-refs")) {
        Ok(packed) => packed,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Some(None),
        Err(_) => return None,
    };
    for line in packed.split(|&byte| byte == b'\n') {
        if let Some(id) = line.strip_suffix(name.as_bytes()).and_then(|rest| rest.strip_suffix(b" ")) {
            return std::str::from_utf8(id).ok()?.parse().ok().map(Some);
        }
    }
    Some(None)
}

#[cfg(test)]
mod tests;
