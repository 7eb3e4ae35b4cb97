//! Moves the integration branch to a prepared commit, by compare-and-swap, and never while a working tree has it checked out.
//!
//! Called by `coordinator/` after `landing.rs`. Must not: move another branch.

use super::error::DeliveryError;
use super::repo::Repo;
use crate::git::identity_env;
use crate::handoff::assignment::GitIdentity;
use crate::ids::{BranchName, CommitId};

/// How a move ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MoveOutcome {
    Moved,
    /// The branch is elsewhere, or gone: prepare the landing again.
    BranchMoved {
        found: Option<CommitId>,
    },
}

impl Repo {
    /// Moves the branch from `from` to `to`. `from` is `None` if the branch must not exist; then it is created.
    ///
    /// # Errors
    /// [`DeliveryError::BranchCheckedOut`] if a working tree has the branch, [`DeliveryError::BranchNameConflict`] if it cannot
    /// be created, [`DeliveryError::RefLocked`] if another process does not let it go.
    pub(crate) async fn move_branch(
        &self,
        branch: &BranchName,
        from: Option<&CommitId>,
        to: &CommitId,
        subject: &str,
        committer: &GitIdentity,
    ) -> Result<MoveOutcome, DeliveryError> {
        if from == Some(to) {
            let found = self.branch_head(branch.as_str()).await?;
            return Ok(if found.as_ref() == from { MoveOutcome::Moved } else { MoveOutcome::BranchMoved { found } });
        }
        // As late as possible: the user may have checked the branch out since the swarm started.
        if let Some(at) = self.checked_out_at(branch.as_str()).await? {
            return Err(DeliveryError::BranchCheckedOut { branch: branch.to_string(), at });
        }
        // Git itself refuses `a` beside `a/b`, but not `A` beside `a`.
        if from.is_none() && self.ignores_case() {
            self.check_branch_name_is_free(branch).await?;
        }
        let name = format!("refs/heads/{branch}");
        let reflog = format!("longshore: {}", subject.lines().next().unwrap_or_default().replace('\0', ""));
        let absent = "0".repeat(to.as_str().len());
        let expected = from.map_or(absent.as_str(), CommitId::as_str);
        let args = ["update-ref", "--no-deref", "-m", &reflog, "--", &name, to.as_str(), expected];
        let command = self.git("move the integration branch", args).envs(identity_env(committer));
        let Err(error) = command.run().await else {
            self.known_commits().insert(to.clone());
            return Ok(MoveOutcome::Moved);
        };
        let found = self.branch_head(branch.as_str()).await?;
        if found.as_ref() != from {
            return Ok(MoveOutcome::BranchMoved { found });
        }
        if from.is_none() {
            self.check_branch_name_is_free(branch).await?;
        }
        Err(match error {
            error if error.mentions_missing_object() => DeliveryError::MissingCommit { commit: to.clone() },
            error => error,
        })
    }

    async fn check_branch_name_is_free(&self, branch: &BranchName) -> Result<(), DeliveryError> {
        match self.conflicting_branch(branch.as_str()).await? {
            Some(with) => Err(DeliveryError::BranchNameConflict { branch: branch.to_string(), with }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
