//! Kept work applied to clean and dirty working trees.

use std::fs;

use super::*;
use crate::delivery::tests::scratch_repo::{ScratchRepo, git_command};

struct ApplyFixture {
    scratch: ScratchRepo,
    repo: Repo,
    base: CommitId,
    tip: CommitId,
}

impl ApplyFixture {
    /// Kept work that changes `shared`, adds `new/file` and removes `old`; `main` has advanced meanwhile.
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

    /// The application must be refused with these paths and change nothing.
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
    let fixture = ApplyFixture::new().await;
    let head = fixture.scratch.head();
    // The user's own changes, staged, not staged and untracked, to files that are not concerned.
    fixture.scratch.write("other", "2\n");
    fixture.scratch.git(&["add", "other"]);
    fixture.scratch.write("other", "3\n");
    fixture.scratch.write("mine", "m\n");
    let paths = ["new/file", "old", "shared"].map(str::to_owned).to_vec();
    assert_eq!(fixture.apply().await.expect("applied"), ApplyOutcome::Changed { paths });
    assert_eq!(fixture.read("shared"), "1!\n2\n3\n4\n5!\n");
    assert_eq!(fixture.status(), "A  new/file\nD  old\nMM other\nM  shared\n?? mine");
    assert_eq!((fixture.read("other").as_str(), fixture.scratch.head()), ("3\n", head));
    fixture.scratch.git(&["commit", "-q", "-m", "taken over"]);
    assert_eq!(fixture.apply().await.expect("nothing left"), ApplyOutcome::Changed { paths: Vec::new() });
}

#[tokio::test]
async fn apply_never_overwrites_uncommitted_changes() {
    let fixture = ApplyFixture::new().await;
    fixture.scratch.write("shared", "mine\n");
    fixture.assert_refused(&["shared"]).await;
    fixture.scratch.git(&["checkout", "-q", "shared"]);
    fixture.scratch.write("new/file", "untracked\n");
    fixture.assert_refused(&["new/file"]).await;
    fixture.scratch.write(".git/info/exclude", "new/\n");
    fixture.assert_refused(&["new/file"]).await;
    fs::remove_dir_all(fixture.scratch.root.join("new")).expect("removed");
    // A file in place of a directory.
    fixture.scratch.write("new", "a file\n");
    fixture.assert_refused(&["new"]).await;
    fs::remove_file(fixture.scratch.root.join("new")).expect("removed");
    fixture.scratch.write("old", "staged\n");
    fixture.scratch.git(&["add", "old"]);
    fixture.assert_refused(&["old"]).await;
}

#[tokio::test]
async fn a_conflict_lists_the_files_and_changes_nothing() {
    let fixture = ApplyFixture::new().await;
    fixture.scratch.commit("shared", "1?\n2\n3\n4\n5\n");
    let conflict = ApplyOutcome::Conflict { paths: vec!["shared".to_owned()] };
    assert_eq!(fixture.apply().await.expect("tried"), conflict);
    assert_eq!(fixture.status(), "");
}

#[tokio::test]
async fn apply_refuses_during_an_unresolved_merge() {
    let fixture = ApplyFixture::new().await;
    fixture.scratch.git(&["checkout", "-q", "-b", "theirs", "HEAD^"]);
    fixture.scratch.commit("shared", "1\n2\n3\n4\n5?\n");
    fixture.scratch.git(&["checkout", "-q", "main"]);
    let merge = git_command(&fixture.scratch.root).args(["merge", "-q", "theirs"]).output();
    assert!(!merge.expect("git runs").status.success(), "it conflicts");
    match fixture.apply().await {
        Err(DeliveryError::UnresolvedConflicts { paths }) => assert_eq!(paths, ["shared"]),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn apply_takes_only_the_difference_from_another_branch() {
    let fixture = ApplyFixture::new().await;
    // A base that the head does not have: what came before it on its branch stays there.
    fixture.scratch.git(&["checkout", "-q", "-b", "feat"]);
    let base = fixture.scratch.commit("landed", "l\n");
    let tip = fixture.scratch.commit("wanted", "w\n");
    fixture.scratch.git(&["checkout", "-q", "main"]);
    let applied = fixture.repo.apply(&base, &tip).await.expect("applied");
    assert_eq!(applied, ApplyOutcome::Changed { paths: vec!["wanted".to_owned()] });
    assert_eq!(fixture.status(), "A  wanted");
}
