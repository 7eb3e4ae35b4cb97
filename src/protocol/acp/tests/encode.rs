//! Every message that is encoded decodes to the same, shortened where it must be.

use jiff::Timestamp;
use proptest::prelude::*;

use crate::protocol::acp::encode::{TRUNCATION_MARK, escaped_len, truncated};
use crate::protocol::acp::message::{
    Completion, CompletionStatus, ContainerMessage, EncodeError, EnvKey, EnvVars, Envelope, ErrorCode, ErrorReport,
    ProgressUpdate, StoryStatus, TaskRequest, decode_container, decode_task_request, encode_container,
    encode_task_request,
};
use crate::protocol::rule::Violation;
use crate::wire::MAX_LINE_BYTES;

fn envelope() -> Envelope {
    Envelope {
        timestamp: "2026-03-01T10:00:00Z".parse().expect("a timestamp"),
        swarm_id: "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d".parse().expect("a UUID v4"),
        container_id: "f".repeat(64).parse().expect("a container id"),
    }
}

fn request(env_vars: EnvVars) -> TaskRequest {
    TaskRequest {
        task_file_path: "tasks/a.json".parse().expect("a path"),
        branch_name: "feat/a".parse().expect("a branch"),
        repo_url: "https://host/a.git".parse().expect("a URL"),
        env_vars,
    }
}

fn round_trip(message: &ContainerMessage) -> Result<ContainerMessage, Violation> {
    let line = encode_container(&envelope(), message);
    assert!(line.len() <= MAX_LINE_BYTES && !line.contains(&b'\n'), "{} bytes", line.len());
    let (read, message) = decode_container(&line)?;
    assert_eq!(read, envelope());
    Ok(message)
}

fn completion(errors: Vec<String>) -> ContainerMessage {
    let status = CompletionStatus::Failed;
    ContainerMessage::Completion(Completion { status, pr_url: Some("https://host/pull/1".to_owned()), errors })
}

#[test]
fn text_is_truncated_at_a_character_boundary_and_marked() {
    assert_eq!(truncated("äöü", 3, usize::MAX), "äöü");
    let long = "ä".repeat(2001);
    let cut = truncated(&long, 2000, usize::MAX);
    assert_eq!(cut, format!("{}{TRUNCATION_MARK}", "ä".repeat(2000 - TRUNCATION_MARK.chars().count())));
    assert_eq!(truncated("\0\0\0\0\0\0\0\0", 100, 48), "\0".repeat(8));
    assert_eq!(truncated("\0\0\0\0\0\0\0\0", 100, 47), format!("{}{TRUNCATION_MARK}", "\0".repeat(5)));
    assert_eq!(truncated("😀😀😀😀😀", 100, 19), format!("😀{TRUNCATION_MARK}"));
}

#[test]
fn the_largest_completion_fits_in_a_line_with_all_its_errors() {
    for text in ["\0".repeat(500), "😀".repeat(600), "x".repeat(500)] {
        for count in [50, 51, 10_000] {
            let Ok(ContainerMessage::Completion(read)) = round_trip(&completion(vec![text.clone(); count])) else {
                panic!("a completion")
            };
            assert_eq!(read.errors.len(), 50);
            if count > 50 {
                assert_eq!(read.errors[49], format!("…[{} more errors]", count - 49));
            }
            assert_eq!(read.errors[0].ends_with(TRUNCATION_MARK), text.len() > 500 || text.starts_with('\0'));
        }
    }
}

#[test]
fn invalid_urls_and_codes_are_replaced() {
    let bad_url =
        Completion { status: CompletionStatus::Completed, pr_url: Some("not a URL".to_owned()), errors: Vec::new() };
    let long_url = Completion { pr_url: Some(format!("https://host/{}", "x".repeat(70_000))), ..bad_url.clone() };
    for completion in [bad_url, long_url] {
        let read = round_trip(&ContainerMessage::Completion(completion.clone()));
        assert_eq!(read, Ok(ContainerMessage::Completion(Completion { pr_url: None, ..completion })));
    }
    let code = "X".repeat(70_000).parse().expect("it matches the regex");
    let read = round_trip(&ContainerMessage::Error(ErrorReport { code, message: "why".to_owned() }));
    let unknown = ErrorReport { code: ErrorCode::UNKNOWN_ERROR, message: "why".to_owned() };
    assert_eq!(read, Ok(ContainerMessage::Error(unknown)));
}

#[test]
fn years_before_zero_are_written_as_the_year_zero() {
    let early = Envelope { timestamp: Timestamp::MIN, ..envelope() };
    let line = encode_task_request(&early, &request(EnvVars::new())).expect("it is small");
    let (read, _) = decode_task_request(&line).expect("it is valid");
    assert_eq!(read.timestamp.to_string(), "0000-01-01T00:00:00Z");
}

