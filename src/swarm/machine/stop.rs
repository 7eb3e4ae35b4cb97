//! Beginning, stopping, resuming, and the end.
//!
//! A stop starts nothing more and cancels backoffs; what is on its way to the host or to its branch still gets there, if a
//! kill does not cut it short.
//! The swarm is over when every story is decided, or when a stop has brought every attempt to its end. An outcome comes
//! once; only a resume takes `Interrupted` and the machinery's own failure back.

use super::deadline::{AttemptTimer, MARGIN, Timer};
use super::judge::Ending;
use super::{Machine, Phase};
use crate::swarm::effect::{Announcement, Effect, Outcome};
use crate::swarm::event::{Fault, StopLevel};
use crate::verdict::{Cause, Failure};

impl Machine {
    pub(super) fn begin(&mut self, out: &mut Vec<Effect>) -> bool {
        if self.began {
            return false;
        }
        self.began = true;
        self.announce_start(out);
        let orphans: Vec<usize> = (0..self.stories.len())
            .filter(|story| self.index.owner[*story].is_none() && !self.stories[*story].decided())
            .collect();
        let failure = Failure::new(Cause::HostError, "the plan has it in no assignment");
        self.fail(orphans.into_iter().map(|story| (story, failure.clone())).collect(), out);
        if self.spec.amp.is_some() {
            for assignment in 0..self.assignments.len() {
                if self.index.members[assignment].iter().any(|story| self.high_risk(*story)) {
                    self.ask_approval(assignment, out);
                }
            }
        }
        for assignment in 0..self.assignments.len() {
            self.refresh(assignment);
        }
        true
    }

    fn announce_start(&self, out: &mut Vec<Effect>) {
        out.push(Effect::Announce(Announcement::SwarmStarted {
            stories: self.tally.undecided,
            done: self.stories.len() - self.tally.undecided,
            assignments: self.assignments.iter().filter(|assignment| assignment.undecided > 0).count(),
            max: self.spec.limits.max,
        }));
    }

    pub(super) fn stop(&mut self, level: StopLevel, by: &str, out: &mut Vec<Effect>) -> bool {
        if self.stopping.is_some_and(|before| before >= level) {
            return false;
        }
        self.stopping = Some(level);
        out.push(Effect::Announce(Announcement::Stopping { level, by: by.to_owned() }));
        if self.engine_away.is_some() {
            self.leave(out);
            return true;
        }
        let waiting: Vec<usize> = self
            .deadlines
            .iter()
            .filter_map(|(_, timer)| match timer {
                Timer::Assignment(assignment) => Some(*assignment),
                Timer::Attempt(_) | Timer::Silence(_) | Timer::Engine => None,
            })
            .collect();
        for assignment in waiting {
            self.set_backoff(assignment, None);
        }
        let running: Vec<usize> = self.running.iter().copied().collect();
        for place in running {
            let attempt = &mut self.attempts[place];
            let killed = matches!(attempt.timer, Some((_, AttemptTimer::Lost)));
            match level {
                StopLevel::Kill if !killed => {
                    attempt.ending.get_or_insert(Ending::Stop);
                    self.kill(place, out);
                }
                // What said `completion` ends by itself, and what was told to end need not be told again.
                StopLevel::Graceful if attempt.view.phase != Phase::Completed && attempt.ending.is_none() => {
                    self.terminate(place, Ending::Stop, out);
                }
                _ => {}
            }
        }
        self.stop_suspended(out);
        self.stop_waiting_reviews();
        if level == StopLevel::Kill {
            self.hurry_collecting(out);
        }
        true
    }

    /// Bounds what is left to collect: neither a depot that hangs nor a wait before another try may hold up a kill.
    fn hurry_collecting(&mut self, out: &mut Vec<Effect>) {
        for place in 0..self.attempts.len() {
            if self.attempts[place].view.phase != Phase::Collecting {
                continue;
            }
            if self.attempts[place].timer.is_some() {
                self.collect(place, out);
            } else {
                self.set_timer(place, Some((self.spec.limits.grace + MARGIN, AttemptTimer::Uncollected)));
            }
        }
    }

    pub(super) fn break_down(&mut self, fault: &Fault, out: &mut Vec<Effect>) -> bool {
        self.broken = true;
        let failure = Failure { cause: fault.cause, evidence: fault.evidence.clone(), salvage: None };
        out.push(Effect::Announce(Announcement::MachineryFailed { failure }));
        self.finish(Outcome::MachineryFailed, out);
        true
    }

