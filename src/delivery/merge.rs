//! Merges verified commits onto the integration branch, without the user's working tree, index, hooks or merge drivers.
//!
//! Called by `coordinator/`, one merge at a time for a branch. The branch moves by compare-and-swap, and never while a working tree
//! has it checked out. Attributes (`merge=union`, ...) are those of the branch's head, from git 2.41 on; the files of the
//! user's checkout have no influence.

use std::collections::HashSet;
use std::time::Duration;

use super::error::DeliveryError;
use super::git_runner::unexpected_output;
use super::repo::Repo;
use crate::git::identity_env;
use crate::handoff::assignment::GitIdentity;
use crate::ids::{BranchName, CommitId, StoryId, SwarmId};

/// The time limit for merging two trees.
const TIME_LIMIT: Duration = Duration::from_secs(10 * 60);

/// How often one merge follows a branch that somebody else moves.
const MAX_BRANCH_MOVES: usize = 8;

/// The trailer by which a commit names the story that it belongs to.
const STORY_TRAILER: &str = "Longshore-Story";

/// The parts of a merge commit's message.
#[derive(Debug, Clone)]
pub(crate) struct MergeMessage {
    /// The first line: "Merge US-003: short title".
    pub subject: String,
    /// Paragraphs after the subject; may be empty.
    pub body: String,
    /// For the `Longshore-Swarm` trailer.
    pub swarm: SwarmId,
    /// For the `Longshore-Story` trailers: the stories that land. The branch is fast-forwarded only if the commits themselves
    /// name all of them, so that the history names each story either way.
    pub stories: Vec<StoryId>,
}

/// How a merge ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MergeOutcome {
    /// The branch contains the commits; `head` is its head now.
    Merged { head: CommitId },
    /// The trees do not merge; nothing changed.
    Conflict {
        /// The conflicting files, sorted; invalid UTF-8 is replaced.
        paths: Vec<String>,
    },
}

/// Two trees merged by git.
pub(super) enum MergedTree {
    /// The id of the merged tree.
    Clean(CommitId),
    /// The conflicting files, sorted.
    Conflicting(Vec<String>),
}

/// How the branch's head and the tip relate.
enum BranchRelation {
    /// The branch contains the tip already.
    Landed,
    /// The tip descends from the branch's head.
    Ahead { names_stories: bool },
    /// Both have commits of their own.
    Diverged,
}

impl Repo {
    /// Merges `tip` onto `branch`, whose head must be `onto`.
    ///
    /// # Errors
    /// [`DeliveryError::BranchMoved`] if the head is another commit, [`DeliveryError::BranchCheckedOut`] if a working tree has
    /// the branch.
    async fn merge(
        &self,
        branch: &BranchName,
        onto: &CommitId,
        tip: &CommitId,
        message: &MergeMessage,
        identity: &GitIdentity,
    ) -> Result<MergeOutcome, DeliveryError> {
        let head = match self.relation(onto, tip, &message.stories).await? {
            BranchRelation::Landed => return Ok(MergeOutcome::Merged { head: onto.clone() }),
            BranchRelation::Ahead { names_stories: true } => tip.clone(),
            BranchRelation::Ahead { names_stories: false } => {
                let tree = self.tree_id(tip).await?;
                self.create_merge_commit(&tree, onto, tip, message, identity).await?
            }
            BranchRelation::Diverged => match self.merge_trees(onto, tip).await? {
                MergedTree::Clean(tree) => {
                    self.create_merge_commit(tree.as_str(), onto, tip, message, identity).await?
                }
                MergedTree::Conflicting(paths) => return Ok(MergeOutcome::Conflict { paths }),
            },
        };
        self.move_branch(branch, onto, &head, &message.subject, identity).await?;
        Ok(MergeOutcome::Merged { head })
    }

    /// Merges `tip` onto `branch`, wherever its head is now, if that descends from `onto`: commits that somebody else made on the
    /// branch stay. Also returns the head that was merged onto. A tip that the branch contains already counts as merged.
    ///
    /// # Errors
    /// [`DeliveryError::BranchMoved`] if the branch was rewound or deleted, or moves faster than git merges;
    /// [`DeliveryError::BranchCheckedOut`] if a working tree has it.
    pub(crate) async fn land(
        &self,
        branch: &BranchName,
        onto: &CommitId,
        tip: &CommitId,
        message: &MergeMessage,
        identity: &GitIdentity,
    ) -> Result<(MergeOutcome, CommitId), DeliveryError> {
        let mut at = onto.clone();
        for _ in 0..MAX_BRANCH_MOVES {
            let mut merged = self.merge(branch, &at, tip, message, identity).await;
            // A conflict with an outdated head says nothing about the current one.
            if let Ok(MergeOutcome::Conflict { .. }) = &merged {
                let found = self.branch_head(branch.as_str()).await?;
                if found.as_ref() != Some(&at) {
                    let (branch, expected) = (branch.to_string(), at.clone());
                    merged = Err(DeliveryError::BranchMoved { branch, expected, found });
                }
            }
            match merged {
                Err(DeliveryError::BranchMoved { found: Some(found), .. })
                    if self.is_descendant(&found, &at).await? =>
                {
                    at = found;
                }
                other => return Ok((other?, at)),
            }
        }
        self.merge(branch, &at, tip, message, identity).await.map(|outcome| (outcome, at))
    }

    /// Whether `ancestor` is in the history of `commit`.
    async fn is_descendant(&self, commit: &CommitId, ancestor: &CommitId) -> Result<bool, DeliveryError> {
        let args = ["merge-base", "--is-ancestor", ancestor.as_str(), commit.as_str()];
        let command = self.git("check whether the branch advanced", args).accept_codes(&[0, 1]);
        Ok(command.run().await?.code == 0)
    }

