//! Kept work into the user's hands: as changes in the index and the working tree, or as a branch.
//!
//! Called by `longshore salvage apply`, and by nothing else: it is the one place that writes to a working tree, because a person
//! asked for it. The difference from the work's base is merged with the head by `git merge-tree`, away from the checkout; only
//! a merge without conflicts gets there, by `git read-tree -m -u`, which looks at every file before it writes the first, and
//! writes none that has changes of its own.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::error::DeliveryError;
use super::git::{GitCommand, unexpected_output};
use super::repo::Repo;
use crate::ids::CommitId;

/// Who signs the commits that a merge needs for the time that it takes; no ref ever has them.
const PLACEHOLDER_IDENTITY: [(&str, &str); 6] = [
    ("GIT_AUTHOR_NAME", "longshore"),
    ("GIT_AUTHOR_EMAIL", "longshore@localhost"),
    ("GIT_AUTHOR_DATE", "@0 +0000"),
    ("GIT_COMMITTER_NAME", "longshore"),
    ("GIT_COMMITTER_EMAIL", "longshore@localhost"),
    ("GIT_COMMITTER_DATE", "@0 +0000"),
];

/// What became of an application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApplyOutcome {
    /// These files were changed, in the index and the working tree; none where the head has it all.
    Changed {
        /// Sorted.
        paths: Vec<String>,
    },
    /// It does not merge with the head; nothing was changed.
    Conflict {
        /// The files concerned, sorted.
        paths: Vec<String>,
    },
}

impl Repo {
    /// Applies what lies between `base` and `tip` to the index and the working tree, and commits nothing.
    ///
    /// # Errors
    /// [`DeliveryError::UncommittedChanges`] where the user's own changes are to files concerned, [`DeliveryError::UnresolvedConflicts`] where a merge
    /// of the user's is under way. Nothing was changed then.
    pub async fn apply(&self, base: &CommitId, tip: &CommitId) -> Result<ApplyOutcome, DeliveryError> {
        let head = self.head().await?.commit;
        // A history of its own makes `base` the one merge base, whatever the branches have in common.
        let root = self.create_temporary_commit(base, None).await?;
        let (ours, theirs) = (
            self.create_temporary_commit(&head, Some(&root)).await?,
            self.create_temporary_commit(tip, Some(&root)).await?,
        );
        let tree = match self.merge_trees(&ours, &theirs).await? {
            Ok(tree) => tree.parse::<CommitId>().map_err(|_| unexpected_output("merge the result", &tree))?,
            Err(paths) => return Ok(ApplyOutcome::Conflict { paths }),
        };
        let mut paths: Vec<String> = self.diff_stat(&head, &tree).await?.into_iter().map(|stat| stat.path).collect();
        paths.sort();
        if paths.is_empty() {
            return Ok(ApplyOutcome::Changed { paths });
        }
        self.check_no_uncommitted_changes(&paths).await?;
        self.check_no_ignored_files(&head, &tree, &paths).await?;
        // Files that were only touched are not changed ones.
        self.work_tree_command("look for changes", ["update-index", "-q", "--refresh"])
            .accept_codes(&[0, 1])
            .run()
            .await?;
        let call =
            self.work_tree_command("change the working tree", ["read-tree", "-m", "-u", head.as_str(), tree.as_str()]);
        match call.run().await {
            Ok(_) => Ok(ApplyOutcome::Changed { paths }),
            // One that was changed this moment.
            Err(DeliveryError::CommandFailed { tail, .. }) if is_overwrite_refusal(&tail) => {
                let named: Vec<String> = paths.into_iter().filter(|path| tail.contains(path.as_str())).collect();
                Err(DeliveryError::UncommittedChanges { paths: named })
            }
            Err(error) => Err(error),
        }
    }

    /// Makes a branch of any name at a commit, and touches nothing else. One that is there must be at the same commit.
    pub async fn create_user_branch(&self, name: &str, at: &CommitId) -> Result<(), DeliveryError> {
        let operation = "make a branch";
        let call = self.git().new_command(operation, ["check-ref-format", "--branch", name]).accept_codes(&[0, 1, 128]);
        // `@{-1}` and its like are read as other names.
        let output = call.run().await?;
        if output.code != 0 || output.trimmed_stdout() != name {
            return Err(DeliveryError::InvalidBranchName { name: name.chars().take(200).collect() });
        }
        if let Some(with) = self.conflicting_branch(name).await? {
            return Err(DeliveryError::BranchNameConflict { branch: name.to_owned(), with });
        }
        let reference = format!("refs/heads/{name}");
        let nothing = "0".repeat(at.as_str().len());
        let call = self.git().new_command(operation, ["update-ref", "-m", "longshore: salvaged", "--no-deref", "--"]);
        let Err(error) = call.args([reference.as_str(), at.as_str(), nothing.as_str()]).run().await else {
            return Ok(());
        };
        match self.branch_head(name).await? {
            Some(holds) if holds == *at => Ok(()),
            Some(holds) => Err(DeliveryError::RefExists { name: reference, holds }),
            None => Err(error),
        }
    }

