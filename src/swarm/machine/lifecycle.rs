//! Beginning, stopping, resuming, and the end.
//!
//! A stop starts nothing more and cancels backoffs; what is on its way to the host or to its branch still gets there, if a
//! kill does not cut it short.
//! The swarm is over when every story is decided, or when a stop has brought every attempt to its end. An outcome comes
//! once; only a resume takes `Interrupted` and the machinery's own failure back.

use super::diagnosis::EndReason;
use super::timer::{AttemptTimer, SHIM_SHUTDOWN_MARGIN, Timer};
use super::{AttemptPhase, SwarmMachine};
use crate::swarm::effect::{Announcement, Effect, SwarmOutcome};
use crate::swarm::event::{MachineryFault, StopLevel};
use crate::verdict::{Cause, Failure};

impl SwarmMachine {
    pub(super) fn begin(&mut self, out: &mut Vec<Effect>) -> bool {
        if self.began {
            return false;
        }
        self.began = true;
        self.announce_start(out);
        let orphans: Vec<usize> = (0..self.stories.len())
            .filter(|story| self.index.story_assignment[*story].is_none() && !self.stories[*story].is_closed())
            .collect();
        let failure = Failure::new(Cause::HostError, "the plan has it in no assignment");
        self.fail_stories(orphans.into_iter().map(|story| (story, failure.clone())).collect(), out);
        if self.spec.amp.is_some() {
            for assignment in 0..self.assignments.len() {
                if self.index.assignment_stories[assignment].iter().any(|story| self.is_high_risk(*story)) {
                    self.request_approval(assignment, out);
                }
            }
        }
        for assignment in 0..self.assignments.len() {
            self.update_readiness(assignment);
        }
        true
    }

    fn announce_start(&self, out: &mut Vec<Effect>) {
        out.push(Effect::Announce(Announcement::SwarmStarted {
            stories: self.counts.open,
            done: self.stories.len() - self.counts.open,
            assignments: self.assignments.iter().filter(|assignment| assignment.open_stories > 0).count(),
            max_sandboxes: self.spec.limits.max_sandboxes,
        }));
    }

    pub(super) fn stop(&mut self, level: StopLevel, by: &str, out: &mut Vec<Effect>) -> bool {
        if self.stop_level.is_some_and(|before| before >= level) {
            return false;
        }
        self.stop_level = Some(level);
        out.push(Effect::Announce(Announcement::Stopping { level, by: by.to_owned() }));
        if self.engine_wait_until.is_some() {
            self.interrupt(out);
            return true;
        }
        let waiting: Vec<usize> = self
            .deadlines
            .iter()
            .filter_map(|(_, timer)| match timer {
                Timer::AssignmentBackoff(assignment) => Some(*assignment),
                Timer::Attempt(_) | Timer::AttemptSilence(_) | Timer::EngineReturn => None,
            })
            .collect();
        for assignment in waiting {
            self.set_backoff(assignment, None);
        }
        let running: Vec<usize> = self.running.iter().copied().collect();
        for place in running {
            let attempt = &mut self.attempts[place];
            let killed = matches!(attempt.timer, Some((_, AttemptTimer::KillTimeout)));
            match level {
                StopLevel::Kill if !killed => {
                    attempt.end_reason.get_or_insert(EndReason::SwarmStopped);
                    self.kill(place, out);
                }
                // What said `completion` ends by itself, and what was told to end need not be told again.
                StopLevel::Graceful
                    if attempt.view.phase != AttemptPhase::Completed && attempt.end_reason.is_none() =>
                {
                    self.terminate(place, EndReason::SwarmStopped, out);
                }
                _ => {}
            }
        }
        self.kill_suspended(out);
        self.cancel_review_backoffs();
        if level == StopLevel::Kill {
            self.set_collect_timeouts(out);
        }
        true
    }

    /// Bounds what is left to collect: neither a depot that hangs nor a wait before another try may hold up a kill.
    fn set_collect_timeouts(&mut self, out: &mut Vec<Effect>) {
        for place in 0..self.attempts.len() {
            if self.attempts[place].view.phase != AttemptPhase::Collecting {
                continue;
            }
            if self.attempts[place].timer.is_some() {
                self.request_collect(place, out);
            } else {
                self.set_timer(
                    place,
                    Some((self.spec.limits.grace_period + SHIM_SHUTDOWN_MARGIN, AttemptTimer::CollectTimeout)),
                );
            }
        }
    }

    pub(super) fn fail_machinery(&mut self, fault: &MachineryFault, out: &mut Vec<Effect>) -> bool {
        self.machinery_failed = true;
        let failure = Failure { cause: fault.cause, evidence: fault.evidence.clone(), salvage: None };
        out.push(Effect::Announce(Announcement::MachineryFailed { failure }));
        self.finish(SwarmOutcome::MachineryFailed, out);
        true
    }