    /// Takes the swarm up again. Attempts that are `Running` or `Completed` are the coordinator's to attach to or to
    /// judge; all other effects that may not have been carried out are given again, and can bear it: a `Start` whose container exists
    /// goes on with it, a `Collect` reads again, a `Merge` finds its tip merged, a `Remove` finds nothing.
    pub(super) fn resume(&mut self, out: &mut Vec<Effect>) -> bool {
        match self.finished {
            None | Some(Outcome::Interrupted | Outcome::Suspended) => {}
            // The admin took something back.
            Some(_) if self.tally.undecided > 0 => {}
            Some(Outcome::MachineryFailed) if self.broken => {}
            Some(_) => return false,
        }
        self.finished = None;
        self.broken = false;
        self.stopping = None;
        self.set_engine_away(None);
        if !self.began {
            return self.begin(out);
        }
        out.push(Effect::Announce(Announcement::SwarmResumed {
            stories: self.tally.undecided,
            done: self.stories.len() - self.tally.undecided,
            running: self.running.iter().filter(|place| self.attempts[**place].view.phase >= Phase::Running).count(),
        }));
        for place in 0..self.attempts.len() {
            self.give_again(place, out);
        }
        true
    }

    fn give_again(&mut self, place: usize, out: &mut Vec<Effect>) {
        let attempt = &self.attempts[place];
        let timer = attempt.timer.map(|(_, what)| what);
        let id = attempt.view.id.clone();
        match attempt.view.phase {
            Phase::Starting | Phase::Created => {
                self.attempts[place].ending = None;
                self.set_timer(place, None);
                out.push(self.start_effect(place));
            }
            Phase::Running | Phase::Completed => {
                match timer {
                    Some(AttemptTimer::Grace) => out.push(Effect::Terminate { attempt: id }),
                    Some(AttemptTimer::Lost) => out.push(Effect::Kill { attempt: id }),
                    _ => {}
                }
                // Nobody listened meanwhile.
                self.heard(place);
                self.pause_again(place, out);
            }
            Phase::Collecting => {
                self.set_timer(place, None);
                self.collect(place, out);
            }
            Phase::Merging => self.merge(place, out),
            Phase::MergeQueued if timer.is_some() => {
                self.set_timer(place, None);
                self.merge(place, out);
            }
            Phase::Reviewing | Phase::MergeQueued | Phase::Settled => {}
        }
        let attempt = &self.attempts[place];
        if let Some(keep_work) = attempt.removal.filter(|_| !attempt.view.removed) {
            out.push(Effect::Remove { attempt: attempt.view.id.clone(), keep_work });
        }
    }

    /// Ends the swarm if it is over.
    pub(super) fn conclude(&mut self, out: &mut Vec<Effect>) {
        let busy = self.active - self.parked - self.suspended;
        if self.finished.is_some() || busy > 0 || !(self.began || self.stopping.is_some()) {
            return;
        }
        if self.tally.undecided > 0 && self.stopping.is_some() {
            self.finish(Outcome::Interrupted, out);
        } else if self.tally.undecided == 0 {
            let skipped = self.tally.skipped - self.tally.skipped_before;
            let outcome = match (self.tally.failed + skipped, self.tally.machinery) {
                (0, _) => Outcome::Landed,
                (_, 0) => Outcome::SomeFailed,
                _ => Outcome::MachineryFailed,
            };
            self.finish(outcome, out);
        } else if self.ready.is_empty() && self.reviews.is_empty() && self.deadlines.is_empty() && !self.all_held(out) {
            // Assignments that wait for each other: the plan makes none, and a hang would be the worst answer.
            let failure = Failure::new(Cause::HostError, "the plan has assignments that wait for each other");
            let left = (0..self.stories.len()).filter(|story| !self.stories[*story].decided());
            let left: Vec<(usize, Failure)> = left.map(|story| (story, failure.clone())).collect();
            self.fail(left, out);
            self.conclude(out);
        }
    }

    pub(super) fn finish(&mut self, outcome: Outcome, out: &mut Vec<Effect>) {
        self.finished = Some(outcome);
        out.push(Effect::Announce(Announcement::SwarmEnded {
            outcome,
            landed: self.tally.landed,
            failed: self.tally.failed,
            skipped: self.tally.skipped,
            pending: self.tally.undecided,
        }));
        out.push(Effect::Finish(outcome));
    }
}
