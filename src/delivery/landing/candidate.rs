//! What is to land, and what was prepared of it.
//!
//! Made by `coordinator/` and by `landing.rs`. Must not: do anything.

use super::message::MergeMessage;
use crate::handoff::assignment::GitIdentity;
use crate::ids::CommitId;

/// A verified commit that is to land.
#[derive(Debug, Clone)]
pub(crate) struct LandingCandidate {
    pub tip: CommitId,
    /// The commit that the sandbox began with: on the branch, or the tip of an earlier candidate of the same landing. What it
    /// contains is not written again.
    pub base: CommitId,
    /// A candidate of one story that descends from the branch's head lands without a merge commit: the trailers go into its
    /// last commit.
    pub message: MergeMessage,
}

#[derive(Debug, Clone)]
pub(crate) struct LandingOptions {
    /// The author of the agents' commits.
    pub author: GitIdentity,
    /// longshore: the committer of all commits, and the author of merge commits.
    pub committer: GitIdentity,
    /// Whether to sign the commits with the key of the user's config.
    pub sign: bool,
    /// A missing branch counts as one at `known_head`, and the move creates it. Otherwise it was deleted, which is an error.
    pub may_create_branch: bool,
}

/// The branch's head, if it lands up to this candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PreparedCommit {
    /// That of the candidate before it, or the branch's head, if the candidate has nothing new.
    pub commit: CommitId,
    pub tree: String,
}

/// Commits that the branch can move to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PreparedLanding {
    /// The branch's head, which the candidates were merged onto.
    pub onto: CommitId,
    /// Whether the branch existed. If not, `move_branch` starts from `None`.
    pub branch_exists: bool,
    /// One for each candidate that merges, in order.
    pub commits: Vec<PreparedCommit>,
    /// The conflicting files of candidate number `commits.len()`, sorted. Of the first candidate, it conflicts with the branch.
    /// Of a later one, it only says that the batch ends before it: it may be with another candidate.
    pub conflict: Option<Vec<String>>,
}

impl PreparedLanding {
    /// What `move_branch` starts from.
    pub(crate) fn branch_head(&self) -> Option<&CommitId> {
        self.branch_exists.then_some(&self.onto)
    }
}
