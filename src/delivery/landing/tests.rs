//! Landings in real repositories, which leave the user's checkout alone.

mod deletions;
mod hostile;
mod signatures;

use std::fs;

use super::*;
use crate::delivery::MoveOutcome;
use crate::delivery::tests::landing_repo::{LandingRepo, SWARM};
use crate::delivery::tests::scratch_repo::{git_command, git_in};

#[tokio::test]
async fn a_story_that_descends_from_the_head_is_fast_forwarded() {
    let fixture = LandingRepo::new().await;
    let one = fixture.commit_story(&fixture.base, "a", "1\n", "first");
    let tip =
        fixture.commit_story(&one, "b", "1\n", "second\n\nbody\n\nCo-authored-by: A <a@b.c>\nlongshore-story: US-009");
    let before = fixture.repo.started_processes();
    let head = fixture.land(&fixture.base, fixture.candidate(&fixture.base, &tip, &["US-001"])).await;
    assert_eq!(fixture.repo.started_processes() - before, 3, "processes");

    let first = fixture.parents(&head)[0].clone();
    assert_eq!(fixture.only_parent(&head), first);
    assert_eq!(fixture.only_parent(&first), fixture.base);
    assert_eq!((fixture.tree(&head), fixture.tree(&first)), (fixture.tree(&tip), fixture.tree(&one)));
    let who = "An Agent <agent@example.com> Long Shore <longshore@example.com>";
    assert_eq!(fixture.show(&head, "%an <%ae> %cn <%ce>"), who);
    assert_eq!(fixture.show(&first, "%an <%ae> %cn <%ce>%n%B"), format!("{who}\nfirst"));
    assert_eq!(
        fixture.show(&head, "%B"),
        format!(
            "second\n\nbody\n\nCo-authored-by: A <a@b.c>\nLongshore-Swarm: {SWARM}\nLongshore-Tasks: tasks/a file.json\n\
             Longshore-Story: US-001\nLongshore-Content: hash-of-US-001"
        )
    );
    assert_eq!(fixture.scratch.git(&["rev-parse", &fixture.keep_ref]), head.as_str());
    fixture.scratch.git(&["fsck", "--strict"]);
    // Again, as after a death between the move and its record: only the prepared commit says that it landed.
    assert_eq!(fixture.repo.is_landed(&fixture.branch, &head).await.expect("asked"), Some(head));
    assert_eq!(fixture.repo.is_landed(&fixture.branch, &tip).await.expect("asked"), None);
    let gone = "1".repeat(40).parse().expect("valid");
    assert_eq!(fixture.repo.is_landed(&fixture.branch, &gone).await.expect("asked"), None);
}

#[tokio::test]
async fn several_stories_get_a_merge_commit_that_names_them() {
    let fixture = LandingRepo::new().await;
    let tip = fixture.commit_story(&fixture.base, "a", "1\n", "made by the agent\n\nLongshore-Story: US-001");
    let before = fixture.repo.started_processes();
    let head = fixture.land(&fixture.base, fixture.candidate(&fixture.base, &tip, &["US-001", "US-002"])).await;
    assert_eq!(fixture.repo.started_processes() - before, 3, "processes");
    let [first, second] = &fixture.parents(&head)[..] else { panic!("a merge") };
    assert_eq!(*first, fixture.base);
    assert_eq!(fixture.show(second, "%P %T %B"), format!("{} {} made by the agent", fixture.base, fixture.tree(&tip)));
    assert_eq!(fixture.tree(&head), fixture.tree(&tip));
    let longshore = "Long Shore <longshore@example.com>";
    assert_eq!(fixture.show(&head, "%an <%ae> %cn <%ce>"), format!("{longshore} {longshore}"));
    assert_eq!(
        fixture.show(&head, "%B"),
        format!(
            "Merge US-001: a title\n\nWhat it does.\n\nLongshore-Swarm: {SWARM}\nLongshore-Tasks: tasks/a file.json\n\
             Longshore-Story: US-001\nLongshore-Content: hash-of-US-001\nLongshore-Story: US-002\n\
             Longshore-Content: hash-of-US-002"
        )
    );
    assert_eq!(fixture.show(&head, "%(trailers:key=Longshore-Story,valueonly,separator=%x2C)"), "US-001,US-002");
}

