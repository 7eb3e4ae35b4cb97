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
use super::git::{Call, not_understood};
use super::repo::Repo;
use crate::ids::CommitId;

/// Who signs the commits that a merge needs for the time that it takes; no ref ever has them.
const NOBODY: [(&str, &str); 6] = [
    ("GIT_AUTHOR_NAME", "longshore"),
    ("GIT_AUTHOR_EMAIL", "longshore@localhost"),
    ("GIT_AUTHOR_DATE", "@0 +0000"),
    ("GIT_COMMITTER_NAME", "longshore"),
    ("GIT_COMMITTER_EMAIL", "longshore@localhost"),
    ("GIT_COMMITTER_DATE", "@0 +0000"),
];

/// What became of an application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applied {
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
    /// [`DeliveryError::InTheWay`] where the user's own changes are to files concerned, [`DeliveryError::Unmerged`] where a merge
    /// of the user's is under way. Nothing was changed then.
    pub async fn apply(&self, base: &CommitId, tip: &CommitId) -> Result<Applied, DeliveryError> {
        let head = self.head().await?.commit;
        // A history of its own makes `base` the one merge base, whatever the branches have in common.
        let root = self.passing(base, None).await?;
        let (ours, theirs) = (self.passing(&head, Some(&root)).await?, self.passing(tip, Some(&root)).await?);
        let tree = match self.merge_trees(&ours, &theirs).await? {
            Ok(tree) => tree.parse::<CommitId>().map_err(|_| not_understood("merge the result", &tree))?,
            Err(paths) => return Ok(Applied::Conflict { paths }),
        };
        let mut paths: Vec<String> = self.diff_stat(&head, &tree).await?.into_iter().map(|stat| stat.path).collect();
        paths.sort();
        if paths.is_empty() {
            return Ok(Applied::Changed { paths });
        }
        self.nothing_in_the_way(&paths).await?;
        self.nothing_ignored_in_the_way(&head, &tree, &paths).await?;
        // Files that were only touched are not changed ones.
        self.here("look for changes", ["update-index", "-q", "--refresh"]).accept(&[0, 1]).run().await?;
        let call = self.here("change the working tree", ["read-tree", "-m", "-u", head.as_str(), tree.as_str()]);
        match call.run().await {
            Ok(_) => Ok(Applied::Changed { paths }),
            // One that was changed this moment.
            Err(DeliveryError::CommandFailed { tail, .. }) if refused(&tail) => {
                let named: Vec<String> = paths.into_iter().filter(|path| tail.contains(path.as_str())).collect();
                Err(DeliveryError::InTheWay { paths: named })
            }
            Err(error) => Err(error),
        }
    }

    /// Makes a branch of any name at a commit, and touches nothing else. One that is there must be at the same commit.
    pub async fn make_branch(&self, name: &str, at: &CommitId) -> Result<(), DeliveryError> {
        let operation = "make a branch";
        let call = self.git().call(operation, ["check-ref-format", "--branch", name]).accept(&[0, 1, 128]);
        // `@{-1}` and its like are read as other names.
        let output = call.run().await?;
        if output.code != 0 || output.line() != name {
            return Err(DeliveryError::BranchName { name: name.chars().take(200).collect() });
        }
        if let Some(with) = self.branch_clash(name).await? {
            return Err(DeliveryError::BranchClash { branch: name.to_owned(), with });
        }
        let reference = format!("refs/heads/{name}");
        let nothing = "0".repeat(at.as_str().len());
        let call = self.git().call(operation, ["update-ref", "-m", "longshore: salvaged", "--no-deref", "--"]);
        let Err(error) = call.args([reference.as_str(), at.as_str(), nothing.as_str()]).run().await else {
            return Ok(());
        };
        match self.branch_head(name).await? {
            Some(holds) if holds == *at => Ok(()),
            Some(holds) => Err(DeliveryError::RefTaken { name: reference, holds }),
            None => Err(error),
        }
    }

    /// A commit of another's tree that nothing refers to.
    async fn passing(&self, of: &CommitId, parent: Option<&CommitId>) -> Result<CommitId, DeliveryError> {
        let operation = "prepare a merge";
        let tree = format!("{of}^{{tree}}");
        let mut call = self.git().call(operation, ["commit-tree", "--no-gpg-sign", "-m", "longshore", &tree]);
        if let Some(parent) = parent {
            call = call.args(["-p", parent.as_str()]);
        }
        let call = NOBODY.iter().fold(call, |call, (key, value)| call.env(key, *value));
        let line = call.run().await?.line();
        line.parse().map_err(|_| not_understood(operation, &line))
    }

    /// Refuses where one of the paths, a folder above it or a file below it has changes that are not committed.
    async fn nothing_in_the_way(&self, paths: &[String]) -> Result<(), DeliveryError> {
        let args =
            ["status", "--porcelain", "-z", "--untracked-files=all", "--ignore-submodules=dirty", "--no-renames"];
        let output = self.here("look for changes", args).run().await?;
        let text = String::from_utf8_lossy(&output.stdout);
        let changed = text.split('\0').filter_map(|record| record.split_at_checked(3));
        let (mut unmerged, mut in_the_way) = (BTreeSet::new(), BTreeSet::new());
        for (state, path) in changed {
            let path = path.trim_end_matches('/');
            if matches!(state.trim_end(), "DD" | "AU" | "UD" | "UA" | "DU" | "AA" | "UU") {
                unmerged.insert(path.to_owned());
            } else if paths.iter().any(|other| touches(path, other)) {
                in_the_way.insert(path.to_owned());
            }
        }
        let all = |paths: BTreeSet<String>| paths.into_iter().collect::<Vec<_>>();
        match (unmerged.is_empty(), in_the_way.is_empty()) {
            (false, _) => Err(DeliveryError::Unmerged { paths: all(unmerged) }),
            (true, false) => Err(DeliveryError::InTheWay { paths: all(in_the_way) }),
            (true, true) => Ok(()),
        }
    }

    /// Refuses where a file that is to be made is there already: one that git ignores, since all others were seen to be clean.
    /// Git itself takes ignored files to be worth nothing.
    async fn nothing_ignored_in_the_way(
        &self,
        head: &CommitId,
        tree: &CommitId,
        changed: &[String],
    ) -> Result<(), DeliveryError> {
        let args = ["diff-tree", "-r", "-z", "--name-only", "--no-renames", "--diff-filter=A", "--end-of-options"];
        let call = self.git().call("look for changes", args).args([head.as_str(), tree.as_str(), "--"]);
        let output = call.run().await?;
        let mut paths = BTreeSet::new();
        for added in output.stdout.split(|&byte| byte == 0).filter(|path| !path.is_empty()) {
            let added = Path::new(OsStr::from_bytes(added));
            // The path itself, and what stands where one of its folders must be.
            for path in added.ancestors().filter(|path| !path.as_os_str().is_empty()) {
                let Ok(found) = self.root().join(path).symlink_metadata() else { continue };
                let name = path.to_string_lossy();
                let to_go = changed.iter().any(|other| *other != added.to_string_lossy() && touches(&name, other));
                if (path == added || !found.is_dir()) && !to_go {
                    paths.insert(name.into_owned());
                }
            }
        }
        if paths.is_empty() { Ok(()) } else { Err(DeliveryError::InTheWay { paths: paths.into_iter().collect() }) }
    }

    /// A command in the user's working tree.
    fn here<'g, const N: usize>(&'g self, operation: &'static str, args: [&str; N]) -> Call<'g> {
        self.git().call(operation, args).cwd(self.root()).env("GIT_WORK_TREE", self.root())
    }
}

/// Whether git's words say that it would have overwritten something.
fn refused(tail: &str) -> bool {
    ["would be overwritten", "not uptodate", "would be removed", "would lose"].iter().any(|words| tail.contains(words))
}

/// Whether the two are the same path, or one is a folder of the other.
fn touches(one: &str, other: &str) -> bool {
    let below = |outer: &str, inner: &str| inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/'));
    one == other || below(one, other) || below(other, one)
}

#[cfg(test)]
mod tests;
