//! Starts the merge that a story has to finish: its earlier work, which is checked out, with the head of the integration branch.
//!
//! Used by `story.rs` before the agent runs. `examination.rs` asks it afterwards whether the merge is finished. Must not: resolve
//! anything, or trust `MERGE_HEAD` for more than a question.

use std::fs;
use std::os::unix::fs::MetadataExt;

use super::clone_dir::{CHECKOUT_TIMEOUT, CloneDir, MAX_GIT_FILE_BYTES};
use super::conflict_markers;
use super::git::{GitError, HardenedGit, error_from_stderr};
use super::safe_fs;
use crate::ids::CommitId;

/// Settings of the merge: nothing of an earlier story decides about it, and the markers are the ones that are looked for later.
const MERGE_CONFIG: [&str; 8] = [
    "-c",
    "rerere.enabled=false",
    "-c",
    "merge.conflictStyle=merge",
    "-c",
    "merge.autoStash=false",
    "-c",
    "merge.verifySignatures=false",
];

/// A merge in progress, as it was when the agent started.
#[derive(Debug, Clone)]
pub struct StartedMerge {
    /// The commit of the integration branch.
    pub head: CommitId,
    /// The paths with conflicts.
    pub conflicts: Vec<String>,
    /// Conflicts without markers, such as those of binary files and of files that one side deleted, with the state of the file.
    unmarked: Vec<(String, FileState)>,
}

/// The inode, and the time of its last change, which no program can set.
type FileState = (u64, i64, i64);

impl StartedMerge {
    /// Merges `head` into the clone without committing. The clone is at the story's start.
    pub fn start(clone: &CloneDir, head: &CommitId, message: &str) -> Result<Self, GitError> {
        let git = clone.git().with_timeout(CHECKOUT_TIMEOUT);
        let args = ["merge", "--no-commit", "--no-ff", "--no-gpg-sign", "--quiet", "-m", message, head.as_str()];
        let args = [&MERGE_CONFIG[..], &args].concat();
        let merged = git.output(&args, None)?;
        let conflicts = unmerged_paths(&git)?;
        if !merged.success && conflicts.is_empty() {
            // It could not be started.
            return Err(error_from_stderr(&["merge"], &merged.stderr));
        }
        let has_no_markers = |path: &&String| conflict_markers::file_has_markers(&clone.repo.join(path)) != Some(true);
        let unmarked = conflicts.iter().filter(has_no_markers);
        let unmarked = unmarked.filter_map(|path| Some((path.clone(), file_state(clone, path)?))).collect();
        Ok(Self { head: head.clone(), conflicts, unmarked })
    }

    /// Whether the repository is still in this merge. The caller has not restored the git directory yet.
    pub fn is_in_progress(&self, clone: &CloneDir) -> bool {
        let merging = safe_fs::read_text(&clone.git_dir().join("MERGE_HEAD"), MAX_GIT_FILE_BYTES);
        merging.is_ok_and(|merging| merging.trim() == self.head.as_str())
    }

    /// The conflicts without markers that nobody has touched: neither the file nor, as `unmerged` shows, the index.
    pub fn untouched_paths(&self, clone: &CloneDir, unmerged: &[String]) -> Vec<String> {
        let is_untouched = |(path, state): &&(String, FileState)| {
            unmerged.contains(path) && file_state(clone, path).as_ref() == Some(state)
        };
        self.unmarked.iter().filter(is_untouched).map(|(path, _)| path.clone()).collect()
    }
}

fn file_state(clone: &CloneDir, path: &str) -> Option<FileState> {
    let meta = fs::symlink_metadata(clone.repo.join(path)).ok()?;
    Some((meta.ino(), meta.ctime(), meta.ctime_nsec()))
}

/// The paths with conflicts in the index.
pub fn unmerged_paths(git: &HardenedGit) -> Result<Vec<String>, GitError> {
    let listed = git.output(&["ls-files", "-u", "-z"], None)?;
    if !listed.success {
        // Staging repairs a broken index.
        return Ok(Vec::new());
    }
    let mut paths: Vec<String> = listed
        .stdout
        .split(|b| *b == 0)
        .filter_map(|entry| String::from_utf8_lossy(entry).split_once('\t').map(|(_, path)| path.to_owned()))
        .collect();
    paths.dedup();
    Ok(paths)
}
