//! Kept work under longshore's refs: the refs, their changes, and the branches that contain it already.
//!
//! Called by `longshore salvage`. Sandboxes made the commits: subjects are returned without control characters, paths as they
//! are. Must not: change anything.

use super::error::DeliveryError;
use super::git_runner::{sanitize, truncate, unexpected_output};
use super::landing::STORY_TRAILER;
use super::refs::{RESULT_REFS, SALVAGE_REFS};
use super::repo::Repo;
use crate::ids::{CommitId, SwarmId};

/// A ref that keeps work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeptRef {
    /// The full ref name.
    pub name: String,
    /// Whether the work was finished, landed or not.
    pub is_result: bool,
    pub swarm: SwarmId,
    /// `US-001`, `<file slug>/US-001`, or an assignment's id.
    pub path: String,
    pub attempt: u32,
    pub commit: CommitId,
    /// The commit time in seconds since 1970, as the sandbox set it.
    pub committed_at: i64,
    /// The first line of the commit message.
    pub subject: String,
}

impl KeptRef {
    /// Parses a ref name. `None` if it is not of the known form.
    fn from_name(name: &str, commit: CommitId, committed_at: i64, subject: String) -> Option<Self> {
        let below = |root: &str| name.strip_prefix(root)?.strip_prefix('/');
        let (is_result, rest) =
            below(SALVAGE_REFS).map(|rest| (false, rest)).or_else(|| below(RESULT_REFS).map(|rest| (true, rest)))?;
        let (swarm, rest) = rest.split_once('/')?;
        let (path, attempt) = rest.rsplit_once('/')?;
        let (swarm, attempt) = (swarm.parse().ok()?, attempt.parse().ok()?);
        let (name, path) = (name.to_owned(), path.to_owned());
        Some(Self { name, is_result, swarm, path, attempt, commit, committed_at, subject })
    }
}

impl Repo {
    /// The refs that keep work, by name. Refs of another form below `refs/longshore/` are skipped.
    pub(crate) async fn kept_refs(&self) -> Result<Vec<KeptRef>, DeliveryError> {
        let operation = "list the refs that keep work";
        let format = "--format=%(objectname)%00%(refname)%00%(committerdate:unix)%00%(contents:subject)%00";
        let command = self.git(operation, ["for-each-ref", format, "--", SALVAGE_REFS, RESULT_REFS]);
        let output = command.run().await?;
        let text = output.text();
        let mut fields = text.split('\0');
        let mut kept = Vec::new();
        // Each record ends with a NUL and a newline.
        while let (Some(commit), Some(name), Some(date), Some(subject)) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        {
            let commit = commit.trim_start().parse().map_err(|_| unexpected_output(operation, commit))?;
            let subject = truncate(&sanitize(&subject.replace('\n', " ")), 300);
            kept.extend(KeptRef::from_name(name, commit, date.parse().unwrap_or_default(), subject));
        }
        Ok(kept)
    }

    /// The base of a kept commit: the newest commit in its history that a branch, a remote, a tag or the head contains. If there
    /// are several, `known` decides. The base of a commit that is on a branch is `known`, else its parent, else the empty tree.
    pub(crate) async fn find_base(
        &self,
        commit: &CommitId,
        known: Option<&CommitId>,
    ) -> Result<CommitId, DeliveryError> {
        let operation = "look for the base of kept work";
        let args = ["rev-list", "--boundary", commit.as_str(), "--not", "HEAD"];
        let command = self.git(operation, args).args(["--branches", "--remotes", "--tags", "--"]);
        let output = command.run().await?;
        let boundary: Vec<CommitId> =
            output.text().lines().filter_map(|line| line.strip_prefix('-')?.parse().ok()).collect();
        match (boundary.as_slice(), known) {
            ([only], _) => return Ok(only.clone()),
            // Only if the known base still exists.
            (_, Some(known)) if !self.existing_commits([known].into_iter()).await?.is_empty() => {
                return Ok(known.clone());
            }
            ([first, ..], _) => return Ok(first.clone()),
            ([], _) => {}
        }
        let parent = format!("{commit}^1^{{commit}}");
        let command = self.git(operation, ["rev-parse", "--verify", "--quiet", "--end-of-options", &parent]);
        let output = command.accept_codes(&[0, 1, 128]).run().await?;
        if let Ok(parent) = output.trimmed_stdout().parse() {
            return Ok(parent);
        }
        let command = self.git(operation, ["hash-object", "-t", "tree", "--stdin"]).input(Vec::new());
        let line = command.run().await?.trimmed_stdout();
        line.parse().map_err(|_| unexpected_output(operation, &line))
    }

    /// The local and remote branches that contain the commit, without `refs/heads/` and `refs/remotes/`.
    pub(crate) async fn branches_containing(&self, commit: &CommitId) -> Result<Vec<String>, DeliveryError> {
        let args = ["for-each-ref", "--format=%(refname)", "--contains", commit.as_str(), "--"];
        let command = self.git("look for branches that contain it", args).args(["refs/heads/", "refs/remotes/"]);
        let output = command.run().await?;
        let short = |name: &str| {
            let name = name.strip_prefix("refs/heads/").or_else(|| name.strip_prefix("refs/remotes/")).unwrap_or(name);
            sanitize(name)
        };
        Ok(output.text().lines().map(short).collect())
    }

    /// Whether a branch has a landing of this story of the swarm. What lands is written again, so only its trailers say so.
    pub(crate) async fn has_landing(&self, swarm: SwarmId, story: &str) -> Result<bool, DeliveryError> {
        let swarm = format!("Longshore-Swarm: {swarm}");
        let story = format!("{STORY_TRAILER}: {story}");
        let args = ["rev-list", "--branches", "--remotes", "--max-count=1", "--all-match", "--fixed-strings"];
        let command = self.git("look for the landing of a story", args).args(["--grep", &swarm, "--grep", &story]);
        Ok(!command.run().await?.trimmed_stdout().is_empty())
    }

    /// Passes the difference to `sink` in chunks, as a patch for `git apply`, until `sink` returns `false`.
    pub(crate) async fn write_patch(
        &self,
        base: &CommitId,
        tip: &CommitId,
        sink: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), DeliveryError> {
        let args =
            ["diff-tree", "-r", "-p", "--binary", "--full-index", "--no-ext-diff", "--no-textconv", "--no-color"];
        let command = self.git("show the difference", args);
        command.args(["--end-of-options", base.as_str(), tip.as_str(), "--"]).run_streaming(sink).await.map(drop)
    }
}

#[cfg(test)]
mod tests;
