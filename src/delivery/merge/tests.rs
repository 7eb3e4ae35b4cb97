//! Merges in real repos, with the user's checkout watched.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::super::scratch_repo::{ScratchRepo, identity};
use super::*;

struct MergeFixture {
    scratch: ScratchRepo,
    repo: Repo,
    branch: BranchName,
    base: CommitId,
}

impl MergeFixture {
    /// A repo with a dirty checkout of `main`, and the integration branch beside it.
    async fn new() -> Self {
        Self::with(&[]).await
    }

    async fn with(init: &[&str]) -> Self {
        let scratch = ScratchRepo::with_init_args(init);
        scratch.commit("shared", "1\n2\n3\n4\n5\n6\n7\n");
        let base = scratch.commit("odd\n\"ü\"", "x\n");
        scratch.git(&["branch", "feat/all"]);
        let repo = scratch.repo().await;
        Self { scratch, repo, branch: "feat/all".parse().expect("valid"), base }
    }

    /// A story's commit on `from`, made away from the checkout.
    fn commit_story(&self, from: &CommitId, path: &str, text: &str, message: &str) -> CommitId {
        let tree = self.scratch.parent_dir().join("elsewhere");
        let tree = tree.to_str().expect("UTF-8");
        self.scratch.git(&["worktree", "add", "-q", "--detach", tree, from.as_str()]);
        let file = std::path::Path::new(tree).join(path);
        fs::create_dir_all(file.parent().expect("below the root")).expect("made");
        fs::write(file, text).expect("written");
        self.scratch.git(&["-C", tree, "add", "-A"]);
        self.scratch.git(&["-C", tree, "commit", "-q", "-m", message]);
        let commit = self.scratch.git(&["-C", tree, "rev-parse", "HEAD"]).parse().expect("a commit");
        self.scratch.git(&["worktree", "remove", "--force", tree]);
        commit
    }

    async fn merge(&self, onto: &CommitId, tip: &CommitId, stories: &[&str]) -> Result<MergeOutcome, DeliveryError> {
        self.repo.merge(&self.branch, onto, tip, &message(stories), &identity()).await
    }

    async fn assert_merged(&self, onto: &CommitId, tip: &CommitId, stories: &[&str]) -> CommitId {
        match self.merge(onto, tip, stories).await.expect("merged") {
            MergeOutcome::Merged { head } => {
                assert_eq!(self.head(), head);
                head
            }
            conflict => panic!("{conflict:?}"),
        }
    }

    fn head(&self) -> CommitId {
        self.scratch.git(&["rev-parse", "refs/heads/feat/all"]).parse().expect("a commit")
    }
}

fn message(stories: &[&str]) -> MergeMessage {
    MergeMessage {
        subject: "Merge US-001:\n a title".into(),
        body: "What it does.".into(),
        swarm: "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d".parse().expect("valid"),
        stories: stories.iter().map(|story| story.parse().expect("valid")).collect(),
    }
}

#[tokio::test]
async fn merge_fast_forwards_when_the_commits_name_the_stories() {
    let setting = MergeFixture::new().await;
    let one = setting.commit_story(&setting.base, "a", "1\n", "US-001: a\n\nLongshore-Story: US-001");
    let tip = setting.commit_story(&one, "b", "1\n", "US-002: b\n\nbody\n\nlongshore-story: US-002\nOther: x");
    assert_eq!(setting.assert_merged(&setting.base, &tip, &["US-001", "US-002"]).await, tip);
    // Again, as after a crash between the merge and its record.
    assert_eq!(setting.assert_merged(&tip, &tip, &["US-001", "US-002"]).await, tip);
    assert_eq!(setting.assert_merged(&tip, &one, &["US-001"]).await, tip);
}

#[tokio::test]
async fn a_merge_commit_names_the_stories_if_the_commits_do_not() {
    let setting = MergeFixture::new().await;
    let tip = setting.commit_story(&setting.base, "a", "1\n", "made by the agent\n\nLongshore-Story: US-001");
    let head = setting.assert_merged(&setting.base, &tip, &["US-001", "US-002"]).await;
    let show = |format: &str| setting.scratch.git(&["show", "-s", &format!("--format={format}"), head.as_str()]);
    assert_eq!(show("%P"), format!("{} {tip}", setting.base));
    assert_eq!(show("%T"), setting.scratch.git(&["rev-parse", &format!("{tip}^{{tree}}")]));
    assert_eq!(show("%an <%ae> %cn <%ce>"), "Long Shore <longshore@example.com> Long Shore <longshore@example.com>");
    assert_eq!(
        show("%B"),
        "Merge US-001: a title\n\nWhat it does.\n\nLongshore-Swarm: a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d\n\
         Longshore-Story: US-001\nLongshore-Story: US-002"
    );
    assert_eq!(show("%(trailers:key=Longshore-Story,valueonly,separator=%x2C)"), "US-001,US-002");
}

