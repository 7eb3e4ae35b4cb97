//! Merges in real repositories, which leave the user's checkout alone.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::delivery::tests::scratch_repo::{ScratchRepo, git_command, git_in, identity};

struct MergeFixture {
    scratch: ScratchRepo,
    repo: Repo,
    branch: BranchName,
    base: CommitId,
}

impl MergeFixture {
    /// A repository with a dirty checkout of `main` and an integration branch.
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
    let fixture = MergeFixture::new().await;
    let one = fixture.commit_story(&fixture.base, "a", "1\n", "US-001: a\n\nLongshore-Story: US-001");
    let tip = fixture.commit_story(&one, "b", "1\n", "US-002: b\n\nbody\n\nlongshore-story: US-002\nOther: x");
    assert_eq!(fixture.assert_merged(&fixture.base, &tip, &["US-001", "US-002"]).await, tip);
    // Again, as after a crash between the merge and its record.
    assert_eq!(fixture.assert_merged(&tip, &tip, &["US-001", "US-002"]).await, tip);
    assert_eq!(fixture.assert_merged(&tip, &one, &["US-001"]).await, tip);
}

#[tokio::test]
async fn a_merge_commit_names_the_stories_if_the_commits_do_not() {
    let fixture = MergeFixture::new().await;
    let tip = fixture.commit_story(&fixture.base, "a", "1\n", "made by the agent\n\nLongshore-Story: US-001");
    let head = fixture.assert_merged(&fixture.base, &tip, &["US-001", "US-002"]).await;
    let show = |format: &str| fixture.scratch.git(&["show", "-s", &format!("--format={format}"), head.as_str()]);
    assert_eq!(show("%P"), format!("{} {tip}", fixture.base));
    assert_eq!(show("%T"), fixture.scratch.git(&["rev-parse", &format!("{tip}^{{tree}}")]));
    assert_eq!(show("%an <%ae> %cn <%ce>"), "Long Shore <longshore@example.com> Long Shore <longshore@example.com>");
    assert_eq!(
        show("%B"),
        "Merge US-001: a title\n\nWhat it does.\n\nLongshore-Swarm: a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d\n\
         Longshore-Story: US-001\nLongshore-Story: US-002"
    );
    assert_eq!(show("%(trailers:key=Longshore-Story,valueonly,separator=%x2C)"), "US-001,US-002");
}

async fn assert_true_merge(fixture: MergeFixture) {
    fixture.scratch.write("untracked", "x");
    fixture.scratch.write("shared", "the user's own edit\n");
    fixture.scratch.git(&["add", "shared"]);
    fixture.scratch.write("shared", "and another\n");
    let index = fs::read(fixture.scratch.root.join(".git/index")).expect("read");
    let status = fixture.scratch.git(&["status", "--porcelain=v2", "--branch", "-z"]);

    let one = fixture.commit_story(&fixture.base, "shared", "1!\n2\n3\n4\n5\n6\n7\n", "a\n\nLongshore-Story: US-001");
    let two = fixture.commit_story(&fixture.base, "shared", "1\n2\n3\n4\n5\n6\n7!\n", "b\n\nLongshore-Story: US-002");
    let onto = fixture.assert_merged(&fixture.base, &one, &["US-001"]).await;
    assert_eq!(onto, one);
    let head = fixture.assert_merged(&onto, &two, &["US-002"]).await;
    assert_eq!(fixture.scratch.git(&["show", &format!("{head}:shared")]), "1!\n2\n3\n4\n5\n6\n7!");
    assert_eq!(
        fixture.scratch.git(&["rev-parse", &format!("{head}^1"), &format!("{head}^2")]),
        format!("{onto}\n{two}")
    );

    assert_eq!(fixture.scratch.git(&["status", "--porcelain=v2", "--branch", "-z"]), status);
    assert_eq!(fs::read(fixture.scratch.root.join(".git/index")).expect("read"), index);
    assert_eq!(fs::read_to_string(fixture.scratch.root.join("shared")).expect("read"), "and another\n");
    fixture.scratch.git(&["fsck", "--strict"]);
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
    let fixture = MergeFixture::new().await;
    let names = ["odd\n\"ü\"", "shared", "-n", "dir/new"];
    let (mut one, mut two) = (fixture.base.clone(), fixture.base.clone());
    for name in names {
        one = fixture.commit_story(&one, name, "one\n", "a\n\nLongshore-Story: US-001");
        two = fixture.commit_story(&two, name, "two\n", "b\n\nLongshore-Story: US-002");
    }
    let onto = fixture.assert_merged(&fixture.base, &one, &["US-001"]).await;
    let outcome = fixture.merge(&onto, &two, &["US-002"]).await.expect("tried");
    let expected = ["-n", "dir/new", "odd\n\"ü\"", "shared"].map(str::to_owned);
    assert_eq!(outcome, MergeOutcome::Conflict { paths: expected.to_vec() });
    assert_eq!(fixture.head(), onto);
}

