//! What becomes of each attempt when a swarm is resumed. Called by `effects.rs`, once, before the first event. Must not: decide
//! what an attempt's state means; the machine does on `Event::Resumed`.

use std::collections::BTreeMap;

use crate::engine::{EngineResource, EngineResourceKind};
use crate::ids::{AttemptId, ContainerId};
use crate::swarm::{AttemptPhase, AttemptView};

use super::reconcile::attempt_from_labels;

/// What to do about an attempt.
pub(crate) enum ResumeAction {
    /// Nothing: it is over, or the machine starts it again.
    Skip,
    /// Its sandbox ran: a session reads its output from the beginning.
    Adopt { container: ContainerId, applied_records: u64 },
    /// Its sandbox has ended: it is collected, merged or removed without a session.
    Track { container: Option<ContainerId> },
}

/// The containers of attempts that exist on the engine.
pub(crate) fn find_orphans(resources: &[EngineResource]) -> BTreeMap<AttemptId, ContainerId> {
    let containers = resources.iter().filter(|resource| resource.kind == EngineResourceKind::Container);
    containers.filter_map(|found| Some((attempt_from_labels(found)?, found.id.parse().ok()?))).collect()
}

/// `container`: the attempt's container, if it is known or was found.
pub(crate) fn resume_action(view: &AttemptView, container: Option<ContainerId>) -> ResumeAction {
    match (view.phase, container) {
        // An attempt whose sandbox is removed may still have to be merged.
        (AttemptPhase::Settled, _) if view.removed => ResumeAction::Skip,
        // The machine starts these again.
        (AttemptPhase::Starting | AttemptPhase::Created, _) => ResumeAction::Skip,
        (AttemptPhase::Running | AttemptPhase::Completed, Some(container)) => {
            ResumeAction::Adopt { container, applied_records: view.record_count }
        }
        (_, container) => ResumeAction::Track { container },
    }
}
