//! The machine: what a swarm does next.

mod view;

use std::time::Duration;

use crate::ids::CommitId;
use crate::swarm::effect::{Effect, Outcome};
use crate::swarm::event::{Event, StopLevel};
use crate::swarm::spec::SwarmSpec;

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
