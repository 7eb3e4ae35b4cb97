//! The timers. An attempt has at most one at a time beside its silence, an assignment at most its backoff.
//!
//! | timer | begins with | then |
//! |---|---|---|
//! | backstop | the sandbox's start: `story_timeout` a story, and `slack` | `Terminate`, then grace |
//! | overdue | its completion: `grace` | `Terminate`, then grace |
//! | grace | a `Terminate`: `grace` and [`MARGIN`] | `Kill`, then lost |
//! | lost | a `Kill`: [`LOST`] | the engine is taken to have failed; the work is collected |
//! | uncollected | a `Collect` of a swarm that is being killed: `grace` and [`MARGIN`] | the work folder is kept as it is |
//! | collect again, review again, merge again | a fault that may pass: `backoff`, doubled each time | the same again |
//! | backoff | a machinery failure: `backoff`, doubled each time | the assignment is ready again |
//! | silence | each word of a sandbox: `liveness` | its container is looked at, and then it is ended |
//! | engine | the engine's absence: [`ENGINE`](super::engine::ENGINE) | the swarm ends, to be resumed |
//!
//! Starting a sandbox has none: the engine bounds its own calls.

use std::time::Duration;

use super::judge::{self, Ending};
use super::{Machine, Phase};
use crate::swarm::effect::Effect;

/// What the shim needs after its agents' grace period, to commit and bundle.
pub(super) const MARGIN: Duration = Duration::from_secs(2);
/// How long the engine may take to say that a killed container has ended.
pub(super) const LOST: Duration = Duration::from_secs(30);
/// No backoff is longer.
const LONGEST_BACKOFF: Duration = Duration::from_secs(300);

/// Whose timer. The order decides among timers that are due at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    Attempt(usize),
    Assignment(usize),
    Silence(usize),
    Engine,
}

/// What an attempt's timer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttemptTimer {
    Backstop,
    Overdue,
    Grace,
    Lost,
    Uncollected,
    CollectAgain,
    ReviewAgain,
    MergeAgain,
}

impl Machine {
    /// Replaces the attempt's timer by one that is due after `wait`, or by none.
    pub(super) fn set_timer(&mut self, place: usize, timer: Option<(Duration, AttemptTimer)>) {
        let new = timer.map(|(wait, what)| (self.now.saturating_add(wait), what));
        if let Some((at, _)) = std::mem::replace(&mut self.attempts[place].timer, new) {
            self.deadlines.remove(&(at, Timer::Attempt(place)));
        }
        if let Some((at, _)) = new {
            self.deadlines.insert((at, Timer::Attempt(place)));
        }
    }

    /// Replaces the attempt's silence by one that is too long after `wait`, or by none.
    pub(super) fn set_silence(&mut self, place: usize, wait: Option<Duration>) {
        let new = wait.map(|wait| self.now.saturating_add(wait));
        if let Some(at) = std::mem::replace(&mut self.attempts[place].silence, new) {
            self.deadlines.remove(&(at, Timer::Silence(place)));
        }
        if let Some(at) = new {
            self.deadlines.insert((at, Timer::Silence(place)));
        }
    }

    /// Replaces the assignment's backoff.
    pub(super) fn set_backoff(&mut self, assignment: usize, wait: Option<Duration>) {
        let new = wait.map(|wait| self.now.saturating_add(wait));
        if let Some(at) = std::mem::replace(&mut self.assignments[assignment].backoff, new) {
            self.deadlines.remove(&(at, Timer::Assignment(assignment)));
        }
        if let Some(at) = new {
            self.deadlines.insert((at, Timer::Assignment(assignment)));
        }
        self.refresh(assignment);
    }

    /// The wait before the `nth` try again, from 1.
    pub(super) fn backoff(&self, nth: u32) -> Duration {
        let factor = 1_u32.checked_shl(nth.saturating_sub(1)).unwrap_or(u32::MAX);
        self.spec.limits.backoff.saturating_mul(factor).min(LONGEST_BACKOFF)
    }

    /// Does what is due.
    pub(super) fn fire_deadlines(&mut self, out: &mut Vec<Effect>) -> bool {
        let mut any = self.fire_talk(out);
        // Only those due on entry: a timer of no length, set by what is done here, waits for the next event.
        let due: Vec<(Duration, Timer)> =
            self.deadlines.iter().take_while(|(at, _)| *at <= self.now).copied().collect();
        for (at, timer) in due {
            // An earlier one of this list may have taken it away.
            if !self.deadlines.contains(&(at, timer)) {
                continue;
            }
            any = true;
            match timer {
                Timer::Assignment(assignment) => self.set_backoff(assignment, None),
                Timer::Attempt(place) => self.fire(place, out),
                Timer::Silence(place) => self.silence_passed(place, out),
                Timer::Engine => self.engine_gone(out),
            }
        }
        any
    }

    fn fire(&mut self, place: usize, out: &mut Vec<Effect>) {
        let Some((_, what)) = self.attempts[place].timer else { return };
        self.set_timer(place, None);
        self.attempts[place].view.updated = self.now;
        match what {
            AttemptTimer::Backstop => self.terminate(place, Ending::Backstop, out),
            AttemptTimer::Overdue => self.terminate(place, Ending::Overdue, out),
            AttemptTimer::Grace => self.kill(place, out),
            // What an absent engine does not say is no proof.
            AttemptTimer::Lost if self.engine_away.is_some() => self.set_timer(place, Some((LOST, what))),
            AttemptTimer::Lost => {
                let lost = judge::lost(self.attempts[place].ending);
                self.end(place, lost, out);
            }
            AttemptTimer::Uncollected => self.not_collected(place, out),
            AttemptTimer::CollectAgain => self.collect(place, out),
            AttemptTimer::ReviewAgain => self.backoff_of_review_over(place),
            AttemptTimer::MergeAgain => self.merge(place, out),
        }
    }

    /// Asks the sandbox to end, and remembers why; the first reason stays.
    pub(super) fn terminate(&mut self, place: usize, why: Ending, out: &mut Vec<Effect>) {
        self.no_longer_suspended(place);
        let attempt = &mut self.attempts[place];
        attempt.ending.get_or_insert(why);
        out.push(Effect::Terminate { attempt: attempt.view.id.clone() });
        self.set_timer(place, Some((self.spec.limits.grace + MARGIN, AttemptTimer::Grace)));
    }

    /// Kills the sandbox.
    pub(super) fn kill(&mut self, place: usize, out: &mut Vec<Effect>) {
        debug_assert!(self.attempts[place].view.phase <= Phase::Completed, "only what may run is killed");
        self.no_longer_suspended(place);
        out.push(Effect::Kill { attempt: self.attempts[place].view.id.clone() });
        self.set_timer(place, Some((LOST, AttemptTimer::Lost)));
    }
}
