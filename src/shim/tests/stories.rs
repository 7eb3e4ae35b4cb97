//! Stories that finish, or fail by their own doing.

use super::*;
use crate::protocol::acp::message::CompletionStatus;

#[test]
fn a_story_lands_in_the_bundle_with_its_message_and_nothing_else_is_said() {
    let mut world = World::new();
    world.stories(&[json!({
        "title": "Write it", "command": "echo text > new.txt; env > ../env; echo secret > ignored.txt",
        "acceptanceCriteria": ["in words", {"id": "AC-x", "text": "is there", "testCommand": "test -f new.txt"}],
        "verify": ["grep -q text new.txt; touch left-by-check"],
    })]);
    let outcome = world.run();
    assert_eq!(outcome.code, 0);
    assert_eq!(outcome.errors(), [""; 0]);
    assert_eq!(outcome.completion().status, CompletionStatus::Completed);
    assert_eq!(outcome.moves("US-001"), [StoryStatus::InProgress, StoryStatus::Completed]);
    let commit = outcome.commit(0).clone();
    let result = outcome.result.as_ref().unwrap();
    assert_eq!((&result.tip, result.bundle), (&commit, true));
    assert_eq!(outcome.story(0).commits, std::slice::from_ref(&commit));
    let met: Vec<_> = outcome.story(0).criteria.iter().map(|c| (c.id.as_str(), c.met)).collect();
    assert_eq!(met, [("AC-1", None), ("AC-x", Some(true))]);

    let clone = world.unbundled();
    assert_eq!(git(&clone, &["rev-parse", "refs/got/heads/feat/work"]), commit.as_str());
    assert_eq!(world.shown(&clone, &format!("{commit}:new.txt")), "text");
    assert_eq!(git(&clone, &["rev-parse", &format!("{commit}^")]), world.base.as_str());
    let message = git(&clone, &["log", "-1", "--format=%B|%an|%ce", commit.as_str()]);
    assert!(message.starts_with("US-001: Write it\n\n"), "{message}");
    assert!(message.contains(&format!("Longshore-Swarm: {SWARM}\nLongshore-Story: US-001")), "{message}");
    assert!(message.ends_with("|A Person|person@example.com"), "{message}");
    let files = git(&clone, &["ls-tree", "--name-only", commit.as_str()]);
    assert!(!files.contains("left-by-check"), "a check changed what was committed: {files}");

    let env = fs::read_to_string(world.repo().parent().unwrap().join("env")).unwrap();
    for (name, value) in [
        ("SECRET_WORD", "xyzzy"),
        ("LONGSHORE_SWARM", SWARM),
        ("LONGSHORE_ASSIGNMENT", "T-2026-001"),
        ("LONGSHORE_ATTEMPT", "1"),
        ("LONGSHORE_STORY", "US-001"),
        ("LONGSHORE_STORY_TITLE", "Write it"),
    ] {
        assert!(env.lines().any(|line| line == format!("{name}={value}")), "{name} is not in\n{env}");
    }
    assert!(env.contains("/in/bin\n"), "the shim is not on the path: {env}");
    assert!(!outcome.log.contains("xyzzy"), "a secret is in the log");
}

#[test]
fn an_agent_gets_its_prompt_on_standard_input_or_in_a_file() {
    for (via, argv) in [
        ("stdin", json!(["sh", "-c", "cat > prompt.txt"])),
        (
            "file",
            json!(["sh", "-c", "cp \"$1\" prompt.txt; cmp \"$1\" \"$LONGSHORE_PROMPT_FILE\"", "sh", "{prompt_file}"]),
        ),
    ] {
        let mut world = World::new();
        world.stories(&[json!({"title": "Find it"})]);
        world.assignment["agent"] = json!({"name": "fake", "argv": argv, "prompt": via});
        world.assignment["stories"][0]["previousFailure"] = json!("the moon was full");
        let outcome = world.run();
        let prompt = world.shown(&world.unbundled(), &format!("{}:prompt.txt", outcome.commit(0)));
        assert!(prompt.contains("US-001: Find it") && prompt.contains("the moon was full"), "{via}: {prompt}");
    }
}

#[test]
fn the_words_of_a_full_disk_do_not_fill_one() {
    let mut world = World::new();
    let outcome = world.run_command("echo x > x.txt; dd if=/dev/zero of=/dev/full count=1");
    outcome.assert_failed(Cause::AgentFailed);
    assert!(outcome.failure(0).0.evidence.tail.iter().any(|line| line.contains("No space left")));
}

