//! Landings that are signed with the user's key.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use super::*;

/// A repository whose user signs with an ssh key.
async fn repo_with_key() -> LandingRepo {
    let mut fixture = LandingRepo::new().await;
    let key = fixture.scratch.parent_dir().join("key");
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-C", "x", "-f"]).arg(&key).status();
    assert!(made.expect("ssh-keygen runs: install openssh-client").success());
    let public = fs::read_to_string(key.with_extension("pub")).expect("written");
    let signers = fixture.scratch.parent_dir().join("signers");
    fs::write(&signers, format!("longshore@example.com {public}")).expect("written");
    let config = [
        ("gpg.format", "ssh"),
        ("user.signingKey", key.to_str().expect("UTF-8")),
        ("gpg.ssh.allowedSignersFile", signers.to_str().expect("UTF-8")),
    ];
    for (key, value) in config {
        fixture.scratch.git(&["config", key, value]);
    }
    fixture.options.sign = true;
    fixture
}

#[tokio::test]
async fn landed_commits_are_signed_with_the_users_key() {
    let fixture = repo_with_key().await;
    let one = fixture.commit_story(&fixture.base, "a", "1\n", "first");
    let tip = fixture.commit_story(&one, "b", "1\n", "second");
    let head = fixture.land(&fixture.base, fixture.candidate(&fixture.base, &tip, &["US-001"])).await;
    let other = fixture.commit_story(&fixture.base, "c", "1\n", "other");
    let merged = fixture.land(&head, fixture.candidate(&fixture.base, &other, &["US-002"])).await;
    let range = format!("{}..{merged}", fixture.base);
    let commits = fixture.scratch.git(&["rev-list", &range]);
    assert_eq!(commits.lines().count(), 4);
    for commit in commits.lines() {
        fixture.scratch.git(&["verify-commit", commit]);
    }
    assert_eq!(fixture.show(&head, "%an|%cn"), "An Agent|Long Shore");
    assert_eq!(fixture.scratch.git(&["rev-parse", &fixture.keep_ref]), merged.as_str());
    fixture.scratch.git(&["gc", "-q", "--prune=now"]);
    fixture.scratch.git(&["fsck", "--strict"]);
}

#[tokio::test]
async fn programs_of_the_repos_config_do_not_sign() {
    let fixture = repo_with_key().await;
    let (ran, script) = (fixture.scratch.parent_dir().join("ran"), fixture.scratch.parent_dir().join("script"));
    fs::write(&script, format!("#!/bin/sh\ntouch '{}'\nexit 1\n", ran.display())).expect("written");
    fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).expect("made executable");
    fixture.scratch.git(&["config", "gpg.ssh.program", script.to_str().expect("UTF-8")]);
    let tip = fixture.commit_story(&fixture.base, "a", "1\n", "first");
    let head = fixture.land(&fixture.base, fixture.candidate(&fixture.base, &tip, &["US-001"])).await;
    assert!(!ran.exists());
    fixture.scratch.git(&["config", "--unset", "gpg.ssh.program"]);
    fixture.scratch.git(&["verify-commit", head.as_str()]);
}

#[tokio::test]
async fn a_missing_key_is_an_error_of_its_own() {
    let fixture = repo_with_key().await;
    fixture.scratch.git(&["config", "user.signingKey", "/nowhere/key"]);
    let tip = fixture.commit_story(&fixture.base, "a", "1\n", "first");
    let failed = fixture.prepare(&fixture.base, &[fixture.candidate(&fixture.base, &tip, &["US-001"])]).await;
    assert!(matches!(failed, Err(DeliveryError::SigningFailed { .. })), "{failed:?}");
    assert_eq!(fixture.head(), fixture.base);
}
