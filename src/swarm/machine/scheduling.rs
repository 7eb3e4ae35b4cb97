//! Which assignment starts, and from which commit.
//!
//! Ready is an assignment that has an undecided story, no attempt under way, no backoff to wait for, whose dependencies outside
//! of it have landed, and from which no active assignment must be kept apart. The best of the ready by priority, then by
//! place in the plan, takes a free place. One that is kept apart holds no place free: others may go before it. It is not
//! passed over for ever, since each assignment has a bounded number of attempts.

use super::{AttemptPhase, AttemptState, AttemptView, ContainerStatus, SwarmMachine};
use crate::ids::{AttemptId, CommitId};
use crate::protocol::acp::message::StoryStatus;
use crate::swarm::amp_intent::ReviewSpec;
use crate::swarm::effect::{Announcement, Effect};

impl SwarmMachine {
    /// Puts the assignment among the ready, or takes it away from them, as its state says.
    pub(super) fn update_readiness(&mut self, assignment: usize) {
        let state = &self.assignments[assignment];
        let ready = self.began
            && !state.active
            && state.open_stories > 0
            && state.unmet_dependencies == 0
            && state.active_exclusions == 0
            && self.holds[assignment].is_none()
            && state.backoff_until.is_none();
        let entry = (self.spec.assignments[assignment].priority, assignment);
        if ready {
            self.ready.insert(entry);
        } else {
            self.ready.remove(&entry);
        }
    }

    /// Starts what is ready while there are places.
    pub(super) fn start_ready(&mut self, out: &mut Vec<Effect>) {
        if !self.began || self.stop_level.is_some() || self.engine_wait_until.is_some() || self.outcome.is_some() {
            return;
        }
        while self.running.len() < self.spec.limits.max_sandboxes.max(1) {
            // What is nearly done goes before what is not begun.
            if let Some((_, place)) = self.wake_queue.pop_first() {
                self.unpause(place, out);
            } else if let Some((_, of)) = self.review_queue.pop_first() {
                self.start_review(of, out);
            } else if let Some((_, assignment)) = self.ready.pop_first() {
                self.start_assignment(assignment, out);
            } else {
                break;
            }
        }
    }

    fn start_assignment(&mut self, assignment: usize, out: &mut Vec<Effect>) {
        self.assignments[assignment].active = true;
        let head = self.head(self.spec.assignments[assignment].file).clone();
        let base = self.review_states[assignment].rejected_tip.clone().unwrap_or(head);
        let members = &self.index.assignment_stories[assignment];
        let stories: Vec<usize> = members.iter().copied().filter(|story| !self.stories[*story].is_closed()).collect();
        for story in &stories {
            self.stories[*story].attempts += 1;
        }
        let place = self.add_attempt(assignment, stories, base, None, out);
        for at in 0..self.index.exclusive_with[assignment].len() {
            let other = self.index.exclusive_with[assignment][at];
            self.assignments[other].active_exclusions += 1;
            self.update_readiness(other);
        }
        out.push(self.start_effect(place));
    }

    /// Adds an attempt, which takes one of the places: an executor's, or that of a reviewer of `review`. Its place among the
    /// attempts.
    pub(super) fn add_attempt(
        &mut self,
        assignment: usize,
        stories: Vec<usize>,
        base: CommitId,
        review: Option<ReviewSpec>,
        out: &mut Vec<Effect>,
    ) -> usize {
        let place = self.attempts.len();
        let state = &mut self.assignments[assignment];
        state.attempts.push(place);
        let number = state.attempts.len() as u32;
        let id = AttemptId { assignment: self.spec.assignments[assignment].id.clone(), number };
        let words: Vec<_> = self.story_keys(&stories).into_iter().map(|key| (key, StoryStatus::Pending)).collect();
        out.push(Effect::Announce(Announcement::SandboxStarting {
            attempt: id.clone(),
            stories: words.iter().map(|(key, _)| key.clone()).collect(),
        }));
        let view = AttemptView {
            id,
            phase: AttemptPhase::Starting,
            stories: words,
            base,
            container: None,
            container_name: None,
            status: ContainerStatus::Pending,
            record_count: 0,
            bad_records: 0,
            completion: None,
            exit: None,
            error: None,
            created: self.now,
            started: None,
            updated: self.now,
            collect_mode: None,
            tip: None,
            salvage_refs: Vec::new(),
            work_dir_kept: false,
            paused: false,
            removed: false,
            is_rework: review.is_none() && self.review_states[assignment].rejected_tip.is_some(),
            review,
        };
        self.attempts.push(AttemptState {
            view,
            assignment,
            stories,
            end_reason: None,
            first_error: None,
            end_failure: None,
            timer: None,
            silence_deadline: None,
            inspection_pending: false,
            processes: Vec::new(),
            was_paused: false,
            engine_lost: false,
            collect_retries: 0,
            merge_retries: 0,
            task_msg_id: None,
            task_acked: false,
            suspended: None,
            last_unpaused: None,
            was_suspended: false,
            evicted: false,
            tree: None,
            result_ref: None,
            finished_stories: Vec::new(),
            removal: None,
        });
        self.running.insert(place);
        self.active += 1;
        place
    }

    /// What [`Effect::Start`] says of an attempt; also when a resumed swarm says it again.
    pub(super) fn start_effect(&self, place: usize) -> Effect {
        let attempt = &self.attempts[place];
        if let Some(review) = &attempt.view.review {
            return Effect::StartReview { attempt: attempt.view.id.clone(), review: Box::new(review.clone()) };
        }
        let stories = attempt.stories.iter().map(|story| &self.stories[*story]);
        Effect::Start {
            attempt: attempt.view.id.clone(),
            stories: stories.map(|view| (view.key.clone(), view.previous_failure.clone())).collect(),
            guidance: self.review_states[attempt.assignment].guidance.clone(),
            base: attempt.view.base.clone(),
        }
    }

    /// Nothing more comes of the attempt: its assignment may have another, and its neighbours may run.
    pub(super) fn settle_attempt(&mut self, place: usize) {
        self.set_timer(place, None);
        self.set_silence_deadline(place, None);
        let attempt = &mut self.attempts[place];
        attempt.view.phase = AttemptPhase::Settled;
        attempt.view.updated = self.now;
        let assignment = attempt.assignment;
        let reviewed = attempt.view.review.is_some();
        self.active -= 1;
        self.clear_amp_deadlines(place);
        if reviewed {
            // Its assignment goes on with the work that was reviewed.
            return;
        }
        self.assignments[assignment].active = false;
        for at in 0..self.index.exclusive_with[assignment].len() {
            let other = self.index.exclusive_with[assignment][at];
            self.assignments[other].active_exclusions -= 1;
            self.update_readiness(other);
        }
        self.update_readiness(assignment);
    }
}
