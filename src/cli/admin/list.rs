//! `longshore admin list`: lists tasks that wait for a decision, and open escalations.

use std::io::stdout;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::json;

use super::actions::allowed_actions;
use super::args::AdminListArgs;
use super::target::AdminContext;
use crate::cli::context::CommandContext;
use crate::cli::error::CommandError;
use crate::cli::ssot::message_summary::summarize_message;
use crate::cli::{CommandResult, ExitStatus, print_stderr, print_stdout, terminal_columns};
use crate::ids::AssignmentId;
use crate::protocol::amp::message::{AmpMessage, AmpMessageType, EscalationSeverity, Payload};
use crate::protocol::amp::store::{SsotResult, compare_by_time};
use crate::report::text::{pluralize, sanitize, truncate_to_width};
use crate::state::hold_since;
use crate::swarm::{AdminHold, HoldKind, TaskDecision};

/// A task that waits for a decision.
pub(super) struct HeldTask<'a> {
    pub(super) task: &'a AssignmentId,
    pub(super) hold: &'a AdminHold,
    pub(super) since: Timestamp,
}

/// Lists the tasks that wait for the admin, oldest first, including tasks with a pending decision.
pub(super) fn held_tasks(context: &AdminContext) -> Vec<HeldTask<'_>> {
    let tasks = context.machine.spec().assignments.iter().map(|assignment| &assignment.id);
    let held = tasks.filter_map(|task| Some((task, context.machine.admin_hold(task)?)));
    let mut waits: Vec<HeldTask<'_>> =
        held.map(|(task, hold)| HeldTask { task, hold, since: hold_since(hold, context.started()) }).collect();
    waits.sort_by_key(|wait| wait.since);
    waits
}

/// Lists the open escalations about the swarm's tasks, oldest first, and whether each has an ack. `all` includes informational
/// and answered escalations.
pub(super) fn swarm_escalations(context: &AdminContext, all: bool) -> SsotResult<Vec<(AmpMessage, bool)>> {
    let ours = |message: &AmpMessage| context.machine.assignment_spec(message.task_id()).is_some();
    if !all {
        let open = context.ssot.open_escalations()?;
        let open = open.into_iter().filter(|message| ours(message) && severity(message) != EscalationSeverity::Info);
        return Ok(open.map(|message| (message, false)).collect());
    }
    let mut ids = Vec::new();
    for assignment in &context.machine.spec().assignments {
        ids.extend(
            context
                .ssot
                .task_message_ids(&assignment.id)?
                .into_iter()
                .filter(|id| id.message_type() == AmpMessageType::Escalation),
        );
    }
    ids.sort_by(compare_by_time);
    let mut found = Vec::new();
    for id in &ids {
        if let Some(entry) = context.ssot.log_entry(id)? {
            found.push((entry.message, entry.ack.is_some()));
        }
    }
    Ok(found)
}

fn severity(message: &AmpMessage) -> EscalationSeverity {
    match message.payload() {
        Payload::Escalation(escalation) => escalation.severity,
        _ => EscalationSeverity::Info,
    }
}

pub(super) async fn list(args: &AdminListArgs, here: &CommandContext) -> CommandResult {
    let context = AdminContext::resolve(here, args.swarm.as_ref()).await?;
    let waits = held_tasks(&context);
    let held_escalations: Vec<_> = waits.iter().filter_map(|wait| wait.hold.escalation_id.as_ref()).collect();
    let mut escalations = swarm_escalations(&context, args.all)?;
    // The line of the task already shows its escalation.
    escalations.retain(|(message, _)| args.all || !held_escalations.contains(&message.id()));
    let mut out = String::new();
    if args.json {
        for wait in &waits {
            out.push_str(&format!("{}\n", held_task_json(&context, wait)));
        }
        for (message, answered) in &escalations {
            out.push_str(&format!("{}\n", escalation_json(message, *answered)?));
        }
        print_stdout(&out)?;
        return Ok(ExitStatus::Success);
    }
    let columns = terminal_columns(&stdout());
    let zone = TimeZone::system();
    let time = |at: Timestamp| at.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S").to_string();
    for wait in &waits {
        out.push_str(&truncate_to_width(&format_held_task(&context, wait, &time(wait.since)), columns));
        out.push('\n');
    }
    for (message, answered) in &escalations {
        let state = if *answered { "answered" } else { "open" };
        let actions = match context.pending_decision(message.task_id()) {
            Some(decision) if !answered => format!("; {}", format_pending_decision(decision)),
            _ => format_suggested_action(message, *answered),
        };
        let line = format!(
            "{}  {:<10}  {state:<17}  {}{actions}  [{}]",
            time(message.timestamp()),
            message.task_id(),
            summarize_message(message),
            message.id()
        );
        out.push_str(&truncate_to_width(&line, columns));
        out.push('\n');
    }
    print_stdout(&out)?;
    let swarm = context.dir.swarm();
    if out.is_empty() {
        print_stderr(&format!("nothing of swarm {swarm} waits for you"));
    } else if let Some(hint) = next_step_hint(&context, &waits) {
        print_stderr(&hint);
    }
    Ok(ExitStatus::Success)
}

