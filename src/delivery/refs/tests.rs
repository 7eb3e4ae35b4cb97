//! Ref names and transactions in real repositories.

use super::*;
use crate::delivery::tests::scratch_repo::ScratchRepo;

#[test]
fn only_plain_longshore_refs_are_accepted() {
    for right in ["refs/longshore/results/a/US-001/1", "refs/longshore/salvage/a/my-file_2/US-001/1"] {
        assert!(check_longshore_ref(right).is_ok(), "{right}");
    }
    for wrong in [
        "refs/heads/x",
        "refs/longshore/",
        "refs/longshore/a b",
        "refs/longshore/a\ndelete refs/heads/main",
        "refs/longshore/../heads/main",
        "refs/longshore/a..b",
        "refs/longshore//a",
        "refs/longshore/a.lock",
        "refs/longshore/a.",
    ] {
        assert!(matches!(check_longshore_ref(wrong), Err(DeliveryError::ForbiddenRef { .. })), "{wrong}");
    }
}

#[tokio::test]
async fn refs_are_listed_and_deleted_by_prefix() {
    let scratch = ScratchRepo::new();
    let base = scratch.commit("a", "1");
    let repo = scratch.repo().await;
    let swarm = SwarmId::random();
    let (one, two) = (result_ref(swarm, "US-001", 1), salvage_ref(swarm, "slug/US-001", 2));
    repo.create_refs(&[(&one, &base), (&two, &base)]).await.expect("made");
    assert_eq!(repo.list_refs(&format!("{RESULT_REFS}/{swarm}")).await.expect("listed"), [(one.clone(), base.clone())]);
    assert_eq!(repo.list_refs("refs/longshore/").await.expect("listed").len(), 2);
    for name in [&one, &two, "refs/longshore/never"] {
        repo.delete_ref(name).await.expect("deleted");
    }
    assert!(repo.list_refs("refs/longshore/").await.expect("listed").is_empty());
    assert!(matches!(repo.delete_ref("refs/heads/main").await, Err(DeliveryError::ForbiddenRef { .. })));
    assert_eq!(repo.branch_head("main").await.expect("read"), Some(base));
}

#[tokio::test]
async fn a_kept_ref_is_never_overwritten() {
    let scratch = ScratchRepo::new();
    let (first, second) = (scratch.commit("a", "1"), scratch.commit("a", "2"));
    let repo = scratch.repo().await;
    repo.create_refs(&[("refs/longshore/x", &first)]).await.expect("made");
    repo.create_refs(&[("refs/longshore/x", &first), ("refs/longshore/y", &second)]).await.expect("the same again");
    let taken = repo.create_refs(&[("refs/longshore/x", &second), ("refs/longshore/z", &second)]).await;
    assert!(matches!(taken, Err(DeliveryError::RefExists { holds, .. }) if holds == first));
    let names: Vec<_> = repo.list_refs("refs/longshore/").await.expect("listed").into_iter().map(|(n, _)| n).collect();
    assert_eq!(names, ["refs/longshore/x", "refs/longshore/y"]);
}

#[tokio::test]
async fn a_second_salvage_gets_an_unused_name() {
    let scratch = ScratchRepo::new();
    let (first, second) = (scratch.commit("a", "1"), scratch.commit("a", "2"));
    let third = scratch.commit("a", "3");
    let repo = scratch.repo().await;
    let name = salvage_ref(SwarmId::random(), "US-001", 1);
    let mut names = Vec::new();
    for commit in [&first, &second, &third, &second, &first] {
        let free = repo.unused_ref_name(&name, commit).await.expect("listed");
        repo.create_refs(&[(&free, commit)]).await.expect("made");
        names.push(free.strip_prefix(&name).expect("the same and more").to_owned());
    }
    assert_eq!(names, ["", "-2", "-3", "-2", ""]);
}
