//! The golden files of `tests/golden/acp`. The kinds: `to-container` and `from-container` (one record), `session` (the lines of
//! one sandbox).

use bytes::Bytes;
use proptest::prelude::*;

use crate::ids::StoryId;
use crate::protocol::acp::machine::{RecordOutcome, Session};
use crate::protocol::acp::message::{
    Completion, CompletionStatus, ContainerMessage, ErrorCode, ErrorReport, ProgressUpdate, StoryStatus,
    decode_container, decode_task_request, encode_container, encode_task_request,
};
use crate::protocol::acp::rules::RULES;
use crate::protocol::rule::Violation;
use crate::protocol::tests::golden::{
    GoldenFile, assert_invalid_files_are_rejected, assert_rules_are_covered, load_golden_files, mutated_file,
};
use crate::wire::{LineSplitter, WireLine};

fn lines(file: &GoldenFile) -> Vec<WireLine> {
    let mut splitter = LineSplitter::new();
    splitter.push(Bytes::from(file.bytes.clone()));
    std::iter::from_fn(|| splitter.finish()).collect()
}

/// The line of a file that is not a session.
fn only_line(file: &GoldenFile) -> Result<Bytes, Violation> {
    let mut lines = lines(file);
    assert_eq!(lines.len(), 1, "`{}` must have one line", file.name);
    match lines.remove(0) {
        WireLine::Good(line) => Ok(line),
        WireLine::Bad(bad) => Err(bad.into()),
    }
}

fn violations(file: &GoldenFile) -> Vec<Option<Violation>> {
    match file.kind.as_str() {
        "to-container" => vec![only_line(file).and_then(|line| decode_task_request(&line)).err()],
        "from-container" => vec![only_line(file).and_then(|line| decode_container(&line)).err()],
        _ => {
            let stories: Vec<StoryId> = [1, 2].into_iter().filter_map(StoryId::from_number).collect();
            let swarm = "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d".parse().expect("a UUID v4");
            let container = format!("abc123def456{}", "0".repeat(52)).parse().expect("a container id");
            let mut session = Session::new(swarm, container, &stories);
            let take = |line| match session.handle_line(line) {
                RecordOutcome::Accepted(_) => None,
                RecordOutcome::Rejected(violation) => Some(violation),
            };
            lines(file).into_iter().map(take).collect()
        }
    }
}

#[test]
fn valid_files_are_accepted() {
    for golden in load_golden_files("acp/valid") {
        let outcomes = violations(&golden);
        assert!(!outcomes.is_empty(), "`{}` has no lines", golden.name);
        assert_eq!(outcomes.into_iter().flatten().next(), None, "`{}`", golden.name);
    }
}

#[test]
fn valid_files_round_trip() {
    for golden in load_golden_files("acp/valid") {
        for line in lines(&golden) {
            let WireLine::Good(line) = line else { panic!("`{}` has a bad line", golden.name) };
            if golden.kind == "to-container" {
                let read = decode_task_request(&line).expect("valid");
                let written = encode_task_request(&read.0, &read.1).expect("it came in one line");
                assert_eq!(decode_task_request(&written), Ok(read), "`{}`", golden.name);
            } else {
                let read = decode_container(&line).expect("valid");
                assert_eq!(decode_container(&encode_container(&read.0, &read.1)), Ok(read), "`{}`", golden.name);
            }
        }
    }
}

#[test]
fn invalid_files_are_rejected_with_rule_and_field() {
    assert_invalid_files_are_rejected("acp/invalid", violations);
}

#[test]
fn every_rule_has_an_invalid_golden_file() {
    assert_rules_are_covered("acp/invalid", RULES, &[]);
}

