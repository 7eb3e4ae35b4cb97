//! `longshore admin approve|resume|retry|abort|rollback|answer`.
//!
//! A running swarm's own orchestrator says whether it can be; what it accepted is in its journal, and is kept in the SSOT too,
//! under the same id. For a swarm that does not run the journal's machine says so, with the decisions that wait already.

use std::error::Error;

use jiff::Timestamp;

use super::actions::describe_effect;
use super::args::AdminTargetArgs;
use super::target::{AdminContext, ResolvedTarget, resolve_target};
use crate::cli::context::CommandContext;
use crate::cli::error::{CommandError, CommandErrorKind};
use crate::cli::input::read_limited;
use crate::cli::{CommandResult, ExitStatus, print_stdout};
use crate::coordinator::control::{self, ControlCommand, ControlError, ControlReply};
use crate::protocol::amp::store::{AdminAction, AdminDecision, DecisionId, Ssot};
use crate::report::text::sanitize;
use crate::swarm::{TaskAction, TaskDecision};

/// The longest answer, in bytes: it goes into every later prompt, and through the control socket as one line.
const MAX_ANSWER_BYTES: usize = 32 * 1024;

/// The words of an answer, as typed or from standard input.
pub(super) fn read_answer(typed: &str) -> Result<String, CommandError> {
    let unreadable =
        |error: &dyn Error| CommandError::input("the answer on standard input cannot be read").with_cause(error);
    let text = if typed == "-" {
        let bytes = read_limited("-", MAX_ANSWER_BYTES).map_err(|error| unreadable(&error))?;
        String::from_utf8(bytes).map_err(|error| unreadable(&error))?
    } else {
        typed.to_owned()
    };
    let text = text.trim().to_owned();
    match text.len() {
        0 => Err(CommandError::input("the answer is empty")
            .with_hint("give the words, or `-` and the words on standard input")),
        length if length > MAX_ANSWER_BYTES => {
            Err(CommandError::input(format!("the answer is longer than {MAX_ANSWER_BYTES} bytes")))
        }
        _ => Ok(text),
    }
}

/// Decides it.
pub(super) async fn decide(args: &AdminTargetArgs, action: TaskAction, here: &CommandContext) -> CommandResult {
    let ResolvedTarget { context: scene, target, task, .. } = resolve_target(args, here).await?;
    let made = AdminDecision {
        id: DecisionId::random(),
        swarm: scene.dir.swarm(),
        target,
        action: to_admin_action(&action),
        at: Timestamp::now(),
        by: current_user(&scene).await,
    };
    let held = scene.machine_with_pending.admin_hold(&task).map(|hold| hold.kind);
    let does = describe_effect(held, &action);
    let decision = TaskDecision { id: made.id.to_string(), task: task.clone(), action, by: made.by.clone() };
    let what = format!("{task} ({}): {}", scene.names.assignment_labels(&task), decision.action.as_str());
    let told = match scene.live {
        true => send_decision(&scene, &decision).await?,
        false => false,
    };
    if !told {
        check_allowed(&scene, &decision)?;
    }
    let ssot = Ssot::open(scene.repo.root())?;
    ssot.record_decision(&made)?;
    let then = match told {
        true => "the running swarm has taken it in".to_owned(),
        false => format!("kept; `longshore resume {}` takes it in", scene.dir.swarm().short()),
    };
    print_stdout(&format!("{what}: {does}\n{then}\n"))?;
    Ok(ExitStatus::Success)
}

/// Tells the running orchestrator; false where it ended meanwhile.
async fn send_decision(scene: &AdminContext, decision: &TaskDecision) -> Result<bool, CommandError> {
    match control::send(&scene.dir, &ControlCommand::Decide { decision: decision.clone() }).await {
        Ok(ControlReply::Accepted) => Ok(true),
        Ok(ControlReply::Refused { problem }) => Err(refusal_error(problem, decision)),
        Err(ControlError::NotListening { .. }) if !scene.dir.is_locked()? => Ok(false),
        Err(error) => Err(CommandError::from_error(CommandErrorKind::Machinery, &error)
            .with_hint("the swarm may be starting or ending: try again in a moment")),
    }
}

/// Whether the swarm as it stands can take it.
fn check_allowed(scene: &AdminContext, decision: &TaskDecision) -> Result<(), CommandError> {
    scene.machine_with_pending.check_decision(&decision.task, &decision.action).map_err(|problem| {
        let shown = refusal_error(problem, decision);
        match scene.pending_decision(&decision.task) {
            Some(before) => shown.with_hint(format!(
                "{} decided `{}` already: `longshore resume` takes it in",
                sanitize(&before.by),
                before.action.as_str()
            )),
            None => shown,
        }
    })
}

fn refusal_error(problem: String, decision: &TaskDecision) -> CommandError {
    let hint = format!("`longshore admin show {}` tells how it stands, and what can be decided", decision.task);
    CommandError::input(problem).with_hint(hint)
}

fn to_admin_action(action: &TaskAction) -> AdminAction {
    match action {
        TaskAction::Approve => AdminAction::Approve,
        TaskAction::Resume => AdminAction::Resume,
        TaskAction::Retry => AdminAction::Retry,
        TaskAction::Abort => AdminAction::Abort,
        TaskAction::Rollback => AdminAction::Rollback,
        TaskAction::Answer { text } => AdminAction::Answer { text: text.clone() },
    }
}

/// Who decides: the user, else whom git knows.
async fn current_user(scene: &AdminContext) -> String {
    let user = ["USER", "LOGNAME"].iter().find_map(|name| CommandContext::env_var(name)?.into_string().ok());
    match user.map(|name| sanitize(&name)).filter(|name| !name.trim().is_empty()) {
        Some(name) => name,
        None => scene.repo.identity().await.map_or("admin".to_owned(), |identity| sanitize(&identity.name)),
    }
}
