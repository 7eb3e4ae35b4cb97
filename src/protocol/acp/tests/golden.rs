//! Runs the golden files of `tests/golden/acp`: what is valid is read and comes back the same, what is invalid is told by
//! exactly its rule and field.
//!
//! A valid file is called `NN-what.<way>`, an invalid one `<rule>--<field>--<what>.<way>`. The way is
//! `to-container.json`, `from-container.json` (one record, read by itself) or `session.ndjson` (the lines of one sandbox,
//! of which, in an invalid one, the last breaks the rule and the others none).

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use bytes::Bytes;
use proptest::prelude::*;

use super::machine::{RecordOutcome, Session};
use super::message::{
    AcpViolation, Completion, CompletionStatus, ContainerMessage, ErrorCode, ErrorReport, ProgressUpdate, StoryStatus,
    decode_container, decode_task_request, encode_container, encode_task_request,
};
use super::rules::RULES;
use crate::ids::StoryId;
use crate::wire::{LineSplitter, WireLine};

struct AcpGoldenFile {
    name: String,
    kind: AcpGoldenKind,
    content: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq)]
enum AcpGoldenKind {
    ToContainer,
    FromContainer,
    Session,
}

fn load_golden_files(folder: &str) -> Vec<AcpGoldenFile> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/acp").join(folder);
    let mut goldens: Vec<AcpGoldenFile> = fs::read_dir(&folder)
        .expect("the golden files are in the repo")
        .map(|entry| {
            let path = entry.expect("a readable folder").path();
            let file = path.file_name().and_then(|name| name.to_str()).expect("a UTF-8 name");
            let ways = [
                (".to-container.json", AcpGoldenKind::ToContainer),
                (".from-container.json", AcpGoldenKind::FromContainer),
                (".session.ndjson", AcpGoldenKind::Session),
            ];
            let (name, way) = ways
                .into_iter()
                .find_map(|(end, way)| file.strip_suffix(end).map(|name| (name.to_owned(), way)))
                .unwrap_or_else(|| panic!("`{file}` does not say which way it goes"));
            AcpGoldenFile { name, kind: way, content: fs::read(&path).expect("a readable file") }
        })
        .collect();
    goldens.sort_by(|one, other| one.name.cmp(&other.name));
    assert!(goldens.len() > 40, "most golden files are gone from {}", folder.display());
    goldens
}

impl AcpGoldenFile {
    fn lines(&self) -> Vec<WireLine> {
        let mut splitter = LineSplitter::new();
        splitter.push(Bytes::from(self.content.clone()));
        std::iter::from_fn(|| splitter.finish()).collect()
    }

    /// The one line of a file that is not a session.
    fn single_line(&self) -> Result<Bytes, AcpViolation> {
        let mut lines = self.lines();
        assert_eq!(lines.len(), 1, "`{}` must have one line", self.name);
        match lines.remove(0) {
            WireLine::Good(line) => Ok(line),
            WireLine::Bad(bad) => Err(bad.into()),
        }
    }

    /// What each of the lines breaks, if anything.
    fn violations(&self) -> Vec<Option<AcpViolation>> {
        match self.kind {
            AcpGoldenKind::ToContainer => vec![self.single_line().and_then(|line| decode_task_request(&line)).err()],
            AcpGoldenKind::FromContainer => vec![self.single_line().and_then(|line| decode_container(&line)).err()],
            AcpGoldenKind::Session => {
                let stories: Vec<StoryId> = [1, 2].into_iter().filter_map(StoryId::from_number).collect();
                let swarm = "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d".parse().expect("a UUID v4");
                let container = format!("abc123def456{}", "0".repeat(52)).parse().expect("a container id");
                let mut session = Session::new(swarm, container, &stories);
                let take = |line| match session.handle_line(line) {
                    RecordOutcome::Accepted(_) => None,
                    RecordOutcome::Rejected(problem) => Some(problem),
                };
                self.lines().into_iter().map(take).collect()
            }
        }
    }
}

#[test]
fn valid_files_are_accepted() {
    for golden in load_golden_files("valid") {
        let outcomes = golden.violations();
        assert!(!outcomes.is_empty(), "`{}` has no lines", golden.name);
        assert_eq!(outcomes.into_iter().flatten().next(), None, "`{}`", golden.name);
    }
}

#[test]
fn valid_files_round_trip() {
    for golden in load_golden_files("valid") {
        for line in golden.lines() {
            let WireLine::Good(line) = line else { panic!("`{}` has a bad line", golden.name) };
            if golden.kind == AcpGoldenKind::ToContainer {
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
    let mut wrong = Vec::new();
    for golden in load_golden_files("invalid") {
        let [rule, field, _] = golden.name.splitn(3, "--").collect::<Vec<_>>()[..] else {
            panic!("`{}` is not <rule>--<field>--<what>", golden.name)
        };
        let mut outcomes = golden.violations();
        let last = outcomes.pop().flatten();
        if let Some(problem) = outcomes.into_iter().flatten().next() {
            wrong.push(format!("{}: a line before the last is refused: {problem}", golden.name));
        }
        match last {
            Some(problem) if problem.rule == rule && problem.field == field => {}
            Some(problem) => wrong.push(format!("{}: {problem}", golden.name)),
            None => wrong.push(format!("{}: accepted", golden.name)),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_rule_has_an_invalid_golden_file_and_a_table_row() {
    let broken: BTreeSet<String> = load_golden_files("invalid")
        .iter()
        .filter_map(|golden| golden.name.split_once("--").map(|(rule, _)| rule.to_owned()))
        .collect();
    let rules: BTreeSet<String> = RULES.iter().map(|rule| rule.name.to_owned()).collect();
    assert_eq!(broken, rules);
    assert_eq!(rules.len(), RULES.len(), "a rule's name stands twice");
    let table: Vec<&str> = include_str!("mod.rs").lines().filter(|line| line.starts_with("//! | `")).collect();
    let rows: Vec<String> = RULES.iter().map(|rule| format!("//! | `{}` | {} |", rule.name, rule.section)).collect();
    assert_eq!(table, rows);
}

#[test]
fn spec_examples_decode_to_the_expected_values() {
    let valid = load_golden_files("valid");
    let line = |name: &str| {
        let golden = valid.iter().find(|golden| golden.name == name).expect("the spec's example");
        golden.single_line().expect("a good line")
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
    let valid = load_golden_files("valid");
    let request = String::from_utf8(valid[0].content.clone()).expect("UTF-8");
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
    fn decoders_never_panic_on_mutated_lines(
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0_u8..3), 1..6),
    ) {
        let valid = load_golden_files("valid");
        let mut line = which.get(&valid).content.clone();
        for (at, byte, how) in changes {
            let at = at.index(line.len());
            match how {
                0 => line[at] = byte,
                1 => line.insert(at, byte),
                _ => line.truncate(at.max(1)),
            }
        }
        for result in [decode_container(&line).err(), decode_task_request(&line).err()].into_iter().flatten() {
            prop_assert!(RULES.iter().any(|rule| rule.name == result.rule));
            prop_assert!(result.problem.chars().all(|c| !c.is_control()), "{}", result.problem);
        }
    }
}