#[test]
fn spec_examples_decode_to_the_expected_values() {
    let valid = load_golden_files("acp/valid");
    let line = |name: &str| {
        let golden = valid.iter().find(|golden| golden.name == name).expect("the spec's example");
        only_line(golden).expect("a good line")
    };
    let (envelope, request) = decode_task_request(&line("01-task-request-of-the-spec")).expect("valid");
    assert_eq!(envelope.timestamp.to_string(), "2026-03-01T10:00:00Z");
    assert_eq!(envelope.swarm_id.to_string(), "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d");
    assert_eq!(envelope.container_id.as_str(), "abc123def456");
    assert_eq!(request.task_file_path.as_str(), ".aimi/tasks/2026-03-01-feature-tasks.json");
    assert_eq!(request.branch_name.as_str(), "feat/my-feature");
    assert_eq!(request.repo_url.as_str(), "https://github.com/org/repo.git");
    let pairs: Vec<_> = request.env_vars.iter().collect();
    assert_eq!(pairs, [("DATABASE_URL", "postgres://localhost:5432/dev"), ("NODE_ENV", "development")]);

    let message = |name| decode_container(&line(name)).expect("valid").1;
    let progress = ProgressUpdate {
        story_id: "US-001".parse().expect("a story id"),
        status: StoryStatus::Completed,
        output: "Migration created and applied. Schema validated. Typecheck passes.".to_owned(),
    };
    assert_eq!(message("02-progress-update-of-the-spec"), ContainerMessage::Progress(progress));
    let pr_url = Some("https://github.com/org/repo/pull/42".to_owned());
    let completion = Completion { status: CompletionStatus::Completed, pr_url, errors: Vec::new() };
    assert_eq!(message("03-completion-of-the-spec"), ContainerMessage::Completion(completion));
    let error = ErrorReport {
        code: ErrorCode::CONTAINER_OOM,
        message: "Container exceeded memory limit (4GB). Process killed by OOM killer.".to_owned(),
    };
    assert_eq!(message("04-error-of-the-spec"), ContainerMessage::Error(error));
}

#[test]
fn violations_never_show_env_values_or_credentials() {
    let valid = load_golden_files("acp/valid");
    let request = String::from_utf8(valid[0].bytes.clone()).expect("UTF-8");
    let with_secret = request.trim().replace("development", "hunter2");
    let broken = [
        with_secret.replace("\"hunter2\"", "\"hunter2\u{1}\""),
        with_secret.replace("hunter2", "hunter2\\u0000"),
        with_secret.replace("\"hunter2\"", "[\"hunter2\"]"),
        with_secret.replace("\"hunter2\"", "\"hunter2\", \"NODE_ENV\": \"hunter2\""),
        with_secret.replace("NODE_ENV", "path"),
        with_secret.replace("NODE_ENV", "PATH"),
        with_secret.replace("task-request", "hello"),
        with_secret.replace("https://github", "https://hunter2@github"),
        with_secret.replace("https://github", "hunter2://github"),
        with_secret.replace("{\"NODE_ENV\": ", "[").replace("hunter2\"", "hunter2\"]"),
        with_secret.replace("hunter2", &"hunter2".repeat(10_000)),
        with_secret[..with_secret.find("hunter2").expect("it is in there") + 9].to_owned(),
        format!("\"{}\"", with_secret.replace('"', "")),
    ];
    for line in broken {
        let problem = decode_task_request(line.as_bytes()).expect_err(&line);
        assert!(!format!("{problem} {problem:?}").contains("hunter2"), "{problem}");
    }
    let (_, request) = decode_task_request(with_secret.as_bytes()).expect("valid");
    assert!(format!("{request:?}").contains("NODE_ENV") && !format!("{request:?}").contains("hunter2"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn decoders_never_panic_on_noise(noise in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode_container(&noise);
        let _ = decode_task_request(&noise);
    }

    #[test]
    fn decoders_never_panic_on_mutated_lines(line in mutated_file("acp/valid")) {
        for violation in [decode_container(&line).err(), decode_task_request(&line).err()].into_iter().flatten() {
            prop_assert!(RULES.iter().any(|rule| rule.name == violation.rule));
            prop_assert!(violation.problem.chars().all(|c| !c.is_control()), "{}", violation.problem);
        }
    }
}
