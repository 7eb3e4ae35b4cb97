//! `longshore admin approve|resume|retry|abort|rollback|answer`.
//!
//! A running swarm's own orchestrator says whether it can be; what it accepted is in its journal, and is kept in the SSOT too,
//! under the same id. For a swarm that does not run the journal's machine says so, with the decisions that wait already.

use std::io::Read;

use jiff::Timestamp;

use super::args::AdminTargetArgs;
use super::choice::effect;
use super::target::{Meant, Scene, find};
use crate::cli::error::{Kind, Shown};
use crate::cli::here::Here;
use crate::cli::{Outcome, say};
use crate::coordinator::control::{self, ControlCommand, ControlError, ControlReply};
use crate::protocol::amp::store::{AdminAction, AdminDecision, DecisionId, Ssot};
use crate::report::text::sanitize;
use crate::swarm::{TaskAction, TaskDecision};

/// The longest answer, in bytes: it goes into every later prompt, and through the control socket as one line.
const MAX_TEXT: usize = 32 * 1024;

/// The words of an answer, as typed or from standard input.
pub(super) fn words(typed: &str) -> Result<String, Shown> {
    let mut text = typed.to_owned();
    if typed == "-" {
        text.clear();
        let read = std::io::stdin().lock().take(MAX_TEXT as u64 + 1).read_to_string(&mut text);
        read.map_err(|error| Shown::input("the answer on standard input cannot be read").caused_by(&error))?;
    }
    let text = text.trim().to_owned();
    match text.len() {
        0 => Err(Shown::input("the answer is empty").hint("give the words, or `-` and the words on standard input")),
        length if length > MAX_TEXT => Err(Shown::input(format!("the answer is longer than {MAX_TEXT} bytes"))),
        _ => Ok(text),
    }
}

/// Decides it.
pub(super) async fn decide(args: &AdminTargetArgs, action: TaskAction, here: &Here) -> Outcome {
    let Meant { scene, target, task, .. } = find(args, here).await?;
    let made = AdminDecision {
        id: DecisionId::random(),
        swarm: scene.dir.swarm(),
        target,
        action: kept(&action),
        at: Timestamp::now(),
        by: who(&scene).await,
    };
    let held = scene.then.admin_hold(&task).map(|hold| hold.kind);
    let does = effect(held, &action);
    let decision = TaskDecision { id: made.id.to_string(), task: task.clone(), action, by: made.by.clone() };
    let what = format!("{task} ({}): {}", scene.names.assignment_labels(&task), decision.action.as_str());
    let told = match scene.live {
        true => tell(&scene, &decision).await?,
        false => false,
    };
    if !told {
        refused(&scene, &decision)?;
    }
    let ssot = Ssot::open(scene.repo.root())?;
    ssot.decide(&made)?;
    let then = match told {
        true => "the running swarm has taken it in".to_owned(),
        false => format!("kept; `longshore resume {}` takes it in", scene.dir.swarm().short()),
    };
    say(&format!("{what}: {does}\n{then}\n"))?;
    Ok(0)
}

/// Tells the running orchestrator; false where it ended meanwhile.
async fn tell(scene: &Scene, decision: &TaskDecision) -> Result<bool, Shown> {
    match control::send(&scene.dir, &ControlCommand::Decide { decision: decision.clone() }).await {
        Ok(ControlReply::Accepted) => Ok(true),
        Ok(ControlReply::Refused { problem }) => Err(no(problem, decision)),
        Err(ControlError::NotListening { .. }) if !scene.dir.is_locked()? => Ok(false),
        Err(error) => {
            Err(Shown::of(Kind::Machinery, &error).hint("the swarm may be starting or ending: try again in a moment"))
        }
    }
}

/// Whether the swarm as it stands can take it.
fn refused(scene: &Scene, decision: &TaskDecision) -> Result<(), Shown> {
    scene.then.check_decision(&decision.task, &decision.action).map_err(|problem| {
        let shown = no(problem, decision);
        match scene.decided(&decision.task) {
            Some(before) => shown.hint(format!(
                "{} decided `{}` already: `longshore resume` takes it in",
                sanitize(&before.by),
                before.action.as_str()
            )),
            None => shown,
        }
    })
}

fn no(problem: String, decision: &TaskDecision) -> Shown {
    let hint = format!("`longshore admin show {}` tells how it stands, and what can be decided", decision.task);
    Shown::input(problem).hint(hint)
}

fn kept(action: &TaskAction) -> AdminAction {
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
async fn who(scene: &Scene) -> String {
    let user = ["USER", "LOGNAME"].iter().find_map(|name| Here::lookup(name)?.into_string().ok());
    match user.map(|name| sanitize(&name)).filter(|name| !name.trim().is_empty()) {
        Some(name) => name,
        None => scene.repo.identity().await.map_or("admin".to_owned(), |identity| sanitize(&identity.name)),
    }
}
