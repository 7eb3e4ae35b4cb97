//! Agents that leave files on which a careless reader or writer would wait for ever, or that nobody may touch.

use std::os::unix::fs::PermissionsExt;

use super::*;

/// The shim ends at all, and well before a limit of git's.
#[track_caller]
fn run_quickly(world: &mut SandboxFixture, command: &str) -> ShimOutcome {
    let began = std::time::Instant::now();
    let outcome = world.run_command(command);
    assert!(began.elapsed() < Duration::from_secs(100), "it waited after `{command}`");
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
        let mut world = SandboxFixture::new();
        let outcome = run_quickly(
            &mut world,
            &format!("echo x > x.txt; rm -f .git/{place}; mkdir -p .git/info; mkfifo .git/{place}"),
        );
        outcome.assert_failed(Cause::RepoDamaged);
        let salvage = outcome.failure(0).1.unwrap_or_else(|| panic!("nothing was kept after {place}")).to_string();
        let clone = world.fetch_bundle();
        assert_eq!(world.git_show(&clone, &format!("{salvage}:x.txt")), "x", "{place}");
        assert_eq!(world.git_show(&clone, &format!("{salvage}:README")), "hello", "{place}");
    }
}

#[test]
fn a_link_to_a_fifo_in_the_git_dir_is_damage() {
    let mut world = SandboxFixture::new();
    let outcome = run_quickly(
        &mut world,
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
        let mut world = SandboxFixture::new();
        let code = u8::from(cause == Cause::AgentFailed);
        let outcome = run_quickly(
            &mut world,
            &format!("echo x > x.txt; mkdir -p $(dirname {place}); rm -f {place}; mkfifo {place}; exit {code}"),
        );
        outcome.assert_failed(cause);
        let (failure, salvage) = outcome.failure(0);
        if cause == Cause::VerificationFailed {
            assert_eq!(failure.evidence.paths, [place]);
        } else {
            assert!(failure.evidence.summary.contains(place), "{}", failure.evidence.summary);
        }
        assert_eq!(world.git_show(&world.fetch_bundle(), &format!("{}:x.txt", salvage.unwrap())), "x");
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
        let mut world = SandboxFixture::new();
        let outcome = run_quickly(&mut world, &format!("echo x > x.txt; {command}"));
        let commit = outcome.commit(0).to_string();
        assert_eq!(world.git_show(&world.fetch_bundle(), &format!("{commit}:x.txt")), "x", "{command}");
        for folder in [world.out(), world.out().join("..")] {
            let mode = fs::metadata(folder).unwrap().permissions().mode();
            assert_eq!(mode & 0o700, 0o700, "{command}");
        }
    }
}

#[test]
fn the_prompt_replaces_whatever_is_in_its_place() {
    let mut world = SandboxFixture::new();
    world.set_stories(&[
        json!({"command": "mkfifo ../run/prompt-US-002.md; chmod 000 ../run; echo one > one.txt"}),
        json!({"command": "grep -q US-002 $LONGSHORE_PROMPT_FILE && echo two > two.txt"}),
    ]);
    let outcome = world.run();
    outcome.commit(0);
    outcome.commit(1);
}

#[test]
fn files_refused_by_git_do_not_prevent_the_salvage() {
    for (command, code, cause) in [
        ("mkdir -p .GIT; echo x > .GIT/config", 0, Cause::VerificationFailed),
        ("mkdir -p a/.GIT; echo x > a/.GIT/config", 1, Cause::AgentFailed),
    ] {
        let mut world = SandboxFixture::new();
        let outcome = run_quickly(&mut world, &format!("echo precious > precious.txt; {command}; exit {code}"));
        outcome.assert_failed(cause);
        let (failure, salvage) = outcome.failure(0);
        assert!(super::super::story::failure_line(failure).contains(".GIT/config"), "{failure:?}");
        let salvage = salvage.expect("what can be kept is kept").to_string();
        assert_eq!(world.git_show(&world.fetch_bundle(), &format!("{salvage}:precious.txt")), "precious");
        assert!(outcome.unsaved(0), "the rest is in the work folder alone");
    }
}

#[test]
fn files_refused_by_git_stay_in_place_and_end_the_attempt() {
    for (leave, sealed) in [("mkdir -p a/.GIT; echo work > a/.GIT/config", true), ("mkfifo pipe", false)] {
        let mut world = SandboxFixture::new();
        let fails = format!("echo one > one.txt; {leave}; exit 1");
        world.set_stories(&[json!({"command": fails}), json!({"command": "echo two > two.txt"})]);
        let outcome = world.run();
        assert!(outcome.failure(0).1.is_some());
        assert_eq!(outcome.unsaved(0), sealed);
        assert_eq!((outcome.code, outcome.errors()), (0, Vec::new()), "it is the story's failure, and nobody else's");
        if sealed {
            assert_eq!(outcome.story(1).outcome, StoryOutcome::NotReached);
            assert_eq!(fs::read_to_string(world.repo().join("a/.GIT/config")).unwrap(), "work\n");
        } else {
            outcome.commit(1);
        }
    }
}

#[test]
fn a_failed_salvage_is_recorded_in_the_result() {
    let mut world = SandboxFixture::new();
    // The second story's start is in no bundle that could be read again.
    world.set_stories(&[
        json!({"command": "echo one > one.txt"}),
        json!({"command": "echo two > two.txt; rm -rf .git; echo broken > ../out/result.bundle"}),
    ]);
    let outcome = world.run();
    assert!(outcome.failure(1).1.is_none());
    assert!(outcome.unsaved(1), "{:?}", outcome.story(1));
}

#[test]
fn a_failure_without_changes_is_not_unsaved() {
    let mut world = SandboxFixture::new();
    let outcome = world.run_command("exit 3");
    outcome.assert_failed(Cause::AgentFailed);
    assert!(outcome.failure(0).1.is_none() && !outcome.unsaved(0));
}
