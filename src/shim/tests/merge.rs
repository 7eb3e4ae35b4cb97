//! Attempts that start in a merge of the integration branch.

use super::*;
use crate::protocol::acp::message::CompletionStatus;

/// A sandbox whose base and whose integration branch both descend from the first commit of the host. `theirs` changes the
/// integration branch, `mine` makes the base.
fn merge_fixture(mine: &str, theirs: &str) -> (SandboxFixture, CommitId) {
    let mut fixture = SandboxFixture::new();
    let host = fixture.dir.path().join("host");
    fs::write(host.join("data.bin"), b"\0\x01").unwrap();
    git(&host, &["add", "-A"]);
    git(&host, &["commit", "-qm", "data"]);
    let commit_side = |branch: &str, script: &str| -> CommitId {
        git(&host, &["checkout", "-q", "-b", branch, "trunk"]);
        assert!(Command::new("sh").current_dir(&host).args(["-ec", script]).status().unwrap().success());
        git(&host, &["add", "-A"]);
        git(&host, &["commit", "-qm", branch]);
        git(&host, &["rev-parse", "HEAD"]).parse().unwrap()
    };
    fixture.base = commit_side("mine", mine);
    let head = commit_side("theirs", theirs);
    git(&fixture.layout().objects_repo(), &["fetch", "-q", host.to_str().unwrap(), "+refs/heads/*:refs/heads/*"]);
    fixture.assignment["base"] = json!(fixture.base.as_str());
    fixture.assignment["merge"] = json!({"head": head.as_str(), "paths": ["README"]});
    (fixture, head)
}

fn conflicting() -> (SandboxFixture, CommitId) {
    merge_fixture("echo mine > README; echo m > m.txt", "echo theirs > README; echo t > t.txt")
}

impl SandboxFixture {
    /// The merge in the bundle has both parents, and this README.
    #[track_caller]
    fn assert_merged(&self, outcome: &ShimOutcome, head: &CommitId, readme: &str) -> PathBuf {
        let commit = outcome.commit(0);
        let clone = self.fetch_bundle();
        for parent in [&self.base, head] {
            git(&clone, &["merge-base", "--is-ancestor", parent.as_str(), commit.as_str()]);
        }
        assert_eq!(self.git_show(&clone, &format!("{commit}:README")), readme);
        assert_eq!(self.git_show(&clone, &format!("{commit}:m.txt")), "m");
        assert_eq!(self.git_show(&clone, &format!("{commit}:t.txt")), "t");
        clone
    }
}

#[test]
fn a_resolved_merge_is_committed_with_both_parents() {
    let resolved = "echo both > README";
    for (script, own_commits) in [
        // Resolved in the work tree only, in the index, and committed.
        (resolved.to_owned(), 1),
        (format!("{resolved}; git add README"), 1),
        (format!("{resolved}; git commit -qam merged"), 1),
        (format!("{resolved}; git commit -qam merged; echo more > more.txt"), 2),
        (format!("{resolved}; git add README; git merge --continue 2>/dev/null || git commit -q --no-edit"), 1),
        // Started anew.
        (format!("git merge --abort; git merge -q $LONGSHORE_MERGE_HEAD; {resolved}; git commit -qam again"), 1),
        // Rebased: one commit with both histories.
        (
            format!(
                "git merge --abort; git rebase -q origin/feat/all 2>&1; {resolved}; git add README; GIT_EDITOR=true git rebase --continue"
            ),
            1,
        ),
    ] {
        let (mut fixture, head) = conflicting();
        let outcome = fixture.run_command(&script);
        let clone = fixture.assert_merged(&outcome, &head, "both");
        assert_eq!(outcome.story(0).commits.len(), own_commits, "{script}");
        let merges = ["rev-list", "--merges", "-1", "--parents", outcome.commit(0).as_str()];
        let parents = git(&clone, &merges);
        assert!(parents.ends_with(&format!("{} {head}", fixture.base)), "{script}: {parents}");
        assert_eq!(outcome.completion().status, CompletionStatus::Completed);
    }
}

