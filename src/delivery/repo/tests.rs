//! Repositories in the states that users leave them in.

use std::fs;

use super::*;
use crate::delivery::tests::scratch_repo::{ScratchRepo, git_command, git_in};

#[test]
fn git_versions_are_checked() {
    for right in
        ["git version 2.38.0", "git version 2.39.5 (Apple Git-154)", "git version 3.0", "git version 2.45.1.windows.1"]
    {
        assert!(check_version(right).is_ok(), "{right}");
    }
    for wrong in ["git version 2.37.9", "git version 1.9", "hub", ""] {
        assert!(matches!(check_version(wrong), Err(DeliveryError::GitTooOld { .. })), "{wrong}");
    }
}

#[tokio::test]
async fn discover_fails_without_repo_directory_or_work_tree() {
    let outside = tempfile::tempdir().expect("a temporary directory");
    assert!(matches!(Repo::discover(outside.path()).await, Err(DeliveryError::NotARepo { .. })));
    assert!(matches!(Repo::discover(&outside.path().join("none")).await, Err(DeliveryError::Io { .. })));
    git_in(outside.path(), &["init", "-q", "--bare", "bare.git"]);
    let bare = Repo::discover(&outside.path().join("bare.git")).await;
    assert!(matches!(bare, Err(DeliveryError::NoWorkTree { .. })), "{bare:?}");
    let scratch = ScratchRepo::new();
    assert!(matches!(Repo::discover(&scratch.root.join(".git")).await, Err(DeliveryError::NoWorkTree { .. })));
}

#[tokio::test]
async fn head_and_branch_heads_are_read() {
    let scratch = ScratchRepo::new();
    let repo = scratch.repo().await;
    assert!(matches!(repo.head().await, Err(DeliveryError::NoCommits { .. })));
    assert_eq!(repo.branch_head("main").await.expect("read"), None);
    let commit = scratch.commit("sub/a", "1");
    assert_eq!(repo.head().await.expect("read"), RepoHead { commit: commit.clone(), branch: Some("main".into()) });
    assert_eq!(repo.branch_head("main").await.expect("read"), Some(commit.clone()));
    assert_eq!(repo.branch_head("mai").await.expect("read"), None);
    scratch.git(&["checkout", "-q", "--detach"]);
    assert_eq!(repo.head().await.expect("read"), RepoHead { commit, branch: None });

    let below = Repo::discover(&scratch.root.join("sub")).await.expect("found from below");
    assert_eq!((below.root(), below.hash()), (scratch.root.as_path(), repo.hash()));
    assert_eq!(repo.object_format(), "sha1");
    assert!(repo.hash().len() == 12 && repo.hash().bytes().all(|b| b.is_ascii_hexdigit()));
    assert_ne!(repo.hash(), ScratchRepo::new().repo().await.hash());
    assert_eq!(repo.read_shallow_file().await.expect("read"), "");
}

#[tokio::test]
async fn is_dirty_detects_changes_without_touching_the_index() {
    let scratch = ScratchRepo::new();
    scratch.commit("a", "1");
    scratch.commit(".gitignore", "ignored\n");
    let repo = scratch.repo().await;
    scratch.write("ignored", "x");
    assert!(!repo.is_dirty().await.expect("asked"));
    let index = fs::read(scratch.root.join(".git/index")).expect("read");
    scratch.write("new", "x");
    assert!(repo.is_dirty().await.expect("asked"));
    fs::remove_file(scratch.root.join("new")).expect("removed");
    scratch.write("a", "2");
    assert!(repo.is_dirty().await.expect("asked"));
    assert_eq!(fs::read(scratch.root.join(".git/index")).expect("read"), index);
}

