//! Legal and illegal sequences of records.

use std::collections::BTreeSet;

use bytes::Bytes;
use proptest::prelude::*;

use crate::ids::{StoryId, SwarmId};
use crate::protocol::acp::machine::{RecordOutcome, Session};
use crate::protocol::acp::message::{
    Completion, CompletionStatus, ContainerMessage, Envelope, ErrorCode, ErrorReport, ProgressUpdate, StoryStatus,
    encode_container,
};
use crate::protocol::acp::rules;
use crate::wire::WireLine;

fn envelope() -> Envelope {
    Envelope {
        timestamp: "2026-03-01T10:00:00Z".parse().expect("a timestamp"),
        swarm_id: "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d".parse().expect("a UUID v4"),
        container_id: "abc123def456".parse().expect("a container id"),
    }
}

fn session() -> Session {
    let container = "abc123def456".repeat(5).parse().expect("a container id");
    Session::new(envelope().swarm_id, container, &[story(1), story(2)])
}

fn story(number: u32) -> StoryId {
    StoryId::from_number(number).expect("below 1000")
}

fn line(message: &ContainerMessage) -> WireLine {
    WireLine::Good(Bytes::from(encode_container(&envelope(), message)))
}

fn progress(number: u32, status: StoryStatus) -> ContainerMessage {
    ContainerMessage::Progress(ProgressUpdate { story_id: story(number), status, output: String::new() })
}

fn completion() -> ContainerMessage {
    let status = CompletionStatus::Completed;
    ContainerMessage::Completion(Completion { status, pr_url: None, errors: Vec::new() })
}

fn error() -> ContainerMessage {
    ContainerMessage::Error(ErrorReport { code: ErrorCode::UNKNOWN_ERROR, message: String::new() })
}

fn broken_rule(record: RecordOutcome) -> Option<&'static str> {
    match record {
        RecordOutcome::Accepted(_) => None,
        RecordOutcome::Rejected(problem) => Some(problem.rule),
    }
}

#[test]
fn the_spec_message_flow_is_accepted() {
    let mut session = session();
    for message in [
        progress(1, StoryStatus::InProgress),
        progress(1, StoryStatus::InProgress),
        progress(1, StoryStatus::Failed),
        progress(1, StoryStatus::InProgress),
        error(),
        progress(1, StoryStatus::Completed),
        progress(2, StoryStatus::Skipped),
        completion(),
    ] {
        assert!(!session.is_completed());
        assert_eq!(session.handle_line(line(&message)), RecordOutcome::Accepted(message));
    }
    assert!(session.is_completed());
    assert_eq!((session.record_count(), session.rejected_count()), (8, 0));
    assert_eq!(session.story_status(&story(1)), Some(StoryStatus::Completed));
}

#[test]
fn illegal_story_transitions_are_rejected() {
    // How a story comes to each status, and where it may go from there.
    let table = [
        (vec![], vec!["in_progress", "skipped"]),
        (vec!["in_progress"], vec!["in_progress", "completed", "failed"]),
        (vec!["in_progress", "completed"], vec![]),
        (vec!["in_progress", "failed"], vec!["in_progress"]),
        (vec!["skipped"], vec![]),
    ];
    for (way, legal) in table {
        for to in StoryStatus::ALL {
            let mut session = session();
            for status in &way {
                let status = status.parse().expect("a status");
                assert_eq!(broken_rule(session.handle_line(line(&progress(1, status)))), None);
            }
            let expected = if legal.contains(&to.as_str()) { None } else { Some(rules::STORY_MOVE) };
            assert_eq!(broken_rule(session.handle_line(line(&progress(1, to)))), expected, "{way:?} -> {to}");
        }
    }
}

#[test]
fn records_after_completion_are_rejected() {
    let mut session = session();
    session.handle_line(line(&completion()));
    for message in [progress(1, StoryStatus::InProgress), error(), completion()] {
        assert_eq!(broken_rule(session.handle_line(line(&message))), Some(rules::AFTER_COMPLETION));
    }
    assert_eq!((session.record_count(), session.rejected_count()), (4, 3));
}

#[test]
fn records_of_another_sandbox_are_rejected() {
    let mut session = session();
    let message = completion();
    let swarm = Envelope { swarm_id: SwarmId::random(), ..envelope() };
    let container = Envelope { container_id: "abc123def457".parse().expect("a container id"), ..envelope() };
    for (envelope, expected) in [(swarm, rules::OWN_SWARM), (container, rules::OWN_CONTAINER)] {
        let line = WireLine::Good(Bytes::from(encode_container(&envelope, &message)));
        assert_eq!(broken_rule(session.handle_line(line)), Some(expected));
    }
    assert_eq!(broken_rule(session.handle_line(line(&progress(3, StoryStatus::InProgress)))), Some(rules::OWN_STORY));
    assert!(!session.is_completed());
}

fn statuses(session: &Session) -> [Option<StoryStatus>; 3] {
    [1, 2, 3].map(|number| session.story_status(&story(number)))
}

/// Any line: a legal message, an illegal one, or noise.
fn any_line() -> impl Strategy<Value = WireLine> {
    prop_oneof![
        6 => (1_u32..4, 0_usize..5).prop_map(|(number, status)| line(&progress(number, StoryStatus::ALL[status]))),
        1 => Just(line(&error())),
        1 => Just(line(&completion())),
        1 => "[^\n]{1,20}".prop_map(|noise| WireLine::Good(Bytes::from(noise))),
    ]
}

proptest! {
    #[test]
    fn random_records_keep_the_session_consistent(lines in prop::collection::vec(any_line(), 0..60)) {
        let mut session = session();
        let mut replayed = session.clone();
        let (mut refused, mut ended) = (0, BTreeSet::new());
        for (index, line) in lines.iter().enumerate() {
            let before = session.clone();
            let record = session.handle_line(line.clone());
            prop_assert_eq!(session.record_count(), index as u64 + 1);
            match &record {
                RecordOutcome::Rejected(_) => {
                    refused += 1;
                    prop_assert_eq!(statuses(&session), statuses(&before));
                    prop_assert_eq!(session.is_completed(), before.is_completed());
                }
                RecordOutcome::Accepted(message) => {
                    prop_assert!(!before.is_completed());
                    if let ContainerMessage::Progress(progress) = message {
                        prop_assert!(!ended.contains(&progress.story_id));
                        if matches!(progress.status, StoryStatus::Completed | StoryStatus::Skipped) {
                            ended.insert(progress.story_id.clone());
                        }
                    }
                }
            }
            // A session that is fed the same lines again says the same of each.
            prop_assert_eq!(replayed.handle_line(line.clone()), record);
        }
        prop_assert_eq!(session.rejected_count(), refused);
    }
}
