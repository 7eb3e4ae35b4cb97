//! Keeps what is in a clone when a story did not finish: everything is committed on top of what the agent had committed, to
//! a salvage ref. Works on a clone with a broken index, locks, an interrupted merge, or no `.git` at all.
//!
//! Used by `story.rs` inside a sandbox, and by the depot, as the sandbox's user, where the shim is dead. Must not: touch the
//! assigned branch.

use std::path::Path;

use super::clone::CloneDir;
use super::git::{Git, GitError};
use super::special;
use super::staging::{self, Embedded};
use crate::ids::CommitId;

/// What to salvage, and where to.
#[derive(Debug)]
pub struct Salvage<'a> {
    /// The clone.
    pub clone: &'a CloneDir,
    /// Git for it, with the time that each process may take.
    pub git: Git,
    /// Where the work began: the parent where the clone has nothing better, and always an ancestor.
    pub start: &'a CommitId,
    /// Commits to keep beside HEAD: where other refs were moved to.
    pub beside: Vec<CommitId>,
    /// The bundle of what was finished before, for a git folder that has to be made anew.
    pub finished: Option<&'a Path>,
    /// The ref to write.
    pub reference: &'a str,
    /// The commit's message.
    pub message: &'a str,
}

/// What was kept, and what could not be.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// The commit; none where there is nothing beyond the start.
    pub commit: Option<CommitId>,
    /// Paths that are not in it, though they were there, without those below.
    pub left_out: Vec<String>,
    /// Special files (FIFOs, sockets, devices), which are never in it and hold no work.
    pub special: Vec<String>,
}

impl Salvage<'_> {
    /// Commits everything that git takes, and points the ref to it.
    pub fn keep(&self) -> Result<Kept, GitError> {
        let mut special = self.clone.remove_special();
        let mut kept = self.keep_rest()?;
        special.append(&mut kept.special);
        Ok(Kept { special, ..kept })
    }

    fn keep_rest(&self) -> Result<Kept, GitError> {
        if self.clone.damage().is_some() {
            self.clone.rebuild(self.finished)?;
        } else {
            self.clone.put_in_order()?;
        }
        match self.commit() {
            // The objects or the refs are broken in a way that only git sees, or it waits for something in there.
            Err(GitError::Failed { disk_full: false, .. } | GitError::TimedOut { .. }) => {
                self.clone.rebuild(self.finished)?;
                self.commit()
            }
            kept => kept,
        }
    }

    fn commit(&self) -> Result<Kept, GitError> {
        let mut parents = self.parents()?;
        let start = parents.first().cloned().unwrap_or_else(|| self.start.clone());
        let staged = staging::stage_everything(self.clone, &self.git, &start, Embedded::Dissolve)?;
        let is_special = |path: &String| {
            let meta = std::fs::symlink_metadata(self.clone.repo.join(path));
            meta.is_ok_and(|meta| special::is_special(meta.file_type()))
        };
        let (special, left_out) = staged.refused.into_iter().partition(is_special);
        if parents.is_empty() {
            parents.push(self.start.clone());
        }
        let kept = match staging::commit_index(&self.git, &parents, self.message, Some(staged.changed))? {
            Some(commit) => commit,
            None if parents[0] == *self.start => return Ok(Kept { commit: None, left_out, special }),
            None => parents.swap_remove(0),
        };
        self.git.run(&["update-ref", "--no-deref", self.reference, kept.as_str()])?;
        Ok(Kept { commit: Some(kept), left_out, special })
    }

    /// HEAD, if it can be read; the start, unless HEAD has it already; then the commits beside and what was stashed.
    fn parents(&self) -> Result<Vec<CommitId>, GitError> {
        let mut parents: Vec<CommitId> = Vec::new();
        let head = self.git.output(&["rev-parse", "--verify", "-q", "HEAD^{commit}"], None)?;
        if head.success {
            parents.push(staging::commit_id("rev-parse", &head)?);
        }
        let stash = self.git.output(&["rev-parse", "--verify", "-q", "refs/stash^{commit}"], None)?;
        let stash = if stash.success { Some(staging::commit_id("rev-parse", &stash)?) } else { None };
        for other in std::iter::once(self.start).chain(&self.beside).chain(&stash) {
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
pub fn write_bundle(git: &Git, to: &Path, base: &CommitId, refs: &[String], durable: bool) -> Result<(), GitError> {
    let temporary = to.with_extension("bundle-tmp");
    for path in [&temporary, &to.with_extension("bundle-tmp.lock")] {
        special::clear(path).map_err(|error| GitError::file("remove", path, error))?;
    }
    let mut args = vec!["bundle".to_owned(), "create".into(), "-q".into(), temporary.display().to_string()];
    args.push(format!("^{base}"));
    args.extend(refs.iter().cloned());
    git.run(&args)?;
    rename(&temporary, to, durable)
}

/// Gives a finished temporary file its name, synced before where it has to survive a crash.
pub fn rename(temporary: &Path, to: &Path, durable: bool) -> Result<(), GitError> {
    if durable {
        sync(temporary)?;
    }
    if std::fs::symlink_metadata(to).is_ok_and(|meta| meta.is_dir()) {
        special::clear(to).map_err(|e| GitError::file("remove", to, e))?;
    }
    std::fs::rename(temporary, to).map_err(|e| GitError::file("write", to, e))
}

/// Syncs a file, or a folder's names.
pub fn sync(path: &Path) -> Result<(), GitError> {
    std::fs::File::open(path).and_then(|file| file.sync_all()).map_err(|e| GitError::file("sync", path, e))
}