#[tokio::test]
async fn a_moved_branch_is_an_error() {
    let fixture = MergeFixture::new().await;
    let tip = fixture.commit_story(&fixture.base, "a", "1\n", "a\n\nLongshore-Story: US-001");
    let other = fixture.commit_story(&fixture.base, "b", "1\n", "somebody else's");
    fixture.scratch.git(&["update-ref", "refs/heads/feat/all", other.as_str()]);
    let moved = fixture.merge(&fixture.base, &tip, &["US-001"]).await;
    assert!(matches!(moved, Err(DeliveryError::BranchMoved { found: Some(found), .. }) if found == other));
    assert_eq!(fixture.head(), other);
    // With the head that is there now it goes on.
    fixture.assert_merged(&other, &tip, &["US-001"]).await;

    fixture.scratch.git(&["branch", "-q", "-D", "feat/all"]);
    let gone = fixture.merge(&fixture.base, &tip, &["US-001"]).await;
    assert!(matches!(gone, Err(DeliveryError::BranchMoved { found: None, .. })), "{gone:?}");
}

#[tokio::test]
async fn only_one_of_concurrent_merges_wins() {
    let fixture = MergeFixture::new().await;
    let tips: Vec<_> = ["a", "b", "c", "d"].map(|name| fixture.commit_story(&fixture.base, name, "1\n", name)).into();
    let tries = tips.iter().map(|tip| fixture.merge(&fixture.base, tip, &["US-001"]));
    let outcomes = futures::future::join_all(tries).await;
    let won = outcomes.iter().filter(|outcome| matches!(outcome, Ok(MergeOutcome::Merged { .. }))).count();
    let lost = outcomes.iter().filter(|outcome| matches!(outcome, Err(DeliveryError::BranchMoved { .. }))).count();
    assert_eq!((won, lost), (1, 3), "{outcomes:?}");
}

#[tokio::test]
async fn a_checked_out_branch_is_not_moved() {
    let fixture = MergeFixture::new().await;
    let tip = fixture.commit_story(&fixture.base, "a", "1\n", "a\n\nLongshore-Story: US-001");
    fixture.scratch.git(&["checkout", "-q", "feat/all"]);
    let refused = fixture.merge(&fixture.base, &tip, &["US-001"]).await;
    assert!(matches!(refused, Err(DeliveryError::BranchCheckedOut { at, .. }) if at == fixture.scratch.root));
    assert_eq!(fixture.head(), fixture.base);
    fixture.scratch.git(&["checkout", "-q", "main"]);
    fixture.assert_merged(&fixture.base, &tip, &["US-001"]).await;
}

