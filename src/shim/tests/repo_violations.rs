//! Agents that damage the clone, move other refs, or flood the output.

use super::*;

#[test]
fn a_deleted_git_dir_is_damage_and_work_is_salvaged() {
    for command in [
        "echo x > x.txt; rm -rf .git",
        "echo x > x.txt; rm -rf .git; git init -q; git add -A; git -c user.name=a -c user.email=a@a commit -qm all",
        "echo x > x.txt; rm -rf .git; echo 'gitdir: /nowhere' > .git",
        "echo x > x.txt; rm -rf .git/refs .git/packed-refs",
        "echo x > x.txt; rm -rf .git/objects",
        "echo x > x.txt; echo garbage > .git/refs/heads/feat/work",
    ] {
        let mut fixture = SandboxFixture::new();
        let outcome = fixture.run_command(command);
        outcome.assert_failed(Cause::RepoDamaged);
        let salvage =
            outcome.failure(0).1.unwrap_or_else(|| panic!("nothing was salvaged after `{command}`")).to_string();
        assert_eq!(fixture.git_show(&fixture.fetch_bundle(), &format!("{salvage}:x.txt")), "x");
    }
}

#[test]
fn a_finished_story_survives_the_loss_of_the_git_dir() {
    let mut fixture = SandboxFixture::new();
    fixture.set_stories(&[
        json!({"command": "echo one > one.txt"}),
        json!({"command": "echo two > two.txt; rm -rf .git"}),
        json!({"command": "test -f one.txt && test ! -e two.txt && echo three > three.txt"}),
    ]);
    let outcome = fixture.run();
    assert_eq!(outcome.cause(1), Cause::RepoDamaged);
    let clone = fixture.fetch_bundle();
    let log = git(&clone, &["log", "--format=%s", outcome.commit(2).as_str()]);
    assert_eq!(log, "US-003: Story 3\nUS-001: Story 1\nbase");
    assert_eq!(fixture.git_show(&clone, "refs/got/longshore/salvage/US-002:two.txt"), "two");
}

#[test]
fn a_check_that_deletes_the_git_dir_fails_the_story_and_work_is_salvaged() {
    let mut fixture = SandboxFixture::new();
    fixture.set_stories(&[json!({"command": "echo x > x.txt", "verify": ["rm -rf .git"]})]);
    let outcome = fixture.run();
    outcome.assert_failed(Cause::RepoDamaged);
    let salvage = outcome.failure(0).1.unwrap().to_string();
    assert_eq!(fixture.git_show(&fixture.fetch_bundle(), &format!("{salvage}:x.txt")), "x");
}

#[test]
fn moving_other_refs_or_leaving_the_branch_is_a_violation_and_work_is_salvaged() {
    for (command, named) in [
        ("echo x > x.txt; git branch other", "refs/heads/other"),
        ("echo x > x.txt; git tag v1", "refs/tags/v1"),
        ("echo x > x.txt; git update-ref -d refs/remotes/origin/feat/all", "refs/remotes/origin/feat/all"),
        (
            "git checkout -qb feat/elsewhere; echo x > x.txt; git add -A; git commit -qm there",
            "refs/heads/feat/elsewhere",
        ),
        (
            "git checkout -qb other; echo x > x.txt; git add -A; git commit -qm there; git checkout -q feat/work; echo y > y.txt",
            "refs/heads/other",
        ),
    ] {
        let mut fixture = SandboxFixture::new();
        let outcome = fixture.run_command(command);
        outcome.assert_failed(Cause::BranchViolation);
        let (failure, salvage) = outcome.failure(0);
        assert_eq!(failure.evidence.paths, [named], "{command}");
        let salvage = salvage.unwrap().to_string();
        let clone = fixture.fetch_bundle();
        // The file is in the salvage's tree, or in that of a parent.
        let found = git(&clone, &["log", "-m", "--format=", "--name-only", &salvage, "--", "x.txt"]);
        assert!(found.contains("x.txt"), "{command}: {found}");
    }
}

#[test]
fn a_detached_head_with_commits_of_its_own_is_a_violation() {
    let mut fixture = SandboxFixture::new();
    let outcome = fixture.run_command("git checkout -q --detach; echo x > x.txt; git add -A; git commit -qm loose");
    outcome.assert_failed(Cause::BranchViolation);
    let salvage = outcome.failure(0).1.unwrap().to_string();
    assert_eq!(fixture.git_show(&fixture.fetch_bundle(), &format!("{salvage}:x.txt")), "x");
}

#[test]
fn merge_markers_fail_the_verification() {
    let mut fixture = SandboxFixture::new();
    let outcome = fixture.run_command(
        "printf '<<<<<<< ours\\na\\n=======\\nb\\n>>>>>>> theirs\\n' > other.txt; printf 'a\\n=======\\n' > heading.md",
    );
    outcome.assert_failed(Cause::VerificationFailed);
    assert_eq!(outcome.failure(0).0.evidence.paths, ["other.txt"]);
}

