//! What callers can ask the machine.

use std::time::Duration;

use super::attempt::Attempt;
use super::diagnosis;
use super::hold::AdminHold;
use super::state::SwarmMachine;
use super::view::{AttemptPhase, AttemptView, StoryView};
use crate::ids::{AssignmentId, AttemptId, CommitId, StoryKey};
use crate::protocol::acp::message::CompletionStatus;
use crate::swarm::event::StopLevel;
use crate::swarm::index::{AttemptIndex, TypedIndex};
use crate::swarm::spec::{AssignmentSpec, StorySpec, SwarmSpec};
use crate::swarm::swarm_outcome::SwarmOutcome;
use crate::verdict::Failure;

impl SwarmMachine {
    /// When to give [`Event::DeadlinePassed`](crate::swarm::Event::DeadlinePassed), if nothing else happens.
    pub fn next_deadline(&self) -> Option<Duration> {
        let own = self.deadlines.next();
        own.into_iter().chain(self.amp.next_deadline()).min().filter(|_| self.outcome.is_none())
    }

    pub fn outcome(&self) -> Option<SwarmOutcome> {
        self.outcome
    }

    /// Whether the swarm ended with nothing left to resume.
    pub fn is_complete(&self) -> bool {
        if self.red_base.is_some() && self.outcome.is_some() {
            return true;
        }
        let open = matches!(self.outcome, None | Some(SwarmOutcome::Interrupted | SwarmOutcome::Suspended));
        !open && !self.machinery_failed && self.counts.open == 0 && self.active == 0
    }

    /// How the checks failed before anything was changed, if they did.
    pub fn red_base(&self) -> Option<&Failure> {
        self.red_base.as_ref()
    }

    /// The number of events applied so far, which is the number of the journal's records.
    pub fn event_count(&self) -> u64 {
        self.event_count
    }

    pub fn has_begun(&self) -> bool {
        self.began
    }

    pub fn stop_level(&self) -> Option<StopLevel> {
        self.stop_level
    }

    pub fn last_event_at(&self) -> Duration {
        self.now
    }

    /// How long no orchestrator ran, in total.
    pub fn total_absence(&self) -> Duration {
        self.amp.total_absence()
    }

    pub fn spec(&self) -> &SwarmSpec {
        &self.spec
    }

    /// The stories, in the plan's order.
    pub fn stories(&self) -> impl Iterator<Item = &StoryView> {
        self.stories.iter().map(|story| &story.view)
    }

    pub fn story(&self, key: &StoryKey) -> Option<&StoryView> {
        self.story_indices.get(key).map(|story| &self.stories[*story].view)
    }

    pub fn story_spec(&self, key: &StoryKey) -> Option<&StorySpec> {
        self.story_indices.get(key).map(|story| &self.spec.stories[story.position()])
    }

    pub fn assignment_spec(&self, id: &AssignmentId) -> Option<&AssignmentSpec> {
        self.assignment_indices.get(id).map(|assignment| &self.spec.assignments[assignment.position()])
    }

    /// Why a sandbox ended before it began a story, by its own report. Such a sandbox leaves no result, and its stories did
    /// nothing to cause that. `None` if it began one, or reported no failure.
    pub fn reported_start_failure(&self, id: &AttemptId) -> Option<Failure> {
        let attempt = self.attempts.iter().find(|attempt| attempt.view.id == *id)?;
        let unstarted = matches!(attempt.view.completion, Some(CompletionStatus::Failed | CompletionStatus::Stopped))
            && !attempt.stories.iter().any(|story| attempt.has_begun_story(*story));
        diagnosis::unreached_failure(attempt).filter(|_| unstarted)
    }

    /// The attempts, in the order of their starts.
    pub fn attempts(&self) -> impl Iterator<Item = &AttemptView> {
        self.attempts.iter().map(|attempt| &attempt.view)
    }

    pub fn attempt(&self, id: &AttemptId) -> Option<&AttemptView> {
        self.attempt_index(id).map(|attempt| &self.attempts[attempt].view)
    }

    /// The head of a tasks file's integration branch, as far as the machine knows it.
    pub fn head(&self, file: u16) -> &CommitId {
        &self.branches[self.file_branches[usize::from(file)]].head
    }

    pub fn admin_hold(&self, id: &AssignmentId) -> Option<&AdminHold> {
        self.assignment_indices.get(id).and_then(|assignment| self.active_hold(*assignment))
    }

    pub fn has_applied_decision(&self, decision: &str) -> bool {
        self.applied_decisions.contains(decision)
    }

    pub fn reject_count(&self, id: &AssignmentId) -> u32 {
        self.assignment_indices.get(id).map_or(0, |assignment| self.assignments[*assignment].review.reject_count)
    }

    pub(super) fn attempt_index(&self, id: &AttemptId) -> Option<AttemptIndex> {
        self.assignments[*self.assignment_indices.get(&id.assignment)?].attempt_with_number(id.number)
    }

    /// The attempt, if it is in one of these phases.
    pub(super) fn attempt_in(&self, id: &AttemptId, phases: &[AttemptPhase]) -> Option<AttemptIndex> {
        self.attempt_index(id).filter(|attempt| phases.contains(&self.attempts[*attempt].view.phase))
    }

    /// The attempt whose work this one reviews.
    pub(super) fn reviewed_attempt(&self, reviewer: AttemptIndex) -> Option<AttemptIndex> {
        let review = self.attempts[reviewer].view.review()?;
        self.attempt_index(&review.reviewed_attempt)
    }

    pub(super) fn find_attempts(&self, test: impl Fn(&Attempt) -> bool) -> Vec<AttemptIndex> {
        let matching = self.attempts.iter_indexed().filter(|(_, attempt)| test(attempt));
        matching.map(|(index, _)| index).collect()
    }
}
