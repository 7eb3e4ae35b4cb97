//! An ACP message -> a line that [`decode`](super::decode) accepts, whatever the message holds.
//!
//! Used by `shim/` (container messages) and by `coordinator/` (task-requests). What a container says is free text in the
//! end: it is shortened at a character boundary and marked, because a progress report cut short is worth more than a
//! session that ends. Nothing in a task-request may be shortened: it is refused. Must not: put a value of `envVars` into
//! an error.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::{Serialize, Serializer};
use thiserror::Error;

use crate::wire::MAX_LINE_BYTES;

use super::message::{
    Completion, ContainerMessage, EnvVars, Envelope, ErrorCode, ErrorReport, MAX_ERROR_CHARS, MAX_ERRORS,
    MAX_MESSAGE_CHARS, MAX_OUTPUT_CHARS, TaskRequest,
};
use super::urls::check_url;

/// Stands at the end of a text that was shortened.
pub const TRUNCATION_MARK: &str = "…[shortened]";

/// Longest error code that is written as it is, in bytes: a longer one could fill the line.
const MAX_CODE_BYTES: usize = 1000;
/// Longest `prUrl` that is written, in bytes.
const MAX_PR_URL_BYTES: usize = 8000;
/// The second at which RFC 3339's years begin, 0000-01-01T00:00:00Z.
const YEAR_ZERO: i64 = -62_167_219_200;

/// Why a message cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EncodeError {
    /// Nothing in a task-request can be shortened.
    #[error(
        "the task-request has {bytes} bytes and the limit is {MAX_LINE_BYTES}; the biggest part of it is `{biggest}`"
    )]
    TooLarge {
        /// Bytes of the line.
        bytes: usize,
        /// The name of the longest field: an environment variable's, or a payload field's where that is longer.
        biggest: String,
    },
}

/// A task-request as one line, without its newline.
pub fn encode_task_request(envelope: &Envelope, request: &TaskRequest) -> Result<Vec<u8>, EncodeError> {
    let line = encode_message(
        "task-request",
        envelope,
        WireTaskRequest {
            task_file_path: request.task_file_path.as_str(),
            branch_name: request.branch_name.as_str(),
            repo_url: request.repo_url.as_str(),
            env_vars: &request.env_vars,
        },
    );
    if line.len() <= MAX_LINE_BYTES {
        return Ok(line);
    }
    let fields = [
        ("taskFilePath", request.task_file_path.as_str()),
        ("branchName", request.branch_name.as_str()),
        ("repoUrl", request.repo_url.as_str()),
    ];
    let biggest = fields
        .into_iter()
        .chain(request.env_vars.iter())
        .max_by_key(|(name, value)| name.len() + escaped_len(value))
        .map_or("payload", |(name, _)| name);
    Err(EncodeError::TooLarge { bytes: line.len(), biggest: biggest.to_owned() })
}

/// A container's message as one line, without its newline. Free text over a limit is shortened and ends with
/// [`TRUNCATION_MARK`]; errors over the count are replaced by one that says how many they were; a `prUrl` that is not a valid
/// URL becomes null.
pub fn encode_container(envelope: &Envelope, message: &ContainerMessage) -> Vec<u8> {
    let kind = message.kind();
    match message {
        // 2000 characters are at most 12,000 bytes in JSON: the line's limit is far.
        ContainerMessage::Progress(progress) => encode_message(
            kind,
            envelope,
            WireProgress {
                story_id: progress.story_id.as_str(),
                status: progress.status.as_str(),
                output: truncated(&progress.output, MAX_OUTPUT_CHARS, usize::MAX),
            },
        ),
        ContainerMessage::Error(ErrorReport { code, message }) => {
            let code = if code.as_str().len() <= MAX_CODE_BYTES { code } else { &ErrorCode::UNKNOWN_ERROR };
            let message = truncated(message, MAX_MESSAGE_CHARS, usize::MAX);
            encode_message(kind, envelope, WireError { code: code.as_str(), message })
        }
        ContainerMessage::Completion(completion) => {
            encode_message(kind, envelope, WireCompletion::new(envelope, completion))
        }
    }
}

