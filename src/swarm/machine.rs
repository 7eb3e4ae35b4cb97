//! The machine: what a swarm does next.

mod view;

use std::time::Duration;

use crate::ids::{AssignmentId, AttemptId, CommitId, StoryKey};
use crate::swarm::effect::{Effect, Outcome};
use crate::swarm::event::{Event, StopLevel};
use crate::swarm::spec::{AssignmentSpec, StorySpec, SwarmSpec};

pub use view::{AttemptView, ContainerStatus, Phase, Progress, StoryView};

/// A swarm in progress.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    spec: SwarmSpec,
    stories: Vec<StoryView>,
    attempts: Vec<AttemptView>,
    finished: Option<Outcome>,
}

impl Machine {
    /// A swarm that has not begun.
    pub fn new(spec: SwarmSpec) -> Self {
        Self { spec, stories: Vec::new(), attempts: Vec::new(), finished: None }
    }

    /// Takes an event in. `now` is the time since the swarm began; it is cut to whole milliseconds, as the journal
    /// keeps it. An event that is a duplicate, too late, or about something unknown changes nothing and gives no
    /// effects; any other gives [`Effect::Persist`] first.
    pub fn handle(&mut self, event: &Event, now: Duration) -> Vec<Effect> {
        let _ = (event, now);
        Vec::new()
    }

    /// When to give [`Event::DeadlinePassed`], if nothing else happens.
    pub fn next_deadline(&self) -> Option<Duration> {
        None
    }

    /// How it ended, once it has.
    pub fn finished(&self) -> Option<Outcome> {
        self.finished
    }

    /// Whether a stop was asked for.
    pub fn stopping(&self) -> Option<StopLevel> {
        None
    }

    /// The time of the newest event.
    pub fn updated(&self) -> Duration {
        Duration::ZERO
    }

    /// A story by its key.
    pub fn story(&self, key: &StoryKey) -> Option<&StoryView> {
        self.stories.iter().find(|view| view.key == *key)
    }

    /// What the plan says of a story.
    pub fn story_spec(&self, key: &StoryKey) -> Option<&StorySpec> {
        self.spec.stories.iter().find(|story| story.key == *key)
    }

    /// What the plan says of an assignment.
    pub fn assignment(&self, id: &AssignmentId) -> Option<&AssignmentSpec> {
        self.spec.assignments.iter().find(|assignment| assignment.id == *id)
    }

    /// An attempt by its id.
    pub fn attempt(&self, id: &AttemptId) -> Option<&AttemptView> {
        self.attempts.iter().find(|view| view.id == *id)
    }

    /// The plan.
    pub fn spec(&self) -> &SwarmSpec {
        &self.spec
    }

    /// The stories, in the plan's order.
    pub fn stories(&self) -> impl Iterator<Item = &StoryView> {
        self.stories.iter()
    }

    /// The attempts, in the order of their starts.
    pub fn attempts(&self) -> impl Iterator<Item = &AttemptView> {
        self.attempts.iter()
    }

    /// The head of a file's integration branch, as far as the machine knows it.
    pub fn head(&self, file: u16) -> &CommitId {
        &self.spec.files[usize::from(file)].base
    }
}