    /// Takes the swarm up again. Attempts that are `Running` or `Completed` are the coordinator's to attach to or to
    /// judge; all other effects that may not have been carried out are given again, and can bear it: a `Start` whose container exists
    /// goes on with it, a `Collect` reads again, a `Merge` finds its tip merged, a `Remove` finds nothing.
    pub(super) fn resume(&mut self, out: &mut Vec<Effect>) -> bool {
        match self.outcome {
            None | Some(SwarmOutcome::Interrupted | SwarmOutcome::Suspended) => {}
            // The admin took something back.
            Some(_) if self.counts.open > 0 => {}
            Some(SwarmOutcome::MachineryFailed) if self.machinery_failed => {}
            Some(_) => return false,
        }
        self.outcome = None;
        self.machinery_failed = false;
        self.stop_level = None;
        self.set_engine_wait(None);
        if !self.began {
            return self.begin(out);
        }
        out.push(Effect::Announce(Announcement::SwarmResumed {
            stories: self.counts.open,
            done: self.stories.len() - self.counts.open,
            running: self
                .running
                .iter()
                .filter(|place| self.attempts[**place].view.phase >= AttemptPhase::Running)
                .count(),
        }));
        for place in 0..self.attempts.len() {
            self.reissue_effects(place, out);
        }
        true
    }

    fn reissue_effects(&mut self, place: usize, out: &mut Vec<Effect>) {
        let attempt = &self.attempts[place];
        let timer = attempt.timer.map(|(_, what)| what);
        let id = attempt.view.id.clone();
        match attempt.view.phase {
            AttemptPhase::Starting | AttemptPhase::Created => {
                self.attempts[place].end_reason = None;
                self.set_timer(place, None);
                out.push(self.start_effect(place));
            }
            AttemptPhase::Running | AttemptPhase::Completed => {
                match timer {
                    Some(AttemptTimer::Grace) => out.push(Effect::Terminate { attempt: id }),
                    Some(AttemptTimer::KillTimeout) => out.push(Effect::Kill { attempt: id }),
                    _ => {}
                }
                // Nobody listened meanwhile.
                self.reset_silence(place);
                self.reissue_pause(place, out);
            }
            AttemptPhase::Collecting => {
                self.set_timer(place, None);
                self.request_collect(place, out);
            }
            AttemptPhase::Merging => self.request_merge(place, out),
            AttemptPhase::MergeQueued if timer.is_some() => {
                self.set_timer(place, None);
                self.request_merge(place, out);
            }
            AttemptPhase::Reviewing | AttemptPhase::MergeQueued | AttemptPhase::Settled => {}
        }
        let attempt = &self.attempts[place];
        if let Some(keep_work) = attempt.removal.filter(|_| !attempt.view.removed) {
            out.push(Effect::Remove { attempt: attempt.view.id.clone(), keep_work_dir: keep_work });
        }
    }

    /// Ends the swarm if it is over.
    pub(super) fn finish_if_done(&mut self, out: &mut Vec<Effect>) {
        let busy = self.active - self.parked - self.suspended;
        if self.outcome.is_some() || busy > 0 || !(self.began || self.stop_level.is_some()) {
            return;
        }
        if self.counts.open > 0 && self.stop_level.is_some() {
            self.finish(SwarmOutcome::Interrupted, out);
        } else if self.counts.open == 0 {
            let skipped = self.counts.skipped - self.counts.skipped_initially;
            let outcome = match (self.counts.failed + skipped, self.counts.failed_by_machinery) {
                (0, _) => SwarmOutcome::Landed,
                (_, 0) => SwarmOutcome::SomeFailed,
                _ => SwarmOutcome::MachineryFailed,
            };
            self.finish(outcome, out);
        } else if self.ready.is_empty()
            && self.review_queue.is_empty()
            && self.deadlines.is_empty()
            && !self.finish_if_all_held(out)
        {
            // Assignments that wait for each other: the plan makes none, and a hang would be the worst answer.
            let failure = Failure::new(Cause::HostError, "the plan has assignments that wait for each other");
            let left = (0..self.stories.len()).filter(|story| !self.stories[*story].is_closed());
            let left: Vec<(usize, Failure)> = left.map(|story| (story, failure.clone())).collect();
            self.fail_stories(left, out);
            self.finish_if_done(out);
        }
    }

    pub(super) fn finish(&mut self, outcome: SwarmOutcome, out: &mut Vec<Effect>) {
        self.outcome = Some(outcome);
        out.push(Effect::Announce(Announcement::SwarmEnded {
            outcome,
            landed: self.counts.landed,
            failed: self.counts.failed,
            skipped: self.counts.skipped,
            pending: self.counts.open,
        }));
        out.push(Effect::Finish(outcome));
    }
}
