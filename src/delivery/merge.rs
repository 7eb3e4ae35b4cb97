//! Verified commits onto the integration branch, without the user's working tree, index, hooks or merge drivers.
//!
//! Called by `coordinator/`, one at a time for a branch. The branch is moved by compare-and-swap, and never while a working
//! tree has it checked out. Attributes (`merge=union`, ...) are those of the branch's head, from git 2.41 on; the files of
//! the user's checkout have no say.

use std::collections::HashSet;
use std::time::Duration;

use super::error::DeliveryError;
use super::git::unexpected_output;
use super::import::STORY_TRAILER;
use super::repo::Repo;
use crate::handoff::assignment::GitIdentity;
use crate::ids::{BranchName, CommitId, StoryId, SwarmId};

/// How long git may take to merge two trees.
const TIME_LIMIT: Duration = Duration::from_secs(10 * 60);

/// How often a branch that somebody moves is followed, in one merge.
const MAX_BRANCH_MOVES: usize = 8;

/// What a merge commit says.
#[derive(Debug, Clone)]
pub struct MergeMessage {
    /// The first line: "Merge US-003: short title".
    pub subject: String,
    /// Paragraphs after it; may be empty.
    pub body: String,
    /// For the `Longshore-Swarm` trailer.
    pub swarm: SwarmId,
    /// For the `Longshore-Story` trailers: the stories that land. The branch is fast-forwarded only if the commits name all
    /// of them themselves, so that the history names each story either way.
    pub stories: Vec<StoryId>,
}

/// How a merge ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergeOutcome {
    /// The branch has the commits.
    Merged {
        /// Its head now.
        head: CommitId,
    },
    /// The trees do not merge; nothing was changed.
    Conflict {
        /// The files concerned, sorted; bytes that are not UTF-8 are replaced.
        paths: Vec<String>,
    },
}

/// How two commits relate.
enum BranchRelation {
    /// The branch has the tip already.
    Landed,
    /// The tip descends from the branch's head; whether its commits name all stories.
    Ahead { names_stories: bool },
    /// Both have commits of their own.
    Diverged,
}