    /// A commit of another's tree that nothing refers to.
    async fn create_temporary_commit(
        &self,
        of: &CommitId,
        parent: Option<&CommitId>,
    ) -> Result<CommitId, DeliveryError> {
        let operation = "prepare a merge";
        let tree = format!("{of}^{{tree}}");
        let mut call = self.git().new_command(operation, ["commit-tree", "--no-gpg-sign", "-m", "longshore", &tree]);
        if let Some(parent) = parent {
            call = call.args(["-p", parent.as_str()]);
        }
        let call = PLACEHOLDER_IDENTITY.iter().fold(call, |call, (key, value)| call.env(key, *value));
        let line = call.run().await?.trimmed_stdout();
        line.parse().map_err(|_| unexpected_output(operation, &line))
    }

    /// Refuses where one of the paths, a folder above it or a file below it has changes that are not committed.
    async fn check_no_uncommitted_changes(&self, paths: &[String]) -> Result<(), DeliveryError> {
        let args =
            ["status", "--porcelain", "-z", "--untracked-files=all", "--ignore-submodules=dirty", "--no-renames"];
        let output = self.work_tree_command("look for changes", args).run().await?;
        let text = String::from_utf8_lossy(&output.stdout);
        let changed = text.split('\0').filter_map(|record| record.split_at_checked(3));
        let (mut unmerged, mut in_the_way) = (BTreeSet::new(), BTreeSet::new());
        for (state, path) in changed {
            let path = path.trim_end_matches('/');
            if matches!(state.trim_end(), "DD" | "AU" | "UD" | "UA" | "DU" | "AA" | "UU") {
                unmerged.insert(path.to_owned());
            } else if paths.iter().any(|other| paths_overlap(path, other)) {
                in_the_way.insert(path.to_owned());
            }
        }
        let all = |paths: BTreeSet<String>| paths.into_iter().collect::<Vec<_>>();
        match (unmerged.is_empty(), in_the_way.is_empty()) {
            (false, _) => Err(DeliveryError::UnresolvedConflicts { paths: all(unmerged) }),
            (true, false) => Err(DeliveryError::UncommittedChanges { paths: all(in_the_way) }),
            (true, true) => Ok(()),
        }
    }

    /// Refuses where a file that is to be made is there already: one that git ignores, since all others were seen to be clean.
    /// Git itself takes ignored files to be worth nothing.
    async fn check_no_ignored_files(
        &self,
        head: &CommitId,
        tree: &CommitId,
        changed: &[String],
    ) -> Result<(), DeliveryError> {
        let args = ["diff-tree", "-r", "-z", "--name-only", "--no-renames", "--diff-filter=A", "--end-of-options"];
        let call = self.git().new_command("look for changes", args).args([head.as_str(), tree.as_str(), "--"]);
        let output = call.run().await?;
        let mut paths = BTreeSet::new();
        for added in output.stdout.split(|&byte| byte == 0).filter(|path| !path.is_empty()) {
            let added = Path::new(OsStr::from_bytes(added));
            // The path itself, and what stands where one of its folders must be.
            for path in added.ancestors().filter(|path| !path.as_os_str().is_empty()) {
                let Ok(found) = self.root().join(path).symlink_metadata() else { continue };
                let name = path.to_string_lossy();
                let to_go =
                    changed.iter().any(|other| *other != added.to_string_lossy() && paths_overlap(&name, other));
                if (path == added || !found.is_dir()) && !to_go {
                    paths.insert(name.into_owned());
                }
            }
        }
        if paths.is_empty() {
            Ok(())
        } else {
            Err(DeliveryError::UncommittedChanges { paths: paths.into_iter().collect() })
        }
    }

    /// A command in the user's working tree.
    fn work_tree_command<'g, const N: usize>(&'g self, operation: &'static str, args: [&str; N]) -> GitCommand<'g> {
        self.git().new_command(operation, args).cwd(self.root()).env("GIT_WORK_TREE", self.root())
    }
}

/// Whether git's words say that it would have overwritten something.
fn is_overwrite_refusal(tail: &str) -> bool {
    ["would be overwritten", "not uptodate", "would be removed", "would lose"].iter().any(|words| tail.contains(words))
}

/// Whether the two are the same path, or one is a folder of the other.
fn paths_overlap(one: &str, other: &str) -> bool {
    let below = |outer: &str, inner: &str| inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/'));
    one == other || below(one, other) || below(other, one)
}

#[cfg(test)]
mod tests;
