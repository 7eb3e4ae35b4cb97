//! Decisions that no orchestrator has applied yet.

use crate::cli::error::CommandError;
use crate::protocol::amp::store::{AdminAction, AdminDecision, DecisionTarget, Ssot};
use crate::swarm::{Event, SwarmMachine, TaskAction, TaskDecision};

/// Returns the decisions that the machine can apply but has not, and a copy of the machine with them applied.
pub fn pending_decisions(
    ssot: &Ssot,
    machine: &SwarmMachine,
) -> Result<(Vec<TaskDecision>, SwarmMachine), CommandError> {
    let mut with_pending = machine.clone();
    let mut pending = Vec::new();
    for record in ssot.decisions(&machine.spec().swarm)? {
        let Some(decision) =
            resolve_decision(machine, &record).filter(|decision| !machine.has_applied_decision(&decision.id))
        else {
            continue;
        };
        let event = Event::DecisionMade { decision: decision.clone() };
        if !with_pending.handle(&event, with_pending.last_event_at()).is_empty() {
            pending.push(decision);
        }
    }
    Ok((pending, with_pending))
}

/// Converts a recorded decision for the machine; `None` if its target is not in this swarm.
fn resolve_decision(machine: &SwarmMachine, record: &AdminDecision) -> Option<TaskDecision> {
    let task = match &record.target {
        DecisionTarget::Task(task) => task.clone(),
        DecisionTarget::Story(story) => machine.story(story)?.assignment.clone()?,
        DecisionTarget::Escalation(message) => message.task_id().clone(),
    };
    let action = match &record.action {
        AdminAction::Approve => TaskAction::Approve,
        AdminAction::Resume => TaskAction::Resume,
        AdminAction::Retry => TaskAction::Retry,
        AdminAction::Abort => TaskAction::Abort,
        AdminAction::Rollback => TaskAction::Rollback,
        AdminAction::Answer { text } => TaskAction::Answer { text: text.clone() },
    };
    Some(TaskDecision { id: record.id.to_string(), task, action, by: record.by.clone() })
}
