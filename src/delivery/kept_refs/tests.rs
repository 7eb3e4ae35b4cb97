//! Kept refs of a real repository.

use super::super::refs::{result_ref, salvage_ref};
use super::*;
use crate::delivery::tests::scratch_repo::ScratchRepo;

#[tokio::test]
async fn kept_refs_are_listed_with_base_branches_and_patch() {
    let scratch = ScratchRepo::new();
    let base = scratch.commit("a", "1\n");
    scratch.git(&["checkout", "-q", "-b", "work"]);
    let first = scratch.commit("b", "1\n2\n");
    let tip = scratch.commit_with_message("a", "2\n", "US-001: \u{1b}[31mred\u{7}");
    scratch.git(&["checkout", "-q", "main"]);
    scratch.git(&["branch", "-q", "-D", "work"]);
    let repo = scratch.repo().await;
    let swarm = SwarmId::random();
    let (one, two) = (salvage_ref(swarm, "slug/US-001", 2), result_ref(swarm, "T-2026-001", 1));
    for (name, at) in [(one.as_str(), &tip), (&two, &first), ("refs/longshore/salvage/odd", &tip)] {
        repo.create_ref(name, at).await.expect("made");
    }
    let kept = repo.kept_refs().await.expect("listed");
    let listed: Vec<_> = kept.iter().map(|kept| (kept.is_result, kept.path.as_str(), kept.attempt)).collect();
    assert_eq!(listed, [(true, "T-2026-001", 1), (false, "slug/US-001", 2)]);
    assert_eq!((kept[1].name.as_str(), &kept[1].commit, kept[1].swarm), (one.as_str(), &tip, swarm));
    assert_eq!(kept[1].subject, "US-001: \u{fffd}[31mred\u{fffd}");
    assert!(kept[1].committed_at > 1_500_000_000);

    // Where it began, however many commits ago; a branch that has it makes no difference to what is known.
    assert_eq!(repo.find_base(&tip, None).await.expect("found"), base);
    assert_eq!(repo.branches_containing(&tip).await.expect("asked"), [""; 0]);
    scratch.git(&["branch", "taken", tip.as_str()]);
    assert_eq!(repo.branches_containing(&first).await.expect("asked"), ["taken"]);
    assert_eq!(repo.find_base(&tip, Some(&base)).await.expect("found"), base);
    assert_eq!(repo.find_base(&tip, None).await.expect("found"), first);
    let gone = "0123456789".repeat(4).parse().expect("valid");
    assert_eq!(repo.find_base(&tip, Some(&gone)).await.expect("found"), first);
    let empty = repo.find_base(&base, None).await.expect("found");
    assert_eq!(repo.diff_stat(&empty, &base).await.expect("read").len(), 1);

    let mut patch = Vec::new();
    repo.write_patch(&base, &tip, |chunk| {
        patch.extend_from_slice(chunk);
        true
    })
    .await
    .expect("shown");
    std::fs::write(scratch.parent_dir().join("patch"), &patch).expect("written");
    scratch.git(&["apply", "--index", "../patch"]);
    assert_eq!(scratch.git(&["write-tree"]), scratch.git(&["rev-parse", &format!("{tip}^{{tree}}")]));
}
