//! Which assignment starts, and from which commit.
//!
//! An assignment is ready if it has an open story and no active attempt, hold or backoff, the stories that it depends on have
//! landed, and no assignment that excludes it is active. The best of the ready ones, by priority and then by its position in
//! the plan, takes a free slot. An excluded one keeps no slot free, so others may overtake it. It does not starve, since each
//! assignment has a bounded number of attempts.

use super::attempt::Attempt;
use super::deadlines::Timer;
use super::state::{QueueEntry, SwarmMachine};
use super::view::{AttemptPhase, AttemptView};
use crate::ids::{AttemptId, CommitId};
use crate::swarm::amp_intent::ReviewSpec;
use crate::swarm::announcement::Announcement;
use crate::swarm::effect::Effect;
use crate::swarm::index::{AssignmentIndex, AttemptIndex, StoryIndex};

impl SwarmMachine {
    /// Adds the assignment to the ready ones, or removes it, as its state says.
    pub(super) fn update_readiness(&mut self, assignment: AssignmentIndex) {
        let state = &self.assignments[assignment];
        let ready = self.began
            && !state.active
            && state.open_stories > 0
            && state.unmet_dependencies == 0
            && state.active_exclusions == 0
            && state.hold.is_none()
            && !self.deadlines.contains(Timer::AssignmentBackoff(assignment));
        let entry = QueueEntry { priority: state.priority, index: assignment };
        if ready {
            self.ready.insert(entry);
        } else {
            self.ready.remove(&entry);
        }
    }

    /// Starts what is ready while there are slots.
    pub(super) fn start_ready(&mut self) {
        if !self.began || self.stop_level.is_some() || self.is_engine_lost() || self.outcome.is_some() {
            return;
        }
        while self.running.len() < self.spec.limits.max_sandboxes.max(1) {
            // What is nearly done goes before what has not begun.
            if let Some(entry) = self.wake_queue.pop_first() {
                self.unpause(entry.index);
            } else if let Some(entry) = self.review_queue.pop_first() {
                self.start_review(entry.index);
            } else if let Some(entry) = self.ready.pop_first() {
                self.start_assignment(entry.index);
            } else {
                break;
            }
        }
    }

    fn start_assignment(&mut self, index: AssignmentIndex) {
        let assignment = &mut self.assignments[index];
        assignment.active = true;
        let rejected = assignment.review.rejected_tip.clone();
        let base = rejected.unwrap_or_else(|| self.branches[assignment.branch].head.clone());
        let open = assignment.stories.iter().copied().filter(|story| !self.stories[*story].view.is_closed());
        let stories: Vec<StoryIndex> = open.collect();
        for story in &stories {
            self.stories[*story].view.attempts += 1;
        }
        let attempt = self.add_attempt(index, stories, base, None);
        for other in self.assignments[index].exclusive_with.clone() {
            self.assignments[other].active_exclusions += 1;
            self.update_readiness(other);
        }
        self.request_start(attempt);
    }

    /// Adds an attempt, which takes a slot: an executor's, or that of a reviewer of `review`.
    pub(super) fn add_attempt(
        &mut self,
        index: AssignmentIndex,
        stories: Vec<StoryIndex>,
        base: CommitId,
        review: Option<ReviewSpec>,
    ) -> AttemptIndex {
        let assignment = &self.assignments[index];
        let id = AttemptId { assignment: assignment.id.clone(), number: assignment.next_attempt_number() };
        let is_rework = review.is_none() && assignment.review.rejected_tip.is_some();
        self.announce(Announcement::SandboxStarting { attempt: id.clone(), stories: self.story_refs(&stories) });
        let view = AttemptView::starting(id, self.story_keys(&stories), base, review, is_rework, self.now);
        let attempt = self.attempts.push(Attempt::new(view, index, stories));
        self.assignments[index].attempts.push(attempt);
        self.running.insert(attempt);
        self.active += 1;
        attempt
    }

    /// Requests the start of an attempt, also again in a resumed swarm.
    pub(super) fn request_start(&mut self, attempt: AttemptIndex) {
        let state = &self.attempts[attempt];
        let id = state.view.id.clone();
        self.effects.push(match &state.view.review {
            Some(review) => Effect::StartReview { attempt: id, review: Box::new(review.clone()) },
            None => {
                let stories = state.stories.iter().map(|story| &self.stories[*story]);
                Effect::Start {
                    attempt: id,
                    stories: stories.map(|story| (story.view.key.clone(), story.previous_failure.clone())).collect(),
                    guidance: self.assignments[state.assignment].review.guidance.clone(),
                    base: state.view.base.clone(),
                }
            }
        });
    }

    /// The attempt is over: its assignment may have another, and those that it excluded may run.
    pub(super) fn settle_attempt(&mut self, attempt: AttemptIndex) {
        self.clear_timer(attempt);
        self.set_deadline(Timer::AttemptSilence(attempt), None);
        let state = &mut self.attempts[attempt];
        state.view.phase = AttemptPhase::Settled;
        state.view.updated = self.now;
        let (assignment, is_review) = (state.assignment, state.is_review());
        self.active -= 1;
        self.clear_amp_deadlines(attempt);
        if is_review {
            // The assignment continues with the reviewed work.
            return;
        }
        self.assignments[assignment].active = false;
        for other in self.assignments[assignment].exclusive_with.clone() {
            self.assignments[other].active_exclusions -= 1;
            self.update_readiness(other);
        }
        self.update_readiness(assignment);
    }
}