async fn assert_true_merge(fixture: LandingRepo) {
    fixture.scratch.write("untracked", "x");
    fixture.scratch.write("shared", "the user's own edit\n");
    fixture.scratch.git(&["add", "shared"]);
    fixture.scratch.write("shared", "and another\n");
    let index = fs::read(fixture.scratch.root.join(".git/index")).expect("read");
    let status = fixture.scratch.git(&["status", "--porcelain=v2", "--branch", "-z"]);

    let one = fixture.commit_story(&fixture.base, "shared", "1!\n2\n3\n4\n5\n6\n7\n", "a");
    let two = fixture.commit_story(&fixture.base, "shared", "1\n2\n3\n4\n5\n6\n7!\n", "b");
    let onto = fixture.land(&fixture.base, fixture.candidate(&fixture.base, &one, &["US-001"])).await;
    let before = fixture.repo.started_processes();
    let head = fixture.land(&onto, fixture.candidate(&fixture.base, &two, &["US-002"])).await;
    if fixture.repo.has_ref_files() {
        assert_eq!(fixture.repo.started_processes() - before, 5, "processes");
    }
    assert_eq!(fixture.scratch.git(&["show", &format!("{head}:shared")]), "1!\n2\n3\n4\n5\n6\n7!");
    let [first, second] = &fixture.parents(&head)[..] else { panic!("a merge") };
    assert_eq!(*first, onto);
    assert_eq!(fixture.show(second, "%T %P %B"), format!("{} {} b", fixture.tree(&two), fixture.base));

    assert_eq!(fixture.scratch.git(&["status", "--porcelain=v2", "--branch", "-z"]), status);
    assert_eq!(fs::read(fixture.scratch.root.join(".git/index")).expect("read"), index);
    assert_eq!(fs::read_to_string(fixture.scratch.root.join("shared")).expect("read"), "and another\n");
    fixture.scratch.git(&["fsck", "--strict"]);
}

#[tokio::test]
async fn a_true_merge_leaves_a_dirty_checkout_alone() {
    assert_true_merge(LandingRepo::new().await).await;
}

#[tokio::test]
async fn a_true_merge_in_a_sha256_repo() {
    assert_true_merge(LandingRepo::with(&["--object-format=sha256"]).await).await;
}

#[tokio::test]
async fn a_true_merge_in_a_reftable_repo() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut init = git_command(dir.path());
    if !init.args(["init", "-q", "--ref-format=reftable"]).status().expect("git runs").success() {
        // Older than 2.45: then there are no such repos.
        let version = git_in(dir.path(), &["version"]);
        let old = ["2.38", "2.39", "2.40", "2.41", "2.42", "2.43", "2.44"];
        assert!(old.iter().any(|old| version.contains(old)), "{version}");
        return;
    }
    let fixture = LandingRepo::with(&["--ref-format=reftable"]).await;
    assert_eq!(fixture.repo.checked_out_at("main").await.expect("asked"), Some(fixture.scratch.root.clone()));
    assert_eq!(fixture.repo.checked_out_at("feat/all").await.expect("asked"), None);
    assert_true_merge(fixture).await;
}

