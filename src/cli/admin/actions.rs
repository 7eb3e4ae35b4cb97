//! The allowed decisions about a task and their effects, following the table in `swarm/machine/hold.rs`.

use crate::ids::AssignmentId;
use crate::swarm::{HoldKind, SwarmMachine, TaskAction};

/// Lists the allowed decisions in display order.
pub(super) fn allowed_actions(machine: &SwarmMachine, task: &AssignmentId) -> Vec<TaskAction> {
    let all = [
        TaskAction::Approve,
        TaskAction::Resume,
        TaskAction::Answer { text: "TEXT".to_owned() },
        TaskAction::Retry,
        TaskAction::Rollback,
        TaskAction::Abort,
    ];
    all.into_iter().filter(|action| machine.check_decision(task, action).is_ok()).collect()
}

/// Describes the effect of a decision on a task with this hold.
pub(super) fn describe_effect(held: Option<HoldKind>, action: &TaskAction) -> &'static str {
    use HoldKind as H;
    match (action, held) {
        (TaskAction::Approve, Some(H::Approval)) => "lets it run",
        (TaskAction::Approve, Some(H::LowConfidence)) => "lets the verdict count",
        (TaskAction::Approve, Some(H::Locked | H::NoVerdict)) => "lands the work as it is",
        (TaskAction::Approve | TaskAction::Resume, _) if held == Some(H::Suspended) => "lets its sandbox go on",
        (TaskAction::Approve, _) => "lets it go on",
        (TaskAction::Resume, Some(H::Locked)) => "gives it another round, on top of what is there",
        (TaskAction::Resume, _) => "has it reviewed again",
        (TaskAction::Answer { .. }, Some(H::Approval)) => "lets it run, with your words",
        (TaskAction::Answer { .. }, Some(H::Suspended)) => "lets its sandbox go on; your words reach the next attempt",
        (TaskAction::Answer { .. }, _) => "gives it another round, with your words",
        (TaskAction::Retry, Some(H::Suspended)) => "ends its sandbox and starts it again; counts begin at zero",
        (TaskAction::Retry, _) => "does it again; counts of failures and rejections begin at zero",
        (TaskAction::Rollback, _) => "puts its commits aside and begins again from the integration branch",
        (TaskAction::Abort, _) => "ends it: it does not land, and what depends on it is skipped",
    }
}
