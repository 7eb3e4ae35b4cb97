//! Moves of the branch, and what keeps it from moving.

use std::fs;
use std::time::{Duration, Instant};

use super::*;
use crate::delivery::tests::landing_repo::LandingRepo;

#[tokio::test]
async fn only_one_of_concurrent_moves_wins() {
    let fixture = LandingRepo::new().await;
    let tips: Vec<_> = ["a", "b", "c", "d"].map(|name| fixture.commit_story(&fixture.base, name, "1\n", name)).into();
    let tries = tips.iter().map(|tip| fixture.move_to(Some(&fixture.base), tip));
    let outcomes = futures::future::join_all(tries).await;
    let won = outcomes.iter().filter(|outcome| matches!(outcome, Ok(MoveOutcome::Moved))).count();
    let lost = outcomes.iter().filter(|outcome| matches!(outcome, Ok(MoveOutcome::BranchMoved { .. }))).count();
    assert_eq!((won, lost), (1, 3), "{outcomes:?}");
}

#[tokio::test]
async fn a_checked_out_branch_is_not_moved() {
    let fixture = LandingRepo::new().await;
    let tip = fixture.commit_story(&fixture.base, "a", "1\n", "a");
    fixture.scratch.git(&["checkout", "-q", "feat/all"]);
    let refused = fixture.move_to(Some(&fixture.base), &tip).await.expect_err("refused");
    assert!(matches!(&refused, DeliveryError::BranchCheckedOut { at, .. } if *at == fixture.scratch.root));
    assert!(refused.is_retryable(), "only for a while");
    assert_eq!(fixture.head(), fixture.base);
    fixture.scratch.git(&["checkout", "-q", "main"]);
    assert_eq!(fixture.move_to(Some(&fixture.base), &tip).await.expect("moved"), MoveOutcome::Moved);
    let reflog = fixture.scratch.git(&["reflog", "-1", "--format=%gn %gs", "feat/all"]);
    assert_eq!(reflog, "Long Shore longshore: Merge US-001");
}

#[tokio::test]
async fn a_deleted_or_created_branch_is_found() {
    let fixture = LandingRepo::new().await;
    let tip = fixture.commit_story(&fixture.base, "a", "1\n", "a");
    let found = fixture.move_to(None, &tip).await.expect("tried");
    assert_eq!(found, MoveOutcome::BranchMoved { found: Some(fixture.base.clone()) });
    fixture.scratch.git(&["branch", "-q", "-D", "feat/all"]);
    let gone = fixture.move_to(Some(&fixture.base), &tip).await.expect("tried");
    assert_eq!(gone, MoveOutcome::BranchMoved { found: None });
    fixture.scratch.git(&["branch", "feat/all/below"]);
    let clash = fixture.move_to(None, &tip).await.expect_err("refused");
    assert!(matches!(&clash, DeliveryError::BranchNameConflict { with, .. } if with == "feat/all/below"), "{clash}");
    assert!(!clash.is_retryable());
}

#[tokio::test]
async fn a_lock_is_waited_for_and_then_named() {
    let fixture = LandingRepo::new().await;
    let tip = fixture.commit_story(&fixture.base, "a", "1\n", "a");
    let lock = fixture.scratch.root.join(".git/refs/heads/feat/all.lock");
    fs::write(&lock, "").expect("written");
    let removed = std::thread::spawn({
        let lock = lock.clone();
        move || {
            std::thread::sleep(Duration::from_millis(700));
            fs::remove_file(lock).expect("removed");
        }
    });
    assert_eq!(fixture.move_to(Some(&fixture.base), &tip).await.expect("moved"), MoveOutcome::Moved);
    removed.join().expect("it ends");

    fs::write(&lock, "").expect("written");
    let begun = Instant::now();
    let locked = fixture.move_to(Some(&tip), &fixture.base).await.expect_err("refused");
    assert!(begun.elapsed() >= Duration::from_secs(4), "{:?}", begun.elapsed());
    assert!(
        matches!(&locked, DeliveryError::RefLocked { lock: found, age: Some(_), .. } if *found == lock),
        "{locked:?}"
    );
    assert!(locked.is_retryable());
    let text = locked.to_string();
    assert!(text.contains("feat/all.lock` exists since ") && text.contains("remove it if none runs"), "{text}");
}

#[tokio::test]
async fn a_lock_of_the_packed_refs_is_named() {
    let fixture = LandingRepo::new().await;
    fixture.repo.create_ref(&fixture.keep_ref, &fixture.base).await.expect("created");
    fixture.scratch.git(&["pack-refs", "--all"]);
    let lock = fixture.scratch.root.join(".git/packed-refs.lock");
    fs::write(&lock, "").expect("written");
    let locked = fixture.repo.delete_ref(&fixture.keep_ref).await.expect_err("refused");
    assert!(matches!(&locked, DeliveryError::RefLocked { lock: found, .. } if *found == lock), "{locked:?}");
}