async fn assert_true_merge(setting: MergeFixture) {
    setting.scratch.write("untracked", "x");
    setting.scratch.write("shared", "the user's own edit\n");
    setting.scratch.git(&["add", "shared"]);
    setting.scratch.write("shared", "and another\n");
    let index = fs::read(setting.scratch.root.join(".git/index")).expect("read");
    let status = setting.scratch.git(&["status", "--porcelain=v2", "--branch", "-z"]);

    let one = setting.commit_story(&setting.base, "shared", "1!\n2\n3\n4\n5\n6\n7\n", "a\n\nLongshore-Story: US-001");
    let two = setting.commit_story(&setting.base, "shared", "1\n2\n3\n4\n5\n6\n7!\n", "b\n\nLongshore-Story: US-002");
    let onto = setting.assert_merged(&setting.base, &one, &["US-001"]).await;
    assert_eq!(onto, one);
    let head = setting.assert_merged(&onto, &two, &["US-002"]).await;
    assert_eq!(setting.scratch.git(&["show", &format!("{head}:shared")]), "1!\n2\n3\n4\n5\n6\n7!");
    assert_eq!(
        setting.scratch.git(&["rev-parse", &format!("{head}^1"), &format!("{head}^2")]),
        format!("{onto}\n{two}")
    );

    assert_eq!(setting.scratch.git(&["status", "--porcelain=v2", "--branch", "-z"]), status);
    assert_eq!(fs::read(setting.scratch.root.join(".git/index")).expect("read"), index);
    assert_eq!(fs::read_to_string(setting.scratch.root.join("shared")).expect("read"), "and another\n");
    setting.scratch.git(&["fsck", "--strict"]);
}

#[tokio::test]
async fn a_true_merge_leaves_a_dirty_checkout_alone() {
    assert_true_merge(MergeFixture::new().await).await;
}

#[tokio::test]
async fn a_true_merge_in_a_sha256_repo() {
    assert_true_merge(MergeFixture::with(&["--object-format=sha256"]).await).await;
}

#[tokio::test]
async fn a_conflict_lists_the_files_and_changes_nothing() {
    let setting = MergeFixture::new().await;
    let names = ["odd\n\"ü\"", "shared", "-n", "dir/new"];
    let (mut one, mut two) = (setting.base.clone(), setting.base.clone());
    for name in names {
        one = setting.commit_story(&one, name, "one\n", "a\n\nLongshore-Story: US-001");
        two = setting.commit_story(&two, name, "two\n", "b\n\nLongshore-Story: US-002");
    }
    let onto = setting.assert_merged(&setting.base, &one, &["US-001"]).await;
    let outcome = setting.merge(&onto, &two, &["US-002"]).await.expect("tried");
    let expected = ["-n", "dir/new", "odd\n\"ü\"", "shared"].map(str::to_owned);
    assert_eq!(outcome, MergeOutcome::Conflict { paths: expected.to_vec() });
    assert_eq!(setting.head(), onto);
}

#[tokio::test]
async fn a_moved_branch_is_an_error() {
    let setting = MergeFixture::new().await;
    let tip = setting.commit_story(&setting.base, "a", "1\n", "a\n\nLongshore-Story: US-001");
    let other = setting.commit_story(&setting.base, "b", "1\n", "somebody else's");
    setting.scratch.git(&["update-ref", "refs/heads/feat/all", other.as_str()]);
    let moved = setting.merge(&setting.base, &tip, &["US-001"]).await;
    assert!(matches!(moved, Err(DeliveryError::BranchMoved { found: Some(found), .. }) if found == other));
    assert_eq!(setting.head(), other);
    // With the head that is there now it goes on.
    setting.assert_merged(&other, &tip, &["US-001"]).await;

    setting.scratch.git(&["branch", "-q", "-D", "feat/all"]);
    let gone = setting.merge(&setting.base, &tip, &["US-001"]).await;
    assert!(matches!(gone, Err(DeliveryError::BranchMoved { found: None, .. })), "{gone:?}");
}

#[tokio::test]
async fn only_one_of_concurrent_merges_wins() {
    let setting = MergeFixture::new().await;
    let tips: Vec<_> = ["a", "b", "c", "d"].map(|name| setting.commit_story(&setting.base, name, "1\n", name)).into();
    let tries = tips.iter().map(|tip| setting.merge(&setting.base, tip, &["US-001"]));
    let outcomes = futures::future::join_all(tries).await;
    let won = outcomes.iter().filter(|outcome| matches!(outcome, Ok(MergeOutcome::Merged { .. }))).count();
    let lost = outcomes.iter().filter(|outcome| matches!(outcome, Err(DeliveryError::BranchMoved { .. }))).count();
    assert_eq!((won, lost), (1, 3), "{outcomes:?}");
}