#[tokio::test]
async fn a_branch_in_any_working_tree_is_found() {
    let scratch = ScratchRepo::new();
    scratch.commit("a", "1");
    for branch in ["one", "two", "three", "free"] {
        scratch.git(&["branch", branch]);
    }
    let linked = scratch.parent_dir().canonicalize().expect("there").join("linked tree");
    scratch.git(&["worktree", "add", "-q", linked.to_str().expect("UTF-8"), "one"]);
    let repo = scratch.repo().await;
    assert_eq!(repo.checked_out_at("main").await.expect("read"), Some(scratch.root.clone()));
    assert_eq!(repo.checked_out_at("one").await.expect("read"), Some(linked.clone()));
    assert_eq!(repo.checked_out_at("free").await.expect("read"), None);
    assert_eq!(repo.checked_out_at("mai").await.expect("read"), None);

    let other = Repo::discover(&linked).await.expect("a repo");
    assert_eq!((other.root(), other.hash()), (linked.as_path(), repo.hash()));
    assert_eq!(other.checked_out_at("main").await.expect("read"), Some(scratch.root.clone()));
    assert_eq!(other.checked_out_at("one").await.expect("read"), Some(linked.clone()));
    let list = scratch.git(&["worktree", "list", "--porcelain", "-z"]);
    assert_eq!(worktrees::find_checkout_in_list(list.as_bytes(), "one"), Some(linked));
    assert_eq!(worktrees::find_checkout_in_list(list.as_bytes(), "free"), None);
}

#[tokio::test]
async fn a_branch_in_a_rebase_or_bisect_is_checked_out() {
    let scratch = ScratchRepo::new();
    scratch.commit("a", "1");
    scratch.git(&["checkout", "-q", "-b", "topic"]);
    scratch.commit("a", "2");
    scratch.git(&["checkout", "-q", "main"]);
    scratch.commit("a", "3");
    let stopped = git_command(&scratch.root).args(["rebase", "-q", "main", "topic"]).output();
    assert!(!stopped.expect("git runs").status.success(), "a conflict stops the rebase");
    let repo = scratch.repo().await;
    assert_eq!(repo.head().await.expect("read").branch, None);
    assert_eq!(repo.checked_out_at("topic").await.expect("read"), Some(scratch.root.clone()));
    scratch.git(&["rebase", "--abort"]);
    scratch.git(&["checkout", "-q", "main"]);
    assert_eq!(repo.checked_out_at("topic").await.expect("read"), None);

    scratch.commit("a", "4");
    scratch.git(&["bisect", "start", "HEAD", "HEAD~2"]);
    assert_eq!(repo.checked_out_at("main").await.expect("read"), Some(scratch.root.clone()));
}

#[tokio::test]
async fn remote_url_prefers_origin_or_the_only_remote() {
    let scratch = ScratchRepo::new();
    assert_eq!(scratch.repo().await.remote_url().await, None);
    scratch.git(&["remote", "add", "up.stream", "gh:org/repo.git"]);
    scratch.git(&["config", "url.https://github.com/.insteadOf", "gh:"]);
    assert_eq!(scratch.repo().await.remote_url().await.as_deref(), Some("https://github.com/org/repo.git"));
    scratch.git(&["remote", "add", "fork", "git@example.com:a.git"]);
    assert_eq!(scratch.repo().await.remote_url().await, None);
    scratch.git(&["remote", "add", "origin", "ssh://git@example.com/a.git"]);
    assert_eq!(scratch.repo().await.remote_url().await.as_deref(), Some("ssh://git@example.com/a.git"));
}

#[tokio::test]
async fn identity_requires_a_name_and_an_email() {
    let scratch = ScratchRepo::new();
    let expected = GitIdentity { name: "Ann O'Test".into(), email: "ann@example.com".into() };
    assert_eq!(scratch.repo().await.identity().await, Some(expected));
    scratch.git(&["config", "--unset", "user.email"]);
    // Whoever runs the tests may have a global identity, which then counts.
    let global = has_global_identity();
    assert_eq!(scratch.repo().await.identity().await.is_some(), global);
}

fn has_global_identity() -> bool {
    let email = std::process::Command::new("git").args(["config", "--global", "user.email"]).output();
    email.expect("git runs").status.success() || std::env::var_os("GIT_COMMITTER_EMAIL").is_some()
}
