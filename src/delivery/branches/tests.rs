//! Branch creation and name conflicts in real repositories.

use super::*;
use crate::delivery::tests::scratch_repo::ScratchRepo;

#[tokio::test]
async fn conflicting_branch_names_are_found() {
    let scratch = ScratchRepo::new();
    let base = scratch.commit("a", "1");
    let repo = scratch.repo().await;
    repo.create_user_branch("feat/x", &base).await.expect("created");
    for (branch, with) in
        [("feat", Some("feat/x")), ("feat/x/y/z", Some("feat/x")), ("feat/x", None), ("feat/xy", None), ("fea", None)]
    {
        assert_eq!(repo.conflicting_branch(branch).await.expect("listed").as_deref(), with, "{branch}");
    }
    let clash = repo.create_user_branch("feat/x/y", &base).await;
    assert!(matches!(clash, Err(DeliveryError::BranchNameConflict { with, .. }) if with == "feat/x"));
}

#[tokio::test]
async fn create_user_branch_changes_nothing_else() {
    let scratch = ScratchRepo::new();
    scratch.commit("a", "1");
    scratch.git(&["checkout", "-q", "--detach"]);
    let tip = &scratch.commit("a", "2");
    scratch.git(&["checkout", "-q", "main"]);
    let repo = &scratch.repo().await;
    repo.create_user_branch("taken/over.1", tip).await.expect("created");
    repo.create_user_branch("taken/over.1", tip).await.expect("the same again");
    assert_eq!(repo.branch_head("taken/over.1").await.expect("read").as_ref(), Some(tip));
    assert_eq!(scratch.git(&["status", "--porcelain", "--untracked-files=all"]), "");
    let taken = repo.create_user_branch("main", tip).await;
    assert!(matches!(taken, Err(DeliveryError::RefExists { .. })), "{taken:?}");
    let clash = repo.create_user_branch("taken", tip).await;
    assert!(matches!(clash, Err(DeliveryError::BranchNameConflict { .. })), "{clash:?}");
    for wrong in ["", "-x", "a b", "@{-1}", "HEAD", "a..b", "x.lock"] {
        let refused = repo.create_user_branch(wrong, tip).await;
        assert!(matches!(refused, Err(DeliveryError::InvalidBranchName { .. })), "{wrong}: {refused:?}");
    }
}
