//! Packs of real repositories, unpacked by git.

use std::path::Path;
use std::slice::from_ref;

use super::*;
use crate::delivery::tests::scratch_repo::{ScratchRepo, git_in, git_with_input};

async fn read_pack(mut pack: PackStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    pack.read_to_end(&mut bytes).await.expect("read");
    pack.finish().await.expect("whole");
    bytes
}

fn index_pack(repo: &Path, pack: &[u8]) {
    git_with_input(repo, &["index-pack", "--stdin", "--strict"], pack);
}

fn objects_volume(format: &str) -> tempfile::TempDir {
    let volume = tempfile::tempdir().expect("a temporary directory");
    git_in(volume.path(), &["init", "-q", "--bare", &format!("--object-format={format}")]);
    volume
}

async fn assert_full_then_incremental_pack(scratch: ScratchRepo, format: &str) {
    let first = scratch.commit("a", "1\n");
    let repo = scratch.repo().await;
    assert_eq!(repo.object_format(), format);
    let volume = objects_volume(format);
    index_pack(
        volume.path(),
        &read_pack(repo.create_pack(from_ref(&first), &[]).await.expect("packed").expect("something")).await,
    );

    let second = scratch.commit("odd\n\"name\" ü", "2\n");
    let unknown: CommitId = "1".repeat(first.as_str().len()).parse().expect("valid");
    let pack = repo.create_pack(from_ref(&second), &[unknown.clone(), first.clone()]).await;
    let pack = read_pack(pack.expect("packed").expect("something")).await;
    assert_eq!(pack[8..12], 3_u32.to_be_bytes(), "a commit, a tree, a blob");
    index_pack(volume.path(), &pack);
    git_in(volume.path(), &["fsck", "--strict", "--connectivity-only", second.as_str()]);

    assert!(repo.create_pack(from_ref(&second), from_ref(&second)).await.expect("asked").is_none());
    assert!(repo.create_pack(from_ref(&first), from_ref(&second)).await.expect("asked").is_none());
    let missing = repo.create_pack(from_ref(&unknown), &[]).await;
    assert!(matches!(missing, Err(DeliveryError::MissingCommit { commit }) if commit == unknown));
}

#[tokio::test]
async fn sha1_objects_are_packed() {
    assert_full_then_incremental_pack(ScratchRepo::new(), "sha1").await;
}

#[tokio::test]
async fn sha256_objects_are_packed() {
    assert_full_then_incremental_pack(ScratchRepo::with_init_args(&["--object-format=sha256"]), "sha256").await;
}

#[tokio::test]
async fn a_shallow_clone_is_packed_to_its_boundary() {
    let scratch = ScratchRepo::new();
    for text in ["1", "2", "3"] {
        scratch.commit("a", text);
    }
    let url = format!("file://{}", scratch.root.display());
    git_in(scratch.parent_dir(), &["clone", "-q", "--depth=2", &url, "shallow"]);
    let repo = Repo::discover(&scratch.parent_dir().join("shallow")).await.expect("a repo");
    let tip = repo.head().await.expect("read").commit;
    let shallow = repo.read_shallow_file().await.expect("read");
    assert_eq!(shallow.lines().count(), 1);
    let pack = read_pack(repo.create_pack(from_ref(&tip), &[]).await.expect("packed").expect("something")).await;
    let volume = objects_volume("sha1");
    std::fs::write(volume.path().join("shallow"), &shallow).expect("written");
    index_pack(volume.path(), &pack);
    assert_eq!(git_in(volume.path(), &["rev-list", "--objects", tip.as_str()]).lines().count(), 6);
}

#[tokio::test]
async fn a_partial_clone_packs_complete_commits() {
    let scratch = ScratchRepo::new();
    scratch.git(&["config", "uploadpack.allowFilter", "true"]);
    scratch.git(&["config", "uploadpack.allowAnySHA1InWant", "true"]);
    scratch.commit("a", "old\n");
    let tip = scratch.commit("a", "new\n");
    let url = format!("file://{}", scratch.root.display());
    git_in(scratch.parent_dir(), &["clone", "-q", "--no-checkout", "--filter=blob:none", &url, "partial"]);
    let partial = scratch.parent_dir().join("partial");
    assert!(git_in(&partial, &["rev-list", "--objects", "--missing=print", "HEAD"]).contains("\n?"));
    let repo = Repo::discover(&partial).await.expect("a repo");
    let pack = read_pack(repo.create_pack(from_ref(&tip), &[]).await.expect("packed").expect("something")).await;
    // The old blob is missing, so `index-pack --strict` would refuse the pack.
    let volume = objects_volume("sha1");
    git_with_input(volume.path(), &["index-pack", "--stdin"], &pack);
    assert_eq!(git_in(volume.path(), &["cat-file", "blob", &format!("{tip}:a")]), "new");
}

#[tokio::test]
async fn a_pack_git_cannot_complete_is_an_error() {
    let scratch = ScratchRepo::new();
    let tip = scratch.commit("a", "1\n");
    let blob = scratch.git(&["rev-parse", "HEAD:a"]);
    std::fs::remove_file(scratch.root.join(".git/objects").join(&blob[..2]).join(&blob[2..])).expect("removed");
    let repo = scratch.repo().await;
    let failed = match repo.create_pack(&[tip], &[]).await {
        Err(_) => true,
        Ok(Some(mut pack)) => {
            let _ = tokio::io::copy(&mut pack, &mut tokio::io::sink()).await;
            pack.finish().await.is_err()
        }
        Ok(None) => false,
    };
    assert!(failed);
}
