//! Stories that finish or fail on their own.

use super::*;
use crate::protocol::acp::message::CompletionStatus;

#[test]
fn a_finished_story_is_committed_to_the_bundle() {
    let mut fixture = SandboxFixture::new();
    fixture.set_stories(&[json!({
        "title": "Write it", "command": "echo text > new.txt; env > ../env; echo secret > ignored.txt",
        "acceptanceCriteria": ["in words", {"id": "AC-x", "text": "is there", "testCommand": "test -f new.txt"}],
        "verify": ["grep -q text new.txt; touch left-by-check"],
    })]);
    let outcome = fixture.run();
    assert_eq!(outcome.code, 0);
    assert_eq!(outcome.errors(), [""; 0]);
    assert_eq!(outcome.completion().status, CompletionStatus::Completed);
    assert_eq!(outcome.statuses("US-001"), [StoryStatus::InProgress, StoryStatus::Completed]);
    let commit = outcome.commit(0).clone();
    let result = outcome.result.as_ref().unwrap();
    assert_eq!((&result.tip, result.bundle), (&commit, true));
    assert_eq!(outcome.story(0).commits, std::slice::from_ref(&commit));
    let met: Vec<_> = outcome.story(0).criteria.iter().map(|c| (c.id.as_str(), c.met)).collect();
    assert_eq!(met, [("AC-1", None), ("AC-x", Some(true))]);

    let clone = fixture.fetch_bundle();
    assert_eq!(git(&clone, &["rev-parse", "refs/got/heads/feat/work"]), commit.as_str());
    assert_eq!(fixture.git_show(&clone, &format!("{commit}:new.txt")), "text");
    assert_eq!(git(&clone, &["rev-parse", &format!("{commit}^")]), fixture.base.as_str());
    let message = git(&clone, &["log", "-1", "--format=%B|%an|%ce", commit.as_str()]);
    assert!(message.starts_with("US-001: Write it\n\n"), "{message}");
    assert!(message.contains(&format!("Longshore-Swarm: {SWARM}\nLongshore-Story: US-001")), "{message}");
    assert!(message.ends_with("|A Person|person@example.com"), "{message}");
    let files = git(&clone, &["ls-tree", "--name-only", commit.as_str()]);
    assert!(!files.contains("left-by-check"), "a check changed what was committed: {files}");

    let env = fs::read_to_string(fixture.repo().parent().unwrap().join("env")).unwrap();
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
        let mut fixture = SandboxFixture::new();
        fixture.set_stories(&[json!({"title": "Find it"})]);
        fixture.assignment["agent"] = json!({"name": "fake", "argv": argv, "prompt": via});
        fixture.assignment["stories"][0]["previousFailure"] = json!("the moon was full");
        let outcome = fixture.run();
        let prompt = fixture.git_show(&fixture.fetch_bundle(), &format!("{}:prompt.txt", outcome.commit(0)));
        assert!(prompt.contains("US-001: Find it") && prompt.contains("the moon was full"), "{via}: {prompt}");
    }
}

#[test]
fn disk_full_output_alone_is_not_a_full_disk() {
    let mut fixture = SandboxFixture::new();
    let outcome = fixture.run_command("echo x > x.txt; dd if=/dev/zero of=/dev/full count=1");
    outcome.assert_failed(Cause::AgentFailed);
    assert!(outcome.failure(0).0.evidence.tail.iter().any(|line| line.contains("No space left")));
}

#[test]
fn a_story_without_an_agent_fails() {
    let mut fixture = SandboxFixture::new();
    fixture.set_stories(&[json!({})]);
    let outcome = fixture.run();
    outcome.assert_failed(Cause::AgentFailed);
    assert!(outcome.failure(0).0.evidence.summary.contains("no agent"));
}

#[test]
fn agent_commits_are_kept_and_uncommitted_changes_added() {
    let mut fixture = SandboxFixture::new();
    let outcome = fixture.run_command(
        "echo a > a.txt; git add a.txt; git commit -qm 'mine'; echo b > b.txt; git add b.txt; git commit -qm 'mine too'; echo c > c.txt",
    );
    assert_eq!(outcome.story(0).commits.len(), 3);
    let log = git(&fixture.fetch_bundle(), &["log", "--format=%s", outcome.commit(0).as_str()]);
    assert_eq!(log, "US-001: Story 1\nmine too\nmine\nbase");
}

