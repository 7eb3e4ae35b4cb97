//! Beginning, stopping, resuming, and the end.
//!
//! A stop starts nothing more and cancels backoffs; work on its way to the host or to its branch still arrives, unless a kill
//! cuts it short. The swarm is over when every story is closed, or when a stop has brought every attempt to its end. An
//! outcome comes once; only a resume takes `Interrupted`, `Suspended` and a machinery failure back.

use super::attempt::{EndReason, FailedStory, WorkDirFate};
use super::deadlines::{AttemptTimer, Timer};
use super::state::{Applied, SwarmMachine, TrackedStory};
use super::view::AttemptPhase;
use crate::swarm::announcement::Announcement;
use crate::swarm::effect::Effect;
use crate::swarm::event::{MachineryFault, StopLevel};
use crate::swarm::index::AttemptIndex;
use crate::swarm::swarm_outcome::SwarmOutcome;
use crate::verdict::{Cause, Failure};

impl SwarmMachine {
    pub(super) fn begin(&mut self) -> Option<Applied> {
        if self.began {
            return None;
        }
        self.began = true;
        self.announce(Announcement::SwarmStarted {
            stories: self.counts.open,
            done: self.stories.len() - self.counts.open,
            assignments: self.assignments.iter().filter(|assignment| assignment.open_stories > 0).count(),
            max_sandboxes: self.spec.limits.max_sandboxes,
        });
        self.fail_open_stories("the plan has it in no assignment", |story| story.assignment.is_none());
        for assignment in self.assignments.indices() {
            let mut stories = self.assignments[assignment].stories.iter();
            if self.amp.is_enabled() && stories.any(|story| self.is_high_risk(*story)) {
                self.request_approval(assignment);
            }
        }
        for assignment in self.assignments.indices() {
            self.update_readiness(assignment);
        }
        if self.spec.landing.is_some() {
            self.check_bases();
        }
        Some(Applied)
    }

    /// For plans that the planner never makes: a hang would be the worst answer.
    fn fail_open_stories(&mut self, problem: &str, test: impl Fn(&TrackedStory) -> bool) {
        let open = self.stories.iter_indexed().filter(|(_, story)| !story.view.is_closed() && test(story));
        let failure = Failure::new(Cause::HostError, problem);
        let failed = FailedStory::for_all(open.map(|(index, _)| index), &failure);
        self.fail_stories(failed);
    }

    pub(super) fn stop(&mut self, level: StopLevel, by: &str) -> Option<Applied> {
        if self.stop_level.is_some_and(|before| before >= level) {
            return None;
        }
        self.stop_level = Some(level);
        self.announce(Announcement::Stopping { level, by: by.to_owned() });
        if self.is_engine_lost() {
            // No sandbox can be told.
            self.finish(SwarmOutcome::Interrupted);
            return Some(Applied);
        }
        for assignment in self.assignments.indices() {
            if self.deadlines.contains(Timer::AssignmentBackoff(assignment)) {
                self.set_backoff(assignment, None);
            }
        }
        for attempt in self.running.clone() {
            let state = &mut self.attempts[attempt];
            match level {
                StopLevel::Kill if state.timer != Some(AttemptTimer::KillTimeout) => {
                    state.end_reason.get_or_insert(EndReason::SwarmStopped);
                    self.kill(attempt);
                }
                // A completed sandbox exits by itself.
                StopLevel::Graceful if state.view.phase != AttemptPhase::Completed && state.end_reason.is_none() => {
                    self.terminate(attempt, EndReason::SwarmStopped);
                }
                _ => {}
            }
        }
        self.kill_suspended();
        self.cancel_review_backoffs();
        self.shelve_waiting_landings();
        if level == StopLevel::Kill {
            self.set_collect_timeouts();
        }
        Some(Applied)
    }

    /// Neither a hanging depot nor a retry's backoff may delay a kill.
    fn set_collect_timeouts(&mut self) {
        for attempt in self.find_attempts(|attempt| attempt.view.phase == AttemptPhase::Collecting) {
            if self.attempts[attempt].timer.is_some() {
                self.request_collect(attempt);
            } else {
                self.set_collect_timeout(attempt);
            }
        }
    }

    pub(super) fn fail_machinery(&mut self, fault: &MachineryFault) {
        self.machinery_failed = true;
        self.announce(Announcement::MachineryFailed { failure: fault.into() });
        self.finish(SwarmOutcome::MachineryFailed);
    }