#[tokio::test]
async fn hooks_drivers_and_filters_are_not_run() {
    let fixture = MergeFixture::new().await;
    let ran = fixture.scratch.parent_dir().join("ran");
    let script = fixture.scratch.parent_dir().join("script");
    fs::write(&script, format!("#!/bin/sh\necho \"$0 $*\" >> '{}'\nexit 0\n", ran.display())).expect("written");
    fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).expect("made executable");
    let path = script.to_str().expect("UTF-8");
    for hook in
        ["reference-transaction", "post-merge", "pre-merge-commit", "post-commit", "commit-msg", "post-checkout"]
    {
        std::os::unix::fs::symlink(&script, fixture.scratch.root.join(".git/hooks").join(hook)).expect("linked");
    }
    let base = fixture.commit_story(
        &fixture.base,
        ".gitattributes",
        "shared merge=mine filter=mine diff=mine\n",
        "attributes",
    );
    fixture.scratch.git(&["update-ref", "refs/heads/feat/all", base.as_str()]);
    let one = fixture.commit_story(&base, "shared", "1!\n2\n3\n4\n5\n6\n7\n", "a");
    let two = fixture.commit_story(&base, "shared", "1\n2\n3\n4\n5\n6\n7!\n", "b");
    fixture.scratch.git(&["config", "merge.mine.driver", &format!("{path} %A")]);
    fixture.scratch.git(&["config", "merge.od=d \"one.driver", path]);
    fixture.scratch.git(&["config", "filter.mine.clean", path]);
    fixture.scratch.git(&["config", "filter.mine.smudge", path]);
    fixture.scratch.git(&["config", "diff.mine.textconv", path]);
    fixture.scratch.git(&["config", "diff.external", path]);
    fixture.scratch.git(&["config", "core.fsmonitor", path]);
    fixture.scratch.git(&["config", "gpg.program", path]);
    fixture.scratch.git(&["config", "commit.gpgSign", "true"]);
    fixture.scratch.git(&["config", "log.showSignature", "true"]);
    // The checkout has the attributes too.
    fixture.scratch.write(".gitattributes", "shared merge=mine\n");
    let _ = fs::remove_file(&ran);

    let repo = fixture.scratch.repo().await;
    let merge = |onto: CommitId, tip: CommitId| {
        let (repo, branch) = (repo.clone(), fixture.branch.clone());
        async move { repo.merge(&branch, &onto, &tip, &message(&["US-001"]), &identity()).await }
    };
    let Ok(MergeOutcome::Merged { head }) = merge(base.clone(), one).await else { panic!("not merged") };
    match merge(head.clone(), two.clone()).await.expect("tried") {
        // A git that reads the branch's attributes: the file that wants the driver conflicts.
        MergeOutcome::Conflict { paths } => assert_eq!(paths, ["shared"]),
        // An older one: merged as text.
        MergeOutcome::Merged { head } => {
            assert_eq!(fixture.scratch.git(&["show", &format!("{head}:shared")]), "1!\n2\n3\n4\n5\n6\n7!");
        }
    }
    repo.diff_stat(&base, &two).await.expect("read");
    repo.commits_between(&base, &two).await.expect("read");
    assert!(!ran.exists(), "{}", fs::read_to_string(&ran).unwrap_or_default());
    let names: Vec<_> =
        fs::read_dir(&fixture.scratch.root).expect("a directory").map(|e| e.expect("an entry").file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().starts_with(".merge_file")));
}

#[tokio::test]
async fn merge_of_imported_commits() {
    let fixture = MergeFixture::new().await;
    let sandbox = fixture.scratch.clone_as_sandbox();
    let imported = |name: &'static str, message: &'static str| {
        sandbox.git(&["checkout", "-q", "-B", "work", fixture.base.as_str()]);
        let tip = sandbox.commit_with_message(name, "1\n", message);
        let bundle = sandbox.bundle(&["refs/heads/work", &format!("^{}", fixture.base)]);
        let expected = crate::delivery::ExpectedBundle {
            branch: "work".parse().expect("valid"),
            base: fixture.base.clone(),
            merged: None,
            tip: Some(tip.clone()),
            result_ref: format!("refs/longshore/results/{name}"),
            salvage: Vec::new(),
        };
        let repo = fixture.repo.clone();
        async move {
            repo.import_bundle(&bundle, &expected).await.expect("imported");
            tip
        }
    };
    let one = imported("one", "x\n\nLongshore-Story: US-001").await;
    let head = fixture.assert_merged(&fixture.base, &one, &["US-001"]).await;
    assert_eq!(head, one, "named by its commit: fast-forward");
    let two = imported("two", "x\n\nLongshore-Story: US-002").await;
    let head = fixture.assert_merged(&head, &two, &["US-002"]).await;
    assert_eq!(fixture.scratch.git(&["rev-parse", &format!("{head}^2")]), two.as_str());
    assert_eq!(fixture.assert_merged(&head, &two, &["US-002"]).await, head, "a second try finds it landed");
    let three = imported("three", "x").await;
    fixture.scratch.git(&["update-ref", "refs/heads/feat/all", fixture.base.as_str()]);
    let head = fixture.assert_merged(&fixture.base, &three, &["US-003"]).await;
    assert_eq!(
        fixture.scratch.git(&["rev-parse", &format!("{head}^1"), &format!("{head}^2")]),
        format!("{}\n{three}", fixture.base)
    );
}

