//! Which assignment starts, and from which commit.
//!
//! An assignment is ready if it has an open story and no active attempt, hold or backoff, the stories that it depends on have
//! landed, and no assignment that excludes it is active. The best of the ready ones, by priority and then by its position in
//! the plan, takes a free slot. An excluded one keeps no slot free, so others may overtake it. It does not starve, since each
//! assignment has a bounded number of attempts.

use super::attempt::Attempt;
use super::deadlines::Timer;
use super::state::{QueueEntry, SwarmMachine};
use super::view::{AttemptPhase, AttemptRole, AttemptView};
use crate::ids::{AttemptId, CommitId};
use crate::swarm::announcement::Announcement;
use crate::swarm::effect::{Effect, MergeSpec};
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
        if self.spec.landing.is_some() {
            // A review runs in the slot of the work that it judges.
            while let Some(entry) = self.review_queue.pop_first() {
                self.start_review(entry.index);
            }
        }
        while self.used_slots() < self.spec.limits.max_sandboxes.max(1) {
            // What is nearly done goes before what has not begun.
            if let Some(entry) = self.wake_queue.pop_first() {
                self.unpause(entry.index);
            } else if let Some(entry) = self.review_queue.pop_first() {
                self.start_review(entry.index);
            } else if self.is_base_unchecked() {
                break;
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
        let head = self.branches[assignment.branch].head.clone();
        let merge = assignment.pending_merge.clone();
        let rejected = assignment.review.rejected_tip.clone();
        let rework = assignment.rework_base.as_ref().map(|rework| rework.commit.clone());
        let branch_base = match (&merge, &rejected, &assignment.rework_base) {
            (Some(_), ..) => head.clone(),
            (None, Some(_), _) => assignment.review.first_base.clone().unwrap_or_else(|| head.clone()),
            (None, None, Some(rework)) => rework.onto.clone(),
            (None, None, None) => head.clone(),
        };
        let is_rework = merge.is_none() && (rejected.is_some() || rework.is_some());
        let tip = merge.as_ref().map(|merge| merge.tip.clone());
        let base = tip.or(rejected).or(rework).unwrap_or_else(|| head.clone());
        let open = assignment.stories.iter().copied().filter(|story| !self.stories[*story].view.is_closed());
        let stories: Vec<StoryIndex> = open.collect();
        for story in &stories {
            self.stories[*story].view.attempts += 1;
        }
        let attempt = self.add_attempt(index, stories, base, AttemptRole::Executor);
        self.slots.insert(attempt);
        self.attempts[attempt].branch_base = branch_base;
        let view = &mut self.attempts[attempt].view;
        view.is_rework = is_rework;
        view.merge = merge.map(|merge| MergeSpec { head, paths: merge.paths });
        for other in self.assignments[index].exclusive_with.clone() {
            self.assignments[other].active_exclusions += 1;
            self.update_readiness(other);
        }
        self.request_start(attempt);
    }

    /// The slots that are taken. In a journal of an earlier version, a slot is free once its sandbox has ended.
    fn used_slots(&self) -> usize {
        match self.spec.landing {
            Some(_) => self.slots.len(),
            None => self.running.len(),
        }
    }

    /// Adds an attempt that is about to start.
    pub(super) fn add_attempt(
        &mut self,
        index: AssignmentIndex,
        stories: Vec<StoryIndex>,
        base: CommitId,
        role: AttemptRole,
    ) -> AttemptIndex {
        let assignment = &self.assignments[index];
        let is_check = matches!(role, AttemptRole::Checker(_));
        let number = if is_check { assignment.next_check_number() } else { assignment.next_attempt_number() };
        let id = AttemptId { assignment: assignment.id.clone(), number };
        if !is_check {
            self.announce(Announcement::SandboxStarting { attempt: id.clone(), stories: self.story_refs(&stories) });
        }
        let view = AttemptView::starting(id, self.story_keys(&stories), base, role, self.now);
        let attempt = self.attempts.push(Attempt::new(view, index, stories));
        let assignment = &mut self.assignments[index];
        if is_check { &mut assignment.checks } else { &mut assignment.attempts }.push(attempt);
        self.running.insert(attempt);
        self.active += 1;
        attempt
    }

    /// Requests the start of an attempt, also again in a resumed swarm.
    pub(super) fn request_start(&mut self, attempt: AttemptIndex) {
        let state = &self.attempts[attempt];
        let id = state.view.id.clone();
        self.effects.push(match &state.view.role {
            AttemptRole::Reviewer(review) => Effect::StartReview { attempt: id, review: Box::new(review.clone()) },
            AttemptRole::Checker(check) => Effect::StartCheck { attempt: id, check: Box::new(check.clone()) },
            AttemptRole::Executor => {
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
        let (assignment, is_executor) = (state.assignment, state.view.is_executor());
        self.active -= 1;
        self.slots.remove(&attempt);
        self.clear_amp_deadlines(attempt);
        if !is_executor {
            // The assignment continues with the work that was judged.
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
