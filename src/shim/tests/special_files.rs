//! Agents that leave files on which a careless reader or writer would hang, or that are not accessible.

use std::os::unix::fs::PermissionsExt;

use super::*;

/// Runs the shim, which must end well before git's time limit.
#[track_caller]
fn run_quickly(fixture: &mut SandboxFixture, command: &str) -> ShimOutcome {
    let began = std::time::Instant::now();
    let outcome = fixture.run_command(command);
    assert!(began.elapsed() < Duration::from_secs(100), "the shim hung after `{command}`");
    outcome
}

#[test]
fn special_files_in_the_git_dir_are_damage_and_work_is_salvaged() {
    for place in [
        "objects/info/alternates",
        "index",
        "info/exclude",
        "info/attributes",
        "HEAD",
        "packed-refs",
        "refs/heads/feat/work",
        "shallow",
        "config",
    ] {
        let mut fixture = SandboxFixture::new();
        let outcome = run_quickly(
            &mut fixture,
            &format!("echo x > x.txt; rm -f .git/{place}; mkdir -p .git/info; mkfifo .git/{place}"),
        );
        outcome.assert_failed(Cause::RepoDamaged);
        let salvage = outcome.failure(0).1.unwrap_or_else(|| panic!("nothing was salvaged after {place}")).to_string();
        let clone = fixture.fetch_bundle();
        assert_eq!(fixture.git_show(&clone, &format!("{salvage}:x.txt")), "x", "{place}");
        assert_eq!(fixture.git_show(&clone, &format!("{salvage}:README")), "hello", "{place}");
    }
}

#[test]
fn a_link_to_a_fifo_in_the_git_dir_is_damage() {
    let mut fixture = SandboxFixture::new();
    let outcome = run_quickly(
        &mut fixture,
        "echo x > x.txt; mkfifo ../pipe; mkdir -p .git/info; ln -s ../../../pipe .git/info/exclude",
    );
    outcome.assert_failed(Cause::RepoDamaged);
    assert!(outcome.failure(0).1.is_some());
}

#[test]
fn special_git_rule_files_fail_the_story_and_work_is_salvaged() {
    for (place, cause) in [
        (".gitignore", Cause::VerificationFailed),
        ("deep/down/.gitattributes", Cause::VerificationFailed),
        ("inner/.git/HEAD", Cause::VerificationFailed),
        (".gitmodules", Cause::VerificationFailed),
        (".gitignore", Cause::AgentFailed),
    ] {
        let mut fixture = SandboxFixture::new();
        let code = u8::from(cause == Cause::AgentFailed);
        let outcome = run_quickly(
            &mut fixture,
            &format!("echo x > x.txt; mkdir -p $(dirname {place}); rm -f {place}; mkfifo {place}; exit {code}"),
        );
        outcome.assert_failed(cause);
        let (failure, salvage) = outcome.failure(0);
        if cause == Cause::VerificationFailed {
            assert_eq!(failure.evidence.paths, [place]);
        } else {
            assert!(failure.evidence.summary.contains(place), "{}", failure.evidence.summary);
        }
        assert_eq!(fixture.git_show(&fixture.fetch_bundle(), &format!("{}:x.txt", salvage.unwrap())), "x");
    }
}

#[test]
fn the_result_replaces_whatever_is_in_its_place() {
    for command in [
        "mkfifo ../out/result.json-tmp ../out/result.bundle-tmp",
        "mkfifo ../out/result.json ../out/result.bundle; touch ../out/result.bundle-tmp.lock",
        "mkdir -p ../out/result.json/x ../out/result.bundle/x ../out/result.json-tmp ../out/result.bundle-tmp/x",
        "ln -s /etc/nowhere ../out/result.json-tmp; ln -s ../repo/link ../out/result.bundle-tmp",
        "chmod 000 ../out",
        "rm -r ../out; mkfifo ../out",
        "chmod 000 ..",
    ] {
        let mut fixture = SandboxFixture::new();
        let outcome = run_quickly(&mut fixture, &format!("echo x > x.txt; {command}"));
        let commit = outcome.commit(0).to_string();
        assert_eq!(fixture.git_show(&fixture.fetch_bundle(), &format!("{commit}:x.txt")), "x", "{command}");
        for folder in [fixture.out(), fixture.out().join("..")] {
            let mode = fs::metadata(folder).unwrap().permissions().mode();
            assert_eq!(mode & 0o700, 0o700, "{command}");
        }
    }
}