#[tokio::test]
async fn a_batch_lands_up_to_any_of_its_candidates() {
    let fixture = LandingRepo::new().await;
    let tips: Vec<_> = ["a", "b", "c"].map(|name| fixture.commit_story(&fixture.base, name, "1\n", name)).into();
    let clash = fixture.commit_story(&fixture.base, "b", "2\n", "also b");
    let of = |tip: &CommitId, story: &str| fixture.candidate(&fixture.base, tip, &[story]);
    let batch = [
        of(&tips[0], "US-001"),
        of(&tips[1], "US-002"),
        of(&tips[0], "US-001"),
        of(&clash, "US-004"),
        of(&tips[2], "US-005"),
    ];
    let prepared = fixture.prepare(&fixture.base, &batch).await.expect("prepared");
    assert_eq!(fixture.head(), fixture.base, "the branch has not moved");
    assert_eq!((prepared.onto.clone(), prepared.branch_exists), (fixture.base.clone(), true));
    assert_eq!(prepared.conflict, Some(vec!["b".to_owned()]));
    let [one, two, again] = &prepared.commits[..] else { panic!("{prepared:?}") };
    assert_eq!(again, two, "nothing new");
    assert_eq!(fixture.only_parent(&one.commit), fixture.base);
    assert_eq!(fixture.parents(&two.commit)[0], one.commit);
    for (prepared, files) in [(one, "a\nodd\n\"ü\"\nshared"), (two, "a\nb\nodd\n\"ü\"\nshared")] {
        assert_eq!(fixture.tree(&prepared.commit), prepared.tree);
        let listed = fixture.scratch.git(&["ls-tree", "--name-only", "-z", &prepared.tree]).replace('\0', "\n");
        assert_eq!(listed.trim_end(), files);
    }
    assert_eq!(fixture.scratch.git(&["rev-parse", &fixture.keep_ref]), two.commit.as_str());
    // Only the first one passed its checks.
    assert_eq!(fixture.move_to(Some(&fixture.base), &one.commit).await.expect("moved"), MoveOutcome::Moved);
    assert_eq!(fixture.repo.is_landed(&fixture.branch, &two.commit).await.expect("asked"), None);
    let rest = fixture.prepare(&one.commit, &batch[1..]).await.expect("prepared");
    assert_eq!(rest.commits[0].tree, two.tree);
    // A conflict of the first candidate is one with the branch.
    let refused = fixture.prepare(&two.commit, &batch[3..]).await;
    assert!(matches!(refused, Err(DeliveryError::BranchMoved { .. })), "{refused:?}");
    fixture.scratch.git(&["update-ref", "refs/heads/feat/all", two.commit.as_str()]);
    let refused = fixture.prepare(&one.commit, &batch[3..]).await.expect("prepared");
    assert_eq!((refused.commits, refused.conflict), (Vec::new(), Some(vec!["b".to_owned()])));
}

#[tokio::test]
async fn a_candidate_may_begin_with_the_tip_of_an_earlier_one() {
    let fixture = LandingRepo::new().await;
    let one = fixture.commit_story(&fixture.base, "shared", "one\n", "one");
    let two = fixture.commit_story(&one, "shared", "two\n", "two");
    let other = fixture.commit_story(&fixture.base, "other", "x\n", "other");
    let three = fixture.commit_story(&two, "shared", "three\n", "three");
    let batch = [
        fixture.candidate(&fixture.base, &one, &["US-001"]),
        fixture.candidate(&one, &two, &["US-002"]),
        fixture.candidate(&fixture.base, &other, &["US-003"]),
        fixture.candidate(&two, &three, &["US-004"]),
    ];
    let prepared = fixture.prepare(&fixture.base, &batch).await.expect("prepared");
    let [first, second, third, last] = &prepared.commits[..] else { panic!("{prepared:?}") };
    assert_eq!(fixture.only_parent(&second.commit), first.commit);
    let [onto, written] = &fixture.parents(&last.commit)[..] else { panic!("a merge") };
    assert_eq!(*onto, third.commit);
    assert_eq!(fixture.only_parent(written), second.commit);
    assert_eq!(fixture.scratch.git(&["show", &format!("{}:shared", last.commit)]), "three");
    // No commit of a sandbox is in the history.
    let history = fixture.scratch.git(&["rev-list", last.commit.as_str()]);
    assert!(![&one, &two, &other, &three].into_iter().any(|commit| history.contains(commit.as_str())), "{history}");
}