#[tokio::test]
async fn merge_works_in_a_reftable_repo() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut init = git_command(dir.path());
    if !init.args(["init", "-q", "--ref-format=reftable"]).status().expect("git runs").success() {
        // Older than 2.45: then there are no such repos.
        let version = git_in(dir.path(), &["version"]);
        assert!(
            ["2.38", "2.39", "2.40", "2.41", "2.42", "2.43", "2.44"].iter().any(|old| version.contains(old)),
            "{version}"
        );
        return;
    }
    let fixture = MergeFixture::with(&["--ref-format=reftable"]).await;
    assert_eq!(fixture.repo.checked_out_at("main").await.expect("asked"), Some(fixture.scratch.root.clone()));
    assert_eq!(fixture.repo.checked_out_at("feat/all").await.expect("asked"), None);
    assert_true_merge(fixture).await;
}

#[tokio::test]
async fn land_follows_a_branch_that_advanced() {
    let fixture = MergeFixture::new().await;
    let land = |onto: CommitId, tip: CommitId| {
        let repo = fixture.repo.clone();
        let branch = fixture.branch.clone();
        async move { repo.land(&branch, &onto, &tip, &message(&["US-001"]), &identity()).await }
    };
    let tip = fixture.commit_story(&fixture.base, "a", "1\n", "a\n\nLongshore-Story: US-001");
    let theirs = fixture.commit_story(&fixture.base, "theirs", "1\n", "theirs");
    fixture.scratch.git(&["branch", "-q", "-f", "feat/all", theirs.as_str()]);
    let (outcome, at) = land(fixture.base.clone(), tip.clone()).await.expect("merged");
    let head = fixture.head();
    assert_eq!((outcome, at), (MergeOutcome::Merged { head: head.clone() }, theirs.clone()));
    assert_eq!(
        fixture.scratch.git(&["rev-parse", &format!("{head}^1"), &format!("{head}^2")]),
        format!("{theirs}\n{tip}")
    );
    // The same again, as after a death between the merge and its record, with their next commit on top.
    let next = fixture.commit_story(&head, "theirs", "2\n", "theirs again");
    fixture.scratch.git(&["branch", "-q", "-f", "feat/all", next.as_str()]);
    let (outcome, _) = land(fixture.base.clone(), tip).await.expect("there already");
    assert_eq!(outcome, MergeOutcome::Merged { head: next.clone() });
    assert_eq!(fixture.head(), next);

    // What they did may be in the way.
    let other = fixture.commit_story(&fixture.base, "theirs", "3\n", "b\n\nLongshore-Story: US-001");
    let (outcome, at) = land(fixture.base.clone(), other.clone()).await.expect("tried");
    assert_eq!((outcome, at), (MergeOutcome::Conflict { paths: vec!["theirs".to_owned()] }, next));
    // Rewound, it does not have what landed: that is for a person to say.
    fixture.scratch.git(&["branch", "-q", "-f", "feat/all", fixture.base.as_str()]);
    let rewound = land(head.clone(), other.clone()).await;
    assert!(matches!(rewound, Err(DeliveryError::BranchMoved { .. })), "{rewound:?}");
    assert_eq!(fixture.head(), fixture.base);
    fixture.scratch.git(&["branch", "-q", "-D", "feat/all"]);
    let gone = land(head, other).await;
    assert!(matches!(gone, Err(DeliveryError::BranchMoved { found: None, .. })), "{gone:?}");
}
