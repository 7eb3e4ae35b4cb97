//! Applies kept work to the user's index and working tree.
//!
//! Called only by `longshore salvage apply`, at the user's request: no other code writes to a working tree. `git merge-tree` merges
//! the difference from the work's base with the head, away from the checkout. Only a merge without conflicts reaches the
//! checkout, by `git read-tree -m -u`, which examines every file before it writes the first and overwrites none with
//! uncommitted changes.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::error::DeliveryError;
use super::git_runner::unexpected_output;
use super::merge::MergedTree;
use super::refs::is_inside;
use super::repo::Repo;
use crate::git::identity_env;
use crate::handoff::assignment::GitIdentity;
use crate::ids::CommitId;

/// How an application ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ApplyOutcome {
    /// These files changed in the index and the working tree, sorted; empty if the head contains the work already.
    Changed { paths: Vec<String> },
    /// The work conflicts with the head in these files, sorted. Nothing changed.
    Conflict { paths: Vec<String> },
}

impl Repo {
    /// Applies the difference between `base` and `tip` to the index and the working tree, without a commit.
    ///
    /// # Errors
    /// [`DeliveryError::UncommittedChanges`] if the user has changes in the same files, [`DeliveryError::UnresolvedConflicts`]
    /// if a merge is in progress. Nothing changed then.
    pub(crate) async fn apply(&self, base: &CommitId, tip: &CommitId) -> Result<ApplyOutcome, DeliveryError> {
        let head = self.head().await?.commit;
        // In a temporary history, `base` is the only merge base, whatever the branches have in common.
        let root = self.create_temporary_commit(base, None).await?;
        let ours = self.create_temporary_commit(&head, Some(&root)).await?;
        let theirs = self.create_temporary_commit(tip, Some(&root)).await?;
        let tree = match self.merge_trees(&ours, &theirs).await? {
            MergedTree::Clean(tree) => tree,
            MergedTree::Conflicting(paths) => return Ok(ApplyOutcome::Conflict { paths }),
        };
        let mut paths: Vec<String> = self.diff_stat(&head, &tree).await?.into_iter().map(|stat| stat.path).collect();
        paths.sort();
        if paths.is_empty() {
            return Ok(ApplyOutcome::Changed { paths });
        }
        self.check_no_uncommitted_changes(&paths).await?;
        self.check_no_ignored_files(&head, &tree, &paths).await?;
        // Without a refresh, a file that was only touched counts as changed.
        let refresh = self.git_in_work_tree("look for changes", ["update-index", "-q", "--refresh"]);
        refresh.accept_codes(&[0, 1]).run().await?;
        let args = ["read-tree", "-m", "-u", head.as_str(), tree.as_str()];
        match self.git_in_work_tree("change the working tree", args).run().await {
            Ok(_) => Ok(ApplyOutcome::Changed { paths }),
            // A file that changed since the check.
            Err(DeliveryError::CommandFailed { tail, .. }) if is_overwrite_refusal(&tail) => {
                let named: Vec<String> = paths.into_iter().filter(|path| tail.contains(path.as_str())).collect();
                Err(DeliveryError::UncommittedChanges { paths: named })
            }
            Err(error) => Err(error),
        }
    }

    /// Commits the tree of another commit, without a ref.
    async fn create_temporary_commit(
        &self,
        of: &CommitId,
        parent: Option<&CommitId>,
    ) -> Result<CommitId, DeliveryError> {
        let operation = "prepare a merge";
        let tree = format!("{of}^{{tree}}");
        let identity = GitIdentity { name: "longshore".into(), email: "longshore@localhost".into() };
        let mut command = self.git(operation, ["commit-tree", "--no-gpg-sign", "-m", "longshore", &tree]);
        if let Some(parent) = parent {
            command = command.args(["-p", parent.as_str()]);
        }
        let dates = [("GIT_AUTHOR_DATE", "@0 +0000"), ("GIT_COMMITTER_DATE", "@0 +0000")];
        let line = command.envs(identity_env(&identity)).envs(dates).run().await?.trimmed_stdout();
        line.parse().map_err(|_| unexpected_output(operation, &line))
    }

    /// Refuses uncommitted changes to one of the paths, to a file above it or to a file below it.
    async fn check_no_uncommitted_changes(&self, paths: &[String]) -> Result<(), DeliveryError> {
        let args =
            ["status", "--porcelain", "-z", "--untracked-files=all", "--ignore-submodules=dirty", "--no-renames"];
        let output = self.git_in_work_tree("look for changes", args).run().await?;
        let (mut unmerged, mut in_the_way) = (BTreeSet::new(), BTreeSet::new());
        for (state, path) in output.text().split('\0').filter_map(|record| record.split_at_checked(3)) {
            let path = path.trim_end_matches('/');
            if matches!(state.trim_end(), "DD" | "AU" | "UD" | "UA" | "DU" | "AA" | "UU") {
                unmerged.insert(path.to_owned());
            } else if paths.iter().any(|other| paths_overlap(path, other)) {
                in_the_way.insert(path.to_owned());
            }
        }
        if !unmerged.is_empty() {
            return Err(DeliveryError::UnresolvedConflicts { paths: unmerged.into_iter().collect() });
        }
        refuse_uncommitted(in_the_way)
    }

    /// Refuses a new file whose path is taken. The other check has refused all such files but ignored ones, which git would
    /// overwrite.
    async fn check_no_ignored_files(
        &self,
        head: &CommitId,
        tree: &CommitId,
        changed: &[String],
    ) -> Result<(), DeliveryError> {
        let args = ["diff-tree", "-r", "-z", "--name-only", "--no-renames", "--diff-filter=A", "--end-of-options"];
        let command = self.git("look for changes", args).args([head.as_str(), tree.as_str(), "--"]);
        let output = command.run().await?;
        let mut taken = BTreeSet::new();
        for added in output.nul_fields() {
            let added = Path::new(OsStr::from_bytes(added));
            // The path itself, and a file in place of one of its directories.
            for path in added.ancestors().filter(|path| !path.as_os_str().is_empty()) {
                let Ok(found) = self.root().join(path).symlink_metadata() else { continue };
                let name = path.to_string_lossy();
                let is_replaced =
                    changed.iter().any(|other| *other != added.to_string_lossy() && paths_overlap(&name, other));
                if (path == added || !found.is_dir()) && !is_replaced {
                    taken.insert(name.into_owned());
                }
            }
        }
        refuse_uncommitted(taken)
    }
}

fn refuse_uncommitted(paths: BTreeSet<String>) -> Result<(), DeliveryError> {
    if paths.is_empty() {
        Ok(())
    } else {
        Err(DeliveryError::UncommittedChanges { paths: paths.into_iter().collect() })
    }
}

/// Whether git refused to overwrite a file.
fn is_overwrite_refusal(tail: &str) -> bool {
    ["would be overwritten", "not uptodate", "would be removed", "would lose"].iter().any(|words| tail.contains(words))
}

/// Whether the paths are equal, or one is below the other.
fn paths_overlap(one: &str, other: &str) -> bool {
    one == other || is_inside(one, other) || is_inside(other, one)
}

#[cfg(test)]
mod tests;
