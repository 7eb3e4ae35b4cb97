//! What can be decided about a task now, and what each decision does; the table of `swarm/machine/hold.rs`, for people.

use crate::ids::AssignmentId;
use crate::swarm::{Action, HoldKind, Machine};

/// What can be decided now, in the order in which it is told.
pub(super) fn choices(machine: &Machine, task: &AssignmentId) -> Vec<Action> {
    let all = [
        Action::Approve,
        Action::Resume,
        Action::Answer { text: "TEXT".to_owned() },
        Action::Retry,
        Action::Rollback,
        Action::Abort,
    ];
    all.into_iter().filter(|action| machine.can_decide(task, action).is_ok()).collect()
}

/// What the decision does to what waits so.
pub(super) fn effect(held: Option<HoldKind>, action: &Action) -> &'static str {
    use HoldKind as H;
    match (action, held) {
        (Action::Approve, Some(H::Approval)) => "lets it run",
        (Action::Approve, Some(H::LowConfidence)) => "lets the verdict count",
        (Action::Approve, Some(H::Locked | H::NoVerdict)) => "lands the work as it is",
        (Action::Approve | Action::Resume, _) if held == Some(H::Suspended) => "lets its sandbox go on",
        (Action::Approve, _) => "lets it go on",
        (Action::Resume, Some(H::Locked)) => "gives it another round, on top of what is there",
        (Action::Resume, _) => "has it reviewed again",
        (Action::Answer { .. }, Some(H::Approval)) => "lets it run, with your words",
        (Action::Answer { .. }, Some(H::Suspended)) => "lets its sandbox go on; your words reach the next attempt",
        (Action::Answer { .. }, _) => "gives it another round, with your words",
        (Action::Retry, Some(H::Suspended)) => "ends its sandbox and starts it again; counts begin at zero",
        (Action::Retry, _) => "does it again; counts of failures and rejections begin at zero",
        (Action::Rollback, _) => "puts its commits aside and begins again from the integration branch",
        (Action::Abort, _) => "ends it: it does not land, and what depends on it is skipped",
    }
}