#[tokio::test]
async fn a_checked_out_branch_is_not_moved() {
    let setting = MergeFixture::new().await;
    let tip = setting.commit_story(&setting.base, "a", "1\n", "a\n\nLongshore-Story: US-001");
    setting.scratch.git(&["checkout", "-q", "feat/all"]);
    let refused = setting.merge(&setting.base, &tip, &["US-001"]).await;
    assert!(matches!(refused, Err(DeliveryError::BranchCheckedOut { at, .. }) if at == setting.scratch.root));
    assert_eq!(setting.head(), setting.base);
    setting.scratch.git(&["checkout", "-q", "main"]);
    setting.assert_merged(&setting.base, &tip, &["US-001"]).await;
}

#[tokio::test]
async fn hooks_drivers_and_filters_are_not_run() {
    let setting = MergeFixture::new().await;
    let ran = setting.scratch.parent_dir().join("ran");
    let script = setting.scratch.parent_dir().join("script");
    fs::write(&script, format!("#!/bin/sh\necho \"$0 $*\" >> '{}'\nexit 0\n", ran.display())).expect("written");
    fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).expect("made executable");
    let path = script.to_str().expect("UTF-8");
    for hook in
        ["reference-transaction", "post-merge", "pre-merge-commit", "post-commit", "commit-msg", "post-checkout"]
    {
        std::os::unix::fs::symlink(&script, setting.scratch.root.join(".git/hooks").join(hook)).expect("linked");
    }
    let base = setting.commit_story(
        &setting.base,
        ".gitattributes",
        "shared merge=mine filter=mine diff=mine\n",
        "attributes",
    );
    setting.scratch.git(&["update-ref", "refs/heads/feat/all", base.as_str()]);
    let one = setting.commit_story(&base, "shared", "1!\n2\n3\n4\n5\n6\n7\n", "a");
    let two = setting.commit_story(&base, "shared", "1\n2\n3\n4\n5\n6\n7!\n", "b");
    setting.scratch.git(&["config", "merge.mine.driver", &format!("{path} %A")]);
    setting.scratch.git(&["config", "merge.od=d \"one.driver", path]);
    setting.scratch.git(&["config", "filter.mine.clean", path]);
    setting.scratch.git(&["config", "filter.mine.smudge", path]);
    setting.scratch.git(&["config", "diff.mine.textconv", path]);
    setting.scratch.git(&["config", "diff.external", path]);
    setting.scratch.git(&["config", "core.fsmonitor", path]);
    setting.scratch.git(&["config", "gpg.program", path]);
    setting.scratch.git(&["config", "commit.gpgSign", "true"]);
    setting.scratch.git(&["config", "log.showSignature", "true"]);
    // The checkout has the attributes too.
    setting.scratch.write(".gitattributes", "shared merge=mine\n");
    let _ = fs::remove_file(&ran);

    let repo = setting.scratch.repo().await;
    let merge = |onto: CommitId, tip: CommitId| {
        let (repo, branch) = (repo.clone(), setting.branch.clone());
        async move { repo.merge(&branch, &onto, &tip, &message(&["US-001"]), &identity()).await }
    };
    let Ok(MergeOutcome::Merged { head }) = merge(base.clone(), one).await else { panic!("not merged") };
    match merge(head.clone(), two.clone()).await.expect("tried") {
        // A git that reads the branch's attributes: the file that wants the driver conflicts.
        MergeOutcome::Conflict { paths } => assert_eq!(paths, ["shared"]),
        // An older one: merged as text.
        MergeOutcome::Merged { head } => {
            assert_eq!(setting.scratch.git(&["show", &format!("{head}:shared")]), "1!\n2\n3\n4\n5\n6\n7!");
        }
    }
    repo.diff_stat(&base, &two).await.expect("read");
    repo.log_oneline("feat/all", &base).await.expect("read");
    repo.commits_between(&base, &two).await.expect("read");
    assert!(!ran.exists(), "{}", fs::read_to_string(&ran).unwrap_or_default());
    let names: Vec<_> =
        fs::read_dir(&setting.scratch.root).expect("a folder").map(|e| e.expect("an entry").file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().starts_with(".merge_file")));
}

