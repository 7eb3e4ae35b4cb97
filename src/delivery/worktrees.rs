//! Finds the working tree that has a branch checked out.
//!
//! Called by the checks before a swarm and before each merge, so it reads git's files instead of starting a process. A
//! branch that is being rebased or bisected counts: git detaches the head and restores the branch later.
//! Must not: write.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The working tree that has `branch`. `main` is the main working tree's path. Working trees whose directory is gone count, as
/// they do for git: their disk may not be mounted.
///
/// Repositories in the reftable format have no `HEAD` files; for those, see [`find_checkout_in_list`].
pub(super) fn find_checkout(common_dir: &Path, main: &Path, branch: &str) -> io::Result<Option<PathBuf>> {
    if has_branch(common_dir, branch)? {
        return Ok(Some(main.to_owned()));
    }
    let linked = match fs::read_dir(common_dir.join("worktrees")) {
        Ok(linked) => linked,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    for entry in linked {
        let git_dir = entry?.path();
        if has_branch(&git_dir, branch)? {
            return Ok(Some(worktree_path(&git_dir)));
        }
    }
    Ok(None)
}

/// The working tree that has `branch`, from the output of `git worktree list --porcelain -z`.
pub(super) fn find_checkout_in_list(list: &[u8], branch: &str) -> Option<PathBuf> {
    let wanted = format!("branch refs/heads/{branch}");
    let mut path = None;
    for field in list.split(|&byte| byte == 0) {
        if let Some(found) = field.strip_prefix(b"worktree ") {
            path = Some(PathBuf::from(OsString::from_vec(found.to_vec())));
        } else if field == wanted.as_bytes() {
            return path;
        }
    }
    None
}

/// Whether the working tree of this git directory has the branch.
fn has_branch(git_dir: &Path, branch: &str) -> io::Result<bool> {
    let full = format!("refs/heads/{branch}");
    let head = git_dir.join("HEAD");
    // In very old repositories, `HEAD` is a symbolic link.
    if fs::read_link(&head).is_ok_and(|target| target == Path::new(&full)) {
        return Ok(true);
    }
    if read_optional(&head)?.and_then(|text| text.strip_prefix("ref:").map(|name| name.trim() == full)) == Some(true) {
        return Ok(true);
    }
    for file in ["rebase-merge/head-name", "rebase-apply/head-name"] {
        if read_optional(&git_dir.join(file))?.is_some_and(|text| text.trim_end() == full) {
            return Ok(true);
        }
    }
    if read_optional(&git_dir.join("BISECT_START"))?.is_some_and(|text| text.trim_end() == branch) {
        return Ok(true);
    }
    // `rebase --update-refs` writes a ref name and two ids, each on a line.
    Ok(read_optional(&git_dir.join("rebase-merge/update-refs"))?
        .is_some_and(|text| text.lines().any(|line| line == full)))
}

fn read_optional(path: &Path) -> io::Result<Option<String>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A linked working tree's path, from the file in which git stores it; its git directory if that cannot be read.
fn worktree_path(git_dir: &Path) -> PathBuf {
    let Ok(mut bytes) = fs::read(git_dir.join("gitdir")) else { return git_dir.to_owned() };
    while bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    let file = git_dir.join(PathBuf::from(OsString::from_vec(bytes)));
    file.parent().unwrap_or(git_dir).to_owned()
}
