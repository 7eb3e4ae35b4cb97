//! ACP over time: one sandbox's session, as the orchestrator hears it.

use crate::ids::{ContainerId, StoryId, SwarmId};
use crate::wire::Line;

use super::message::{BadRecord, ContainerMessage, StoryStatus};

/// What a line turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// A message, legal at its place.
    Accepted(ContainerMessage),
    /// A bad record: logged and counted, and nothing else follows from it.
    Refused(BadRecord),
}

/// One sandbox's session.
#[derive(Debug, Clone)]
pub struct Session {
    swarm: SwarmId,
    container: ContainerId,
    stories: Vec<(StoryId, StoryStatus)>,
    records: u64,
    refused: u64,
    completed: bool,
}

impl Session {
    /// The session of a container that was asked to do these stories. All begin as pending.
    pub fn new(swarm: SwarmId, container: ContainerId, stories: &[StoryId]) -> Self {
        let stories = stories.iter().map(|id| (id.clone(), StoryStatus::Pending)).collect();
        Self { swarm, container, stories, records: 0, refused: 0, completed: false }
    }

    /// Takes the next line.
    pub fn line(&mut self, line: Line) -> Record {
        let _ = (line, &self.swarm, &self.container, &self.stories);
        unimplemented!("skeleton")
    }

    /// Records so far, refused ones included: the number of the last one, from 1.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Refused records so far.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Whether the completion was accepted.
    pub fn completed(&self) -> bool {
        self.completed
    }
}
