//! `longshore admin list`: what waits for a person, and the escalations that nobody has answered.

use std::io::stdout;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::json;

use super::args::AdminListArgs;
use super::choice::choices;
use super::target::Scene;
use crate::cli::error::Shown;
use crate::cli::here::Here;
use crate::cli::ssot::gist::gist;
use crate::cli::{Outcome, columns, remark, say};
use crate::ids::AssignmentId;
use crate::protocol::amp::message::{Kind, Message, Payload, Severity};
use crate::protocol::amp::store::{SsotResult, by_time};
use crate::report::text::{pluralize, sanitize, truncate_to_width};
use crate::state::{WaitKind, hold_since};
use crate::swarm::{AdminHold, HoldKind, TaskDecision};

/// Something that waits.
pub(super) struct Wait<'a> {
    pub(super) task: &'a AssignmentId,
    pub(super) hold: &'a AdminHold,
    pub(super) since: Timestamp,
}

/// What waits for the admin, oldest first; what was decided already among it.
pub(super) fn waits(scene: &Scene) -> Vec<Wait<'_>> {
    let tasks = scene.machine.spec().assignments.iter().map(|assignment| &assignment.id);
    let held = tasks.filter_map(|task| Some((task, scene.machine.admin_hold(task)?)));
    let mut waits: Vec<Wait<'_>> =
        held.map(|(task, hold)| Wait { task, hold, since: hold_since(hold, scene.started()) }).collect();
    waits.sort_by_key(|wait| wait.since);
    waits
}

/// The escalations about the swarm's tasks that nobody has answered, oldest first, each with whether it has an ack; `all`:
/// those for the record only and the answered ones too.
pub(super) fn escalations(scene: &Scene, all: bool) -> SsotResult<Vec<(Message, bool)>> {
    let ours = |message: &Message| scene.machine.assignment_spec(message.task()).is_some();
    if !all {
        let open = scene.ssot.open_escalations()?;
        let open = open.into_iter().filter(|message| ours(message) && severity(message) != Severity::Info);
        return Ok(open.map(|message| (message, false)).collect());
    }
    let mut ids = Vec::new();
    for assignment in &scene.machine.spec().assignments {
        ids.extend(scene.ssot.ids_of(&assignment.id)?.into_iter().filter(|id| id.kind() == Kind::Escalation));
    }
    ids.sort_by(by_time);
    let mut found = Vec::new();
    for id in &ids {
        if let Some(entry) = scene.ssot.entry(id)? {
            found.push((entry.message, entry.ack.is_some()));
        }
    }
    Ok(found)
}

fn severity(message: &Message) -> Severity {
    match message.payload() {
        Payload::Escalation(escalation) => escalation.severity,
        _ => Severity::Info,
    }
}

/// Carries it out.
pub(super) async fn list(args: &AdminListArgs, here: &Here) -> Outcome {
    let scene = Scene::of(here, args.swarm.as_ref()).await?;
    let waits = waits(&scene);
    let told: Vec<_> = waits.iter().filter_map(|wait| wait.hold.escalation_id.as_ref()).collect();
    let mut escalations = escalations(&scene, args.all)?;
    // What waits says the same already.
    escalations.retain(|(message, _)| args.all || !told.contains(&message.id()));
    let mut out = String::new();
    if args.json {
        for wait in &waits {
            out.push_str(&format!("{}\n", wait_json(&scene, wait)));
        }
        for (message, answered) in &escalations {
            out.push_str(&format!("{}\n", escalation_json(message, *answered)?));
        }
        say(&out)?;
        return Ok(0);
    }
    let columns = columns(&stdout());
    let zone = TimeZone::system();
    let time = |at: Timestamp| at.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S").to_string();
    for wait in &waits {
        out.push_str(&truncate_to_width(&wait_line(&scene, wait, &time(wait.since)), columns));
        out.push('\n');
    }
    for (message, answered) in &escalations {
        let state = if *answered { "answered" } else { "open" };
        let actions = match scene.decided(message.task()) {
            Some(decision) if !answered => format!("; {}", decided(decision)),
            _ => actions(message, *answered),
        };
        let line = format!(
            "{}  {:<10}  {state:<17}  {}{actions}  [{}]",
            time(message.at()),
            message.task(),
            gist(message),
            message.id()
        );
        out.push_str(&truncate_to_width(&line, columns));
        out.push('\n');
    }
    say(&out)?;
    let swarm = scene.dir.swarm();
    if out.is_empty() {
        remark(&format!("nothing of swarm {swarm} waits for you"));
    } else if let Some(hint) = hint(&scene, &waits) {
        remark(&hint);
    }
    Ok(0)
}

/// What to do next.
fn hint(scene: &Scene, waits: &[Wait<'_>]) -> Option<String> {
    let left = waits.iter().filter(|wait| scene.decided(wait.task).is_none()).count();
    if left > 0 {
        let what = pluralize(left, "task waits", "tasks wait");
        return Some(format!("{what} for you: `longshore admin show TARGET` tells more"));
    }
    let decided = !scene.waiting.is_empty();
    decided.then(|| format!("all is decided: `longshore resume {}` takes it in", scene.dir.swarm().short()))
}

/// `2026-11-22 12:00:03  T-2026-003  locked  US-003: rejected 4 times ...; approve, resume, ...`
fn wait_line(scene: &Scene, wait: &Wait<'_>, since: &str) -> String {
    let what = wait.hold.kind.label();
    let then = match scene.decided(wait.task) {
        Some(decision) => decided(decision),
        None => format!("decide {}", words(scene, wait.task).join(", ")),
    };
    let stories = scene.names.assignment_labels(wait.task);
    format!("{since}  {:<10}  {what:<17}  {stories}: {}; {then}", wait.task, sanitize(&wait.hold.reason))
}

fn decided(decision: &TaskDecision) -> String {
    format!("{} decided `{}`: `longshore resume` takes it in", sanitize(&decision.by), decision.action.as_str())
}

fn words(scene: &Scene, task: &AssignmentId) -> Vec<&'static str> {
    choices(&scene.then, task).iter().map(|action| action.as_str()).collect()
}

/// The first of what it suggests, where it is still to be done.
fn actions(message: &Message, answered: bool) -> String {
    match message.payload() {
        Payload::Escalation(escalation) if !answered => {
            escalation.suggested_actions.first().map_or(String::new(), |action| format!("; {}", sanitize(action)))
        }
        _ => String::new(),
    }
}

fn wait_json(scene: &Scene, wait: &Wait<'_>) -> serde_json::Value {
    let stories = scene
        .machine
        .assignment_spec(wait.task)
        .map(|assignment| assignment.stories.iter().map(|key| scene.names.label(key).to_owned()).collect::<Vec<_>>());
    let decided = scene.decided(wait.task);
    json!({
        "thing": "wait",
        "task": wait.task.as_str(),
        "stories": stories,
        "what": WaitKind::from(wait.hold.kind),
        "reason": wait.hold.reason,
        "since": wait.since.to_string(),
        "escalation": wait.hold.escalation_id.as_ref().map(ToString::to_string),
        "actions": words(scene, wait.task),
        "decided": decided.map(|decision| decision.action.as_str()),
        "suspended": wait.hold.kind == HoldKind::Suspended,
    })
}

fn escalation_json(message: &Message, answered: bool) -> Result<serde_json::Value, Shown> {
    let message: serde_json::Value = serde_json::from_str(&message.to_json())
        .map_err(|error| Shown::machinery("a message cannot be written as JSON").caused_by(&error))?;
    Ok(json!({ "thing": "escalation", "open": !answered, "message": message }))
}
