//! Kept work into real working trees, clean ones and dirty ones.

use std::fs;

use super::super::scratch_repo::ScratchRepo;
use super::*;

struct ApplyFixture {
    scratch: ScratchRepo,
    repo: Repo,
    base: CommitId,
    tip: CommitId,
}

impl ApplyFixture {
    /// Kept work that changes `shared`, adds `new/file` and removes `old`; `main` has gone on meanwhile.
    async fn new() -> Self {
        let scratch = ScratchRepo::new();
        scratch.write("old", "x\n");
        scratch.write("other", "1\n");
        let base = scratch.commit("shared", "1\n2\n3\n4\n5\n");
        scratch.git(&["checkout", "-q", "--detach"]);
        scratch.git(&["rm", "-q", "old"]);
        scratch.write("new/file", "n\n");
        let tip = scratch.commit("shared", "1!\n2\n3\n4\n5\n");
        scratch.git(&["checkout", "-q", "main"]);
        scratch.commit("shared", "1\n2\n3\n4\n5!\n");
        let repo = scratch.repo().await;
        Self { scratch, repo, base, tip }
    }

    async fn apply(&self) -> Result<ApplyOutcome, DeliveryError> {
        self.repo.apply(&self.base, &self.tip).await
    }

    fn status(&self) -> String {
        self.scratch.git(&["status", "--porcelain", "--untracked-files=all"])
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.scratch.root.join(path)).expect("read")
    }

    /// An application that is refused with these paths leaves everything as it was.
    async fn assert_refused(&self, paths: &[&str]) {
        let before = (self.status(), self.scratch.git(&["diff", "HEAD"]), self.scratch.git(&["diff", "--cached"]));
        match self.apply().await {
            Err(DeliveryError::UncommittedChanges { paths: found }) => assert_eq!(found, paths),
            other => panic!("{other:?}"),
        }
        let after = (self.status(), self.scratch.git(&["diff", "HEAD"]), self.scratch.git(&["diff", "--cached"]));
        assert_eq!(before, after);
    }
}

#[tokio::test]
async fn apply_merges_the_difference_without_committing() {
    let setting = ApplyFixture::new().await;
    let head = setting.scratch.head();
    // The user's own changes, staged, not staged and untracked, to files that are not concerned.
    setting.scratch.write("other", "2\n");
    setting.scratch.git(&["add", "other"]);
    setting.scratch.write("other", "3\n");
    setting.scratch.write("mine", "m\n");
    let paths = ["new/file", "old", "shared"].map(str::to_owned).to_vec();
    assert_eq!(setting.apply().await.expect("applied"), ApplyOutcome::Changed { paths });
    assert_eq!(setting.read("shared"), "1!\n2\n3\n4\n5!\n");
    assert_eq!(setting.status(), "A  new/file\nD  old\nMM other\nM  shared\n?? mine");
    assert_eq!((setting.read("other").as_str(), setting.scratch.head()), ("3\n", head));
    setting.scratch.git(&["commit", "-q", "-m", "taken over"]);
    assert_eq!(setting.apply().await.expect("nothing left"), ApplyOutcome::Changed { paths: Vec::new() });
}

#[tokio::test]
async fn apply_never_overwrites_uncommitted_changes() {
    let setting = ApplyFixture::new().await;
    setting.scratch.write("shared", "mine\n");
    setting.assert_refused(&["shared"]).await;
    setting.scratch.git(&["checkout", "-q", "shared"]);
    setting.scratch.write("new/file", "untracked\n");
    setting.assert_refused(&["new/file"]).await;
    setting.scratch.write(".git/info/exclude", "new/\n");
    setting.assert_refused(&["new/file"]).await;
    fs::remove_dir_all(setting.scratch.root.join("new")).expect("removed");
    // A file where a folder must be.
    setting.scratch.write("new", "a file\n");
    setting.assert_refused(&["new"]).await;
    fs::remove_file(setting.scratch.root.join("new")).expect("removed");
    setting.scratch.write("old", "staged\n");
    setting.scratch.git(&["add", "old"]);
    setting.assert_refused(&["old"]).await;
}

#[tokio::test]
async fn a_conflict_lists_the_files_and_changes_nothing() {
    let setting = ApplyFixture::new().await;
    setting.scratch.commit("shared", "1?\n2\n3\n4\n5\n");
    let conflict = ApplyOutcome::Conflict { paths: vec!["shared".to_owned()] };
    assert_eq!(setting.apply().await.expect("tried"), conflict);
    assert_eq!(setting.status(), "");
}

#[tokio::test]
async fn apply_refuses_during_an_unresolved_merge() {
    let setting = ApplyFixture::new().await;
    setting.scratch.git(&["checkout", "-q", "-b", "theirs", "HEAD^"]);
    setting.scratch.commit("shared", "1\n2\n3\n4\n5?\n");
    setting.scratch.git(&["checkout", "-q", "main"]);
    let merge = super::super::scratch_repo::git_command(&setting.scratch.root).args(["merge", "-q", "theirs"]).output();
    assert!(!merge.expect("git runs").status.success(), "it conflicts");
    match setting.apply().await {
        Err(DeliveryError::UnresolvedConflicts { paths }) => assert_eq!(paths, ["shared"]),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn apply_takes_only_the_difference_from_another_branch() {
    let setting = ApplyFixture::new().await;
    // A base that the head does not have: what came before it on its branch stays there.
    setting.scratch.git(&["checkout", "-q", "-b", "feat"]);
    let base = setting.scratch.commit("landed", "l\n");
    let tip = setting.scratch.commit("wanted", "w\n");
    setting.scratch.git(&["checkout", "-q", "main"]);
    let applied = setting.repo.apply(&base, &tip).await.expect("applied");
    assert_eq!(applied, ApplyOutcome::Changed { paths: vec!["wanted".to_owned()] });
    assert_eq!(setting.status(), "A  wanted");
}

#[tokio::test]
async fn create_user_branch_changes_nothing_else() {
    let setting = ApplyFixture::new().await;
    let (repo, tip) = (&setting.repo, &setting.tip);
    repo.create_user_branch("taken/over.1", tip).await.expect("made");
    repo.create_user_branch("taken/over.1", tip).await.expect("the same again");
    assert_eq!(repo.branch_head("taken/over.1").await.expect("read").as_ref(), Some(tip));
    assert_eq!(setting.status(), "");
    let taken = repo.create_user_branch("main", tip).await;
    assert!(matches!(taken, Err(DeliveryError::RefExists { .. })), "{taken:?}");
    let clash = repo.create_user_branch("taken", tip).await;
    assert!(matches!(clash, Err(DeliveryError::BranchNameConflict { .. })), "{clash:?}");
    for wrong in ["", "-x", "a b", "@{-1}", "HEAD", "a..b", "x.lock"] {
        let refused = repo.create_user_branch(wrong, tip).await;
        assert!(matches!(refused, Err(DeliveryError::InvalidBranchName { .. })), "{wrong}: {refused:?}");
    }
}