#[test]
fn the_prompt_replaces_whatever_is_in_its_place() {
    let mut fixture = SandboxFixture::new();
    fixture.set_stories(&[
        json!({"command": "mkfifo ../run/prompt-US-002.md; chmod 000 ../run; echo one > one.txt"}),
        json!({"command": "grep -q US-002 $LONGSHORE_PROMPT_FILE && echo two > two.txt"}),
    ]);
    let outcome = fixture.run();
    outcome.commit(0);
    outcome.commit(1);
}

#[test]
fn files_refused_by_git_do_not_prevent_the_salvage() {
    for (command, code, cause) in [
        ("mkdir -p .GIT; echo x > .GIT/config", 0, Cause::VerificationFailed),
        ("mkdir -p a/.GIT; echo x > a/.GIT/config", 1, Cause::AgentFailed),
    ] {
        let mut fixture = SandboxFixture::new();
        let outcome = run_quickly(&mut fixture, &format!("echo precious > precious.txt; {command}; exit {code}"));
        outcome.assert_failed(cause);
        let (failure, salvage) = outcome.failure(0);
        assert!(crate::shim::story_failure::failure_line(failure).contains(".GIT/config"), "{failure:?}");
        let salvage = salvage.expect("a salvage").to_string();
        assert_eq!(fixture.git_show(&fixture.fetch_bundle(), &format!("{salvage}:precious.txt")), "precious");
        assert!(outcome.unsaved(0), "the rest is in the work tree only");
    }
}

#[test]
fn files_refused_by_git_stay_in_place_and_end_the_attempt() {
    for (leave, sealed) in [("mkdir -p a/.GIT; echo work > a/.GIT/config", true), ("mkfifo pipe", false)] {
        let mut fixture = SandboxFixture::new();
        let fails = format!("echo one > one.txt; {leave}; exit 1");
        fixture.set_stories(&[json!({"command": fails}), json!({"command": "echo two > two.txt"})]);
        let outcome = fixture.run();
        assert!(outcome.failure(0).1.is_some());
        assert_eq!(outcome.unsaved(0), sealed);
        assert_eq!((outcome.code, outcome.errors()), (0, Vec::new()), "only the story fails");
        if sealed {
            assert_eq!(outcome.story(1).outcome, StoryOutcome::NotReached);
            assert_eq!(fs::read_to_string(fixture.repo().join("a/.GIT/config")).unwrap(), "work\n");
        } else {
            outcome.commit(1);
        }
    }
}

#[test]
fn a_failed_salvage_is_recorded_in_the_result() {
    let mut fixture = SandboxFixture::new();
    // The only bundle with the second story's start is broken.
    fixture.set_stories(&[
        json!({"command": "echo one > one.txt"}),
        json!({"command": "echo two > two.txt; rm -rf .git; echo broken > ../out/result.bundle"}),
    ]);
    let outcome = fixture.run();
    assert!(outcome.failure(1).1.is_none());
    assert!(outcome.unsaved(1), "{:?}", outcome.story(1));
}

#[test]
fn a_failure_without_changes_is_not_unsaved() {
    let mut fixture = SandboxFixture::new();
    let outcome = fixture.run_command("exit 3");
    outcome.assert_failed(Cause::AgentFailed);
    assert!(outcome.failure(0).1.is_none() && !outcome.unsaved(0));
}
