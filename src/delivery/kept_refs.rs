//! What swarms left under refs of ours: which refs there are, what each changes, and which branches have it already.
//!
//! Called by `longshore salvage`. Commits that a sandbox made are hostile text: subjects come out without control characters,
//! paths as they are. Must not: change anything.

use super::error::DeliveryError;
use super::git::{sanitize, truncate, unexpected_output};
use super::refs::{RESULT_REFS, SALVAGE_REFS};
use super::repo::Repo;
use crate::ids::{CommitId, SwarmId};

/// A ref that keeps work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptRef {
    /// The whole name.
    pub name: String,
    /// Whether it keeps what a sandbox finished, landed or not, instead of what it left unfinished.
    pub is_result: bool,
    /// The swarm.
    pub swarm: SwarmId,
    /// `US-001`, `<file slug>/US-001`, or an assignment's id.
    pub path: String,
    /// The attempt's number.
    pub attempt: u32,
    /// What it holds.
    pub commit: CommitId,
    /// When it was committed, in seconds since 1970, by the sandbox's word.
    pub committed_at: i64,
    /// The first line of its message.
    pub subject: String,
}

impl KeptRef {
    /// The parts of a name of ours; none for another name.
    fn parse(name: &str) -> Option<(bool, SwarmId, String, u32)> {
        let below = |root: &str| name.strip_prefix(root)?.strip_prefix('/');
        let (result, rest) =
            below(SALVAGE_REFS).map(|rest| (false, rest)).or_else(|| below(RESULT_REFS).map(|rest| (true, rest)))?;
        let (swarm, rest) = rest.split_once('/')?;
        let (path, attempt) = rest.rsplit_once('/')?;
        Some((result, swarm.parse().ok()?, path.to_owned(), attempt.parse().ok()?))
    }
}

impl Repo {
    /// The refs that keep work, by name. Names below `refs/longshore/` that are not of the known form are left out.
    pub async fn kept_refs(&self) -> Result<Vec<KeptRef>, DeliveryError> {
        let operation = "list the refs that keep work";
        let format = "--format=%(objectname)%00%(refname)%00%(committerdate:unix)%00%(contents:subject)%00";
        let call = self.git().new_command(operation, ["for-each-ref", format, "--", SALVAGE_REFS, RESULT_REFS]);
        let output = call.run().await?;
        let text = String::from_utf8_lossy(&output.stdout);
        let mut fields = text.split('\0');
        let mut kept = Vec::new();
        // Each record ends with a NUL and a newline.
        while let (Some(commit), Some(name), Some(date), Some(subject)) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        {
            let commit = commit.trim_start().parse().map_err(|_| unexpected_output(operation, commit))?;
            let Some((result, swarm, path, attempt)) = KeptRef::parse(name) else { continue };
            kept.push(KeptRef {
                name: name.to_owned(),
                is_result: result,
                swarm,
                path,
                attempt,
                commit,
                committed_at: date.parse().unwrap_or_default(),
                subject: truncate(&sanitize(&subject.replace('\n', " ")), 300),
            });
        }
        Ok(kept)
    }

    /// Where the work of a kept commit began: the newest commit in its history that a branch, a remote or the head has. `known`
    /// decides where there are several. A commit that is on a branch began at `known`, else at its parent; one without
    /// a parent at the empty tree, whose id is given.
    pub async fn find_base(&self, commit: &CommitId, known: Option<&CommitId>) -> Result<CommitId, DeliveryError> {
        let operation = "look for the base of kept work";
        let args = ["rev-list", "--boundary", commit.as_str(), "--not", "HEAD"];
        let call = self.git().new_command(operation, args).args(["--branches", "--remotes", "--tags", "--"]);
        let output = call.run().await?;
        let text = String::from_utf8_lossy(&output.stdout);
        let boundary: Vec<CommitId> = text.lines().filter_map(|line| line.strip_prefix('-')?.parse().ok()).collect();
        match (boundary.as_slice(), known) {
            ([only], _) => return Ok(only.clone()),
            // A known base that is not here any more is of no use.
            (_, Some(known)) if !self.existing_commits([known].into_iter()).await?.is_empty() => {
                return Ok(known.clone());
            }
            ([first, ..], _) => return Ok(first.clone()),
            ([], _) => {}
        }
        let parent = format!("{commit}^1^{{commit}}");
        let call = self.git().new_command(operation, ["rev-parse", "--verify", "--quiet", "--end-of-options", &parent]);
        let output = call.accept_codes(&[0, 1, 128]).run().await?;
        match output.trimmed_stdout().parse() {
            Ok(parent) => Ok(parent),
            Err(_) => {
                let call =
                    self.git().new_command(operation, ["hash-object", "-t", "tree", "--stdin"]).input(Vec::new());
                let line = call.run().await?.trimmed_stdout();
                line.parse().map_err(|_| unexpected_output(operation, &line))
            }
        }
    }

