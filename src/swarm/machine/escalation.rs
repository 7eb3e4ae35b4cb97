//! The escalations that the machine raises: one constructor each.
//!
//! Replaying a journal must give the messages that the SSOT already has. So a changed text breaks the resume of a swarm that
//! began with an earlier version.

use std::time::Duration;

use crate::ids::{AssignmentId, AttemptId};
use crate::protocol::amp::message::{
    AmpMessageType, AmpRole, EscalationSeverity, EscalationType, MsgId, ReviewDecision, ReviewVerdict,
};
use crate::swarm::amp_intent::{FailedStories, TaskPhase};
use crate::verdict::{Cause, Failure};

/// An escalation to be sent.
pub(super) struct EscalationDraft {
    pub(super) escalation_type: EscalationType,
    pub(super) severity: EscalationSeverity,
    pub(super) triggered_by: AmpRole,
    pub(super) description: String,
    pub(super) phase: TaskPhase,
    pub(super) suggested_actions: Vec<String>,
    pub(super) failed_stories: Option<FailedStories>,
}

/// What becomes of stories that failed in an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FailureContext {
    /// Another attempt follows.
    pub(super) retried: bool,
    /// The attempt started from rejected work.
    pub(super) is_rework: bool,
    /// The task has rejected work that the admin can roll back.
    pub(super) has_rejected_work: bool,
}

impl EscalationDraft {
    fn new(
        escalation_type: EscalationType,
        severity: EscalationSeverity,
        triggered_by: AmpRole,
        phase: TaskPhase,
        description: String,
    ) -> Self {
        let (suggested_actions, failed_stories) = (Vec::new(), None);
        Self { escalation_type, severity, triggered_by, description, phase, suggested_actions, failed_stories }
    }

    fn critical(kind: EscalationType, triggered_by: AmpRole, phase: TaskPhase, description: String) -> Self {
        Self::new(kind, EscalationSeverity::Critical, triggered_by, phase, description)
    }

    fn info(kind: EscalationType, triggered_by: AmpRole, phase: TaskPhase, description: String) -> Self {
        Self::new(kind, EscalationSeverity::Info, triggered_by, phase, description)
    }

    fn suggest<const N: usize>(self, suggested_actions: [String; N]) -> Self {
        Self { suggested_actions: suggested_actions.into(), ..self }
    }

    /// Stories that failed in an attempt for the same reason; `None` if that is no reason to escalate.
    pub(super) fn failed_stories(failed: FailedStories, context: FailureContext) -> Option<Self> {
        let FailureContext { retried, is_rework, has_rejected_work } = context;
        let FailedStories { attempt: AttemptId { assignment: task, .. }, stories, failure } = &failed;
        let kind = match failure.cause {
            // It goes back to the executor, as the protocol wants; the admin hears of it when the retries are used up.
            Cause::VerificationFailed if retried => return None,
            Cause::StoppedByUser | Cause::AbortedByAdmin | Cause::DependencyFailed | Cause::Rejected => return None,
            Cause::VerificationFailed => EscalationType::CiFailure,
            Cause::BranchViolation => EscalationType::BranchViolation,
            Cause::Conflict => EscalationType::Conflict,
            // The reviewer wants a change, and the executor makes none.
            Cause::NoChanges if !retried && is_rework => EscalationType::Conflict,
            _ => EscalationType::Unknown,
        };
        let names: Vec<&str> = stories.iter().map(|story| story.id.as_str()).collect();
        let outcome = if retried { "failed and will be tried again" } else { "did not land" };
        let description = format!("{} {outcome}: {}", names.join(", "), describe(failure));
        let mut suggested_actions = Vec::new();
        if !retried {
            suggested_actions.push(format!("try it again: longshore admin retry {task}, then longshore resume"));
            if has_rejected_work {
                suggested_actions
                    .push(format!("begin again from the integration branch: longshore admin rollback {task}"));
            }
            if let Some(reference) = &failure.salvage {
                suggested_actions.push(format!("look at what it left: git log -p {reference}"));
            }
        }
        Some(Self {
            escalation_type: kind,
            severity: if retried { EscalationSeverity::Info } else { EscalationSeverity::Warning },
            triggered_by: if kind == EscalationType::Unknown { AmpRole::System } else { AmpRole::Executor },
            description,
            phase: if retried { TaskPhase::Retrying } else { TaskPhase::Failed },
            suggested_actions,
            failed_stories: Some(failed),
        })
    }

