//! Sandboxes that are stopped, or start without a task-request, a clone or a tasks file.

use super::*;
use crate::ids::StoryId;
use crate::protocol::acp::machine::{RecordOutcome, Session};
use crate::protocol::acp::message::{CompletionStatus, encode_container};

#[test]
fn a_stop_salvages_the_running_story_and_skips_the_rest() {
    let mut fixture = SandboxFixture::new();
    fixture.set_stories(&[
        json!({"command": "echo done > done.txt"}),
        json!({"command": "echo half > half.txt; touch ../run/begun; sleep 1000"}),
        json!({"command": "echo no > no.txt"}),
    ]);
    let (stop, begun) = (fixture.stop.clone(), fixture.layout().run_dir(ATTEMPT_DIR).join("begun"));
    let stopping = std::thread::spawn(move || {
        wait_until("the second story", || begun.exists());
        stop.cancel();
    });
    let outcome = fixture.run();
    stopping.join().unwrap();
    assert_eq!((outcome.code, outcome.completion().status), (0, CompletionStatus::Stopped));
    assert_eq!(outcome.cause(1), Cause::StoppedByUser);
    assert_eq!(outcome.story(2).outcome, StoryOutcome::NotReached);
    let clone = fixture.fetch_bundle();
    assert_eq!(fixture.git_show(&clone, &format!("{}:done.txt", outcome.commit(0))), "done");
    assert_eq!(fixture.git_show(&clone, "refs/got/longshore/salvage/US-002:half.txt"), "half");
}

/// The minimum time of a stop.
const STOP_TIME: Duration = Duration::from_secs(3);

#[test]
fn a_stop_completes_within_its_grace_period() {
    let stubborn = "trap '' TERM; echo half > half.txt; touch ../run/begun; while :; do sleep 9; done";
    // A command that ignores SIGTERM, also while it is being ended at its timeout.
    for (timeout, wait, cause) in [(60, 0, Cause::StoppedByUser), (1, 1500, Cause::Timeout)] {
        let mut fixture = SandboxFixture::new();
        fixture.assignment["storyTimeoutSecs"] = json!(timeout);
        fixture.assignment["graceSecs"] = json!(STOP_TIME.as_secs());
        fixture.set_stories(&[json!({"command": stubborn})]);
        let (stop, begun) = (fixture.stop.clone(), fixture.layout().run_dir(ATTEMPT_DIR).join("begun"));
        let stopping = std::thread::spawn(move || {
            wait_until("the story", || begun.exists());
            std::thread::sleep(Duration::from_millis(wait));
            stop.cancel();
            std::time::Instant::now()
        });
        let outcome = fixture.run();
        let took = stopping.join().unwrap().elapsed();
        assert!(took < STOP_TIME, "{took:?}");
        assert_eq!((outcome.code, outcome.completion().status), (0, CompletionStatus::Stopped));
        assert_eq!(outcome.cause(0), cause);
        assert_eq!(fixture.git_show(&fixture.fetch_bundle(), "refs/got/longshore/salvage/US-001:half.txt"), "half");
    }
}

#[test]
fn progress_is_ordered_and_heartbeats_fill_silence() {
    let mut fixture = SandboxFixture::new();
    fixture.heartbeat = Duration::from_millis(300);
    fixture.set_stories(&[
        json!({"command": "sleep 1; echo x > x.txt", "verify": ["sleep 1"]}),
        json!({"command": "exit 3"}),
        json!({"command": "true", "dependsOn": ["US-002"]}),
    ]);
    let outcome = fixture.run();
    let container = CONTAINER.parse().unwrap();
    let stories: Vec<StoryId> = (1..=3).map(|number| StoryId::from_number(number).unwrap()).collect();
    // The orchestrator accepts every line.
    let mut session = Session::new(SWARM.parse().unwrap(), container, &stories);
    let envelope = Envelope {
        timestamp: jiff::Timestamp::UNIX_EPOCH,
        swarm_id: SWARM.parse().unwrap(),
        container_id: CONTAINER.parse().unwrap(),
    };
    for message in &outcome.messages {
        let line = crate::wire::WireLine::Good(encode_container(&envelope, message).into());
        assert!(matches!(session.handle_line(line), RecordOutcome::Accepted(_)), "{message:?}");
    }
    let beats = |message: &&ContainerMessage| matches!(message, ContainerMessage::Progress(update) if update.output.is_empty() && update.story_id == stories[0]);
    assert!(outcome.messages.iter().filter(beats).count() >= 3, "{:?}", outcome.messages);
}

