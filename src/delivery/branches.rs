//! Branches in `refs/heads/`: lookup, name conflicts, creation.
//!
//! Called by `coordinator/` and by `cli/` for branches that the user asks for. Must not: move or delete a branch (`move_branch.rs`
//! creates and moves the integration branch).

use super::error::DeliveryError;
use super::refs::is_inside;
use super::repo::Repo;
use crate::ids::CommitId;

impl Repo {
    /// The branch's commit, or `None` if there is no such branch.
    pub(crate) async fn branch_head(&self, branch: &str) -> Result<Option<CommitId>, DeliveryError> {
        self.read_ref(&format!("refs/heads/{branch}")).await
    }

    /// Creates a branch of any valid name at `at`. An existing one must be at the same commit.
    pub(crate) async fn create_user_branch(&self, name: &str, at: &CommitId) -> Result<(), DeliveryError> {
        let command = self.git("check a branch name", ["check-ref-format", "--branch", name]);
        let output = command.accept_codes(&[0, 1, 128]).run().await?;
        // `@{-1}` and the like expand to other names.
        if output.code != 0 || output.trimmed_stdout() != name {
            return Err(DeliveryError::InvalidBranchName { name: name.chars().take(200).collect() });
        }
        self.create_branch(name, at, "longshore: salvaged").await
    }

    async fn create_branch(&self, branch: &str, at: &CommitId, reflog: &str) -> Result<(), DeliveryError> {
        if let Some(with) = self.conflicting_branch(branch).await? {
            return Err(DeliveryError::BranchNameConflict { branch: branch.to_owned(), with });
        }
        let name = format!("refs/heads/{branch}");
        let absent = "0".repeat(at.as_str().len());
        let args = ["update-ref", "-m", reflog, "--no-deref", "--", &name, at.as_str(), &absent];
        let Err(error) = self.git("create a branch", args).run().await else { return Ok(()) };
        match self.branch_head(branch).await? {
            Some(holds) if holds == *at => Ok(()),
            Some(holds) => Err(DeliveryError::RefExists { name, holds }),
            None => Err(error),
        }
    }

    /// A branch whose name excludes `branch`: `a` and `a/b` exclude each other. On a file system that ignores case, so do names
    /// that differ only in case.
    pub(crate) async fn conflicting_branch(&self, branch: &str) -> Result<Option<String>, DeliveryError> {
        let fold = |name: &str| if self.ignores_case() { name.to_lowercase() } else { name.to_owned() };
        let wanted = fold(branch);
        let conflicts = |other: &str| {
            let folded = fold(other);
            is_inside(&folded, &wanted) || is_inside(&wanted, &folded) || (folded == wanted && other != branch)
        };
        let heads = self.list_refs("refs/heads/").await?;
        let mut branches = heads.iter().filter_map(|(name, _)| name.strip_prefix("refs/heads/"));
        Ok(branches.find(|other| conflicts(other)).map(str::to_owned))
    }
}

#[cfg(test)]
mod tests;