#[tokio::test]
async fn a_conflict_lists_the_files_and_changes_nothing() {
    let fixture = LandingRepo::new().await;
    let names = ["odd\n\"ü\"", "shared", "-n", "dir/new"];
    let (mut one, mut two) = (fixture.base.clone(), fixture.base.clone());
    for name in names {
        one = fixture.commit_story(&one, name, "one\n", "a");
        two = fixture.commit_story(&two, name, "two\n", "b");
    }
    let onto = fixture.land(&fixture.base, fixture.candidate(&fixture.base, &one, &["US-001"])).await;
    let prepared = fixture.prepare(&onto, &[fixture.candidate(&fixture.base, &two, &["US-002"])]).await.expect("tried");
    assert_eq!(prepared.commits, []);
    let expected = ["-n", "dir/new", "odd\n\"ü\"", "shared"].map(str::to_owned);
    assert_eq!(prepared.conflict, Some(expected.to_vec()));
    assert_eq!(fixture.head(), onto);
}

#[tokio::test]
async fn an_agents_merge_of_the_branch_stays_a_merge() {
    let fixture = LandingRepo::new().await;
    let first = fixture.commit_story(&fixture.base, "shared", "one\n", "a");
    let head = fixture.land(&fixture.base, fixture.candidate(&fixture.base, &first, &["US-001"])).await;
    // The agent resolves the conflict in its sandbox: `git merge` of the branch's head.
    let story = fixture.commit_story(&fixture.base, "shared", "two\n", "b");
    let resolved = fixture.commit_story(&story, "shared", "one and two\n", "resolved");
    let tree = fixture.tree(&resolved);
    let merge = fixture.scratch.git(&["commit-tree", "-p", story.as_str(), "-p", head.as_str(), "-m", "merged", &tree]);
    let merge: CommitId = merge.parse().expect("a commit");
    let landed = fixture.land(&head, fixture.candidate(&fixture.base, &merge, &["US-002"])).await;
    let [own, theirs] = &fixture.parents(&landed)[..] else { panic!("a merge") };
    assert_eq!(*theirs, head, "commits on the branch are not written again");
    assert_eq!(fixture.show(own, "%P %cn %s"), format!("{} Long Shore b", fixture.base));
    assert!(fixture.show(&landed, "%B").ends_with("Longshore-Content: hash-of-US-002"));
    assert_eq!(fixture.tree(&landed), tree);
}

#[tokio::test]
async fn a_root_commit_of_an_agent_stays_one() {
    let fixture = LandingRepo::new().await;
    let tree = fixture.tree(&fixture.base);
    let root = fixture.scratch.git(&["commit-tree", "-m", "another root", &tree]);
    let next = fixture.commit_story(&fixture.base, "a", "1\n", "a");
    let tree = fixture.tree(&next);
    let tip = fixture.scratch.git(&["commit-tree", "-p", next.as_str(), "-p", &root, "-m", "both", &tree]);
    let tip: CommitId = tip.parse().expect("a commit");
    let landed = fixture.land(&fixture.base, fixture.candidate(&fixture.base, &tip, &["US-001"])).await;
    let [_, other] = &fixture.parents(&landed)[..] else { panic!("a merge") };
    assert_eq!(fixture.show(other, "%P|%s"), "|another root");
}

