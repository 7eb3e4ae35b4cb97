//! Loss and return of the engine: its daemon restarts, or the connection to it breaks.
//!
//! While the engine is lost, nothing starts, silence proves nothing, and failures of the machinery cost no retry. A stop that
//! comes meanwhile leaves the sandboxes as they are, for `resume`; so does a loss of more than [`ENGINE_RETURN_TIMEOUT`].

use std::time::Duration;

use super::deadlines::Timer;
use super::state::{Applied, SwarmMachine};
use crate::swarm::announcement::Announcement;
use crate::swarm::event::MachineryFault;
use crate::swarm::swarm_outcome::SwarmOutcome;
use crate::verdict::Cause;

/// How long the machine waits for a lost engine.
pub(super) const ENGINE_RETURN_TIMEOUT: Duration = Duration::from_secs(300);
/// An engine that shuts down stops its containers first, for up to this long, and still answers meanwhile.
const ENGINE_SHUTDOWN_WINDOW: Duration = Duration::from_secs(20);

impl SwarmMachine {
    pub(super) fn is_engine_lost(&self) -> bool {
        self.deadlines.contains(Timer::EngineReturn)
    }

    pub(super) fn on_engine_lost(&mut self, problem: &str) -> Option<Applied> {
        if self.is_engine_lost() {
            return None;
        }
        self.set_deadline(Timer::EngineReturn, Some(ENGINE_RETURN_TIMEOUT));
        self.announce(Announcement::EngineLost { problem: problem.to_owned() });
        // Failures just before the loss count as caused by it.
        for assignment in self.assignments.iter_mut() {
            if assignment.last_machinery_failure.take().is_some_and(|at| self.now - at <= ENGINE_SHUTDOWN_WINDOW) {
                assignment.machinery_failures -= 1;
                assignment.engine_losses += 1;
            }
        }
        if self.stop_level.is_some() {
            self.finish(SwarmOutcome::Interrupted);
        }
        Some(Applied)
    }

    pub(super) fn on_engine_reconnected(&mut self) -> Option<Applied> {
        if !self.is_engine_lost() {
            return None;
        }
        self.set_deadline(Timer::EngineReturn, None);
        for attempt in self.running.clone() {
            if self.deadlines.contains(Timer::AttemptSilence(attempt)) {
                self.reset_silence(attempt);
            }
        }
        self.announce(Announcement::EngineReconnected);
        Some(Applied)
    }

    pub(super) fn on_engine_timeout(&mut self) {
        let summary = format!("the engine could not be reached for {} s", ENGINE_RETURN_TIMEOUT.as_secs());
        self.fail_machinery(&MachineryFault::new(Cause::EngineError, summary, false));
    }
}
