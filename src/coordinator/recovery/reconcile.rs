//! Reconciliation: compares what the engine has of the swarm with what the machine knows. Done on `resume`, when the engine is back, and
//! every [`RECONCILE_INTERVAL`], because the engine's events are only a hint. Called by `effects.rs`. Must not: decide what an end
//! means; a session inspects its own container, and only containers that nothing knows are removed.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::engine::{EngineResource, EngineResourceKind, label};
use crate::ids::{AttemptId, ContainerId};
use crate::swarm::{AttemptPhase, SwarmMachine};

/// The interval of periodic reconciliation.
pub(crate) const RECONCILE_INTERVAL: Duration = Duration::from_secs(30);

pub(crate) enum ReconcileAction {
    /// Have the session check its container, which does not seem to run.
    CheckSession(AttemptId),
    /// Inspect the container, which was paused or unpaused by somebody else.
    Inspect(AttemptId),
    RemoveContainer(AttemptId, ContainerId),
    RestartDepot,
}

/// The attempt in a container's labels.
pub(crate) fn attempt_from_labels(found: &EngineResource) -> Option<AttemptId> {
    let assignment = found.labels.get(label::ASSIGNMENT)?.parse().ok()?;
    let number = found.labels.get(label::ATTEMPT)?.parse().ok()?;
    Some(AttemptId { assignment, number })
}

/// The list is older than the machine's state, so only differences that cannot have resolved since become actions.
pub(crate) fn compare(
    resources: &[EngineResource],
    machine: &SwarmMachine,
    keep_containers: bool,
) -> Vec<ReconcileAction> {
    let mut actions = Vec::new();
    let mut running = BTreeSet::new();
    let mut depot_runs = false;
    for found in resources.iter().filter(|resource| resource.kind == EngineResourceKind::Container) {
        match attempt_from_labels(found) {
            Some(attempt) => {
                actions.extend(compare_sandbox(&attempt, found, machine, keep_containers));
                if found.running {
                    running.insert(attempt);
                }
            }
            None => depot_runs |= found.running,
        }
    }
    let should_run = |phase| matches!(phase, AttemptPhase::Running | AttemptPhase::Completed);
    let missing = machine.attempts().filter(|view| should_run(view.phase) && !running.contains(&view.id));
    actions.extend(missing.map(|view| ReconcileAction::CheckSession(view.id.clone())));
    if !depot_runs {
        actions.push(ReconcileAction::RestartDepot);
    }
    actions
}

fn compare_sandbox(
    attempt: &AttemptId,
    found: &EngineResource,
    machine: &SwarmMachine,
    keep_containers: bool,
) -> Option<ReconcileAction> {
    let container = found.id.parse::<ContainerId>().ok()?;
    let remove = |container| Some(ReconcileAction::RemoveContainer(attempt.clone(), container));
    let Some(view) = machine.attempt(attempt) else { return remove(container) };
    let is_own = view.container.as_ref() == Some(&container);
    // Its removal failed, or it was created by a call that seemed to fail.
    let is_surplus =
        if view.removed { !(keep_containers && is_own) } else { !is_own && view.phase > AttemptPhase::Created };
    if is_surplus {
        return remove(container);
    }
    let is_running = view.phase == AttemptPhase::Running && found.running;
    (is_own && is_running && found.paused != view.paused).then(|| ReconcileAction::Inspect(attempt.clone()))
}