#[tokio::test]
async fn merge_uses_the_lineage_from_the_import() {
    let setting = MergeFixture::new().await;
    let sandbox = setting.scratch.clone_as_sandbox();
    let imported = |name: &'static str, message: &'static str| {
        sandbox.git(&["checkout", "-q", "-B", "work", setting.base.as_str()]);
        let tip = sandbox.commit_with_message(name, "1\n", message);
        let bundle = sandbox.bundle(&["refs/heads/work", &format!("^{}", setting.base)]);
        let expected = super::super::ExpectedBundle {
            branch: "work".parse().expect("valid"),
            base: setting.base.clone(),
            tip: Some(tip.clone()),
            result_ref: format!("refs/longshore/results/{name}"),
            salvage: Vec::new(),
        };
        let repo = setting.repo.clone();
        async move {
            repo.import_bundle(&bundle, &expected).await.expect("imported");
            tip
        }
    };
    let one = imported("one", "x\n\nLongshore-Story: US-001").await;
    let head = setting.assert_merged(&setting.base, &one, &["US-001"]).await;
    assert_eq!(head, one, "named by its commit: fast-forward");
    let two = imported("two", "x\n\nLongshore-Story: US-002").await;
    let head = setting.assert_merged(&head, &two, &["US-002"]).await;
    assert_eq!(setting.scratch.git(&["rev-parse", &format!("{head}^2")]), two.as_str());
    assert_eq!(setting.assert_merged(&head, &two, &["US-002"]).await, head, "a second try finds it landed");
    let three = imported("three", "x").await;
    setting.scratch.git(&["update-ref", "refs/heads/feat/all", setting.base.as_str()]);
    let head = setting.assert_merged(&setting.base, &three, &["US-003"]).await;
    assert_eq!(
        setting.scratch.git(&["rev-parse", &format!("{head}^1"), &format!("{head}^2")]),
        format!("{}\n{three}", setting.base)
    );
}

#[tokio::test]
async fn merge_works_in_a_reftable_repo() {
    let try_it = tempfile::tempdir().expect("a temporary folder");
    let mut init = super::super::scratch_repo::git_command(try_it.path());
    if !init.args(["init", "-q", "--ref-format=reftable"]).status().expect("git runs").success() {
        // Older than 2.45: then there are no such repos.
        let version = super::super::scratch_repo::git_in(try_it.path(), &["version"]);
        assert!(
            ["2.38", "2.39", "2.40", "2.41", "2.42", "2.43", "2.44"].iter().any(|old| version.contains(old)),
            "{version}"
        );
        return;
    }
    let setting = MergeFixture::with(&["--ref-format=reftable"]).await;
    assert_eq!(setting.repo.checked_out_at("main").await.expect("asked"), Some(setting.scratch.root.clone()));
    assert_eq!(setting.repo.checked_out_at("feat/all").await.expect("asked"), None);
    assert_true_merge(setting).await;
}

#[tokio::test]
async fn land_follows_a_branch_that_advanced() {
    let setting = MergeFixture::new().await;
    let land = |onto: CommitId, tip: CommitId| {
        let repo = setting.repo.clone();
        let branch = setting.branch.clone();
        async move { repo.land(&branch, &onto, &tip, &message(&["US-001"]), &identity()).await }
    };
    let tip = setting.commit_story(&setting.base, "a", "1\n", "a\n\nLongshore-Story: US-001");
    let theirs = setting.commit_story(&setting.base, "theirs", "1\n", "theirs");
    setting.scratch.git(&["branch", "-q", "-f", "feat/all", theirs.as_str()]);
    let (outcome, at) = land(setting.base.clone(), tip.clone()).await.expect("merged");
    let head = setting.head();
    assert_eq!((outcome, at), (MergeOutcome::Merged { head: head.clone() }, theirs.clone()));
    assert_eq!(
        setting.scratch.git(&["rev-parse", &format!("{head}^1"), &format!("{head}^2")]),
        format!("{theirs}\n{tip}")
    );
    // The same again, as after a death between the merge and its record, with their next commit on top.
    let next = setting.commit_story(&head, "theirs", "2\n", "theirs again");
    setting.scratch.git(&["branch", "-q", "-f", "feat/all", next.as_str()]);
    let (outcome, _) = land(setting.base.clone(), tip).await.expect("there already");
    assert_eq!(outcome, MergeOutcome::Merged { head: next.clone() });
    assert_eq!(setting.head(), next);

    // What they did may be in the way.
    let other = setting.commit_story(&setting.base, "theirs", "3\n", "b\n\nLongshore-Story: US-001");
    let (outcome, at) = land(setting.base.clone(), other.clone()).await.expect("tried");
    assert_eq!((outcome, at), (MergeOutcome::Conflict { paths: vec!["theirs".to_owned()] }, next));
    // Rewound, it does not have what landed: that is for a person to say.
    setting.scratch.git(&["branch", "-q", "-f", "feat/all", setting.base.as_str()]);
    let rewound = land(head.clone(), other.clone()).await;
    assert!(matches!(rewound, Err(DeliveryError::BranchMoved { .. })), "{rewound:?}");
    assert_eq!(setting.head(), setting.base);
    setting.scratch.git(&["branch", "-q", "-D", "feat/all"]);
    let gone = land(head, other).await;
    assert!(matches!(gone, Err(DeliveryError::BranchMoved { found: None, .. })), "{gone:?}");
}
