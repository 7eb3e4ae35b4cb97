//! Reconciliation: what the engine has of the swarm against what the machine knows. On `resume`, when the engine is back, and every
//! [`RECONCILE_INTERVAL`], because its events are a hint only. Called by `run.rs`. Must not: decide what an end means; a session is told to look
//! for itself, and a container that nothing knows is removed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::{EngineResource, EngineResourceKind, EngineResult, label};
use crate::ids::{AttemptId, ContainerId};
use crate::swarm::AttemptPhase;

use super::run::Coordinator;
use crate::error_chain::error_chain;

/// How often the engine is looked at when nothing calls for it.
pub(super) const RECONCILE_INTERVAL: Duration = Duration::from_secs(30);

/// The attempt that a container says it is of.
pub(super) fn attempt_from_labels(found: &EngineResource) -> Option<AttemptId> {
    let assignment = found.labels.get(label::ASSIGNMENT)?.parse().ok()?;
    let number = found.labels.get(label::ATTEMPT)?.parse().ok()?;
    Some(AttemptId { assignment, number })
}

impl Coordinator {
    /// Asks the engine what it has, in a task; the answer comes back to the loop.
    pub(super) fn scan_engine(&mut self) {
        let (engine, swarm) = (Arc::clone(&self.setup.engine), self.setup.spec.swarm.to_string());
        let sightings = self.engine_scans.clone();
        self.tasks.spawn(async move {
            let seen = engine.find_resources(label::SWARM, Some(&swarm)).await;
            // The loop is gone only when the swarm is over.
            let _ = sightings.send(seen);
        });
    }

    /// Compares. What is seen is older than what the machine knows by now, so only what cannot have changed meanwhile is acted on.
    pub(super) fn reconcile(&mut self, seen: EngineResult<Vec<EngineResource>>) {
        let found = match seen {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(error = %error_chain(&error), "cannot see what the engine has");
                return;
            }
        };
        let containers = found.iter().filter(|found| found.kind == EngineResourceKind::Container);
        let mut there = BTreeSet::new();
        let mut depot_runs = false;
        for container in containers {
            match attempt_from_labels(container) {
                Some(id) => {
                    if container.running {
                        there.insert(id.clone());
                    }
                    self.reconcile_sandbox(&id, container);
                }
                None => depot_runs |= container.running,
            }
        }
        let missing = |view: &&crate::swarm::AttemptView| {
            matches!(view.phase, AttemptPhase::Running | AttemptPhase::Completed) && !there.contains(&view.id)
        };
        for view in self.machine.attempts().filter(missing) {
            if let Some(live) = self.attempts.get(&view.id) {
                live.inspect_requested.notify_one();
            }
        }
        if !depot_runs {
            let depot = self.executor.depot.clone();
            self.tasks.spawn(async move {
                if let Err(error) = depot.ensure_alive().await {
                    tracing::warn!(error = %error_chain(&error), "the depot is gone and cannot be started again");
                }
            });
        }
    }

    fn reconcile_sandbox(&mut self, id: &AttemptId, found: &EngineResource) {
        let Ok(container) = found.id.parse::<ContainerId>() else { return };
        let view = self.machine.attempt(id);
        let own = view.is_some_and(|view| view.container.as_ref() == Some(&container));
        let surplus = match view {
            None => true,
            // Its removal failed, or it was made by a call that seemed to fail.
            Some(view) if view.removed => !(self.setup.sandbox.keep_containers && own),
            Some(view) => !own && view.phase > AttemptPhase::Created,
        };
        let runs = view.is_some_and(|view| view.phase == AttemptPhase::Running && found.running);
        let paused = view.is_some_and(|view| view.paused);
        if own && runs && found.paused != paused {
            self.examine(id.clone());
        }
        if surplus {
            tracing::info!(container = %container.short(), attempt = %id, "removing a container that nothing waits for");
            let engine = Arc::clone(&self.setup.engine);
            self.tasks.spawn(async move {
                if let Err(error) = engine.remove(&container).await {
                    tracing::warn!(container = %container.short(), error = %error_chain(&error), "cannot remove it");
                }
            });
        }
    }
}