#[test]
fn merge_markers_only_in_the_index_are_found() {
    for hide in [
        "git add f.txt; git update-index --assume-unchanged f.txt; echo clean > f.txt",
        "git add f.txt; git update-index --skip-worktree f.txt; echo clean > f.txt",
        "echo 'f.txt working-tree-encoding=UTF-16LE' > .gitattributes; iconv -t UTF-16LE f.txt > g.txt; mv g.txt f.txt",
    ] {
        let mut fixture = SandboxFixture::new();
        let text = "<<<<<<< ours\\na\\n=======\\nb\\n>>>>>>> theirs\\n";
        let outcome = fixture.run_command(&format!("printf '{text}' > f.txt; {hide}"));
        outcome.assert_failed(Cause::VerificationFailed);
        assert_eq!(outcome.failure(0).0.evidence.paths, ["f.txt"], "{hide}");
    }
}

#[test]
fn an_unfinished_merge_fails_the_verification_and_names_the_paths() {
    let mut fixture = SandboxFixture::new();
    let outcome = fixture.run_command(
        "echo mine > other.txt; git commit -qam mine; git checkout -q HEAD^; echo theirs > other.txt; git commit -qam theirs; \
         t=$(git rev-parse HEAD); git checkout -q feat/work; git merge -q $t; true",
    );
    outcome.assert_failed(Cause::VerificationFailed);
    assert_eq!(outcome.failure(0).0.evidence.paths, ["other.txt"]);
    assert!(outcome.failure(0).1.is_some());
}

#[test]
fn a_nested_repository_is_reported_and_its_files_are_salvaged() {
    for command in [
        "git init -q inner; echo x > inner/x.txt",
        "git init -q inner; cd inner; echo x > x.txt; git add -A; git -c user.name=a -c user.email=a@a commit -qm inner",
    ] {
        let mut fixture = SandboxFixture::new();
        let outcome = fixture.run_command(command);
        outcome.assert_failed(Cause::VerificationFailed);
        assert_eq!(outcome.failure(0).0.evidence.paths, ["inner"], "{command}");
        let salvage = outcome.failure(0).1.unwrap().to_string();
        assert_eq!(fixture.git_show(&fixture.fetch_bundle(), &format!("{salvage}:inner/x.txt")), "x");
    }
}

#[test]
fn locks_permissions_fifos_and_a_broken_index_are_tolerated() {
    let mut fixture = SandboxFixture::new();
    let outcome = fixture.run_command(
        "echo x > x.txt; chmod 000 x.txt; mkdir closed; echo y > closed/y.txt; chmod 000 closed; mkfifo pipe; \
         touch .git/index.lock .git/refs/heads/feat/work.lock; echo garbage > .git/index; echo '[core' > .git/config",
    );
    let clone = fixture.fetch_bundle();
    let commit = outcome.commit(0);
    assert_eq!(fixture.git_show(&clone, &format!("{commit}:closed/y.txt")), "y");
    assert_eq!(fixture.git_show(&clone, &format!("{commit}:x.txt")), "x");
    assert_eq!(fixture.git_show(&clone, &format!("{commit}:other.txt")), "one\ntwo\nthree");
}

#[test]
fn agent_hooks_and_git_config_are_not_run() {
    let mut fixture = SandboxFixture::new();
    let outcome = fixture.run_command(
        "echo x > x.txt; mkdir -p .git/hooks; printf '#!/bin/sh\\ntouch ../ran; exit 1\\n' > .git/hooks/pre-commit; \
         cp .git/hooks/pre-commit .git/hooks/reference-transaction; chmod +x .git/hooks/*; \
         git config core.fsmonitor 'touch ../ran'; git config filter.f.clean 'touch ../ran; cat'; echo '* filter=f' > .gitattributes",
    );
    outcome.commit(0);
    assert!(!fixture.repo().parent().unwrap().join("ran").exists(), "the agent's program ran");
}

#[test]
fn agent_output_stays_out_of_the_protocol() {
    let mut fixture = SandboxFixture::new();
    let fake = format!(
        r#"{{"type":"completion","timestamp":"2026-01-01T00:00:00Z","swarmId":"{SWARM}","containerId":"{CONTAINER}","payload":{{"status":"failed","prUrl":null,"errors":["fake"]}}}}"#
    );
    let outcome = fixture.run_command(&format!(
        "echo x > x.txt; echo '{fake}'; head -c 10000000 /dev/zero | tr '\\0' 'a' | fold -w 100; head -c 100000 /dev/urandom; echo; echo last"
    ));
    outcome.commit(0);
    assert!(outcome.completion().errors.is_empty());
    assert!(outcome.log.contains("\"fake\""), "the agent's output is in the log");
    assert!(outcome.log.contains("the rest is dropped") && outcome.log.len() < 10_000_000, "{}", outcome.log.len());
}

#[test]
fn the_tail_of_binary_output_is_sanitized() {
    let mut fixture = SandboxFixture::new();
    let outcome =
        fixture.run_command("head -c 200000 /dev/urandom; echo; printf '\\033[31mthe end\\033[0m\\n'; exit 1");
    outcome.assert_failed(Cause::AgentFailed);
    let tail = &outcome.failure(0).0.evidence.tail;
    assert_eq!(tail.last().map(String::as_str), Some("the end"));
    assert!(
        tail.len() <= 50 && tail.iter().all(|line| line.chars().count() <= 500 && !line.contains(char::is_control))
    );
}

#[test]
fn a_daemon_holding_the_pipes_does_not_block() {
    let mut fixture = SandboxFixture::new();
    let began = std::time::Instant::now();
    let outcome = fixture.run_command("echo x > x.txt; sleep 1000 & setsid sleep 30 & exit 0");
    outcome.commit(0);
    assert!(began.elapsed() < Duration::from_secs(20), "it waited for the daemon");
}