#[test]
fn an_agent_is_told_about_the_conflicts() {
    let (mut fixture, head) = conflicting();
    let outcome = fixture.run_command(
        "set -e; test \"$LONGSHORE_CONFLICTS\" = README; test \"$(cat .git/MERGE_HEAD)\" = \"$LONGSHORE_MERGE_HEAD\"
         grep -q '<<<<<<<' README; test -f m.txt; test -f t.txt; test \"$(git rev-parse origin/feat/all)\" = $LONGSHORE_MERGE_HEAD
         test \"$(git rev-parse HEAD)\" = \"$(git rev-parse feat/work)\"; cp $LONGSHORE_PROMPT_FILE ../prompt; echo both > README",
    );
    fixture.assert_merged(&outcome, &head, "both");
    let prompt = fs::read_to_string(fixture.repo().with_file_name("prompt")).unwrap();
    for part in ["## Finish the merge", "\n- `README`\n", head.as_str(), "Both histories stay"] {
        assert!(prompt.contains(part), "{part} is not in\n{prompt}");
    }
}

#[test]
fn an_unfinished_merge_is_a_conflict_and_its_work_is_salvaged() {
    for (script, summary, paths) in [
        ("true", "files contain merge markers", vec!["README"]),
        ("git add README", "files contain merge markers", vec!["README"]),
        ("git commit -qam merged", "files contain merge markers", vec!["README"]),
        ("git merge --abort; echo again > again.txt", "the merge was given up", vec!["README"]),
        (
            "git reset -q --hard; echo again > again.txt; git add .; git commit -qm again",
            "the merge was given up",
            vec!["README"],
        ),
    ] {
        let (mut fixture, head) = conflicting();
        let outcome = fixture.run_command(script);
        outcome.assert_failed(Cause::Conflict);
        let (failure, salvage) = outcome.failure(0);
        assert!(failure.evidence.summary.contains(summary), "{script}: {failure:?}");
        assert_eq!(failure.evidence.paths, paths, "{script}");
        let salvage = salvage.unwrap_or_else(|| panic!("{script}: nothing was salvaged")).clone();
        git(&fixture.fetch_bundle(), &["cat-file", "-e", salvage.as_str()]);
        assert_eq!(outcome.result.as_ref().unwrap().tip, fixture.base);
        assert_ne!(salvage, head);
    }
}

#[test]
fn a_conflict_without_markers_must_be_touched() {
    let sides = (
        "rm other.txt; printf '\\0mine' > data.bin; echo m > m.txt",
        "echo theirs > other.txt; printf '\\0theirs' > data.bin; echo t > t.txt",
    );
    let (mut fixture, _) = merge_fixture(sides.0, sides.1);
    let outcome = fixture.run_command("test -f other.txt; git rm -q other.txt");
    outcome.assert_failed(Cause::Conflict);
    assert_eq!(outcome.failure(0).0.evidence.paths, ["data.bin"]);
    for script in ["git rm -q other.txt; git add data.bin", "rm other.txt; git checkout -q --theirs data.bin"] {
        let (mut fixture, head) = merge_fixture(sides.0, sides.1);
        let outcome = fixture.run_command(script);
        let clone = fixture.assert_merged(&outcome, &head, "hello");
        assert!(!git(&clone, &["ls-tree", "--name-only", outcome.commit(0).as_str()]).contains("other.txt"));
    }
}

