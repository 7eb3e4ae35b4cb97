//! Landings: verified commits become the next commits of the integration branch, in two steps.
//!
//! ```text
//! prepare_landing (merge onto the branch's head, under a ref of longshore's) -> checks by the caller -> move_branch
//! ```
//!
//! Called by `coordinator/`, one landing at a time for a branch. Neither step touches a working tree, an index, a hook or a merge
//! driver. Attributes (`merge=union`, ...) are those of the branch's head, from git 2.41 on; the files of the user's checkout
//! have no influence.
//!
//! What lands is longshore's and the configured agent's, not the sandbox's: every new commit is written again with the same
//! tree, with author, committer and date of the host, and without signatures, other headers and trailers that claim to be
//! longshore's. So the ids of prepared commits differ from those of the tips, and differ each time: only a prepared commit says
//! whether something landed ([`Repo::is_landed`]).
//!
//! | file | contents |
//! |---|---|
//! | `landing/candidate.rs` | what is to land, and what was prepared |
//! | `landing/message.rs` | what the messages of the commits say |
//! | `landing/walk.rs` | reads the new commits |
//! | `landing/write.rs` | writes commits, and packs so that no `git gc` can take them |
//! | `landing/signing.rs` | the user's key for `[git] sign` |
//!
//! Processes: prepare 2 where the tip descends from the branch's head, 4 where it is merged; move 1.
//!
//! # Objects stay
//!
//! A `git gc --prune=now` deletes what no ref reached when it began, even if a ref reaches it since. So nothing that a prepared
//! commit needs is a loose object of its own, or in a pack without a ref: `fast-import` holds its pack with a `.keep` file
//! until the ref exists, and what a merge made is packed after that. If something vanished before, this fails, and the
//! landing is prepared again.

mod candidate;
mod message;
mod signing;
mod walk;
mod write;

use std::collections::HashMap;
use std::time::Duration;

use super::error::DeliveryError;
use super::merge::MergedTree;
use super::refs::check_longshore_ref;
use super::repo::Repo;
use crate::ids::{BranchName, CommitId};

pub(crate) use candidate::{LandingCandidate, LandingOptions, PreparedCommit, PreparedLanding};
pub(in crate::delivery) use message::{CONTENT_TRAILER, STORY_TRAILER, TASKS_TRAILER, tasks_trailer};
pub(crate) use message::{MergeMessage, MergedStory};
use walk::NewCommits;
use write::{CommitPlan, PlannedParent};

/// How often a landing is prepared again because objects vanished.
const MAX_TRIES: u32 = 12;

impl Repo {
    /// Merges the candidates onto the branch's head, one after the other, without moving the branch. `keep_ref` holds the last
    /// prepared commit; what it held before is let go.
    ///
    /// Commits that somebody else made on the branch stay: its head must be `known_head` or descend from it.
    ///
    /// # Errors
    /// [`DeliveryError::BranchMoved`] if the branch was rewound or deleted; [`DeliveryError::ObjectsVanished`] if a `git prune`
    /// takes objects faster than they are made.
    pub(crate) async fn prepare_landing(
        &self,
        branch: &BranchName,
        known_head: &CommitId,
        candidates: &[LandingCandidate],
        options: &LandingOptions,
        keep_ref: &str,
    ) -> Result<PreparedLanding, DeliveryError> {
        check_longshore_ref(keep_ref)?;
        let mut tries = 1;
        loop {
            let (onto, branch_exists) = self.landing_base(branch, known_head, options).await?;
            let preparation = Preparation::new(self, onto, options, keep_ref, tries > 1);
            match preparation.run(candidates, branch_exists).await {
                Err(error) if error.mentions_missing_object() => {
                    if tries == MAX_TRIES {
                        return Err(DeliveryError::ObjectsVanished { source: Box::new(error) });
                    }
                    tracing::info!(%branch, %error, "objects vanished while a landing was prepared: prepared again");
                    tokio::time::sleep(Duration::from_millis(50 << tries.min(4))).await;
                    tries += 1;
                }
                ended => return ended,
            }
        }
    }