    pub(super) fn ack_timeout(message: &MsgId, timeout: Duration) -> Self {
        let (agent, phase) = match message.message_type() {
            AmpMessageType::ReviewRequest => ("reviewer", TaskPhase::InReview),
            _ => ("executor", TaskPhase::Dispatched),
        };
        let description = format!(
            "the {agent} of {} has not begun within {} s of its {}; it is waited for until its time is over",
            message.task_id(),
            timeout.as_secs(),
            message.message_type()
        );
        Self::info(EscalationType::AckTimeout, AmpRole::System, phase, description)
            .suggest(["see what its sandbox prints: longshore logs".to_owned()])
    }

    pub(super) fn heartbeat_timeout(agent: &AttemptId, timeout: Duration) -> Self {
        let task = &agent.assignment;
        let description =
            format!("{agent} has said nothing of its work for {} s; its sandbox is paused", timeout.as_secs());
        Self::critical(EscalationType::HeartbeatTimeout, AmpRole::System, TaskPhase::Suspended, description).suggest([
            format!("let it go on: longshore admin resume {task}"),
            format!("start it again: longshore admin retry {task}"),
            format!("give it up: longshore admin abort {task}"),
        ])
    }

    /// The stories `high_risk` of the task have no approval.
    pub(super) fn approval_needed(task: &AssignmentId, high_risk: &[&str]) -> Self {
        let description =
            format!("{} of high risk: waits for an approval before anything of it runs", high_risk.join(", "));
        let kind = EscalationType::PermissionDenied;
        Self::critical(kind, AmpRole::Coordinator, TaskPhase::AwaitingApproval, description).suggest([
            format!("let it run: longshore admin approve {task}"),
            format!("leave it out: longshore admin abort {task}"),
        ])
    }

    pub(super) fn low_confidence(task: &AssignmentId, verdict: &ReviewVerdict, min_confidence: f64) -> Self {
        let decision = match verdict.decision {
            ReviewDecision::Approved => "approved",
            ReviewDecision::ApprovedWithFix => "approved_with_fix",
            ReviewDecision::Rejected => "rejected",
        };
        let description = format!(
            "the reviewer of {task} says {decision} with a confidence of {}: below {min_confidence} the admin decides whether it counts",
            verdict.confidence
        );
        Self::critical(EscalationType::Unknown, AmpRole::Reviewer, TaskPhase::Suspended, description).suggest([
            format!("let the verdict count: longshore admin approve {task}"),
            format!("have it reviewed again: longshore admin resume {task}"),
            format!("send it back with your words: longshore admin answer {task} TEXT"),
        ])
    }

    pub(super) fn no_verdict(task: &AssignmentId, failure: &Failure) -> Self {
        let description = format!("no review of {task} gave a verdict: {}", describe(failure));
        Self::critical(EscalationType::Unknown, AmpRole::Reviewer, TaskPhase::Suspended, description).suggest([
            format!("have it reviewed again: longshore admin resume {task}"),
            format!("let it land as it is: longshore admin approve {task}"),
            format!("give it up: longshore admin abort {task}"),
        ])
    }

    pub(super) fn refused_fix(task: &AssignmentId, problem: &str) -> Self {
        let description = format!(
            "the reviewer's own fix of {task} is more than a reviewer may mend, and counts as a rejection: {problem}"
        );
        Self::info(EscalationType::PermissionDenied, AmpRole::Coordinator, TaskPhase::Rejected, description)
    }

    /// Executor and reviewer go round in circles.
    pub(super) fn review_conflict(task: &AssignmentId, conflict: &str) -> Self {
        let description = format!("the executor and the reviewer of {task} go round in circles: {conflict}");
        Self::info(EscalationType::Conflict, AmpRole::Coordinator, TaskPhase::Rejected, description)
            .suggest([format!("decide it once it is locked: longshore admin answer {task} TEXT")])
    }

    pub(super) fn locked(task: &AssignmentId, reject_count: u32, newest_issue: &str) -> Self {
        let description = format!(
            "{task} is locked: the reviewer rejected it {reject_count} times, the last time for: {newest_issue}"
        );
        let kind = EscalationType::HallucinationLock;
        Self::critical(kind, AmpRole::Coordinator, TaskPhase::Locked, description).suggest([
            format!("say how to do it: longshore admin answer {task} TEXT, then longshore resume"),
            format!("begin again from the integration branch: longshore admin rollback {task}"),
            format!("let it land as it is: longshore admin approve {task}"),
            format!("give it up: longshore admin abort {task}"),
        ])
    }
}

fn describe(failure: &Failure) -> String {
    format!("{} ({}): {}", failure.cause.as_str(), failure.cause.acp_code(), failure.evidence.summary)
}