#[test]
fn rewritten_history_is_put_on_top_of_the_start() {
    let mut fixture = SandboxFixture::new();
    let outcome = fixture.run_command("echo a > a.txt; git add a.txt; git commit -q --amend -m 'rewritten'");
    let clone = fixture.fetch_bundle();
    assert_eq!(git(&clone, &["rev-parse", &format!("{}^", outcome.commit(0))]), fixture.base.as_str());
    assert_eq!(fixture.git_show(&clone, &format!("{}:a.txt", outcome.commit(0))), "a");
}

#[test]
fn a_failed_verification_salvages_the_work_and_records_evidence() {
    let mut fixture = SandboxFixture::new();
    fixture.set_stories(&[json!({"command": "echo x > x.txt", "verify": ["echo tail of it; exit 3"]})]);
    let outcome = fixture.run();
    outcome.assert_failed(Cause::VerificationFailed);
    let (failure, salvage) = outcome.failure(0);
    assert_eq!(failure.evidence.exit_code, Some(3));
    assert_eq!(failure.evidence.command.as_deref(), Some("echo tail of it; exit 3"));
    assert_eq!(failure.evidence.tail, ["tail of it"]);
    assert_eq!(outcome.result.as_ref().unwrap().tip, fixture.base, "the branch ends where it began");
    let clone = fixture.fetch_bundle();
    let salvage = salvage.unwrap().as_str();
    assert_eq!(git(&clone, &["rev-parse", "refs/got/longshore/salvage/US-001"]), salvage);
    assert_eq!(fixture.git_show(&clone, &format!("{salvage}:x.txt")), "x");
}

#[test]
fn all_criteria_are_checked_and_an_unmet_one_fails_the_story() {
    let mut fixture = SandboxFixture::new();
    fixture.set_stories(&[json!({"command": "echo x > x.txt", "acceptanceCriteria": [
        {"id": "A", "text": "no", "testCommand": "false"}, {"id": "B", "text": "yes", "testCommand": "true"}, "words",
    ]})]);
    let outcome = fixture.run();
    outcome.assert_failed(Cause::VerificationFailed);
    let met: Vec<_> = outcome.story(0).criteria.iter().map(|criterion| criterion.met).collect();
    assert_eq!(met, [Some(false), Some(true), None]);
}

#[test]
fn a_story_without_changes_fails() {
    let mut fixture = SandboxFixture::new();
    let outcome = fixture.run_command("mkdir ignored; echo x > ignored/x; git commit -q --allow-empty -m nothing");
    outcome.assert_failed(Cause::NoChanges);
}

#[test]
fn stashed_changes_are_salvaged() {
    let mut fixture = SandboxFixture::new();
    let outcome = fixture.run_command("echo stashed > README; git stash -q; exit 1");
    outcome.assert_failed(Cause::AgentFailed);
    let salvage = outcome.failure(0).1.unwrap().to_string();
    assert_eq!(fixture.git_show(&fixture.fetch_bundle(), &format!("{salvage}^2:README")), "stashed");
}

#[test]
fn exit_codes_and_signals_are_recorded() {
    for (command, code, signal) in
        [("exit 7", Some(7), None), ("exit 137", Some(137), None), ("kill -9 $$", None, Some(9))]
    {
        let mut fixture = SandboxFixture::new();
        let outcome = fixture.run_command(command);
        outcome.assert_failed(Cause::AgentFailed);
        let evidence = &outcome.failure(0).0.evidence;
        assert_eq!((evidence.exit_code, evidence.signal), (code, signal), "{command}");
    }
}

#[test]
fn an_oom_kill_counter_increase_is_reported_as_oom() {
    let mut fixture = SandboxFixture::new();
    let cgroup = fixture.dir.path().join("no-cgroup");
    fs::create_dir(&cgroup).unwrap();
    let events = cgroup.join("memory.events");
    fs::write(&events, "oom 0\noom_kill 0\n").unwrap();
    let outcome = fixture.run_command(&format!("printf 'oom 1\\noom_kill 1\\n' > {}; kill -9 $$", events.display()));
    outcome.assert_failed(Cause::Oom);
    assert_eq!(outcome.failure(0).0.evidence.oom_kills, Some(1));
}

