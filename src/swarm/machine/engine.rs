//! The engine goes away and comes back: its daemon is restarted, or its connection is lost.
//!
//! While it is away nothing is started, silence proves nothing, and what fails of it costs no attempt. A stop that comes meanwhile
//! leaves the sandboxes as they are, for `resume`; so does an absence of more than [`ENGINE_RETURN_TIMEOUT`].

use std::time::Duration;

use super::SwarmMachine;
use super::timer::Timer;
use crate::swarm::effect::{Announcement, Effect, SwarmOutcome};
use crate::swarm::event::MachineryFault;
use crate::verdict::Cause;

/// How long an absent engine is waited for.
pub(super) const ENGINE_RETURN_TIMEOUT: Duration = Duration::from_secs(300);
/// An engine that is told to end stops its containers first, for so long, and answers meanwhile.
const ENGINE_SHUTDOWN_WINDOW: Duration = Duration::from_secs(20);

impl SwarmMachine {
    pub(super) fn on_engine_lost(&mut self, problem: &str, out: &mut Vec<Effect>) -> bool {
        if self.engine_wait_until.is_some() {
            return false;
        }
        self.set_engine_wait(Some(ENGINE_RETURN_TIMEOUT));
        out.push(Effect::Announce(Announcement::EngineLost { problem: problem.to_owned() }));
        // What it took along in its last moments is its doing too.
        for assignment in &mut self.assignments {
            if assignment.last_machinery_failure.take().is_some_and(|at| self.now - at <= ENGINE_SHUTDOWN_WINDOW) {
                assignment.machinery_failures -= 1;
                assignment.engine_losses += 1;
            }
        }
        if self.stop_level.is_some() {
            self.interrupt(out);
        }
        true
    }

    pub(super) fn on_engine_reconnected(&mut self, out: &mut Vec<Effect>) -> bool {
        if self.engine_wait_until.is_none() {
            return false;
        }
        self.set_engine_wait(None);
        for place in self.running.iter().copied().collect::<Vec<_>>() {
            if self.attempts[place].silence_deadline.is_some() {
                self.reset_silence(place);
            }
        }
        out.push(Effect::Announce(Announcement::EngineReconnected));
        true
    }

    pub(super) fn on_engine_timeout(&mut self, out: &mut Vec<Effect>) {
        let summary = format!("the engine could not be reached for {} s", ENGINE_RETURN_TIMEOUT.as_secs());
        self.fail_machinery(&MachineryFault::new(Cause::EngineError, summary, false), out);
    }

    /// Ends a swarm that is being stopped while no sandbox can be told so.
    pub(super) fn interrupt(&mut self, out: &mut Vec<Effect>) {
        self.finish(SwarmOutcome::Interrupted, out);
    }

    pub(super) fn set_engine_wait(&mut self, wait: Option<Duration>) {
        let new = wait.map(|wait| self.now.saturating_add(wait));
        if let Some(at) = std::mem::replace(&mut self.engine_wait_until, new) {
            self.deadlines.remove(&(at, Timer::EngineReturn));
        }
        if let Some(at) = new {
            self.deadlines.insert((at, Timer::EngineReturn));
        }
    }
}
