//! `longshore admin list`: what waits for a person, and the escalations that nobody has answered.

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

/// Something that waits.
pub(super) struct HeldTask<'a> {
    pub(super) task: &'a AssignmentId,
    pub(super) hold: &'a AdminHold,
    pub(super) since: Timestamp,
}

/// What waits for the admin, oldest first; what was decided already among it.
pub(super) fn held_tasks(scene: &AdminContext) -> Vec<HeldTask<'_>> {
    let tasks = scene.machine.spec().assignments.iter().map(|assignment| &assignment.id);
    let held = tasks.filter_map(|task| Some((task, scene.machine.admin_hold(task)?)));
    let mut waits: Vec<HeldTask<'_>> =
        held.map(|(task, hold)| HeldTask { task, hold, since: hold_since(hold, scene.started()) }).collect();
    waits.sort_by_key(|wait| wait.since);
    waits
}

/// The escalations about the swarm's tasks that nobody has answered, oldest first, each with whether it has an ack; `all`:
/// those for the record only and the answered ones too.
pub(super) fn swarm_escalations(scene: &AdminContext, all: bool) -> SsotResult<Vec<(AmpMessage, bool)>> {
    let ours = |message: &AmpMessage| scene.machine.assignment_spec(message.task_id()).is_some();
    if !all {
        let open = scene.ssot.open_escalations()?;
        let open = open.into_iter().filter(|message| ours(message) && severity(message) != EscalationSeverity::Info);
        return Ok(open.map(|message| (message, false)).collect());
    }
    let mut ids = Vec::new();
    for assignment in &scene.machine.spec().assignments {
        ids.extend(
            scene
                .ssot
                .task_message_ids(&assignment.id)?
                .into_iter()
                .filter(|id| id.message_type() == AmpMessageType::Escalation),
        );
    }
    ids.sort_by(compare_by_time);
    let mut found = Vec::new();
    for id in &ids {
        if let Some(entry) = scene.ssot.log_entry(id)? {
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

/// Carries it out.
pub(super) async fn list(args: &AdminListArgs, here: &CommandContext) -> CommandResult {
    let scene = AdminContext::resolve(here, args.swarm.as_ref()).await?;
    let waits = held_tasks(&scene);
    let told: Vec<_> = waits.iter().filter_map(|wait| wait.hold.escalation_id.as_ref()).collect();
    let mut escalations = swarm_escalations(&scene, args.all)?;
    // What waits says the same already.
    escalations.retain(|(message, _)| args.all || !told.contains(&message.id()));
    let mut out = String::new();
    if args.json {
        for wait in &waits {
            out.push_str(&format!("{}\n", held_task_json(&scene, wait)));
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
        out.push_str(&truncate_to_width(&format_held_task(&scene, wait, &time(wait.since)), columns));
        out.push('\n');
    }
    for (message, answered) in &escalations {
        let state = if *answered { "answered" } else { "open" };
        let actions = match scene.pending_decision(message.task_id()) {
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
    let swarm = scene.dir.swarm();
    if out.is_empty() {
        print_stderr(&format!("nothing of swarm {swarm} waits for you"));
    } else if let Some(hint) = next_step_hint(&scene, &waits) {
        print_stderr(&hint);
    }
    Ok(ExitStatus::Success)
}

/// What to do next.
fn next_step_hint(scene: &AdminContext, waits: &[HeldTask<'_>]) -> Option<String> {
    let left = waits.iter().filter(|wait| scene.pending_decision(wait.task).is_none()).count();
    if left > 0 {
        let what = pluralize(left, "task waits", "tasks wait");
        return Some(format!("{what} for you: `longshore admin show TARGET` tells more"));
    }
    let decided = !scene.pending.is_empty();
    decided.then(|| format!("all is decided: `longshore resume {}` takes it in", scene.dir.swarm().short()))
}

/// `2026-11-22 12:00:03  T-2026-003  locked  US-003: rejected 4 times ...; approve, resume, ...`
fn format_held_task(scene: &AdminContext, wait: &HeldTask<'_>, since: &str) -> String {
    let what = wait.hold.kind.label();
    let then = match scene.pending_decision(wait.task) {
        Some(decision) => format_pending_decision(decision),
        None => format!("decide {}", allowed_action_names(scene, wait.task).join(", ")),
    };
    let stories = scene.names.assignment_labels(wait.task);
    format!("{since}  {:<10}  {what:<17}  {stories}: {}; {then}", wait.task, sanitize(&wait.hold.reason))
}

fn format_pending_decision(decision: &TaskDecision) -> String {
    format!("{} decided `{}`: `longshore resume` takes it in", sanitize(&decision.by), decision.action.as_str())
}

fn allowed_action_names(scene: &AdminContext, task: &AssignmentId) -> Vec<&'static str> {
    allowed_actions(&scene.machine_with_pending, task).iter().map(|action| action.as_str()).collect()
}

/// The first of what it suggests, where it is still to be done.
fn format_suggested_action(message: &AmpMessage, answered: bool) -> String {
    match message.payload() {
        Payload::Escalation(escalation) if !answered => {
            escalation.suggested_actions.first().map_or(String::new(), |action| format!("; {}", sanitize(action)))
        }
        _ => String::new(),
    }
}

fn held_task_json(scene: &AdminContext, wait: &HeldTask<'_>) -> serde_json::Value {
    let stories = scene
        .machine
        .assignment_spec(wait.task)
        .map(|assignment| assignment.stories.iter().map(|key| scene.names.label(key).to_owned()).collect::<Vec<_>>());
    let decided = scene.pending_decision(wait.task);
    json!({
        "thing": "wait",
        "task": wait.task.as_str(),
        "stories": stories,
        "what": wait.hold.kind,
        "reason": wait.hold.reason,
        "since": wait.since.to_string(),
        "escalation": wait.hold.escalation_id.as_ref().map(ToString::to_string),
        "actions": allowed_action_names(scene, wait.task),
        "decided": decided.map(|decision| decision.action.as_str()),
        "suspended": wait.hold.kind == HoldKind::Suspended,
    })
}

fn escalation_json(message: &AmpMessage, answered: bool) -> Result<serde_json::Value, CommandError> {
    let message: serde_json::Value = serde_json::from_str(&message.to_json())
        .map_err(|error| CommandError::machinery("a message cannot be written as JSON").with_cause(&error))?;
    Ok(json!({ "thing": "escalation", "open": !answered, "message": message }))
}
