//! `longshore admin show`: shows a task with everything needed for a decision.

use std::fmt::Write;
use std::io::stdout;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::actions::{allowed_actions, describe_effect};
use super::args::AdminTargetArgs;
use super::target::{AdminContext, ResolvedTarget, resolve_target};
use crate::cli::context::CommandContext;
use crate::cli::ssot::log::format_entry;
use crate::cli::ssot::message_summary::AckState;
use crate::cli::{CommandResult, ExitStatus, print_stdout, terminal_columns};
use crate::ids::AssignmentId;
use crate::protocol::acp::message::StoryStatus;
use crate::protocol::amp::message::{AmpMessage, Escalation, Payload, ReviewVerdict};
use crate::protocol::amp::store::LogEntry;
use crate::report::text::{sanitize, sanitize_lines, truncate_to_width};
use crate::state::hold_since;
use crate::swarm::TaskAction;

pub(super) async fn show(args: &AdminTargetArgs, here: &CommandContext) -> CommandResult {
    let ResolvedTarget { context, task, escalation, .. } = resolve_target(args, here).await?;
    let entries = context.ssot.log(&task)?;
    let mut out = String::new();
    write_task(&mut out, &context, &task);
    let held = context.machine_with_pending.admin_hold(&task).or_else(|| context.machine.admin_hold(&task));
    let held_by = held.and_then(|hold| hold.escalation_id.as_ref());
    let shown = escalation.or_else(|| {
        let mut of_hold = entries.iter().filter(|entry| Some(entry.message.id()) == held_by);
        of_hold.next().map(|entry| entry.message.clone())
    });
    if let Some(message) = &shown
        && let Payload::Escalation(escalation) = message.payload()
    {
        write_escalation(&mut out, message, escalation);
    }
    let verdict = entries.iter().rev().find_map(|entry| match entry.message.payload() {
        Payload::ReviewVerdict(verdict) => Some((&entry.message, verdict)),
        _ => None,
    });
    if let Some((message, verdict)) = verdict {
        write_verdict(&mut out, message, verdict);
    }
    let request = entries.iter().rev().find_map(|entry| match entry.message.payload() {
        Payload::ReviewRequest(request) => Some(&request.diff_url),
        _ => None,
    });
    if let Some(diff) = request {
        let _ = writeln!(out, "\ndiff  {}", sanitize(diff));
    }
    write_messages(&mut out, &entries);
    write_allowed_actions(&mut out, &context, &task);
    print_stdout(&out)?;
    Ok(ExitStatus::Success)
}

/// Writes the task, its stories and its hold. Writing to a string cannot fail, here and below.
fn write_task(out: &mut String, context: &AdminContext, task: &AssignmentId) {
    let _ = writeln!(out, "{task} of swarm {}", context.dir.swarm());
    let spec = context.machine.assignment_spec(task);
    for key in spec.into_iter().flat_map(|spec| &spec.stories) {
        let status = context.machine.story(key).map_or("", |view| story_status_name(view.status));
        let _ = writeln!(out, "  {}  {status}  {}", context.names.label(key), context.names.title(key));
    }
    if let Some(spec) = spec {
        let _ = writeln!(out, "  branch {}", spec.branch);
    }
    let rejects = context.machine.reject_count(task);
    if rejects > 0 {
        let _ = writeln!(out, "  rejected {rejects} times");
    }
    match (context.machine.admin_hold(task), context.pending_decision(task)) {
        (_, Some(decision)) => {
            let by = sanitize(&decision.by);
            let _ = writeln!(out, "  {by} decided `{}`: `longshore resume` applies it", decision.action.as_str());
        }
        (Some(hold), None) => {
            let since = hold_since(hold, context.started()).to_zoned(TimeZone::system());
            let since = since.strftime("%Y-%m-%d %H:%M:%S");
            let _ = writeln!(
                out,
                "  waits for your decision since {since}: {}: {}",
                hold.kind.label(),
                sanitize(&hold.reason)
            );
        }
        (None, None) => out.push_str("  no decision needed\n"),
    }
}

fn story_status_name(status: StoryStatus) -> &'static str {
    match status {
        StoryStatus::Completed => "landed",
        StoryStatus::Failed => "failed",
        StoryStatus::Skipped => "skipped",
        StoryStatus::InProgress => "running",
        StoryStatus::Pending => "pending",
    }
}

/// The serialized name of a value.
fn wire_name(value: serde_json::Result<serde_json::Value>) -> String {
    value.ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

fn write_escalation(out: &mut String, message: &AmpMessage, escalation: &Escalation) {
    let severity = wire_name(serde_json::to_value(escalation.severity));
    let kind = wire_name(serde_json::to_value(escalation.escalation_type));
    let _ = writeln!(out, "\nescalation  {}\n  {severity} {kind}", message.id());
    for line in sanitize_lines(&escalation.description).lines() {
        let _ = writeln!(out, "  {line}");
    }
    for action in &escalation.suggested_actions {
        let _ = writeln!(out, "  - {}", sanitize(action));
    }
}

fn write_verdict(out: &mut String, message: &AmpMessage, verdict: &ReviewVerdict) {
    let decision = wire_name(serde_json::to_value(verdict.decision));
    let _ = writeln!(out, "\nverdict  {}\n  {decision}, confidence {}", message.id(), verdict.confidence);
    for issue in &verdict.issues {
        let severity = issue.severity.as_str();
        let line = issue.line.map(|line| format!(":{line}")).unwrap_or_default();
        let _ = writeln!(out, "  [{severity}] {}{line}: {}", sanitize(&issue.file), sanitize(&issue.description));
        if !issue.suggested_fix.is_empty() {
            let _ = writeln!(out, "    suggested: {}", sanitize(&issue.suggested_fix));
        }
    }
    for result in &verdict.criteria_results {
        let met = match result.passed {
            Some(true) => "met",
            Some(false) => "not met",
            None => "not known",
        };
        let _ = writeln!(out, "  {met}: {}: {}", sanitize(&result.criterion), sanitize(&result.evidence));
    }
}

fn write_messages(out: &mut String, entries: &[LogEntry]) {
    if entries.is_empty() {
        return;
    }
    out.push_str("\nmessages\n");
    let (now, zone, columns) = (Timestamp::now(), TimeZone::system(), terminal_columns(&stdout()).saturating_sub(2));
    for entry in entries {
        let text = format_entry(entry, &AckState::from_entry(entry, now), &zone, false);
        let _ = writeln!(out, "  {}", truncate_to_width(&text, columns));
    }
}

fn write_allowed_actions(out: &mut String, context: &AdminContext, task: &AssignmentId) {
    let choices = allowed_actions(&context.machine_with_pending, task);
    if choices.is_empty() {
        out.push_str("\nthere is nothing to decide now\n");
        return;
    }
    out.push_str("\nyou can decide\n");
    let held = context.machine_with_pending.admin_hold(task).map(|hold| hold.kind);
    for action in choices {
        let placeholder = if matches!(action, TaskAction::Answer { .. }) { " TEXT" } else { "" };
        let command = format!("longshore admin {} {task}{placeholder}", action.as_str());
        let _ = writeln!(out, "  {command:<42}  {}", describe_effect(held, &action));
    }
    if !context.live {
        let _ = writeln!(out, "then: longshore resume {}", context.dir.swarm().short());
    }
}
