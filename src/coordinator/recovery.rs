//! Taking a swarm up again: what the orchestrator that is gone left on the engine, and the sessions of the sandboxes that ran under
//! it. Called by `run.rs`, once, before the first event. Must not: decide; `Event::Resumed` has the machine do that.

use crate::engine::{EngineResourceKind, label};
use crate::ids::ContainerId;
use crate::swarm::{AttemptPhase, AttemptView};

use super::CoordinatorError;
use super::dispatch::AttemptSpec;
use super::reconcile::attempt_from_labels;
use super::run::{AttemptHandle, Coordinator};
use super::session::SessionOrigin;

impl Coordinator {
    /// Knows again what was known of each attempt, and follows the sandboxes that ran.
    pub(super) async fn resume(&mut self) -> Result<(), CoordinatorError> {
        let swarm = self.setup.spec.swarm.to_string();
        for found in self.setup.engine.find_resources(label::SWARM, Some(&swarm)).await? {
            if found.kind != EngineResourceKind::Container {
                continue;
            }
            if let (Some(attempt), Ok(container)) = (attempt_from_labels(&found), found.id.parse::<ContainerId>()) {
                self.orphans.insert(attempt, container);
            }
        }
        // One whose sandbox is removed may still be to be merged.
        let over = |view: &AttemptView| view.removed && view.phase == AttemptPhase::Settled;
        let attempts: Vec<_> = self.machine.attempts().filter(|view| !over(view)).cloned().collect();
        for view in attempts {
            let keys = || view.stories.iter().map(|(key, _)| key);
            let container = view.container.clone().or_else(|| self.orphans.get(&view.id).cloned());
            match (view.phase, container) {
                (AttemptPhase::Running | AttemptPhase::Completed, Some(container)) => {
                    let stories = keys().map(|key| (key.clone(), None)).collect();
                    let task = AttemptSpec { stories, guidance: Vec::new(), review: None };
                    let origin = SessionOrigin::Adopted { container, applied: view.record_count };
                    self.start_attempt(view.id.clone(), task, view.base.clone(), origin);
                }
                // The machine asks for these to be started again, and `left` has their containers.
                (AttemptPhase::Starting | AttemptPhase::Created, _) => {}
                (_, container) => {
                    if let Some(remains) = self.attempt_context(&view.id, keys(), &view.base) {
                        self.attempts.insert(view.id.clone(), AttemptHandle::without_session(container, remains));
                    }
                }
            }
        }
        Ok(())
    }
}