fn next_step_hint(context: &AdminContext, waits: &[HeldTask<'_>]) -> Option<String> {
    let left = waits.iter().filter(|wait| context.pending_decision(wait.task).is_none()).count();
    if left > 0 {
        let what = pluralize(left, "task waits", "tasks wait");
        return Some(format!("{what} for you: `longshore admin show TARGET` shows more"));
    }
    let decided = !context.pending.is_empty();
    decided.then(|| format!("all is decided: `longshore resume {}` applies it", context.dir.swarm().short()))
}

/// `2026-11-22 12:00:03  T-2026-003  locked  US-003: rejected 4 times ...; approve, resume, ...`
fn format_held_task(context: &AdminContext, wait: &HeldTask<'_>, since: &str) -> String {
    let what = wait.hold.kind.label();
    let then = match context.pending_decision(wait.task) {
        Some(decision) => format_pending_decision(decision),
        None => format!("decide {}", allowed_action_names(context, wait.task).join(", ")),
    };
    let stories = context.names.assignment_labels(wait.task);
    format!("{since}  {:<10}  {what:<17}  {stories}: {}; {then}", wait.task, sanitize(&wait.hold.reason))
}

fn format_pending_decision(decision: &TaskDecision) -> String {
    format!("{} decided `{}`: `longshore resume` applies it", sanitize(&decision.by), decision.action.as_str())
}

fn allowed_action_names(context: &AdminContext, task: &AssignmentId) -> Vec<&'static str> {
    allowed_actions(&context.machine_with_pending, task).iter().map(|action| action.as_str()).collect()
}

/// The first suggested action of an open escalation; otherwise empty.
fn format_suggested_action(message: &AmpMessage, answered: bool) -> String {
    match message.payload() {
        Payload::Escalation(escalation) if !answered => {
            escalation.suggested_actions.first().map_or(String::new(), |action| format!("; {}", sanitize(action)))
        }
        _ => String::new(),
    }
}

fn held_task_json(context: &AdminContext, wait: &HeldTask<'_>) -> serde_json::Value {
    let stories = context
        .machine
        .assignment_spec(wait.task)
        .map(|assignment| assignment.stories.iter().map(|key| context.names.label(key).to_owned()).collect::<Vec<_>>());
    let decided = context.pending_decision(wait.task);
    json!({
        "thing": "wait",
        "task": wait.task.as_str(),
        "stories": stories,
        "what": wait.hold.kind,
        "reason": wait.hold.reason,
        "since": wait.since.to_string(),
        "escalation": wait.hold.escalation_id.as_ref().map(ToString::to_string),
        "actions": allowed_action_names(context, wait.task),
        "decided": decided.map(|decision| decision.action.as_str()),
        "suspended": wait.hold.kind == HoldKind::Suspended,
    })
}

fn escalation_json(message: &AmpMessage, answered: bool) -> Result<serde_json::Value, CommandError> {
    let message: serde_json::Value = serde_json::from_str(&message.to_json())
        .map_err(|error| CommandError::machinery("a message cannot be written as JSON").with_cause(&error))?;
    Ok(json!({ "thing": "escalation", "open": !answered, "message": message }))
}
