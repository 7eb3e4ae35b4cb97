//! Summarizes a message and the state of its ack. Pure.

use std::time::Duration;

use jiff::Timestamp;

use crate::protocol::amp::message::{
    AmpMessage, EscalationSeverity, IssueSeverity, Payload, ReviewDecision, ReviewScope, RiskLevel,
    SubtaskCompletionStatus,
};
use crate::protocol::amp::store::LogEntry;
use crate::report::text::{format_duration, pluralize, sanitize};

/// The state of a message's ack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AckState {
    /// Acked after this time; never negative, even if clocks differ.
    Acked(Duration),
    /// Time left until the deadline.
    Waiting(Duration),
    /// Time since the deadline.
    Overdue(Duration),
    /// An escalation that waits for the admin.
    Open,
    /// No ack is required.
    NotRequired,
}

impl AckState {
    pub(crate) fn from_entry(entry: &LogEntry, now: Timestamp) -> Self {
        let LogEntry { message, ack } = entry;
        if let Some(ack) = ack {
            return AckState::Acked(elapsed(message.timestamp(), ack.timestamp));
        }
        let due = message.ack_timeout().and_then(|after| message.timestamp().checked_add(after).ok());
        match due.filter(|_| message.requires_ack()) {
            Some(due) if due >= now => AckState::Waiting(elapsed(now, due)),
            Some(due) => AckState::Overdue(elapsed(due, now)),
            None if matches!(message.payload(), Payload::Escalation(_)) => AckState::Open,
            None => AckState::NotRequired,
        }
    }

    /// The name in JSON output.
    pub(super) fn as_str(&self) -> &'static str {
        match self {
            AckState::Acked(_) => "acked",
            AckState::Waiting(_) => "waiting",
            AckState::Overdue(_) => "overdue",
            AckState::Open => "open",
            AckState::NotRequired => "not_required",
        }
    }

    /// The time of the state, in seconds.
    pub(super) fn seconds(&self) -> Option<f64> {
        match self {
            AckState::Acked(time) | AckState::Waiting(time) | AckState::Overdue(time) => Some(time.as_secs_f64()),
            AckState::Open | AckState::NotRequired => None,
        }
    }

    /// The text for people.
    pub(crate) fn describe(&self) -> String {
        match self {
            AckState::Acked(time) => format!("acked after {}", format_duration(*time)),
            AckState::Waiting(time) => format!("waiting, {} left", format_duration(*time)),
            AckState::Overdue(time) => format!("overdue by {}", format_duration(*time)),
            AckState::Open => "open".to_owned(),
            AckState::NotRequired => "no ack required".to_owned(),
        }
    }
}

fn elapsed(earlier: Timestamp, later: Timestamp) -> Duration {
    Duration::try_from(later.duration_since(earlier)).unwrap_or_default()
}

/// Summarizes a message on one line, without control characters.
pub(crate) fn summarize_message(message: &AmpMessage) -> String {
    let text = match message.payload() {
        Payload::TaskDispatch(dispatch) => {
            let risk = match dispatch.risk_level {
                RiskLevel::Low => "",
                RiskLevel::Medium => "medium risk, ",
                RiskLevel::High => "high risk, ",
            };
            let stories = pluralize(dispatch.subtasks.len(), "story", "stories");
            format!("{risk}{stories}: {}", dispatch.description)
        }
        Payload::TaskResult(result) => {
            let status = match result.completion_status {
                SubtaskCompletionStatus::Complete => "complete",
                SubtaskCompletionStatus::Partial => "partial",
                SubtaskCompletionStatus::Failed => "failed",
            };
            let diff = &result.diff_summary;
            let files = pluralize(diff.files_changed.len(), "file", "files");
            let mut text =
                format!("{} {status}, {files} +{} -{}", short_subtask_id(result), diff.lines_added, diff.lines_removed);
            if let Some(blocker) = result.blockers.first() {
                text = format!("{text}: {blocker}");
            }
            text
        }
        Payload::ReviewRequest(request) => {
            let scope = match request.review_scope {
                ReviewScope::Full => "full",
                ReviewScope::Incremental => "incremental",
            };
            match &request.coordinator_notes {
                Some(notes) => format!("{scope}, {}: {notes}", format_rejections(request.reject_count)),
                None => format!("{scope}, {}", format_rejections(request.reject_count)),
            }
        }
        Payload::ReviewVerdict(verdict) => {
            let decision = match verdict.decision {
                ReviewDecision::Approved => "approved",
                ReviewDecision::ApprovedWithFix => "approved_with_fix",
                ReviewDecision::Rejected => "rejected",
            };
            let mut text = format!("{decision}, confidence {}", verdict.confidence);
            if !verdict.direct_fixes.is_empty() {
                text = format!("{text}, {}", pluralize(verdict.direct_fixes.len(), "fix", "fixes"));
            }
            // The first of the most severe issues.
            if let Some(issue) = verdict.issues.iter().min_by_key(|issue| match issue.severity {
                IssueSeverity::Critical => 0,
                IssueSeverity::Major => 1,
                IssueSeverity::Minor => 2,
            }) {
                let issues = pluralize(verdict.issues.len(), "issue", "issues");
                text = format!("{text}, {issues}: {}: {}", issue.file, issue.description);
            }
            text
        }
        Payload::Escalation(escalation) => {
            let severity = match escalation.severity {
                EscalationSeverity::Info => "info",
                EscalationSeverity::Warning => "warning",
                EscalationSeverity::Critical => "critical",
            };
            // The type serializes to a string.
            let kind = serde_json::to_value(escalation.escalation_type).unwrap_or_default();
            format!("{severity} {}: {}", kind.as_str().unwrap_or_default(), escalation.description)
        }
    };
    sanitize(&text)
}

/// `S1` of `T-2026-044-S1`.
fn short_subtask_id(result: &crate::protocol::amp::message::TaskResult) -> &str {
    result.subtask_id.rsplit('-').next().unwrap_or(&result.subtask_id)
}

fn format_rejections(times: u32) -> String {
    match times {
        0 => "never rejected".to_owned(),
        1 => "rejected once".to_owned(),
        _ => format!("rejected {times} times"),
    }
}
