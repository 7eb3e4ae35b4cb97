//! ACP over time: the session of one sandbox, on the orchestrator's side.
//!
//! Used by `coordinator/`: one [`Session`] a sandbox, fed with every line of the container's standard output in order. It
//! accepts or rejects lines; `swarm/` decides what follows from a message. Must not: do I/O, read a clock (timeouts are
//! deadlines of the swarm's machine), or end a session because of a bad record.
//!
//! # A session after a restart
//!
//! The lines are the only state. To resume a session, feed the container's log to a new one from the beginning: it reaches
//! the same state, and [`Session::record_count`] after each line is that record's number. Ignore the outcomes of records up to
//! the last number in the journal: they were applied before.

use std::collections::BTreeMap;

use crate::ids::{ContainerId, StoryId, SwarmId};
use crate::protocol::rule::Violation;
use crate::wire::WireLine;

use super::decode::decode_container;
use super::rules;
use super::types::{ContainerMessage, Envelope, StoryStatus};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordOutcome {
    /// A message that is legal in its place.
    Accepted(ContainerMessage),
    /// A bad record, to be logged and counted.
    Rejected(Violation),
}

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
    /// The session of a container that was assigned these stories, all pending.
    pub fn new(swarm: SwarmId, container: ContainerId, stories: &[StoryId]) -> Self {
        let stories = stories.iter().map(|id| (id.clone(), StoryStatus::Pending)).collect();
        Self { swarm, container, stories, records: 0, rejected: 0, completed: false }
    }

    /// Handles the next line. A rejected one changes only the counts.
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

    /// The number of records so far, rejected ones included. Blank lines are not records.
    pub fn record_count(&self) -> u64 {
        self.records
    }

    pub fn rejected_count(&self) -> u64 {
        self.rejected
    }

    pub fn is_completed(&self) -> bool {
        self.completed
    }

    /// The latest status of a story; `None` if the assignment does not have it.
    pub fn story_status(&self, story: &StoryId) -> Option<StoryStatus> {
        self.stories.get(story).copied()
    }

    fn apply(&mut self, envelope: &Envelope, message: ContainerMessage) -> Result<ContainerMessage, Violation> {
        if envelope.swarm_id != self.swarm {
            let problem = format!("must be this sandbox's, `{}`, found `{}`", self.swarm, envelope.swarm_id);
            return Err(Violation::new(rules::OWN_SWARM, "swarmId", problem));
        }
        if !envelope.container_id.is_same_as(&self.container) {
            let (own, found) = (self.container.short(), envelope.container_id.short());
            return Err(Violation::new(
                rules::OWN_CONTAINER,
                "containerId",
                format!("must be this sandbox's, `{own}`, found `{found}`"),
            ));
        }
        if self.completed {
            return Err(Violation::new(
                rules::AFTER_COMPLETION,
                "type",
                format!("`{}` after the completion", message.kind()),
            ));
        }
        match &message {
            ContainerMessage::Progress(progress) => {
                let Some(status) = self.stories.get_mut(&progress.story_id) else {
                    let problem = format!("`{}` is not a story of this assignment", progress.story_id);
                    return Err(Violation::new(rules::OWN_STORY, "payload.storyId", problem));
                };
                if !is_legal_transition(*status, progress.status) {
                    let problem = format!("`{}` cannot go from `{status}` to `{}`", progress.story_id, progress.status);
                    return Err(Violation::new(rules::STORY_MOVE, "payload.status", problem));
                }
                *status = progress.status;
            }
            ContainerMessage::Completion(_) => self.completed = true,
            ContainerMessage::Error(_) => {}
        }
        Ok(message)
    }
}

/// The legal transitions of a story. A repeated `in_progress` is progress; any other repeated status is rejected.
fn is_legal_transition(from: StoryStatus, to: StoryStatus) -> bool {
    use StoryStatus::*;
    matches!(
        (from, to),
        (Pending, InProgress | Skipped) | (InProgress, InProgress | Completed | Failed) | (Failed, InProgress)
    )
}