#[test]
fn a_timeout_kills_an_agent_that_ignores_sigterm() {
    let mut fixture = SandboxFixture::new();
    fixture.assignment["storyTimeoutSecs"] = json!(1);
    fixture.assignment["graceSecs"] = json!(1);
    let outcome = fixture.run_command("echo half > half.txt; trap '' TERM; while :; do sleep 1; done");
    outcome.assert_failed(Cause::Timeout);
    let salvage = outcome.failure(0).1.unwrap().to_string();
    assert_eq!(fixture.git_show(&fixture.fetch_bundle(), &format!("{salvage}:half.txt")), "half");
}

#[test]
fn dependents_are_skipped_and_independent_stories_start_clean() {
    let mut fixture = SandboxFixture::new();
    fixture.set_stories(&[
        json!({"command": "echo bad > bad.txt; echo changed > README; exit 1"}),
        json!({"command": "echo no > no.txt", "dependsOn": ["US-001"]}),
        json!({"command": "echo no > no.txt", "dependsOn": ["US-002"]}),
        json!({"command": "test ! -e bad.txt && echo good > good.txt && git status --porcelain > state.txt"}),
        json!({"command": "test -f good.txt && echo more > more.txt", "dependsOn": ["US-004"]}),
    ]);
    let outcome = fixture.run();
    assert_eq!(outcome.code, 0);
    assert_eq!(outcome.completion().status, CompletionStatus::Completed);
    assert_eq!(outcome.cause(0), Cause::AgentFailed);
    for (place, id) in [(1, "US-002"), (2, "US-003")] {
        let skipped = StoryOutcome::Skipped { because: "US-001".parse().unwrap() };
        assert_eq!(outcome.story(place).outcome, skipped);
        assert_eq!(outcome.statuses(id), [StoryStatus::Skipped]);
    }
    let clone = fixture.fetch_bundle();
    let tip = outcome.commit(4);
    assert_eq!(outcome.result.as_ref().unwrap().tip, *tip);
    assert_eq!(git(&clone, &["log", "--format=%s", tip.as_str()]), "US-005: Story 5\nUS-004: Story 4\nbase");
    assert_eq!(fixture.git_show(&clone, &format!("{tip}:state.txt")), "?? good.txt\n?? state.txt");
    assert_eq!(fixture.git_show(&clone, "refs/got/longshore/salvage/US-001:bad.txt"), "bad");
}

#[test]
fn an_agent_can_read_its_task_report_progress_and_give_up() {
    let mut fixture = SandboxFixture::new();
    fixture.set_stories(&[json!({"title": "Ask", "command": "echo x > x.txt; touch ../run/begun; until test -e ../run/go; do sleep 0.01; done"})]);
    let socket = fixture.layout().socket_path(ATTEMPT_DIR);
    let run = fixture.layout().run_dir(ATTEMPT_DIR);
    let asking = std::thread::spawn(move || {
        wait_until("the agent's begin", || run.join("begun").exists());
        let ask = |command: &str, args: &[&str]| {
            let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
            super::super::socket_client::run(command, &args, Some(socket.as_os_str()))
        };
        // Not UTF-8, and longer than a line may be.
        let bytes = std::os::unix::ffi::OsStringExt::from_vec([b"\xff\x01\n".repeat(30_000), b"end".to_vec()].concat());
        let words = super::super::args_to_strings(vec!["fail".into(), bytes]).unwrap();
        let long = words[1].clone();
        assert!(long.len() > crate::wire::MAX_LINE_BYTES);
        let answers =
            (ask("task", &["--json"]), ask("progress", &["half", "way"]), ask("fail", &["it is impossible", &long]));
        fs::write(run.join("go"), "").unwrap();
        answers
    });
    let outcome = fixture.run();
    let (task, progress, fail) = asking.join().unwrap();
    let card: Value = serde_json::from_str(&task.unwrap()).unwrap();
    assert_eq!((card["id"].as_str(), card["title"].as_str()), (Some("US-001"), Some("Ask")));
    assert_eq!((progress, fail), (Ok(String::new()), Ok(String::new())));
    outcome.assert_failed(Cause::AgentFailed);
    assert!(outcome.failure(0).0.evidence.summary.contains("it is impossible"));
    let log: Vec<&str> = outcome.story(0).work_log.iter().map(|entry| entry.text.as_str()).collect();
    assert!(log.contains(&"half way"), "{log:?}");
}
