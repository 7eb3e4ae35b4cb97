//! `longshore status`: shows the state of a swarm from its journal, which is always current.

use std::fmt::Write;
use std::io::stdout;

use super::args::StatusArgs;
use super::context::CommandContext;
use super::error::CommandError;
use super::ssot::message_summary::summarize_message;
use super::swarm_prefix::SwarmPrefix;
use super::{CommandResult, ExitStatus, print_stdout, terminal_columns};
use crate::protocol::amp::message::{EscalationSeverity, Payload};
use crate::protocol::amp::store::Ssot;
use crate::report::TextStyle;
use crate::report::summary::Summary;
use crate::report::text::{pad_to_width, sanitize};
use crate::state::recovery::recover;
use crate::state::{SandboxRole, SwarmDir, SwarmState, SwarmStatus};
use crate::swarm::{ContainerStatus, SwarmSpec};

pub async fn status(args: &StatusArgs, here: &CommandContext) -> CommandResult {
    let repo = here.discover_repo().await?;
    let dir = SwarmDir::resolve(repo.root(), args.swarm.as_ref().map(SwarmPrefix::as_str))?;
    let recovered = recover(&dir)?;
    let state = SwarmState::from_machine(&recovered.machine, recovered.header.started);
    if args.json {
        print_stdout(&String::from_utf8_lossy(&state.to_bytes()?))?;
        return Ok(ExitStatus::Success);
    }
    let live = dir.is_locked()?;
    let mut summary = Summary::from_state(&state, &recovered.header.spec, &dir);
    for branch in &mut summary.branches {
        branch.head = repo.branch_head(&branch.name).await?.map(|commit| commit.to_string());
    }
    let report = dir.path().join("report.md");
    summary.report = report.exists().then(|| report.display().to_string());
    let look = TextStyle::for_stream(&stdout(), &CommandContext::env_var);
    let mut text = format!("swarm {}: {}\n\n", dir.swarm(), describe_status(state.status, live));
    text.push_str(&render_open_escalations(&Ssot::open_read_only(repo.root()), &recovered.header.spec)?);
    text.push_str(&summary.render(terminal_columns(&stdout()), look.colour));
    text.push_str(&render_containers(&state));
    print_stdout(&text)?;
    Ok(ExitStatus::Success)
}

/// Renders the open escalations with their suggested actions, except informational ones; empty if there are none.
fn render_open_escalations(ssot: &Ssot, spec: &SwarmSpec) -> Result<String, CommandError> {
    let mut out = String::new();
    for message in ssot.open_escalations()? {
        let Payload::Escalation(escalation) = message.payload() else { continue };
        let ours = spec.assignments.iter().any(|assignment| assignment.id == *message.task_id());
        if !ours || escalation.severity == EscalationSeverity::Info {
            continue;
        }
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{}  {}", message.task_id(), summarize_message(&message));
        for action in &escalation.suggested_actions {
            let _ = writeln!(out, "  - {}", sanitize(action));
        }
    }
    if out.is_empty() { Ok(out) } else { Ok(format!("open escalations\n{out}\n")) }
}

/// Describes the status. A running swarm without a lock has lost its orchestrator.
fn describe_status(status: SwarmStatus, live: bool) -> &'static str {
    match (status, live) {
        (SwarmStatus::Running, true) => "running",
        (SwarmStatus::Stopping, true) => "stopping",
        // A third signal causes this.
        (SwarmStatus::Stopping, false) => "interrupted while stopping; `longshore resume` continues it",
        (SwarmStatus::Running, false) => {
            "dead: the orchestrator crashed or was killed; `longshore resume` continues from the journal"
        }
        (SwarmStatus::Landed, _) => "every story landed",
        (SwarmStatus::SomeFailed, _) => "ended, some stories did not land",
        (SwarmStatus::RedBase, _) => "ended before it began, the checks fail on the base",
        (SwarmStatus::MachineryFailed, _) => "ended, the machinery failed",
        (SwarmStatus::Suspended, _) => {
            "suspended: only tasks that wait for your decision are left; `longshore admin list` lists them, and `longshore resume` applies your decisions"
        }
        (SwarmStatus::Interrupted, _) => "interrupted; `longshore resume` continues it",
    }
}

fn render_containers(state: &SwarmState) -> String {
    if state.containers.is_empty() {
        return String::new();
    }
    let mut out = String::from("\n");
    let rows: Vec<[String; 6]> = state
        .containers
        .iter()
        .map(|container| {
            let role = match container.role {
                SandboxRole::Executor => "executor",
                SandboxRole::Reviewer => "reviewer",
                SandboxRole::Checker => "checker",
            };
            let exit = container.exit_code.map_or(String::new(), |code| format!("exit {code}"));
            [
                format!("{}-{}", container.assignment, container.attempt),
                role.to_owned(),
                container_status_name(container.status).to_owned(),
                container.container_id.as_ref().map_or("-", |id| id.short()).to_owned(),
                exit,
                container.error.as_deref().map(sanitize).unwrap_or_default(),
            ]
        })
        .collect();
    let head = ["SANDBOX", "ROLE", "STATUS", "CONTAINER", "EXIT", "ERROR"].map(str::to_owned);
    let widths: Vec<usize> = (0..6)
        .map(|column| {
            let cells = rows.iter().chain([&head]).map(|row| row[column].chars().count());
            cells.max().unwrap_or_default()
        })
        .collect();
    for row in [&head].into_iter().chain(&rows) {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| pad_to_width(cell, *width)).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{}", cells.join("  ").trim_end());
    }
    out
}

fn container_status_name(status: ContainerStatus) -> &'static str {
    match status {
        ContainerStatus::Pending => "pending",
        ContainerStatus::Running => "running",
        ContainerStatus::Completed => "completed",
        ContainerStatus::Failed => "failed",
        ContainerStatus::Stopped => "stopped",
    }
}
