//! Which assignment starts, and from which commit.
//!
//! Ready is an assignment that has an undecided story, no attempt under way, no backoff to wait for, whose dependencies outside
//! of it have landed, and from which no active assignment must be kept apart. The best of the ready by priority, then by
//! place in the plan, takes a free place. One that is kept apart holds no place free: others may go before it. It is not
//! passed over for ever, since each assignment has a bounded number of attempts.

use super::{Attempt, AttemptView, ContainerStatus, Machine, Phase};
use crate::ids::{AttemptId, CommitId};
use crate::protocol::acp::message::StoryStatus;
use crate::swarm::effect::{Announcement, Effect};
use crate::swarm::word::Review;

impl Machine {
    /// Puts the assignment among the ready, or takes it away from them, as its state says.
    pub(super) fn refresh(&mut self, assignment: usize) {
        let state = &self.assignments[assignment];
        let ready = self.began
            && !state.active
            && state.undecided > 0
            && state.waiting_on == 0
            && state.held_by == 0
            && self.holds[assignment].is_none()
            && state.backoff.is_none();
        let entry = (self.spec.assignments[assignment].priority, assignment);
        if ready {
            self.ready.insert(entry);
        } else {
            self.ready.remove(&entry);
        }
    }

    /// Starts what is ready while there are places.
    pub(super) fn start_ready(&mut self, out: &mut Vec<Effect>) {
        if !self.began || self.stopping.is_some() || self.engine_away.is_some() || self.finished.is_some() {
            return;
        }
        while self.running.len() < self.spec.limits.max.max(1) {
            // What is nearly done goes before what is not begun.
            if let Some((_, place)) = self.wakes.pop_first() {
                self.go_on(place, out);
            } else if let Some((_, of)) = self.reviews.pop_first() {
                self.start_review(of, out);
            } else if let Some((_, assignment)) = self.ready.pop_first() {
                self.start(assignment, out);
            } else {
                break;
            }
        }
    }

    fn start(&mut self, assignment: usize, out: &mut Vec<Effect>) {
        self.assignments[assignment].active = true;
        let head = self.head(self.spec.assignments[assignment].file).clone();
        let base = self.loops[assignment].tip.clone().unwrap_or(head);
        let members = &self.index.members[assignment];
        let stories: Vec<usize> = members.iter().copied().filter(|story| !self.stories[*story].decided()).collect();
        for story in &stories {
            self.stories[*story].attempts += 1;
        }
        let place = self.new_attempt(assignment, stories, base, None, out);
        for at in 0..self.index.apart[assignment].len() {
            let other = self.index.apart[assignment][at];
            self.assignments[other].held_by += 1;
            self.refresh(other);
        }
        out.push(self.start_effect(place));
    }

    /// Adds an attempt, which takes one of the places: an executor's, or that of a reviewer of `review`. Its place among the
    /// attempts.
    pub(super) fn new_attempt(
        &mut self,
        assignment: usize,
        stories: Vec<usize>,
        base: CommitId,
        review: Option<Review>,
        out: &mut Vec<Effect>,
    ) -> usize {
        let place = self.attempts.len();
        let state = &mut self.assignments[assignment];
        state.attempts.push(place);
        let number = state.attempts.len() as u32;
        let id = AttemptId { assignment: self.spec.assignments[assignment].id.clone(), number };
        let words: Vec<_> = self.keys(&stories).into_iter().map(|key| (key, StoryStatus::Pending)).collect();
        out.push(Effect::Announce(Announcement::SandboxStarting {
            attempt: id.clone(),
            stories: words.iter().map(|(key, _)| key.clone()).collect(),
        }));
        let view = AttemptView {
            id,
            phase: Phase::Starting,
            stories: words,
            base,
            container: None,
            name: None,
            status: ContainerStatus::Pending,
            records: 0,
            bad_records: 0,
            completion: None,
            exit: None,
            error: None,
            created: self.now,
            started: None,
            updated: self.now,
            collecting: None,
            tip: None,
            salvaged: Vec::new(),
            work_kept: false,
            paused: false,
            removed: false,
            rework: review.is_none() && self.loops[assignment].tip.is_some(),
            review,
        };
        self.attempts.push(Attempt {
            view,
            assignment,
            stories,
            ending: None,
            reported: None,
            died_of: None,
            timer: None,
            silence: None,
            silent: false,
            processes: Vec::new(),
            was_paused: false,
            engine_lost: false,
            collects: 0,
            merges: 0,
            told: None,
            acked: false,
            suspended: None,
            woken: None,
            was_suspended: false,
            evicted: false,
            tree: None,
            kept: None,
            finished: Vec::new(),
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
            stories: stories.map(|view| (view.key.clone(), view.previous.clone())).collect(),
            guidance: self.loops[attempt.assignment].guidance.clone(),
            base: attempt.view.base.clone(),
        }
    }

    /// Nothing more comes of the attempt: its assignment may have another, and its neighbours may run.
    pub(super) fn settle(&mut self, place: usize) {
        self.set_timer(place, None);
        self.set_silence(place, None);
        let attempt = &mut self.attempts[place];
        attempt.view.phase = Phase::Settled;
        attempt.view.updated = self.now;
        let assignment = attempt.assignment;
        let reviewed = attempt.view.review.is_some();
        self.active -= 1;
        self.falls_silent(place);
        if reviewed {
            // Its assignment goes on with the work that was reviewed.
            return;
        }
        self.assignments[assignment].active = false;
        for at in 0..self.index.apart[assignment].len() {
            let other = self.index.apart[assignment][at];
            self.assignments[other].held_by -= 1;
            self.refresh(other);
        }
        self.refresh(assignment);
    }
}
