//! The rules of the timers. An attempt has at most one at a time beside its silence, an assignment at most its backoff.
//!
//! | timer | begins with | then |
//! |---|---|---|
//! | `SandboxTimeout` | the sandbox's start: `story_timeout` per story, plus `slack` | `Terminate`, then `Grace` |
//! | `ExitOverdue` | its completion: `grace_period` | `Terminate`, then `Grace` |
//! | `Grace` | a `Terminate`: `grace_period` and [`SHIM_SHUTDOWN_MARGIN`] | `Kill`, then `KillTimeout` |
//! | `KillTimeout` | a `Kill`: [`KILL_TIMEOUT`] | the engine counts as failed; the work is collected |
//! | `CollectTimeout` | a `Collect` of a swarm that is being killed: `grace_period` and [`SHIM_SHUTDOWN_MARGIN`] | the work directory is kept as it is |
//! | `CollectRetry`, `ReviewRetry`, `MergeRetry` | a retryable fault: `backoff`, doubled each time | the same again |
//! | `Landing` | a retryable fault of a landing: `backoff`, doubled each time | its step again |
//! | `AssignmentBackoff` | a machinery failure: `backoff`, doubled each time | the assignment is ready again |
//! | `AttemptSilence` | each record of a sandbox: `liveness_timeout` | its container is inspected, then terminated |
//! | `EngineReturn` | the loss of the engine: [`ENGINE_RETURN_TIMEOUT`](super::engine::ENGINE_RETURN_TIMEOUT) | the swarm ends, to be resumed |
//!
//! Starting a sandbox has none: the engine bounds its own calls.

use std::time::Duration;

use super::attempt::EndReason;
use super::deadlines::{AttemptTimer, Timer};
use super::diagnosis;
use super::state::{Applied, SwarmMachine};
use super::view::AttemptPhase;
use crate::swarm::effect::Effect;
use crate::swarm::index::{AssignmentIndex, AttemptIndex};

/// What the shim needs after its agents' grace period, to commit and bundle.
pub(super) const SHIM_SHUTDOWN_MARGIN: Duration = Duration::from_secs(2);
/// How long the engine may take to report that a killed container has ended.
pub(super) const KILL_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_BACKOFF: Duration = Duration::from_secs(300);

impl SwarmMachine {
    pub(super) fn set_deadline(&mut self, timer: Timer, wait: Option<Duration>) {
        self.deadlines.set(timer, wait.map(|wait| self.now.saturating_add(wait)));
    }

    pub(super) fn set_timer(&mut self, attempt: AttemptIndex, timer: AttemptTimer, wait: Duration) {
        self.attempts[attempt].timer = Some(timer);
        self.set_deadline(Timer::Attempt(attempt), Some(wait));
    }

    pub(super) fn clear_timer(&mut self, attempt: AttemptIndex) {
        self.attempts[attempt].timer = None;
        self.set_deadline(Timer::Attempt(attempt), None);
    }

    pub(super) fn set_backoff(&mut self, assignment: AssignmentIndex, wait: Option<Duration>) {
        self.set_deadline(Timer::AssignmentBackoff(assignment), wait);
        self.update_readiness(assignment);
    }

    /// The wait before the `nth` retry, from 1.
    pub(super) fn backoff_duration(&self, nth: u32) -> Duration {
        let factor = 1_u32.checked_shl(nth.saturating_sub(1)).unwrap_or(u32::MAX);
        self.spec.limits.backoff.saturating_mul(factor).min(MAX_BACKOFF)
    }

    pub(super) fn fire_deadlines(&mut self) -> Option<Applied> {
        let mut fired = self.fire_amp_deadlines();
        // Only those due on entry: a zero-length timer that a handler sets waits for the next event.
        for (due, timer) in self.deadlines.due(self.now) {
            // An earlier handler may have moved or cleared it.
            if self.deadlines.get(timer) != Some(due) {
                continue;
            }
            fired = true;
            match timer {
                Timer::AssignmentBackoff(assignment) => self.set_backoff(assignment, None),
                Timer::Attempt(attempt) => self.fire_attempt_timer(attempt),
                Timer::AttemptSilence(attempt) => self.on_silence_timeout(attempt),
                Timer::EngineReturn => self.on_engine_timeout(),
                Timer::Landing(id) => {
                    self.set_deadline(timer, None);
                    self.advance_landing(id);
                }
            }
        }
        fired.then_some(Applied)
    }

    fn fire_attempt_timer(&mut self, attempt: AttemptIndex) {
        let Some(timer) = self.attempts[attempt].timer else { return };
        self.clear_timer(attempt);
        self.attempts[attempt].view.updated = self.now;
        match timer {
            AttemptTimer::SandboxTimeout => self.terminate(attempt, EndReason::SandboxTimeout),
            AttemptTimer::ExitOverdue => self.terminate(attempt, EndReason::ExitOverdue),
            AttemptTimer::Grace => self.kill(attempt),
            // An unreachable engine reports nothing, which proves nothing.
            AttemptTimer::KillTimeout if self.is_engine_lost() => self.set_timer(attempt, timer, KILL_TIMEOUT),
            AttemptTimer::KillTimeout => {
                let failure = diagnosis::kill_timeout_failure(self.attempts[attempt].end_reason);
                self.end_sandbox(attempt, failure);
            }
            AttemptTimer::CollectTimeout => self.on_collect_timeout(attempt),
            AttemptTimer::CollectRetry => self.request_collect(attempt),
            AttemptTimer::ReviewRetry => self.queue_review(attempt),
            AttemptTimer::MergeRetry => self.request_merge(attempt),
        }
    }

    /// Asks the sandbox to end. The first reason stays.
    pub(super) fn terminate(&mut self, attempt: AttemptIndex, reason: EndReason) {
        self.release_suspended(attempt);
        let state = &mut self.attempts[attempt];
        state.end_reason.get_or_insert(reason);
        self.effects.push(Effect::Terminate { attempt: state.view.id.clone() });
        self.set_timer(attempt, AttemptTimer::Grace, self.spec.limits.grace_period + SHIM_SHUTDOWN_MARGIN);
    }

    pub(super) fn kill(&mut self, attempt: AttemptIndex) {
        debug_assert!(self.attempts[attempt].view.phase <= AttemptPhase::Completed, "only a live sandbox is killed");
        self.release_suspended(attempt);
        self.effects.push(Effect::Kill { attempt: self.attempts[attempt].view.id.clone() });
        self.set_timer(attempt, AttemptTimer::KillTimeout, KILL_TIMEOUT);
    }
}