    /// The commit to merge onto, and whether the branch exists.
    async fn landing_base(
        &self,
        branch: &BranchName,
        known_head: &CommitId,
        options: &LandingOptions,
    ) -> Result<(CommitId, bool), DeliveryError> {
        match self.branch_head(branch.as_str()).await? {
            Some(head) if head == *known_head || self.is_descendant(&head, known_head).await? => Ok((head, true)),
            None if options.may_create_branch => Ok((known_head.clone(), false)),
            found => {
                Err(DeliveryError::BranchMoved { branch: branch.to_string(), expected: known_head.clone(), found })
            }
        }
    }

    /// The branch's head if it contains the prepared commit; `None` if it does not, or if there is no branch.
    pub(crate) async fn is_landed(
        &self,
        branch: &BranchName,
        prepared: &CommitId,
    ) -> Result<Option<CommitId>, DeliveryError> {
        let Some(head) = self.branch_head(branch.as_str()).await? else { return Ok(None) };
        let contains = head == *prepared || self.is_descendant(&head, prepared).await?;
        Ok(contains.then_some(head))
    }

    /// Whether `ancestor` is in the history of `commit`. A missing ancestor is not.
    async fn is_descendant(&self, commit: &CommitId, ancestor: &CommitId) -> Result<bool, DeliveryError> {
        let args = ["merge-base", "--is-ancestor", ancestor.as_str(), commit.as_str()];
        let command = self.git("check whether the branch contains a commit", args).accept_codes(&[0, 1]);
        match command.run().await {
            Ok(output) => Ok(output.code == 0),
            Err(DeliveryError::CommandFailed { tail, .. })
                if tail.contains(&format!("Not a valid commit name {ancestor}")) =>
            {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

/// One try to prepare a landing.
struct Preparation<'a> {
    repo: &'a Repo,
    options: &'a LandingOptions,
    keep_ref: &'a str,
    onto: CommitId,
    /// Objects vanished in an earlier try: something deletes them right now.
    is_retry: bool,
    new_commits: NewCommits,
    /// The commits that were written again: old id -> new id.
    rewritten: HashMap<CommitId, CommitId>,
    head: CommitId,
    /// `None` until it is needed: the tree of `onto`.
    head_tree: Option<String>,
    /// Whether objects were written that may be loose.
    has_loose_objects: bool,
}

impl<'a> Preparation<'a> {
    fn new(repo: &'a Repo, onto: CommitId, options: &'a LandingOptions, keep_ref: &'a str, is_retry: bool) -> Self {
        Self {
            repo,
            options,
            keep_ref,
            head: onto.clone(),
            onto,
            is_retry,
            new_commits: NewCommits::new(),
            rewritten: HashMap::new(),
            head_tree: None,
            has_loose_objects: options.sign,
        }
    }

    async fn run(
        mut self,
        candidates: &[LandingCandidate],
        branch_exists: bool,
    ) -> Result<PreparedLanding, DeliveryError> {
        self.new_commits = self.repo.read_new_commits(&self.onto, candidates).await?;
        let mut commits = Vec::new();
        let mut conflict = None;
        for candidate in candidates {
            if let Some(paths) = self.add(candidate).await? {
                conflict = Some(paths);
                break;
            }
            let tree = match &self.head_tree {
                Some(tree) => tree.clone(),
                None => self.head_tree.insert(self.repo.tree_id(&self.head).await?).clone(),
            };
            commits.push(PreparedCommit { commit: self.head.clone(), tree });
        }
        if self.has_loose_objects && self.head != self.onto {
            let tips = candidates.iter().map(|candidate| &candidate.tip);
            self.repo.pack_landing(&self.head, &self.onto, tips, self.is_retry).await?;
        }
        Ok(PreparedLanding { onto: self.onto, branch_exists, commits, conflict })
    }

    /// Merges one candidate onto the head. Returns the files that conflict.
    async fn add(&mut self, candidate: &LandingCandidate) -> Result<Option<Vec<String>>, DeliveryError> {
        let Some(tip) = self.new_commits.get(&candidate.tip) else { return Ok(None) };
        if self.rewritten.contains_key(&candidate.tip) {
            return Ok(None);
        }
        let tip_tree = tip.tree.clone();
        let order = self.commits_to_write(&candidate.tip);
        let parents = |commit: &CommitId| self.new_commits[commit].parents.iter();
        let mut parents_outside =
            order.iter().flat_map(parents).map(|parent| self.rewritten.get(parent).unwrap_or(parent));
        let descends = parents_outside.any(|parent| *parent == self.head);
        let builds_on_rewritten = order.iter().flat_map(parents).any(|parent| self.rewritten.contains_key(parent));

        let is_single = candidate.message.stories.len() == 1;
        let mut plans = self.plan_rewrite(&order, candidate, descends && is_single);
        let tree = if descends {
            tip_tree
        } else {
            // Its history has commits that were written again: only the new ids show git what both sides have.
            let merged_tip = if builds_on_rewritten {
                self.write(std::mem::take(&mut plans), &order).await?;
                self.rewritten[&candidate.tip].clone()
            } else {
                candidate.tip.clone()
            };
            self.has_loose_objects = true;
            match self.repo.merge_trees(&self.head, &merged_tip).await? {
                MergedTree::Clean(tree) => tree.to_string(),
                MergedTree::Conflicting(paths) => return Ok(Some(paths)),
            }
        };
        if !(descends && is_single) {
            let second = match self.rewritten.get(&candidate.tip) {
                Some(written) => PlannedParent::Existing(written.clone()),
                None => PlannedParent::Planned(plans.len() - 1),
            };
            plans.push(CommitPlan {
                tree: tree.clone(),
                parents: vec![PlannedParent::Existing(self.head.clone()), second],
                author: self.options.committer.clone(),
                message: candidate.message.render(),
            });
        }
        self.head = self.write(plans, &order).await?;
        self.head_tree = Some(tree);
        Ok(None)
    }

    /// The new commits that a tip reaches and that were not written yet, parents first.
    fn commits_to_write(&self, tip: &CommitId) -> Vec<CommitId> {
        let mut order = Vec::new();
        let mut seen = std::collections::HashSet::new();
        // The second visit of a commit comes after all its parents.
        let mut open = vec![(tip, false)];
        while let Some((commit, parents_done)) = open.pop() {
            if parents_done {
                order.push(commit.clone());
                continue;
            }
            let Some(new) = self.new_commits.get(commit) else { continue };
            if self.rewritten.contains_key(commit) || !seen.insert(commit) {
                continue;
            }
            open.push((commit, true));
            open.extend(new.parents.iter().rev().map(|parent| (parent, false)));
        }
        order
    }

    /// The commits of a candidate as they land. `names_story`: the last one gets longshore's trailers.
    fn plan_rewrite(&self, order: &[CommitId], candidate: &LandingCandidate, names_story: bool) -> Vec<CommitPlan> {
        let positions: HashMap<&CommitId, usize> =
            order.iter().enumerate().map(|(position, commit)| (commit, position)).collect();
        let subject = candidate.message.subject_line();
        let plan = |commit: &CommitId| {
            let new = &self.new_commits[commit];
            let parent = |parent: &CommitId| match (positions.get(parent), self.rewritten.get(parent)) {
                (Some(position), _) => PlannedParent::Planned(*position),
                (None, Some(written)) => PlannedParent::Existing(written.clone()),
                (None, None) => PlannedParent::Existing(parent.clone()),
            };
            let message = if names_story && *commit == candidate.tip {
                candidate.message.amend(&new.message)
            } else {
                message::clean_agent_message(&new.message, &subject)
            };
            CommitPlan {
                tree: new.tree.clone(),
                parents: new.parents.iter().map(parent).collect(),
                author: self.options.author.clone(),
                message,
            }
        };
        order.iter().map(plan).collect()
    }

    /// Writes the commits; the first `order.len()` of them are those of `order`. Returns the last one.
    async fn write(&mut self, plans: Vec<CommitPlan>, order: &[CommitId]) -> Result<CommitId, DeliveryError> {
        let written = self.repo.write_commits(&plans, self.options, self.keep_ref).await?;
        let already = self.rewritten.contains_key(order.last().unwrap_or(&self.head));
        if !already {
            self.rewritten.extend(order.iter().cloned().zip(written.iter().cloned()));
        }
        Ok(written.into_iter().next_back().expect("at least one commit is planned"))
    }
}

#[cfg(test)]
mod tests;
