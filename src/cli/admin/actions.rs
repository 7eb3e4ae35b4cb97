//! The allowed decisions about a task and their effects, following the table in `swarm/machine/admin.rs`.

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
        (TaskAction::Approve, Some(H::Approval)) => "runs it",
        (TaskAction::Approve, Some(H::LowConfidence)) => "accepts the verdict",
        (TaskAction::Approve, Some(H::Locked | H::NoVerdict)) => "lands the work as it is",
        (TaskAction::Approve | TaskAction::Resume, _) if held == Some(H::Suspended) => "continues its sandbox",
        (TaskAction::Approve, _) => "continues it",
        (TaskAction::Resume, Some(H::Locked)) => "runs another attempt on top of the current work",
        (TaskAction::Resume, _) => "requests another review",
        (TaskAction::Answer { .. }, Some(H::Approval)) => "runs it with your answer",
        (TaskAction::Answer { .. }, Some(H::Suspended)) => "continues its sandbox; the next attempt gets your answer",
        (TaskAction::Answer { .. }, _) => "runs another attempt with your answer",
        (TaskAction::Retry, Some(H::Suspended)) => "ends its sandbox and runs another attempt; resets the counts",
        (TaskAction::Retry, _) => "runs another attempt; resets the counts of failures and rejections",
        (TaskAction::Rollback, _) => "sets its commits aside and starts over from the integration branch",
        (TaskAction::Abort, _) => "gives it up: it does not land, and stories that depend on it are skipped",
    }
}