#[test]
fn an_oversized_task_request_names_its_biggest_variable_and_shows_no_value() {
    let mut env_vars = EnvVars::new();
    for (key, value) in [("SMALL", "secret".to_owned()), ("BIG", "secret".repeat(12_000))] {
        env_vars.insert(key.parse::<EnvKey>().expect("a key"), value).expect("no NUL in it");
    }
    let error = encode_task_request(&envelope(), &request(env_vars)).expect_err("72,000 bytes do not fit");
    let EncodeError::TooLarge { bytes, biggest } = &error;
    assert!(*bytes > 72_000 && biggest == "BIG", "{error}");
    assert!(!format!("{error} {error:?}").contains("secret"));
}

#[test]
fn a_task_request_of_exactly_the_limit_is_encoded() {
    let sized = |length: usize| {
        let mut env_vars = EnvVars::new();
        env_vars.insert("A".parse().expect("a key"), "x".repeat(length)).expect("no NUL in it");
        encode_task_request(&envelope(), &request(env_vars))
    };
    let rest = sized(0).expect("it is small").len();
    assert_eq!(sized(MAX_LINE_BYTES - rest).map(|line| line.len()), Ok(MAX_LINE_BYTES));
    assert!(sized(MAX_LINE_BYTES - rest + 1).is_err());
}

/// Text with what JSON escapes, what UTF-8 has in four bytes, and what stands beside the surrogates: a few such
/// characters, over and over.
fn arbitrary_text(most: usize) -> impl Strategy<Value = String> {
    let character = prop_oneof![
        prop::sample::select(vec!['"', '\\', '\u{d7ff}', '\u{e000}', '\u{2028}', '\u{7f}', 'x']),
        prop::char::range('\0', '\u{1f}'),
        prop::char::range('\u{10000}', '\u{10ffff}'),
        any::<char>(),
    ];
    (prop::collection::vec(character, 1..12), 0..=most)
        .prop_map(|(pattern, length)| pattern.into_iter().cycle().take(length).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn progress_round_trips(output in arbitrary_text(2000)) {
        let story_id = "US-001".parse().expect("a story id");
        let message = ContainerMessage::Progress(ProgressUpdate { story_id, status: StoryStatus::Failed, output });
        prop_assert_eq!(round_trip(&message), Ok(message));
    }

    #[test]
    fn errors_round_trip(errors in prop::collection::vec(arbitrary_text(100), 0..=50), message in arbitrary_text(2000)) {
        let heavy: usize = errors.iter().map(|error| escaped_len(error) + 3).sum();
        prop_assume!(heavy < 60_000);
        let completion = completion(errors);
        prop_assert_eq!(round_trip(&completion), Ok(completion));
        let error = ContainerMessage::Error(ErrorReport { code: ErrorCode::AGENT_CRASH, message });
        prop_assert_eq!(round_trip(&error), Ok(error));
    }

    #[test]
    fn any_container_message_can_be_decoded(errors in prop::collection::vec(arbitrary_text(700), 0..60), output in arbitrary_text(3000)) {
        let read = round_trip(&completion(errors.clone())).expect("a valid completion");
        let ContainerMessage::Completion(read) = read else { panic!("a completion") };
        for (read, sent) in read.errors.iter().zip(&errors).take(49) {
            let prefix = read.strip_suffix(TRUNCATION_MARK).unwrap_or(read);
            prop_assert!(sent.starts_with(prefix));
            prop_assert!(read == sent || read.ends_with(TRUNCATION_MARK));
        }
        let story_id = "US-001".parse().expect("a story id");
        round_trip(&ContainerMessage::Progress(ProgressUpdate { story_id, status: StoryStatus::InProgress, output }))
            .expect("a valid progress-update");
    }

    #[test]
    fn a_task_request_round_trips(
        pairs in prop::collection::btree_map("X[A-Z0-9_]{0,9}", arbitrary_text(60), 0..20),
        nanoseconds in any::<u32>(),
    ) {
        let mut env_vars = EnvVars::new();
        for (key, value) in pairs {
            env_vars.insert(key.parse().expect("a key"), value.replace('\0', "")).expect("no NUL in it");
        }
        let envelope = Envelope {
            timestamp: Timestamp::from_nanosecond(i128::from(nanoseconds) << 30).expect("within jiff's range"),
            ..envelope()
        };
        let request = request(env_vars);
        let line = encode_task_request(&envelope, &request).expect("it fits");
        prop_assert_eq!(decode_task_request(&line), Ok((envelope, request)));
    }

    #[test]
    fn escaped_len_matches_serde_json(text in arbitrary_text(300)) {
        prop_assert_eq!(escaped_len(&text) + 2, serde_json::to_string(&text).expect("a text").len());
    }
}
