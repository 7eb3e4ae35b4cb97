//! Keeps what is in a clone when a story did not finish: everything is committed on top of what the agent had committed, to
//! a salvage ref. Works on a clone with a broken index, locks, an interrupted merge, or no `.git` at all.
//!
//! Used by `story.rs` inside a sandbox, and by the depot, as the sandbox's user, where the shim is dead. Must not: touch the
//! assigned branch.

use std::path::Path;

use super::clone_dir::CloneDir;
use super::git::{GitError, HardenedGit};
use super::safe_fs;
use super::staging::{self, EmbeddedRepos};
use crate::ids::CommitId;

/// What to salvage, and where to.
#[derive(Debug)]
pub struct SalvageRun<'a> {
    /// The clone.
    pub clone: &'a CloneDir,
    /// Git for it, with the time that each process may take.
    pub git: HardenedGit,
    /// Where the work began: the parent where the clone has nothing better, and always an ancestor.
    pub start: &'a CommitId,
    /// Commits to keep beside HEAD: where other refs were moved to.
    pub stray_commits: Vec<CommitId>,
    /// The bundle of what was finished before, for a git folder that has to be made anew.
    pub finished_bundle: Option<&'a Path>,
    /// The ref to write.
    pub reference: &'a str,
    /// The commit's message.
    pub message: &'a str,
}

/// What was kept, and what could not be.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SalvagedWork {
    /// The commit; none where there is nothing beyond the start.
    pub commit: Option<CommitId>,
    /// Paths that are not in it, though they were there, without those below.
    pub left_out: Vec<String>,
    /// Special files (FIFOs, sockets, devices), which are never in it and hold no work.
    pub special_files: Vec<String>,
}

impl SalvageRun<'_> {
    /// Commits everything that git takes, and points the ref to it.
    pub fn run(&self) -> Result<SalvagedWork, GitError> {
        let mut special = self.clone.remove_special_files();
        let mut kept = self.commit_or_rebuild()?;
        special.append(&mut kept.special_files);
        Ok(SalvagedWork { special_files: special, ..kept })
    }

    fn commit_or_rebuild(&self) -> Result<SalvagedWork, GitError> {
        if self.clone.find_damage().is_some() {
            self.clone.rebuild_git_dir(self.finished_bundle)?;
        } else {
            self.clone.restore_git_files()?;
        }
        match self.commit_everything() {
            // The objects or the refs are broken in a way that only git sees, or it waits for something in there.
            Err(GitError::Failed { disk_full: false, .. } | GitError::TimedOut { .. }) => {
                self.clone.rebuild_git_dir(self.finished_bundle)?;
                self.commit_everything()
            }
            kept => kept,
        }
    }

    fn commit_everything(&self) -> Result<SalvagedWork, GitError> {
        let mut parents = self.parents()?;
        let start = parents.first().cloned().unwrap_or_else(|| self.start.clone());
        let staged = staging::stage_all(self.clone, &self.git, &start, EmbeddedRepos::RemoveGitDirs)?;
        let is_special = |path: &String| {
            let meta = std::fs::symlink_metadata(self.clone.repo.join(path));
            meta.is_ok_and(|meta| safe_fs::is_special_file(meta.file_type()))
        };
        let (special, left_out) = staged.refused.into_iter().partition(is_special);
        if parents.is_empty() {
            parents.push(self.start.clone());
        }
        let kept = match staging::commit_index(&self.git, &parents, self.message, Some(staged.changed))? {
            Some(commit) => commit,
            None if parents[0] == *self.start => {
                return Ok(SalvagedWork { commit: None, left_out, special_files: special });
            }
            None => parents.swap_remove(0),
        };
        self.git.run(&["update-ref", "--no-deref", self.reference, kept.as_str()])?;
        Ok(SalvagedWork { commit: Some(kept), left_out, special_files: special })
    }

    /// HEAD, if it can be read; the start, unless HEAD has it already; then the commits beside and what was stashed.
    fn parents(&self) -> Result<Vec<CommitId>, GitError> {
        let mut parents: Vec<CommitId> = Vec::new();
        let head = self.git.output(&["rev-parse", "--verify", "-q", "HEAD^{commit}"], None)?;
        if head.success {
            parents.push(staging::parse_commit_id("rev-parse", &head)?);
        }
        let stash = self.git.output(&["rev-parse", "--verify", "-q", "refs/stash^{commit}"], None)?;
        let stash = if stash.success { Some(staging::parse_commit_id("rev-parse", &stash)?) } else { None };
        for other in std::iter::once(self.start).chain(&self.stray_commits).chain(&stash) {
            let mut known = false;
            for parent in &parents {
                known |= parent == other
                    || self
                        .git
                        .output(&["merge-base", "--is-ancestor", other.as_str(), parent.as_str()], None)?
                        .success;
            }
            if !known {
                parents.push(other.clone());
            }
        }
        Ok(parents)
    }
}

/// Writes a bundle of these refs without what `base` has, to a temporary file that then gets its name. `durable`: it is
/// synced before. The folder is the caller's to sync.
pub fn write_bundle(
    git: &HardenedGit,
    to: &Path,
    base: &CommitId,
    refs: &[String],
    durable: bool,
) -> Result<(), GitError> {
    let temporary = to.with_extension("bundle-tmp");
    for path in [&temporary, &to.with_extension("bundle-tmp.lock")] {
        safe_fs::remove_any(path).map_err(|error| GitError::file("remove", path, error))?;
    }
    let mut args = vec!["bundle".to_owned(), "create".into(), "-q".into(), temporary.display().to_string()];
    args.push(format!("^{base}"));
    args.extend(refs.iter().cloned());
    git.run(&args)?;
    rename_into_place(&temporary, to, durable)
}

/// Gives a finished temporary file its name, synced before where it has to survive a crash.
pub fn rename_into_place(temporary: &Path, to: &Path, durable: bool) -> Result<(), GitError> {
    if durable {
        sync_path(temporary)?;
    }
    if std::fs::symlink_metadata(to).is_ok_and(|meta| meta.is_dir()) {
        safe_fs::remove_any(to).map_err(|e| GitError::file("remove", to, e))?;
    }
    std::fs::rename(temporary, to).map_err(|e| GitError::file("write", to, e))
}

/// Syncs a file, or a folder's names.
pub fn sync_path(path: &Path) -> Result<(), GitError> {
    std::fs::File::open(path).and_then(|file| file.sync_all()).map_err(|e| GitError::file("sync", path, e))
}
