//! ACP over time: one sandbox's session, as the orchestrator hears it.
//!
//! Used by `coordinator/`, one [`Session`] a sandbox, fed with every line of the container's standard output in order. It
//! decides what a line is worth and nothing else: what follows from a message is `swarm/`'s business. Must not: do I/O,
//! read a clock (silence and timeouts are deadlines of the swarm's machine), or end a session: a bad record is a value.
//!
//! # A session after a restart
//!
//! The machine has no other memory than the lines. To take a session up again, make a new one and feed it the container's
//! log from its beginning: it comes to the same state, and [`Session::record_count`] after each line is that record's number.
//! Records whose number is not above the last one in the journal were applied before; drop what is returned for them.

use std::collections::BTreeMap;

use crate::ids::{ContainerId, StoryId, SwarmId};
use crate::wire::WireLine;

use super::decode::{decode_container, violation};
use super::message::{AcpViolation, ContainerMessage, Envelope, StoryStatus};
use super::rules;

/// What a line turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordOutcome {
    /// A message, legal at its place.
    Accepted(ContainerMessage),
    /// A bad record: logged and counted, and nothing else follows from it.
    Rejected(AcpViolation),
}

/// One sandbox's session.
#[derive(Debug, Clone)]
pub struct Session {
    swarm: SwarmId,
    container: ContainerId,
    stories: BTreeMap<StoryId, StoryStatus>,
    records: u64,
    rejected: u64,
    completed: bool,
}

impl Session {
    /// The session of a container that was asked to do these stories. All begin as pending.
    pub fn new(swarm: SwarmId, container: ContainerId, stories: &[StoryId]) -> Self {
        let stories = stories.iter().map(|id| (id.clone(), StoryStatus::Pending)).collect();
        Self { swarm, container, stories, records: 0, rejected: 0, completed: false }
    }

    /// Takes the next line. A refused one changes the counts and nothing else.
    pub fn handle_line(&mut self, line: WireLine) -> RecordOutcome {
        self.records += 1;
        let read = match line {
            WireLine::Good(line) => decode_container(&line),
            WireLine::Bad(line) => Err(line.into()),
        };
        match read.and_then(|(envelope, message)| self.apply(&envelope, message)) {
            Ok(message) => RecordOutcome::Accepted(message),
            Err(problem) => {
                self.rejected += 1;
                RecordOutcome::Rejected(problem)
            }
        }
    }

    /// Records so far, refused ones included: the number of the last one, from 1. Blank lines are no records.
    pub fn record_count(&self) -> u64 {
        self.records
    }

    /// Refused records so far.
    pub fn rejected_count(&self) -> u64 {
        self.rejected
    }

    /// Whether the completion was accepted.
    pub fn is_completed(&self) -> bool {
        self.completed
    }

    /// What the sandbox said last of a story; `None` for one that is not of this assignment.
    pub fn story_status(&self, story: &StoryId) -> Option<StoryStatus> {
        self.stories.get(story).copied()
    }

    fn apply(&mut self, envelope: &Envelope, message: ContainerMessage) -> Result<ContainerMessage, AcpViolation> {
        if envelope.swarm_id != self.swarm {
            let problem = format!("must be this sandbox's, `{}`, found `{}`", self.swarm, envelope.swarm_id);
            return Err(violation(rules::OWN_SWARM, "swarmId", problem));
        }
        if !envelope.container_id.is_same_as(&self.container) {
            let (own, found) = (self.container.short(), envelope.container_id.short());
            return Err(violation(
                rules::OWN_CONTAINER,
                "containerId",
                format!("must be this sandbox's, `{own}`, found `{found}`"),
            ));
        }
        if self.completed {
            return Err(violation(
                rules::AFTER_COMPLETION,
                "type",
                format!("`{}` after the completion", message.kind()),
            ));
        }
        match &message {
            ContainerMessage::Progress(progress) => {
                let Some(status) = self.stories.get_mut(&progress.story_id) else {
                    let problem = format!("`{}` is not a story of this assignment", progress.story_id);
                    return Err(violation(rules::OWN_STORY, "payload.storyId", problem));
                };
                if !is_legal_transition(*status, progress.status) {
                    let problem = format!("`{}` cannot go from `{status}` to `{}`", progress.story_id, progress.status);
                    return Err(violation(rules::STORY_MOVE, "payload.status", problem));
                }
                *status = progress.status;
            }
            ContainerMessage::Completion(_) => self.completed = true,
            ContainerMessage::Error(_) => {}
        }
        Ok(message)
    }
}

/// The legal moves of a story. `in_progress` said again is news of it; any other status said again is refused.
fn is_legal_transition(from: StoryStatus, to: StoryStatus) -> bool {
    use StoryStatus::*;
    matches!(
        (from, to),
        (Pending, InProgress | Skipped) | (InProgress, InProgress | Completed | Failed) | (Failed, InProgress)
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use bytes::Bytes;
    use proptest::prelude::*;

    use super::super::message::{
        Completion, CompletionStatus, ErrorCode, ErrorReport, ProgressUpdate, encode_container,
    };
    use super::*;

    const ALL_STATUSES: [StoryStatus; 5] = [
        StoryStatus::Pending,
        StoryStatus::InProgress,
        StoryStatus::Completed,
        StoryStatus::Failed,
        StoryStatus::Skipped,
    ];

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
            for to in ALL_STATUSES {
                let mut session = session();
                for status in &way {
                    let status = StoryStatus::parse(status).expect("a status");
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
        assert_eq!(
            broken_rule(session.handle_line(line(&progress(3, StoryStatus::InProgress)))),
            Some(rules::OWN_STORY)
        );
        assert!(!session.is_completed());
    }

    /// Any line: a legal message, an illegal one, or noise.
    fn any_line() -> impl Strategy<Value = WireLine> {
        prop_oneof![
            6 => (1_u32..4, 0_usize..5).prop_map(|(number, status)| line(&progress(number, ALL_STATUSES[status]))),
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
                        prop_assert_eq!(&session.stories, &before.stories);
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
}