/// Text of the other side that looks like markers is no conflict, and a resolution that equals the earlier work is a change.
#[test]
fn both_sides_decide_what_is_new() {
    let theirs = "echo theirs > README; echo t > t.txt; printf '<<<<<<< a\\n=======\\n>>>>>>> b\\n' > example.md";
    let (mut fixture, head) = merge_fixture("echo mine > README; echo m > m.txt", theirs);
    let outcome = fixture.run_command("git checkout -q --ours README");
    fixture.assert_merged(&outcome, &head, "mine");

    let (mut fixture, head) = conflicting();
    let outcome = fixture.run_command("git reset -q --soft; git checkout -q HEAD -- .; git rm -qf t.txt");
    let clone = fixture.fetch_bundle();
    let parents = git(&clone, &["log", "-1", "--format=%P", outcome.commit(0).as_str()]);
    assert_eq!(parents, format!("{} {head}", fixture.base), "nothing but the history differs");
}

#[test]
fn a_clean_merge_needs_no_agent() {
    let (mut fixture, head) = merge_fixture("echo m > m.txt", "echo t > t.txt");
    fixture.set_stories(&[json!({"command": "touch ../agent-ran", "verify": ["test -f m.txt && test -f t.txt"]})]);
    let outcome = fixture.run();
    fixture.assert_merged(&outcome, &head, "hello");
    assert!(!fixture.repo().with_file_name("agent-ran").exists());
    let message = git(&fixture.dir.path().join("received"), &["log", "-1", "--format=%s", outcome.commit(0).as_str()]);
    assert_eq!(message, "US-001: merge feat/all");
}

#[test]
fn the_first_story_that_finishes_does_the_merge() {
    let (mut fixture, head) = conflicting();
    fixture.set_stories(&[
        json!({"command": "test -n \"$LONGSHORE_CONFLICTS\" && exit 1"}),
        json!({"command": "test -n \"$LONGSHORE_CONFLICTS\" && echo both > README"}),
        json!({"command": "test -z \"$LONGSHORE_CONFLICTS\""}),
        json!({"command": "echo x > x.txt"}),
    ]);
    let outcome = fixture.run();
    assert_eq!(outcome.cause(0), Cause::AgentFailed);
    let merged = outcome.commit(1).clone();
    assert_eq!(outcome.commit(2), &merged, "nothing to do");
    assert_eq!((outcome.story(1).commits.len(), outcome.story(2).commits.len()), (1, 0));
    let clone = fixture.fetch_bundle();
    assert_eq!(git(&clone, &["log", "-1", "--format=%P", merged.as_str()]), format!("{} {head}", fixture.base));
    assert_eq!(git(&clone, &["log", "-1", "--format=%P", outcome.commit(3).as_str()]), merged.as_str());
}

#[test]
fn config_hooks_and_drivers_of_the_repo_do_not_run() {
    let attributes = "echo 'README merge=mine' > .gitattributes";
    let (mut fixture, head) = merge_fixture(
        &format!("{attributes}; echo mine > README; echo m > m.txt"),
        "echo theirs > README; echo t > t.txt",
    );
    fixture.set_stories(&[
        json!({"command": "git config merge.mine.driver 'touch ../driver-ran'; git config rerere.enabled true; git config commit.gpgSign true
                 mkdir -p .git/hooks .git/rr-cache; for h in pre-merge-commit prepare-commit-msg post-merge; do
                 printf '#!/bin/sh\\ntouch ../hook-ran' > .git/hooks/$h; chmod +x .git/hooks/$h; done; exit 1"}),
        json!({"command": "echo both > README"}),
    ]);
    let outcome = fixture.run();
    assert_eq!(outcome.cause(0), Cause::AgentFailed);
    let clone = fixture.fetch_bundle();
    assert_eq!(
        git(&clone, &["log", "-1", "--format=%P", outcome.commit(1).as_str()]),
        format!("{} {head}", fixture.base)
    );
    for trace in ["driver-ran", "hook-ran"] {
        assert!(!fixture.repo().with_file_name(trace).exists(), "{trace}");
    }
}

#[test]
fn a_merge_that_cannot_start_is_the_machinery_s_failure() {
    let (mut fixture, _) = conflicting();
    fixture.assignment["merge"]["head"] = json!("b".repeat(40));
    fixture.run_command("true").assert_failed(Cause::CloneFailed);
}