#[tokio::test]
async fn a_branch_that_advanced_is_merged_with() {
    let fixture = LandingRepo::new().await;
    let tip = fixture.commit_story(&fixture.base, "a", "1\n", "a");
    let theirs = fixture.commit_story(&fixture.base, "theirs", "1\n", "theirs");
    fixture.scratch.git(&["branch", "-q", "-f", "feat/all", theirs.as_str()]);
    let prepared =
        fixture.prepare(&fixture.base, &[fixture.candidate(&fixture.base, &tip, &["US-001"])]).await.expect("merged");
    assert_eq!(prepared.onto, theirs);
    let to = &prepared.commits[0].commit;
    assert_eq!(fixture.parents(to)[0], theirs);
    // Their next commit: the move finds it, and the landing is prepared again.
    let next = fixture.commit_story(&theirs, "theirs", "2\n", "theirs again");
    fixture.scratch.git(&["branch", "-q", "-f", "feat/all", next.as_str()]);
    let moved = fixture.move_to(prepared.branch_head(), to).await.expect("tried");
    assert_eq!(moved, MoveOutcome::BranchMoved { found: Some(next.clone()) });
    assert_eq!(fixture.head(), next);
    let head = fixture.land(&prepared.onto, fixture.candidate(&fixture.base, &tip, &["US-001"])).await;
    assert_eq!(fixture.parents(&head)[0], next);

    // Rewound, it does not have what landed: that is for a person to say.
    let other = fixture.candidate(&fixture.base, &fixture.commit_story(&fixture.base, "x", "3\n", "b"), &["US-002"]);
    fixture.scratch.git(&["branch", "-q", "-f", "feat/all", fixture.base.as_str()]);
    let rewound = fixture.prepare(&head, std::slice::from_ref(&other)).await;
    assert!(matches!(&rewound, Err(error @ DeliveryError::BranchMoved { .. }) if error.is_retryable()), "{rewound:?}");
    fixture.scratch.git(&["branch", "-q", "-D", "feat/all"]);
    let gone = fixture.prepare(&head, &[other]).await;
    assert!(matches!(gone, Err(DeliveryError::BranchMoved { found: None, .. })), "{gone:?}");
}

#[tokio::test]
async fn a_branch_is_created_when_something_lands() {
    let mut fixture = LandingRepo::new().await;
    fixture.scratch.git(&["branch", "-q", "-D", "feat/all"]);
    fixture.options.may_create_branch = true;
    let tip = fixture.commit_story(&fixture.base, "a", "1\n", "a");
    let before = fixture.repo.started_processes();
    let prepared =
        fixture.prepare(&fixture.base, &[fixture.candidate(&fixture.base, &tip, &["US-001"])]).await.expect("prepared");
    assert_eq!((&prepared.onto, prepared.branch_head()), (&fixture.base, None));
    assert_eq!(fixture.repo.branch_head("feat/all").await.expect("asked"), None);
    let to = &prepared.commits[0].commit;
    assert_eq!(fixture.move_to(None, to).await.expect("moved"), MoveOutcome::Moved);
    assert_eq!(fixture.repo.started_processes() - before, 3, "processes");
    assert_eq!(fixture.head(), *to);
}

#[tokio::test]
async fn a_candidate_without_commits_changes_nothing() {
    let fixture = LandingRepo::new().await;
    let base = &fixture.base;
    let prepared = fixture.prepare(base, &[fixture.candidate(base, base, &["US-001"])]).await.expect("prepared");
    assert_eq!(prepared.commits, [PreparedCommit { commit: base.clone(), tree: fixture.tree(base) }]);
    assert_eq!(fixture.repo.read_ref(&fixture.keep_ref).await.expect("read"), None);
    assert_eq!(fixture.move_to(Some(base), base).await.expect("asked"), MoveOutcome::Moved);
}

#[tokio::test]
async fn a_missing_tip_is_named() {
    let fixture = LandingRepo::new().await;
    let gone: CommitId = "1".repeat(40).parse().expect("valid");
    let missing = fixture.prepare(&fixture.base, &[fixture.candidate(&fixture.base, &gone, &["US-001"])]).await;
    assert!(matches!(missing, Err(DeliveryError::MissingCommit { commit }) if commit == gone));
}

#[tokio::test]
async fn the_keep_ref_must_be_longshores() {
    let mut fixture = LandingRepo::new().await;
    for name in ["refs/heads/main", "refs/longshore/x\nreset refs/heads/main"] {
        fixture.keep_ref = name.to_owned();
        let refused = fixture.prepare(&fixture.base, &[]).await;
        assert!(matches!(refused, Err(DeliveryError::ForbiddenRef { .. })), "{refused:?}");
    }
}
