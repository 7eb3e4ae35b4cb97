//! Could a changed file of the work tree hold merge markers? Where none can, `examination.rs` saves a process of git.
//!
//! The answer may be yes too often, and never no where git would find one. Must not: decide; git does, where this says yes.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use memchr::memmem;

use super::safe_fs::{self, WorkTreeScan};

/// Files above this are not looked into.
const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;

/// For repositories of SHA-1. Whether one of these files, all paths that differ from the start in the index, may have gained both markers.
pub fn may_have_markers(repo: &Path, changed: &[PathBuf], walked: &WorkTreeScan) -> bool {
    changed.iter().any(|path| file_may_have_markers(&repo.join(path)))
        || has_reencoding_attributes(repo, walked)
        || index_may_differ(&repo.join(".git"))
}

/// What cannot be read as a regular file may: a link's target is text to git.
fn file_may_have_markers(path: &Path) -> bool {
    let Ok(file) = safe_fs::open_regular(path) else { return true };
    if !file.metadata().is_ok_and(|meta| meta.len() <= MAX_FILE_BYTES) {
        return true;
    }
    let mut bytes = Vec::new();
    if file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).is_err() {
        return true;
    }
    has_line_starting_with(&bytes, b"<<<<<<< ") && has_line_starting_with(&bytes, b">>>>>>> ")
}

fn has_line_starting_with(bytes: &[u8], start: &[u8]) -> bool {
    memmem::find_iter(bytes, start).any(|at| at == 0 || bytes[at - 1] == b'\n')
}

/// Attributes can make git store other bytes than the file has.
fn has_reencoding_attributes(repo: &Path, walked: &WorkTreeScan) -> bool {
    let says = |path: &PathBuf| {
        safe_fs::read_text(path, MAX_FILE_BYTES).map_or(true, |text| text.contains("working-tree-encoding"))
    };
    let info = repo.join(".git/info/attributes");
    walked.attributes.iter().any(says) || (fs::symlink_metadata(&info).is_ok() && says(&info))
}

/// Whether the index may hold something else than the work tree: an agent can tell git to overlook a file's changes. Such
/// flags are in each entry; only the plain second version of the format is looked into.
fn index_may_differ(git_dir: &Path) -> bool {
    let mut bytes = Vec::new();
    let read = safe_fs::open_regular(&git_dir.join("index")).and_then(|mut file| file.read_to_end(&mut bytes));
    read.is_err() || check_plain_entries(&bytes).is_none()
}

/// Walks over the entries of an index. None where one has flags, or where it is not understood.
fn check_plain_entries(index: &[u8]) -> Option<()> {
    let number = |at: usize| Some(u32::from_be_bytes(index.get(at..at + 4)?.try_into().ok()?));
    if index.get(..4)? != b"DIRC" || number(4)? != 2 || memmem::find(index, b"link").is_some() {
        return None;
    }
    let mut at = 12;
    for _ in 0..number(8)? {
        // Ten numbers of the file's state, 20 bytes of id, the flags, the name with at least one zero byte behind it, and
        // more up to a multiple of eight.
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
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn index_with_flags_or_another_version_may_differ() {
        let dir = tempfile::tempdir().expect("a folder");
        let git = |args: &[&str]| {
            let status = Command::new("git").current_dir(dir.path()).args(args).status().expect("git runs");
            assert!(status.success(), "{args:?}");
        };
        git(&["init", "-q", "--object-format=sha1"]);
        for name in ["a", "bb.txt", "folder-1234567", "sehr/tief/unten.md"] {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().expect("it has one")).expect("made");
            fs::write(path, name).expect("written");
        }
        git(&["add", "-A"]);
        let git_dir = dir.path().join(".git");
        assert!(!index_may_differ(&git_dir));
        for (on, off) in [
            (["update-index", "--assume-unchanged", "bb.txt"], ["update-index", "--no-assume-unchanged", "bb.txt"]),
            (["update-index", "--skip-worktree", "a"], ["update-index", "--no-skip-worktree", "a"]),
            (["update-index", "--index-version", "4"], ["update-index", "--index-version", "2"]),
        ] {
            git(&on);
            assert!(index_may_differ(&git_dir), "{on:?}");
            git(&off);
            assert!(!index_may_differ(&git_dir), "{off:?}");
        }
        git(&["update-index", "--split-index"]);
        assert!(index_may_differ(&git_dir));
        fs::remove_file(git_dir.join("index")).expect("removed");
        assert!(index_may_differ(&git_dir));
    }

    #[test]
    fn file_may_have_markers_needs_both_markers_at_line_starts() {
        let dir = tempfile::tempdir().expect("a folder");
        let may = |text: &str| {
            fs::write(dir.path().join("f"), text).expect("written");
            file_may_have_markers(&dir.path().join("f"))
        };
        assert!(may("<<<<<<< a\n=======\n>>>>>>> b\n"));
        assert!(may("x\r\n<<<<<<< a\r\n>>>>>>> b"));
        assert!(!may("<<<<<<< a\n") && !may(" <<<<<<< a\n >>>>>>> b\n") && !may("<<<<<<<\n>>>>>>>\n"));
        assert!(file_may_have_markers(&dir.path().join("gone")));
    }
}
