//! The engine goes away and comes back: its daemon is restarted, or its connection is lost.
//!
//! While it is away nothing is started, silence proves nothing, and what fails of it costs no attempt. A stop that comes meanwhile
//! leaves the sandboxes as they are, for `resume`; so does an absence of more than [`ENGINE`].

use std::time::Duration;

use super::Machine;
use super::deadline::Timer;
use crate::swarm::effect::{Announcement, Effect, Outcome};
use crate::swarm::event::Fault;
use crate::verdict::Cause;

/// How long an absent engine is waited for.
pub(super) const ENGINE: Duration = Duration::from_secs(300);
/// An engine that is told to end stops its containers first, for so long, and answers meanwhile.
const LAST_WORDS: Duration = Duration::from_secs(20);

impl Machine {
    pub(super) fn engine_lost(&mut self, problem: &str, out: &mut Vec<Effect>) -> bool {
        if self.engine_away.is_some() {
            return false;
        }
        self.set_engine_away(Some(ENGINE));
        out.push(Effect::Announce(Announcement::EngineLost { problem: problem.to_owned() }));
        // What it took along in its last moments is its doing too.
        for assignment in &mut self.assignments {
            if assignment.machinery_failed.take().is_some_and(|at| self.now - at <= LAST_WORDS) {
                assignment.machinery_failures -= 1;
                assignment.engine_losses += 1;
            }
        }
        if self.stopping.is_some() {
            self.leave(out);
        }
        true
    }

    pub(super) fn engine_back(&mut self, out: &mut Vec<Effect>) -> bool {
        if self.engine_away.is_none() {
            return false;
        }
        self.set_engine_away(None);
        for place in self.running.iter().copied().collect::<Vec<_>>() {
            if self.attempts[place].silence.is_some() {
                self.heard(place);
            }
        }
        out.push(Effect::Announce(Announcement::EngineBack));
        true
    }

    pub(super) fn engine_gone(&mut self, out: &mut Vec<Effect>) {
        let summary = format!("the engine could not be reached for {} s", ENGINE.as_secs());
        self.break_down(&Fault::new(Cause::EngineError, summary, false), out);
    }

    /// Ends a swarm that is being stopped while no sandbox can be told so.
    pub(super) fn leave(&mut self, out: &mut Vec<Effect>) {
        self.finish(Outcome::Interrupted, out);
    }

    pub(super) fn set_engine_away(&mut self, wait: Option<Duration>) {
        let new = wait.map(|wait| self.now.saturating_add(wait));
        if let Some(at) = std::mem::replace(&mut self.engine_away, new) {
            self.deadlines.remove(&(at, Timer::Engine));
        }
        if let Some(at) = new {
            self.deadlines.insert((at, Timer::Engine));
        }
    }
}