impl Repo {
    /// Merges `tip` onto `branch`, whose head must be `onto`. [`DeliveryError::BranchMoved`] where it is not,
    /// [`DeliveryError::BranchCheckedOut`] where a working tree has it.
    pub async fn merge(
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
                // The tree itself, as it is: a merge could not say more.
                let tree = format!("{tip}^{{tree}}");
                let tree = self
                    .git()
                    .new_command("read a tree", ["rev-parse", "--verify", &tree])
                    .run()
                    .await?
                    .trimmed_stdout();
                self.create_merge_commit(&tree, onto, tip, message, identity).await?
            }
            BranchRelation::Diverged => match self.merge_trees(onto, tip).await? {
                Ok(tree) => self.create_merge_commit(&tree, onto, tip, message, identity).await?,
                Err(paths) => return Ok(MergeOutcome::Conflict { paths }),
            },
        };
        self.move_branch(branch, onto, &head, &message.subject, identity).await?;
        Ok(MergeOutcome::Merged { head })
    }

    /// [`Repo::merge`] onto the branch wherever it is now, if that descends from `onto`: what somebody committed on it meanwhile
    /// stays. Also gives the head that was merged onto. A tip that is there already, from a merge whose record was lost, is merged.
    /// [`DeliveryError::BranchMoved`] where the branch was rewound or deleted, or moves faster than git merges.
    pub async fn land(
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
            // A conflict with what the branch was says nothing of what it is.
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

    /// Whether `from` is in the history of `commit`.
    async fn is_descendant(&self, commit: &CommitId, from: &CommitId) -> Result<bool, DeliveryError> {
        let args = ["merge-base", "--is-ancestor", from.as_str(), commit.as_str()];
        let call = self.git().new_command("look whether the branch went on", args);
        Ok(call.accept_codes(&[0, 1]).run().await?.code == 0)
    }

    /// The branch's head, if it has `tip` already; none where it does not, or where there is no branch.
    pub async fn head_if_landed(&self, branch: &BranchName, tip: &CommitId) -> Result<Option<CommitId>, DeliveryError> {
        let Some(head) = self.branch_head(branch.as_str()).await? else { return Ok(None) };
        Ok(matches!(self.relation(&head, tip, &[]).await?, BranchRelation::Landed).then_some(head))
    }

    async fn relation(
        &self,
        onto: &CommitId,
        tip: &CommitId,
        stories: &[StoryId],
    ) -> Result<BranchRelation, DeliveryError> {
        let names_all = |named: &HashSet<String>| stories.iter().all(|story| named.contains(story.as_str()));
        // What the import saw needs no process. Used once: a merge that is tried again asks git, because the first try may
        // have got further than it could say.
        let known = self.lineages().lock().expect("nothing panics while it is locked").remove(tip);
        if let Some(known) = known
            && !known.commits.contains(onto)
            && onto != tip
        {
            let ahead = known.base == *onto;
            return Ok(if ahead {
                BranchRelation::Ahead { names_stories: names_all(&known.stories) }
            } else {
                BranchRelation::Diverged
            });
        }
        let operation = "compare the branch with the result";
        let format = format!("--format=%m|%(trailers:key={STORY_TRAILER},valueonly,unfold,separator=%x2C)");
        let args = ["rev-list", "--left-right", "--no-commit-header", &format, "--end-of-options"];
        let output = self.git().new_command(operation, args).arg(format!("{onto}...{tip}")).arg("--").run().await?;
        let (mut behind, mut ahead, mut named) = (false, false, HashSet::new());
        for line in String::from_utf8_lossy(&output.stdout).lines() {
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
            (false, true) => BranchRelation::Ahead { names_stories: names_all(&named) },
            (true, true) => BranchRelation::Diverged,
        })
    }

    /// The merged tree, or the paths in conflict.
    pub(super) async fn merge_trees(
        &self,
        onto: &CommitId,
        tip: &CommitId,
    ) -> Result<Result<String, Vec<String>>, DeliveryError> {
        let operation = "merge the result";
        let args = ["merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", "--end-of-options"];
        let call = self.git().new_command(operation, args).args([onto.as_str(), tip.as_str()]);
        let call = call.env("GIT_ATTR_SOURCE", onto.as_str()).time_limit(TIME_LIMIT).accept_codes(&[0, 1]);
        let output = call.run().await?;
        let mut fields =
            output.stdout.split(|&byte| byte == 0).map(|field| String::from_utf8_lossy(field).into_owned());
        let tree = fields.next().unwrap_or_default();
        // Also how a git without `--write-tree` would show itself.
        if tree.parse::<CommitId>().is_err() {
            return Err(unexpected_output(operation, &output.trimmed_stdout()));
        }
        if output.code == 0 {
            return Ok(Ok(tree));
        }
        let mut paths: Vec<String> = fields.take_while(|field| !field.is_empty()).collect();
        paths.sort();
        paths.dedup();
        Ok(Err(paths))
    }

    async fn create_merge_commit(
        &self,
        tree: &str,
        onto: &CommitId,
        tip: &CommitId,
        message: &MergeMessage,
        identity: &GitIdentity,
    ) -> Result<CommitId, DeliveryError> {
        let operation = "make a merge commit";
        let args = ["commit-tree", "--no-gpg-sign", "-F", "-", "-p", onto.as_str(), "-p", tip.as_str(), tree];
        let call = self.git().new_command(operation, args).input(message.render());
        let line = with_identity(call, identity).run().await?.trimmed_stdout();
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
        // As late as it can be: the user may have checked it out since the swarm began.
        if let Some(at) = self.checked_out_at(branch.as_str()).await? {
            return Err(DeliveryError::BranchCheckedOut { branch: branch.to_string(), at });
        }
        let name = format!("refs/heads/{branch}");
        let reason = format!("longshore: {}", subject.lines().next().unwrap_or_default().replace('\0', ""));
        let call =
            self.git().new_command("move the integration branch", ["update-ref", "--no-deref", "-m", &reason, "--"]);
        let call = call.args([name.as_str(), to.as_str(), from.as_str()]);
        let Err(error) = with_identity(call, identity).run().await else {
            self.known_commits().lock().expect("nothing panics while it is locked").insert(to.clone());
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
    /// Subject, body and trailers as git keeps them.
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

fn with_identity<'g>(call: super::git::GitCommand<'g>, identity: &GitIdentity) -> super::git::GitCommand<'g> {
    call.env("GIT_AUTHOR_NAME", &identity.name)
        .env("GIT_AUTHOR_EMAIL", &identity.email)
        .env("GIT_COMMITTER_NAME", &identity.name)
        .env("GIT_COMMITTER_EMAIL", &identity.email)
}

#[cfg(test)]
mod tests;
