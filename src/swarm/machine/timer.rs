//! The timers. An attempt has at most one at a time beside its silence, an assignment at most its backoff.
//!
//! | timer | begins with | then |
//! |---|---|---|
//! | backstop | the sandbox's start: `story_timeout` a story, and `slack` | `Terminate`, then grace |
//! | overdue | its completion: `grace` | `Terminate`, then grace |
//! | grace | a `Terminate`: `grace` and [`SHIM_SHUTDOWN_MARGIN`] | `Kill`, then lost |
//! | lost | a `Kill`: [`KILL_TIMEOUT`] | the engine is taken to have failed; the work is collected |
//! | uncollected | a `Collect` of a swarm that is being killed: `grace` and [`SHIM_SHUTDOWN_MARGIN`] | the work folder is kept as it is |
//! | collect again, review again, merge again | a fault that may pass: `backoff`, doubled each time | the same again |
//! | backoff | a machinery failure: `backoff`, doubled each time | the assignment is ready again |
//! | silence | each word of a sandbox: `liveness` | its container is looked at, and then it is ended |
//! | engine | the engine's absence: [`ENGINE_RETURN_TIMEOUT`](super::engine::ENGINE_RETURN_TIMEOUT) | the swarm ends, to be resumed |
//!
//! Starting a sandbox has none: the engine bounds its own calls.

use std::time::Duration;

use super::diagnosis::{self, EndReason};
use super::{AttemptPhase, SwarmMachine};
use crate::swarm::effect::Effect;

/// What the shim needs after its agents' grace period, to commit and bundle.
pub(super) const SHIM_SHUTDOWN_MARGIN: Duration = Duration::from_secs(2);
/// How long the engine may take to say that a killed container has ended.
pub(super) const KILL_TIMEOUT: Duration = Duration::from_secs(30);
/// No backoff is longer.
const MAX_BACKOFF: Duration = Duration::from_secs(300);

/// Whose timer. The order decides among timers that are due at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    Attempt(usize),
    AssignmentBackoff(usize),
    AttemptSilence(usize),
    EngineReturn,
}

/// What an attempt's timer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttemptTimer {
    SandboxTimeout,
    ExitOverdue,
    Grace,
    KillTimeout,
    CollectTimeout,
    CollectRetry,
    ReviewRetry,
    MergeRetry,
}

impl SwarmMachine {
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
    pub(super) fn set_silence_deadline(&mut self, place: usize, wait: Option<Duration>) {
        let new = wait.map(|wait| self.now.saturating_add(wait));
        if let Some(at) = std::mem::replace(&mut self.attempts[place].silence_deadline, new) {
            self.deadlines.remove(&(at, Timer::AttemptSilence(place)));
        }
        if let Some(at) = new {
            self.deadlines.insert((at, Timer::AttemptSilence(place)));
        }
    }

    /// Replaces the assignment's backoff.
    pub(super) fn set_backoff(&mut self, assignment: usize, wait: Option<Duration>) {
        let new = wait.map(|wait| self.now.saturating_add(wait));
        if let Some(at) = std::mem::replace(&mut self.assignments[assignment].backoff_until, new) {
            self.deadlines.remove(&(at, Timer::AssignmentBackoff(assignment)));
        }
        if let Some(at) = new {
            self.deadlines.insert((at, Timer::AssignmentBackoff(assignment)));
        }
        self.update_readiness(assignment);
    }

    /// The wait before the `nth` try again, from 1.
    pub(super) fn backoff_duration(&self, nth: u32) -> Duration {
        let factor = 1_u32.checked_shl(nth.saturating_sub(1)).unwrap_or(u32::MAX);
        self.spec.limits.backoff.saturating_mul(factor).min(MAX_BACKOFF)
    }

    /// Does what is due.
    pub(super) fn fire_deadlines(&mut self, out: &mut Vec<Effect>) -> bool {
        let mut any = self.fire_amp_deadlines(out);
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
                Timer::AssignmentBackoff(assignment) => self.set_backoff(assignment, None),
                Timer::Attempt(place) => self.fire_attempt_timer(place, out),
                Timer::AttemptSilence(place) => self.on_silence_timeout(place, out),
                Timer::EngineReturn => self.on_engine_timeout(out),
            }
        }
        any
    }

    fn fire_attempt_timer(&mut self, place: usize, out: &mut Vec<Effect>) {
        let Some((_, what)) = self.attempts[place].timer else { return };
        self.set_timer(place, None);
        self.attempts[place].view.updated = self.now;
        match what {
            AttemptTimer::SandboxTimeout => self.terminate(place, EndReason::SandboxTimeout, out),
            AttemptTimer::ExitOverdue => self.terminate(place, EndReason::ExitOverdue, out),
            AttemptTimer::Grace => self.kill(place, out),
            // What an absent engine does not say is no proof.
            AttemptTimer::KillTimeout if self.engine_wait_until.is_some() => {
                self.set_timer(place, Some((KILL_TIMEOUT, what)))
            }
            AttemptTimer::KillTimeout => {
                let lost = diagnosis::kill_timeout_failure(self.attempts[place].end_reason);
                self.end_sandbox(place, lost, out);
            }
            AttemptTimer::CollectTimeout => self.on_collect_timeout(place, out),
            AttemptTimer::CollectRetry => self.request_collect(place, out),
            AttemptTimer::ReviewRetry => self.retry_review(place),
            AttemptTimer::MergeRetry => self.request_merge(place, out),
        }
    }

    /// Asks the sandbox to end, and remembers why; the first reason stays.
    pub(super) fn terminate(&mut self, place: usize, why: EndReason, out: &mut Vec<Effect>) {
        self.release_suspended(place);
        let attempt = &mut self.attempts[place];
        attempt.end_reason.get_or_insert(why);
        out.push(Effect::Terminate { attempt: attempt.view.id.clone() });
        self.set_timer(place, Some((self.spec.limits.grace_period + SHIM_SHUTDOWN_MARGIN, AttemptTimer::Grace)));
    }

    /// Kills the sandbox.
    pub(super) fn kill(&mut self, place: usize, out: &mut Vec<Effect>) {
        debug_assert!(self.attempts[place].view.phase <= AttemptPhase::Completed, "only what may run is killed");
        self.release_suspended(place);
        out.push(Effect::Kill { attempt: self.attempts[place].view.id.clone() });
        self.set_timer(place, Some((KILL_TIMEOUT, AttemptTimer::KillTimeout)));
    }
}
