//! Saves the work of a story that did not finish: commits everything on top of the agent's commits, to a salvage ref. Works on a
//! clone with a broken index, locks, an interrupted merge, or no `.git` at all.
//!
//! Used by `story.rs` inside a sandbox, and by the depot, as the sandbox's user, after the shim died. Must not: touch the assigned
//! branch.

use std::path::Path;

use super::clone_dir::CloneDir;
use super::git::{GitError, HardenedGit};
use super::special_files;
use super::staging::{self, EmbeddedRepos, IndexState};
use crate::ids::CommitId;

#[derive(Debug)]
pub struct SalvageRun<'a> {
    pub clone: &'a CloneDir,
    /// Git for the clone, with the time limit of each process.
    pub git: HardenedGit,
    /// The commit at which the work started. It is always an ancestor of the salvage.
    pub start: &'a CommitId,
    /// Commits to keep besides HEAD: those to which other refs were moved.
    pub stray_commits: Vec<CommitId>,
    /// The bundle of earlier stories, for a git directory that has to be rebuilt.
    pub finished_bundle: Option<&'a Path>,
    /// The ref to update.
    pub reference: &'a str,
    pub message: &'a str,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct SalvagedCommit {
    /// `None` if there is nothing besides the start.
    pub commit: Option<CommitId>,
    /// Paths in the work tree that are not in the commit, without special files.
    pub left_out: Vec<String>,
    /// FIFOs, sockets and devices. They hold no work.
    pub special_files: Vec<String>,
}

impl SalvageRun<'_> {
    /// Commits everything that git accepts, and updates the ref.
    pub fn run(&self) -> Result<SalvagedCommit, GitError> {
        let mut special = self.clone.remove_special_files();
        let mut commit = self.commit_or_rebuild()?;
        special.append(&mut commit.special_files);
        Ok(SalvagedCommit { special_files: special, ..commit })
    }

    fn commit_or_rebuild(&self) -> Result<SalvagedCommit, GitError> {
        if self.clone.find_damage().is_some() {
            self.clone.rebuild_git_dir(self.finished_bundle)?;
        } else {
            self.clone.restore_git_files()?;
        }
        match self.commit_everything() {
            // Objects or refs are broken in a way that only git detects, or make it wait.
            Err(GitError::Failed { disk_full: false, .. } | GitError::TimedOut { .. }) => {
                self.clone.rebuild_git_dir(self.finished_bundle)?;
                self.commit_everything()
            }
            // The agent's processes may be gone by now, and their memory free.
            Err(GitError::OutOfMemory { .. }) => self.commit_everything(),
            result => result,
        }
    }

    fn commit_everything(&self) -> Result<SalvagedCommit, GitError> {
        let mut parents = self.parents()?;
        let start = parents.first().cloned().unwrap_or_else(|| self.start.clone());
        let staged = staging::stage_all(self.clone, &self.git, &start, EmbeddedRepos::RemoveGitDirs)?;
        let is_special = |path: &String| {
            let meta = std::fs::symlink_metadata(self.clone.repo.join(path));
            meta.is_ok_and(|meta| special_files::is_special(meta.file_type()))
        };
        let (special, left_out) = staged.refused.into_iter().partition(is_special);
        if parents.is_empty() {
            parents.push(self.start.clone());
        }
        let state = if staged.changed { IndexState::Changed } else { IndexState::Unchanged };
        let tip = match staging::commit_index(&self.git, &parents, self.message, state)? {
            Some(commit) => commit,
            None if parents[0] == *self.start => {
                return Ok(SalvagedCommit { commit: None, left_out, special_files: special });
            }
            None => parents.swap_remove(0),
        };
        self.git.run(&["update-ref", "--no-deref", self.reference, tip.as_str()])?;
        Ok(SalvagedCommit { commit: Some(tip), left_out, special_files: special })
    }

    /// HEAD if it is readable, then the start, the stray commits and the stash, each unless a parent contains it already.
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