    /// The branches, here and of remotes, that have the commit; without `refs/heads/` and `refs/remotes/`.
    pub async fn branches_containing(&self, commit: &CommitId) -> Result<Vec<String>, DeliveryError> {
        let args = ["for-each-ref", "--format=%(refname)", "--contains", commit.as_str(), "--"];
        let call =
            self.git().new_command("look for branches that have it", args).args(["refs/heads/", "refs/remotes/"]);
        let output = call.run().await?;
        let text = String::from_utf8_lossy(&output.stdout);
        let short = |name: &str| {
            let name = name.strip_prefix("refs/heads/").or_else(|| name.strip_prefix("refs/remotes/")).unwrap_or(name);
            sanitize(name)
        };
        Ok(text.lines().map(short).collect())
    }

    /// The difference as a patch that `git apply` takes, handed to `sink` piece by piece until that has had enough.
    pub async fn write_patch(
        &self,
        base: &CommitId,
        tip: &CommitId,
        sink: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), DeliveryError> {
        let args =
            ["diff-tree", "-r", "-p", "--binary", "--full-index", "--no-ext-diff", "--no-textconv", "--no-color"];
        let call = self.git().new_command("show the difference", args);
        call.args(["--end-of-options", base.as_str(), tip.as_str(), "--"]).run_streaming(sink).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::super::refs::{result_ref, salvage_ref};
    use super::super::scratch_repo::ScratchRepo;
    use super::*;

    #[tokio::test]
    async fn kept_refs_are_listed_with_base_branches_and_patch() {
        let scratch = ScratchRepo::new();
        let base = scratch.commit("a", "1\n");
        scratch.git(&["checkout", "-q", "-b", "work"]);
        let first = scratch.commit("b", "1\n2\n");
        let tip = scratch.commit_with_message("a", "2\n", "US-001: \u{1b}[31mred\u{7}");
        scratch.git(&["checkout", "-q", "main"]);
        scratch.git(&["branch", "-q", "-D", "work"]);
        let repo = scratch.repo().await;
        let swarm = SwarmId::random();
        let (one, two) = (salvage_ref(swarm, "slug/US-001", 2), result_ref(swarm, "T-2026-001", 1));
        for (name, at) in [(one.as_str(), &tip), (&two, &first), ("refs/longshore/salvage/odd", &tip)] {
            repo.update_ref(name, at).await.expect("made");
        }
        let kept = repo.kept_refs().await.expect("listed");
        let told: Vec<_> = kept.iter().map(|kept| (kept.is_result, kept.path.as_str(), kept.attempt)).collect();
        assert_eq!(told, [(true, "T-2026-001", 1), (false, "slug/US-001", 2)]);
        assert_eq!((kept[1].name.as_str(), &kept[1].commit, kept[1].swarm), (one.as_str(), &tip, swarm));
        assert_eq!(kept[1].subject, "US-001: \u{fffd}[31mred\u{fffd}");
        assert!(kept[1].committed_at > 1_500_000_000);

        // Where it began, however many commits ago; a branch that has it makes no difference to what is known.
        assert_eq!(repo.find_base(&tip, None).await.expect("found"), base);
        assert_eq!(repo.branches_containing(&tip).await.expect("asked"), [""; 0]);
        scratch.git(&["branch", "taken", tip.as_str()]);
        assert_eq!(repo.branches_containing(&first).await.expect("asked"), ["taken"]);
        assert_eq!(repo.find_base(&tip, Some(&base)).await.expect("found"), base);
        assert_eq!(repo.find_base(&tip, None).await.expect("found"), first);
        let gone = "0123456789".repeat(4).parse().expect("valid");
        assert_eq!(repo.find_base(&tip, Some(&gone)).await.expect("found"), first);
        let empty = repo.find_base(&base, None).await.expect("found");
        assert_eq!(repo.diff_stat(&empty, &base).await.expect("read").len(), 1);

        let mut patch = Vec::new();
        repo.write_patch(&base, &tip, |chunk| {
            patch.extend_from_slice(chunk);
            true
        })
        .await
        .expect("shown");
        std::fs::write(scratch.parent_dir().join("patch"), &patch).expect("written");
        scratch.git(&["apply", "--index", "../patch"]);
        assert_eq!(scratch.git(&["write-tree"]), scratch.git(&["rev-parse", &format!("{tip}^{{tree}}")]));
    }
}