impl<'a> WireCompletion<'a> {
    fn new(envelope: &Envelope, completion: &'a Completion) -> Self {
        let pr_url = completion.pr_url.as_deref().filter(|url| url.len() <= MAX_PR_URL_BYTES && check_url(url).is_ok());
        let mut out = WireCompletion { status: completion.status.as_str(), pr_url, errors: Vec::new() };
        // 50 entries of 500 characters can be more than the line holds: then each has the same share of what there is.
        let room = MAX_LINE_BYTES - encode_message("completion", envelope, &out).len();
        let count = completion.errors.len().clamp(1, MAX_ERRORS);
        let share = room / count - r#""","#.len();
        let whole = if completion.errors.len() > MAX_ERRORS { MAX_ERRORS - 1 } else { MAX_ERRORS };
        let each = completion.errors.iter().take(whole);
        let long = each.clone().map(|error| truncated(error, MAX_ERROR_CHARS, usize::MAX));
        let fits = long.clone().map(|error| escaped_len(&error) + r#""","#.len()).sum::<usize>() <= room - 200;
        out.errors = if fits { long.collect() } else { each.map(|e| truncated(e, MAX_ERROR_CHARS, share)).collect() };
        if completion.errors.len() > whole {
            out.errors.push(Cow::Owned(format!("…[{} more errors]", completion.errors.len() - whole)));
        }
        out
    }
}

/// The text, or as much of its beginning as leaves room for the mark, within so many characters and so many bytes of
/// JSON (quotes not counted).
fn truncated(text: &str, most_chars: usize, most_bytes: usize) -> Cow<'_, str> {
    if text.len() <= most_chars && text.len() * 6 <= most_bytes {
        return Cow::Borrowed(text);
    }
    let room_chars = most_chars.saturating_sub(TRUNCATION_MARK.chars().count());
    let room_bytes = most_bytes.saturating_sub(TRUNCATION_MARK.len());
    let (mut chars, mut bytes, mut cut) = (0, 0, 0);
    for (index, character) in text.char_indices() {
        chars += 1;
        bytes += escaped_char_len(character);
        if chars > most_chars || bytes > most_bytes {
            return Cow::Owned(format!("{}{TRUNCATION_MARK}", &text[..cut]));
        }
        if chars <= room_chars && bytes <= room_bytes {
            cut = index + character.len_utf8();
        }
    }
    Cow::Borrowed(text)
}

/// Bytes of a text in JSON, quotes not counted.
fn escaped_len(text: &str) -> usize {
    text.chars().map(escaped_char_len).sum()
}

/// Bytes of a character in JSON, as serde_json writes it.
fn escaped_char_len(character: char) -> usize {
    match character {
        '"' | '\\' | '\u{8}' | '\t' | '\n' | '\u{c}' | '\r' => 2,
        '\0'..='\u{1f}' => 6,
        other => other.len_utf8(),
    }
}

fn encode_message(kind: &'static str, envelope: &Envelope, payload: impl Serialize) -> Vec<u8> {
    // Years before 0000 have no form in RFC 3339.
    let timestamp = if envelope.timestamp.as_second() < YEAR_ZERO {
        Timestamp::from_second(YEAR_ZERO).expect("the year 0000 is within jiff's range")
    } else {
        envelope.timestamp
    };
    let message = WireMessage {
        kind,
        timestamp,
        swarm_id: envelope.swarm_id,
        container_id: envelope.container_id.as_str(),
        payload,
    };
    serde_json::to_vec(&message).expect("texts and maps with text keys always serialize")
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireMessage<'a, P> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(serialize_with = "serialize_display")]
    timestamp: Timestamp,
    #[serde(serialize_with = "serialize_display")]
    swarm_id: crate::ids::SwarmId,
    container_id: &'a str,
    payload: P,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireTaskRequest<'a> {
    task_file_path: &'a str,
    branch_name: &'a str,
    repo_url: &'a str,
    #[serde(serialize_with = "serialize_pairs")]
    env_vars: &'a EnvVars,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireProgress<'a> {
    story_id: &'a str,
    status: &'static str,
    output: Cow<'a, str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireCompletion<'a> {
    status: &'static str,
    pr_url: Option<&'a str>,
    errors: Vec<Cow<'a, str>>,
}

#[derive(Serialize)]
struct WireError<'a> {
    code: &'a str,
    message: Cow<'a, str>,
}

fn serialize_display<S: Serializer>(value: &impl std::fmt::Display, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

fn serialize_pairs<S: Serializer>(env_vars: &&EnvVars, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(env_vars.iter())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::message::{
        AcpViolation, CompletionStatus, EnvKey, ProgressUpdate, StoryStatus, decode_container, decode_task_request,
    };
    use super::*;

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

    fn round_trip(message: &ContainerMessage) -> Result<ContainerMessage, AcpViolation> {
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
        let bad_url = Completion {
            status: CompletionStatus::Completed,
            pr_url: Some("not a URL".to_owned()),
            errors: Vec::new(),
        };
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
            for (read, said) in read.errors.iter().zip(&errors).take(49) {
                let kept = read.strip_suffix(TRUNCATION_MARK).unwrap_or(read);
                prop_assert!(said.starts_with(kept));
                prop_assert!(read == said || read.ends_with(TRUNCATION_MARK));
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
}
