//! `longshore admin approve|resume|retry|abort|rollback|answer`.
//!
//! The orchestrator of a running swarm checks the decision and writes it to its journal. The SSOT records it too, under the same
//! id. For a stopped swarm, the decision is checked against the machine from the journal with all pending decisions applied.

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

/// Returns the text of an answer: the argument, or standard input for `-`.
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
            .with_hint("give the text, or `-` and the text on standard input")),
        length if length > MAX_ANSWER_BYTES => {
            Err(CommandError::input(format!("the answer is longer than {MAX_ANSWER_BYTES} bytes")))
        }
        _ => Ok(text),
    }
}

/// Applies the decision to a running swarm, or saves it for `resume`.
pub(super) async fn decide(
    args: &AdminTargetArgs,
    action: TaskAction,
    command_context: &CommandContext,
) -> CommandResult {
    let ResolvedTarget { context, target, task, .. } = resolve_target(args, command_context).await?;
    let decision_record = AdminDecision {
        id: DecisionId::random(),
        swarm: context.dir.swarm(),
        target,
        action: to_admin_action(&action),
        at: Timestamp::now(),
        by: current_user(&context).await,
    };
    let held = context.machine_with_pending.admin_hold(&task).map(|hold| hold.kind);
    let effect_text = describe_effect(held, &action);
    let decision =
        TaskDecision { id: decision_record.id.to_string(), task: task.clone(), action, by: decision_record.by.clone() };
    let decision_label = format!("{task} ({}): {}", context.names.assignment_labels(&task), decision.action.as_str());
    let delivered = match context.live {
        true => send_decision(&context, &decision).await?,
        false => false,
    };
    if !delivered {
        check_allowed(&context, &decision)?;
    }
    let ssot = Ssot::open(context.repo.root())?;
    ssot.record_decision(&decision_record)?;
    let delivery_note = match delivered {
        true => "applied by the running swarm".to_owned(),
        false => format!("saved; `longshore resume {}` applies it", context.dir.swarm().short()),
    };
    print_stdout(&format!("{decision_label}: {effect_text}\n{delivery_note}\n"))?;
    Ok(ExitStatus::Success)
}

/// Sends the decision to the running orchestrator; `false` if it has ended meanwhile.
async fn send_decision(context: &AdminContext, decision: &TaskDecision) -> Result<bool, CommandError> {
    match control::send(&context.dir, &ControlCommand::Decide { decision: decision.clone() }).await {
        Ok(ControlReply::Accepted) => Ok(true),
        Ok(ControlReply::Refused { problem }) => Err(refusal_error(problem, decision)),
        Err(ControlError::NotListening { .. }) if !context.dir.is_locked()? => Ok(false),
        Err(error) => Err(CommandError::from_error(CommandErrorKind::Machinery, &error)
            .with_hint("the swarm may be starting or ending: try again in a moment")),
    }
}

/// Checks that the stopped swarm allows the decision.
fn check_allowed(context: &AdminContext, decision: &TaskDecision) -> Result<(), CommandError> {
    context.machine_with_pending.check_decision(&decision.task, &decision.action).map_err(|problem| {
        let error = refusal_error(problem, decision);
        match context.pending_decision(&decision.task) {
            Some(earlier) => error.with_hint(format!(
                "{} decided `{}` already: `longshore resume` applies it",
                sanitize(&earlier.by),
                earlier.action.as_str()
            )),
            None => error,
        }
    })
}

fn refusal_error(problem: String, decision: &TaskDecision) -> CommandError {
    let hint = format!("`longshore admin show {}` shows its state and the possible decisions", decision.task);
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

/// The name of the user, otherwise the name in git's configuration.
async fn current_user(context: &AdminContext) -> String {
    let user = ["USER", "LOGNAME"].iter().find_map(|name| CommandContext::env_var(name)?.into_string().ok());
    match user.map(|name| sanitize(&name)).filter(|name| !name.trim().is_empty()) {
        Some(name) => name,
        None => context.repo.identity().await.map_or("admin".to_owned(), |identity| sanitize(&identity.name)),
    }
}