#[test]
fn no_agent_is_a_failure_that_says_so() {
    let mut world = World::new();
    world.stories(&[json!({})]);
    let outcome = world.run();
    outcome.assert_failed(Cause::AgentFailed);
    assert!(outcome.failure(0).0.evidence.summary.contains("no agent"));
}

#[test]
fn what_the_agent_committed_itself_stays_and_the_rest_is_added() {
    let mut world = World::new();
    let outcome = world.run_command(
        "echo a > a.txt; git add a.txt; git commit -qm 'mine'; echo b > b.txt; git add b.txt; git commit -qm 'mine too'; echo c > c.txt",
    );
    assert_eq!(outcome.story(0).commits.len(), 3);
    let log = git(&world.unbundled(), &["log", "--format=%s", outcome.commit(0).as_str()]);
    assert_eq!(log, "US-001: Story 1\nmine too\nmine\nbase");
}

#[test]
fn rewritten_history_is_put_on_top_of_the_start() {
    let mut world = World::new();
    let outcome = world.run_command("echo a > a.txt; git add a.txt; git commit -q --amend -m 'rewritten'");
    let clone = world.unbundled();
    assert_eq!(git(&clone, &["rev-parse", &format!("{}^", outcome.commit(0))]), world.base.as_str());
    assert_eq!(world.shown(&clone, &format!("{}:a.txt", outcome.commit(0))), "a");
}

#[test]
fn a_failed_verification_keeps_the_work_and_says_what_failed() {
    let mut world = World::new();
    world.stories(&[json!({"command": "echo x > x.txt", "verify": ["echo tail of it; exit 3"]})]);
    let outcome = world.run();
    outcome.assert_failed(Cause::VerificationFailed);
    let (failure, salvage) = outcome.failure(0);
    assert_eq!(failure.evidence.exit_code, Some(3));
    assert_eq!(failure.evidence.command.as_deref(), Some("echo tail of it; exit 3"));
    assert_eq!(failure.evidence.tail, ["tail of it"]);
    assert_eq!(outcome.result.as_ref().unwrap().tip, world.base, "the branch ends where it began");
    let clone = world.unbundled();
    let salvage = salvage.unwrap().as_str();
    assert_eq!(git(&clone, &["rev-parse", "refs/got/longshore/salvage/US-001"]), salvage);
    assert_eq!(world.shown(&clone, &format!("{salvage}:x.txt")), "x");
}

#[test]
fn every_criterion_is_checked_and_one_that_is_not_met_fails_the_story() {
    let mut world = World::new();
    world.stories(&[json!({"command": "echo x > x.txt", "acceptanceCriteria": [
        {"id": "A", "text": "no", "testCommand": "false"}, {"id": "B", "text": "yes", "testCommand": "true"}, "words",
    ]})]);
    let outcome = world.run();
    outcome.assert_failed(Cause::VerificationFailed);
    let met: Vec<_> = outcome.story(0).criteria.iter().map(|criterion| criterion.met).collect();
    assert_eq!(met, [Some(false), Some(true), None]);
}

#[test]
fn nothing_changed_is_not_done() {
    let mut world = World::new();
    let outcome = world.run_command("mkdir ignored; echo x > ignored/x; git commit -q --allow-empty -m nothing");
    outcome.assert_failed(Cause::NoChanges);
}

#[test]
fn what_was_stashed_is_salvaged() {
    let mut world = World::new();
    let outcome = world.run_command("echo stashed > README; git stash -q; exit 1");
    outcome.assert_failed(Cause::AgentFailed);
    let salvage = outcome.failure(0).1.unwrap().to_string();
    assert_eq!(world.shown(&world.unbundled(), &format!("{salvage}^2:README")), "stashed");
}

#[test]
fn an_exit_code_and_a_signal_are_evidence() {
    for (command, code, signal) in
        [("exit 7", Some(7), None), ("exit 137", Some(137), None), ("kill -9 $$", None, Some(9))]
    {
        let mut world = World::new();
        let outcome = world.run_command(command);
        outcome.assert_failed(Cause::AgentFailed);
        let evidence = &outcome.failure(0).0.evidence;
        assert_eq!((evidence.exit_code, evidence.signal), (code, signal), "{command}");
    }
}

