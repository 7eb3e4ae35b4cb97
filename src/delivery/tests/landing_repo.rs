//! A repository with an integration branch, and candidates that land on it.

use std::fs;

use super::scratch_repo::{ScratchRepo, identity};
use crate::delivery::error::DeliveryError;
use crate::delivery::landing::{LandingCandidate, LandingOptions, MergeMessage, MergedStory, PreparedLanding};
use crate::delivery::move_branch::MoveOutcome;
use crate::delivery::refs::landing_ref;
use crate::delivery::repo::Repo;
use crate::handoff::assignment::GitIdentity;
use crate::ids::{BranchName, CommitId};

pub(in crate::delivery) const SWARM: &str = "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d";

/// A dirty checkout of `main`, and the branch `feat/all` at `base`.
pub(in crate::delivery) struct LandingRepo {
    pub(in crate::delivery) scratch: ScratchRepo,
    pub(in crate::delivery) repo: Repo,
    pub(in crate::delivery) branch: BranchName,
    pub(in crate::delivery) base: CommitId,
    pub(in crate::delivery) options: LandingOptions,
    pub(in crate::delivery) keep_ref: String,
}

impl LandingRepo {
    pub(in crate::delivery) async fn new() -> Self {
        Self::with(&[]).await
    }

    /// With more arguments for `git init`.
    pub(in crate::delivery) async fn with(init: &[&str]) -> Self {
        let scratch = ScratchRepo::with_init_args(init);
        scratch.commit("shared", "1\n2\n3\n4\n5\n6\n7\n");
        let base = scratch.commit("odd\n\"ü\"", "x\n");
        scratch.git(&["branch", "feat/all"]);
        let repo = scratch.repo().await;
        let agent = GitIdentity { name: "An Agent".into(), email: "agent@example.com".into() };
        let options = LandingOptions { author: agent, committer: identity(), sign: false, may_create_branch: false };
        let keep_ref = landing_ref(SWARM.parse().expect("valid"), "1-1");
        Self { scratch, repo, branch: "feat/all".parse().expect("valid"), base, options, keep_ref }
    }

    /// A sandbox's commit on `from`, made away from the checkout and kept by a ref.
    pub(in crate::delivery) fn commit_story(&self, from: &CommitId, path: &str, text: &str, message: &str) -> CommitId {
        let tree = self.scratch.parent_dir().join("elsewhere");
        let tree = tree.to_str().expect("UTF-8");
        self.scratch.git(&["worktree", "add", "-q", "--detach", tree, from.as_str()]);
        let file = std::path::Path::new(tree).join(path);
        fs::create_dir_all(file.parent().expect("below the root")).expect("made");
        fs::write(file, text).expect("written");
        self.scratch.git(&["-C", tree, "add", "-A"]);
        self.scratch.git(&["-C", tree, "commit", "-q", "--allow-empty-message", "-m", message]);
        let commit: CommitId = self.scratch.git(&["-C", tree, "rev-parse", "HEAD"]).parse().expect("a commit");
        self.scratch.git(&["update-ref", &format!("refs/longshore/results/{commit}"), commit.as_str()]);
        self.scratch.git(&["worktree", "remove", "--force", tree]);
        commit
    }

    pub(in crate::delivery) fn candidate(&self, base: &CommitId, tip: &CommitId, stories: &[&str]) -> LandingCandidate {
        LandingCandidate { tip: tip.clone(), base: base.clone(), message: message(stories) }
    }

    pub(in crate::delivery) async fn prepare(
        &self,
        known: &CommitId,
        candidates: &[LandingCandidate],
    ) -> Result<PreparedLanding, DeliveryError> {
        self.repo.prepare_landing(&self.branch, known, candidates, &self.options, &self.keep_ref).await
    }

    /// Both steps in a row.
    pub(in crate::delivery) async fn land(&self, known: &CommitId, candidate: LandingCandidate) -> CommitId {
        let prepared = self.prepare(known, &[candidate]).await.expect("prepared");
        assert_eq!(prepared.conflict, None);
        let to = prepared.commits[0].commit.clone();
        assert_eq!(self.move_to(prepared.branch_head(), &to).await.expect("moved"), MoveOutcome::Moved);
        assert_eq!(self.head(), to);
        to
    }

    pub(in crate::delivery) async fn move_to(
        &self,
        from: Option<&CommitId>,
        to: &CommitId,
    ) -> Result<MoveOutcome, DeliveryError> {
        self.repo.move_branch(&self.branch, from, to, "Merge US-001", &self.options.committer).await
    }

    pub(in crate::delivery) fn head(&self) -> CommitId {
        self.scratch.git(&["rev-parse", "refs/heads/feat/all"]).parse().expect("a commit")
    }

    /// A commit in a format of `git show`.
    pub(in crate::delivery) fn show(&self, commit: &CommitId, format: &str) -> String {
        self.scratch.git(&["show", "-s", &format!("--format={format}"), commit.as_str()])
    }

    pub(in crate::delivery) fn parents(&self, commit: &CommitId) -> Vec<CommitId> {
        self.show(commit, "%P").split_whitespace().map(|id| id.parse().expect("a commit")).collect()
    }

    pub(in crate::delivery) fn only_parent(&self, commit: &CommitId) -> CommitId {
        let parents = self.parents(commit);
        assert_eq!(parents.len(), 1, "{parents:?}");
        parents.into_iter().next().expect("one")
    }

    pub(in crate::delivery) fn tree(&self, commit: &CommitId) -> String {
        self.show(commit, "%T")
    }
}

pub(in crate::delivery) fn message(stories: &[&str]) -> MergeMessage {
    let story = |id: &&str| MergedStory { id: id.parse().expect("valid"), content: Some(format!("hash-of-{id}")) };
    MergeMessage {
        subject: "Merge US-001:\n a title".into(),
        body: "What it does.".into(),
        swarm: SWARM.parse().expect("valid"),
        tasks: Some("tasks/a file.json".into()),
        stories: stories.iter().map(story).collect(),
    }
}