#[test]
fn input_ending_after_the_task_request_is_ignored() {
    let mut fixture = SandboxFixture::new();
    fixture.set_stories(&[json!({"command": "echo x > x.txt"})]);
    let outcome = fixture.run_with(|mut input| {
        input.write_all(&fixture.request()).unwrap();
        input.write_all(b"\n").unwrap();
        None
    });
    outcome.commit(0);
}

#[test]
fn a_missing_task_request_reports_a_lost_connection() {
    let mut fixture = SandboxFixture::new();
    fixture.set_stories(&[json!({"command": "true"})]);
    let outcome = fixture.run_with(|_| None);
    assert_eq!(outcome.errors(), ["ACP_CONNECTION_LOST"]);
    assert_eq!((outcome.code, outcome.completion().status), (1, CompletionStatus::Failed));
}

#[test]
fn a_task_request_for_another_attempt_is_refused() {
    let mut fixture = SandboxFixture::new();
    fixture.set_stories(&[json!({"command": "true"})]);
    fixture.assignment["branch"] = json!("feat/another");
    let outcome = fixture.run();
    assert_eq!(outcome.errors(), ["UNKNOWN_ERROR"]);
    assert!(outcome.completion().errors[0].contains("feat/another"), "{:?}", outcome.completion());
    let outcome = fixture.run_with(|mut input| {
        input.write_all(b"{\"type\":\"task-request\"}\n").unwrap();
        Some(input)
    });
    assert_eq!(outcome.errors(), ["UNKNOWN_ERROR"]);
}

#[test]
fn a_missing_base_commit_fails_the_clone() {
    let mut fixture = SandboxFixture::new();
    fixture.set_stories(&[json!({"command": "true"})]);
    fixture.assignment["base"] = json!("1234567890123456789012345678901234567890");
    let outcome = fixture.run();
    assert_eq!((outcome.errors(), outcome.code), (vec!["GIT_CLONE_FAILED"], 1));
    assert_eq!(outcome.completion().status, CompletionStatus::Failed);
    assert_eq!(outcome.story(0).outcome, StoryOutcome::NotReached);
}

#[test]
fn an_unwritable_tree_fails_the_checkout() {
    let mut fixture = SandboxFixture::new();
    fixture.set_stories(&[json!({"command": "true"})]);
    // The commit exists, but one of its files does not.
    let objects = fixture.layout().objects_repo();
    let tree = "100644 blob 1234567890123456789012345678901234567890\tmissing.txt\n";
    fs::write(fixture.dir.path().join("tree"), tree).unwrap();
    let script = "git -c user.name=t -c user.email=t@t commit-tree -m broken $(git mktree --missing < ../../tree)";
    let made = Command::new("sh").args(["-c", script]).current_dir(objects).output().unwrap();
    fixture.assignment["base"] = json!(String::from_utf8_lossy(&made.stdout).trim());
    let outcome = fixture.run();
    assert_eq!((outcome.errors(), outcome.code), (vec!["GIT_CHECKOUT_FAILED"], 1), "{}", outcome.log);
}

#[test]
fn missing_and_invalid_tasks_files_have_distinct_error_codes() {
    let fixture = SandboxFixture::new();
    let outcome = fixture.run();
    assert_eq!(outcome.errors(), ["TASK_FILE_NOT_FOUND"]);
    assert_eq!(outcome.completion().status, CompletionStatus::Failed);

    for (text, why) in [("{", "not JSON"), ("{\"schemaVersion\": \"3.0\"}", "no stories")] {
        let fixture = SandboxFixture::new();
        fixture.write_tasks(text);
        assert_eq!(fixture.run().errors(), ["TASK_FILE_INVALID"], "{why}");
    }
    let mut fixture = SandboxFixture::new();
    fixture.set_stories(&[json!({"command": "true"})]);
    fixture.assignment["stories"] = json!([{"id": "US-077"}]);
    assert_eq!(fixture.run().errors(), ["TASK_FILE_INVALID"]);
}