#[test]
fn the_kernels_counter_makes_it_oom() {
    let mut world = World::new();
    let cgroup = world.dir.path().join("no-cgroup");
    fs::create_dir(&cgroup).unwrap();
    let events = cgroup.join("memory.events");
    fs::write(&events, "oom 0\noom_kill 0\n").unwrap();
    let outcome = world.run_command(&format!("printf 'oom 1\\noom_kill 1\\n' > {}; kill -9 $$", events.display()));
    outcome.assert_failed(Cause::Oom);
    assert_eq!(outcome.failure(0).0.evidence.oom_kills, Some(1));
}

#[test]
fn a_timeout_ends_an_agent_that_ignores_sigterm() {
    let mut world = World::new();
    world.assignment["storyTimeoutSecs"] = json!(1);
    world.assignment["graceSecs"] = json!(1);
    let outcome = world.run_command("echo half > half.txt; trap '' TERM; while :; do sleep 1; done");
    outcome.assert_failed(Cause::Timeout);
    let salvage = outcome.failure(0).1.unwrap().to_string();
    assert_eq!(world.shown(&world.unbundled(), &format!("{salvage}:half.txt")), "half");
}

#[test]
fn a_dependent_is_skipped_and_an_independent_goes_on_from_a_clean_clone() {
    let mut world = World::new();
    world.stories(&[
        json!({"command": "echo bad > bad.txt; echo changed > README; exit 1"}),
        json!({"command": "echo no > no.txt", "dependsOn": ["US-001"]}),
        json!({"command": "echo no > no.txt", "dependsOn": ["US-002"]}),
        json!({"command": "test ! -e bad.txt && echo good > good.txt && git status --porcelain > state.txt"}),
        json!({"command": "test -f good.txt && echo more > more.txt", "dependsOn": ["US-004"]}),
    ]);
    let outcome = world.run();
    assert_eq!(outcome.code, 0);
    assert_eq!(outcome.completion().status, CompletionStatus::Completed);
    assert_eq!(outcome.cause(0), Cause::AgentFailed);
    for (place, id) in [(1, "US-002"), (2, "US-003")] {
        let skipped = StoryOutcome::Skipped { because: "US-001".parse().unwrap() };
        assert_eq!(outcome.story(place).outcome, skipped);
        assert_eq!(outcome.moves(id), [StoryStatus::Skipped]);
    }
    let clone = world.unbundled();
    let tip = outcome.commit(4);
    assert_eq!(outcome.result.as_ref().unwrap().tip, *tip);
    assert_eq!(git(&clone, &["log", "--format=%s", tip.as_str()]), "US-005: Story 5\nUS-004: Story 4\nbase");
    assert_eq!(world.shown(&clone, &format!("{tip}:state.txt")), "?? good.txt\n?? state.txt");
    assert_eq!(world.shown(&clone, "refs/got/longshore/salvage/US-001:bad.txt"), "bad");
}

#[test]
fn an_agent_can_ask_tell_and_give_up() {
    let mut world = World::new();
    world.stories(&[json!({"title": "Ask", "command": "echo x > x.txt; touch ../run/begun; until test -e ../run/go; do sleep 0.01; done"})]);
    let socket = world.layout().socket(FOLDER);
    let run = world.layout().run(FOLDER);
    let asking = std::thread::spawn(move || {
        until("the agent's begin", || run.join("begun").exists());
        let ask = |command: &str, args: &[&str]| {
            let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
            super::super::ask::run(command, &args, Some(socket.as_os_str()))
        };
        // Not UTF-8, and longer than a line may be.
        let bytes = std::os::unix::ffi::OsStringExt::from_vec([b"\xff\x01\n".repeat(30_000), b"end".to_vec()].concat());
        let words = super::super::words_of(vec!["fail".into(), bytes]).unwrap();
        let long = words[1].clone();
        assert!(long.len() > crate::wire::MAX_LINE_BYTES);
        let answers =
            (ask("task", &["--json"]), ask("progress", &["half", "way"]), ask("fail", &["it is impossible", &long]));
        fs::write(run.join("go"), "").unwrap();
        answers
    });
    let outcome = world.run();
    let (task, progress, fail) = asking.join().unwrap();
    let card: Value = serde_json::from_str(&task.unwrap()).unwrap();
    assert_eq!((card["id"].as_str(), card["title"].as_str()), (Some("US-001"), Some("Ask")));
    assert_eq!((progress, fail), (Ok(String::new()), Ok(String::new())));
    outcome.assert_failed(Cause::AgentFailed);
    assert!(outcome.failure(0).0.evidence.summary.contains("it is impossible"));
    let log: Vec<&str> = outcome.story(0).work_log.iter().map(|entry| entry.text.as_str()).collect();
    assert!(log.contains(&"half way"), "{log:?}");
}