    /// Resumes the swarm. Attempts that are `Running` or `Completed` are the coordinator's to attach to; all other effects
    /// that may not have been carried out are given again, and tolerate that: a `Start` whose container exists continues
    /// with it, a `Collect` reads again, a `Merge` finds its tip merged, a `Remove` finds nothing.
    pub(super) fn resume(&mut self) -> Option<Applied> {
        match self.outcome {
            None | Some(SwarmOutcome::Interrupted | SwarmOutcome::Suspended) => {}
            Some(SwarmOutcome::RedBase) => return None,
            // The admin reopened a story, or it is not on its branch any more.
            Some(_) if self.counts.open > 0 => {}
            Some(SwarmOutcome::MachineryFailed) if self.machinery_failed => {}
            Some(_) => return None,
        }
        self.outcome = None;
        self.machinery_failed = false;
        self.stop_level = None;
        self.set_deadline(Timer::EngineReturn, None);
        if !self.began {
            return self.begin();
        }
        let started = |attempt: &&AttemptIndex| self.attempts[**attempt].view.phase >= AttemptPhase::Running;
        self.announce(Announcement::SwarmResumed {
            stories: self.counts.open,
            done: self.stories.len() - self.counts.open,
            running: self.running.iter().filter(started).count(),
        });
        for attempt in self.attempts.indices() {
            self.reissue_effects(attempt);
        }
        self.resume_landings();
        Some(Applied)
    }

    fn reissue_effects(&mut self, attempt: AttemptIndex) {
        let is_merging = self.is_merging(attempt);
        let state = &mut self.attempts[attempt];
        let (id, timer) = (state.view.id.clone(), state.timer);
        match state.view.phase {
            AttemptPhase::Starting | AttemptPhase::Created => {
                state.end_reason = None;
                self.clear_timer(attempt);
                self.request_start(attempt);
            }
            AttemptPhase::Running | AttemptPhase::Completed => {
                match timer {
                    Some(AttemptTimer::Grace) => self.effects.push(Effect::Terminate { attempt: id }),
                    Some(AttemptTimer::KillTimeout) => self.effects.push(Effect::Kill { attempt: id }),
                    _ => {}
                }
                // Nobody listened meanwhile.
                self.reset_silence(attempt);
                self.reissue_pause(attempt);
            }
            AttemptPhase::Collecting => {
                self.clear_timer(attempt);
                self.request_collect(attempt);
            }
            AttemptPhase::Merging if is_merging => self.request_merge(attempt),
            AttemptPhase::MergeQueued if timer.is_some() => {
                self.clear_timer(attempt);
                self.request_merge(attempt);
            }
            AttemptPhase::Reviewing | AttemptPhase::MergeQueued | AttemptPhase::Merging | AttemptPhase::Settled => {}
        }
        let state = &self.attempts[attempt];
        if let Some(fate) = state.removal.filter(|_| !state.view.removed) {
            let keep_work_dir = fate != WorkDirFate::Remove;
            self.effects.push(Effect::Remove { attempt: state.view.id.clone(), keep_work_dir });
        }
    }

    pub(super) fn finish_if_done(&mut self) {
        let busy = self.active - self.parked - self.suspended - self.count_stranded();
        if self.outcome.is_some() || busy > 0 || !(self.began || self.stop_level.is_some()) {
            return;
        }
        if self.red_base.is_some() {
            self.finish(SwarmOutcome::RedBase);
        } else if self.counts.open > 0 && self.stop_level.is_some() {
            self.finish(SwarmOutcome::Interrupted);
        } else if self.counts.open == 0 {
            let skipped = self.counts.skipped - self.counts.skipped_initially;
            self.finish(match (self.counts.failed + skipped, self.counts.failed_by_machinery) {
                (0, _) => SwarmOutcome::Landed,
                (_, 0) => SwarmOutcome::SomeFailed,
                _ => SwarmOutcome::MachineryFailed,
            });
        } else if self.has_blocked_branch() {
            self.machinery_failed = true;
            self.finish(SwarmOutcome::MachineryFailed);
        } else if self.is_base_unchecked() {
            // The host is preparing the check.
        } else if self.ready.is_empty()
            && self.review_queue.is_empty()
            && self.deadlines.is_empty()
            && !self.finish_if_held()
        {
            self.fail_open_stories("the plan has assignments that wait for each other", |_| true);
            self.finish_if_done();
        }
    }

    pub(super) fn finish(&mut self, outcome: SwarmOutcome) {
        self.outcome = Some(outcome);
        self.announce(Announcement::SwarmEnded {
            outcome,
            exit_code: outcome.exit_code(),
            landed: self.counts.landed,
            failed: self.counts.failed,
            skipped: self.counts.skipped,
            pending: self.counts.open,
        });
        self.effects.push(Effect::Finish(outcome));
    }
}