    /// The branch's head if it contains `tip`; `None` if it does not, or if there is no branch.
    pub(crate) async fn head_if_landed(
        &self,
        branch: &BranchName,
        tip: &CommitId,
    ) -> Result<Option<CommitId>, DeliveryError> {
        let Some(head) = self.branch_head(branch.as_str()).await? else { return Ok(None) };
        Ok(matches!(self.relation(&head, tip, &[]).await?, BranchRelation::Landed).then_some(head))
    }

    async fn relation(
        &self,
        onto: &CommitId,
        tip: &CommitId,
        stories: &[StoryId],
    ) -> Result<BranchRelation, DeliveryError> {
        let operation = "compare the branch with the result";
        let format = format!("--format=%m|%(trailers:key={STORY_TRAILER},valueonly,unfold,separator=%x2C)");
        let range = format!("{onto}...{tip}");
        let args = ["rev-list", "--left-right", "--no-commit-header", &format, "--end-of-options", &range, "--"];
        let output = self.git(operation, args).run().await?;
        let (mut behind, mut ahead, mut named) = (false, false, HashSet::new());
        for line in output.text().lines() {
            match line.split_once('|') {
                Some(("<", _)) => behind = true,
                Some((">", stories)) => {
                    ahead = true;
                    named.extend(stories.split(',').map(|story| story.trim().to_owned()));
                }
                _ => return Err(unexpected_output(operation, line)),
            }
        }
        Ok(match (behind, ahead) {
            (_, false) => BranchRelation::Landed,
            (true, true) => BranchRelation::Diverged,
            (false, true) => {
                let names_stories = stories.iter().all(|story| named.contains(story.as_str()));
                BranchRelation::Ahead { names_stories }
            }
        })
    }

    /// Merges the trees of two commits, without a checkout.
    pub(super) async fn merge_trees(&self, onto: &CommitId, tip: &CommitId) -> Result<MergedTree, DeliveryError> {
        let operation = "merge the result";
        let args = ["merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", "--end-of-options"];
        let command = self.git(operation, args).args([onto.as_str(), tip.as_str()]);
        let command = command.env("GIT_ATTR_SOURCE", onto.as_str()).time_limit(TIME_LIMIT).accept_codes(&[0, 1]);
        let output = command.run().await?;
        let text = output.text();
        let mut fields = text.split('\0');
        // A git without `--write-tree` fails here too.
        let tree = fields.next().unwrap_or_default().parse().map_err(|_| unexpected_output(operation, &text))?;
        if output.code == 0 {
            return Ok(MergedTree::Clean(tree));
        }
        let mut paths: Vec<String> = fields.take_while(|field| !field.is_empty()).map(str::to_owned).collect();
        paths.sort();
        paths.dedup();
        Ok(MergedTree::Conflicting(paths))
    }

    async fn create_merge_commit(
        &self,
        tree: &str,
        onto: &CommitId,
        tip: &CommitId,
        message: &MergeMessage,
        identity: &GitIdentity,
    ) -> Result<CommitId, DeliveryError> {
        let operation = "create a merge commit";
        let args = ["commit-tree", "--no-gpg-sign", "-F", "-", "-p", onto.as_str(), "-p", tip.as_str(), tree];
        let command = self.git(operation, args).input(message.render()).envs(identity_env(identity));
        let line = command.run().await?.trimmed_stdout();
        line.parse().map_err(|_| unexpected_output(operation, &line))
    }

    async fn move_branch(
        &self,
        branch: &BranchName,
        from: &CommitId,
        to: &CommitId,
        subject: &str,
        identity: &GitIdentity,
    ) -> Result<(), DeliveryError> {
        // As late as possible: the user may have checked the branch out since the swarm started.
        if let Some(at) = self.checked_out_at(branch.as_str()).await? {
            return Err(DeliveryError::BranchCheckedOut { branch: branch.to_string(), at });
        }
        let name = format!("refs/heads/{branch}");
        let reflog = format!("longshore: {}", subject.lines().next().unwrap_or_default().replace('\0', ""));
        let args = ["update-ref", "--no-deref", "-m", &reflog, "--", &name, to.as_str(), from.as_str()];
        let command = self.git("move the integration branch", args).envs(identity_env(identity));
        let Err(error) = command.run().await else {
            self.known_commits().insert(to.clone());
            return Ok(());
        };
        match self.branch_head(branch.as_str()).await {
            Ok(found) if found.as_ref() != Some(from) => {
                Err(DeliveryError::BranchMoved { branch: branch.to_string(), expected: from.clone(), found })
            }
            _ => Err(error),
        }
    }
}

impl MergeMessage {
    /// Subject, body and trailers as git stores them.
    fn render(&self) -> String {
        // A subject of several lines would push the trailers out of the last paragraph.
        let subject = self.subject.split_whitespace().collect::<Vec<_>>().join(" ");
        let plain = |text: &str| text.chars().filter(|c| *c == '\n' || !c.is_control()).collect::<String>();
        let body = plain(self.body.trim());
        let mut text = format!("{}\n\n", plain(&subject));
        if !body.is_empty() {
            text.push_str(&format!("{body}\n\n"));
        }
        text.push_str(&format!("Longshore-Swarm: {}\n", self.swarm));
        for story in &self.stories {
            text.push_str(&format!("{STORY_TRAILER}: {story}\n"));
        }
        text
    }
}

#[cfg(test)]
mod tests;
