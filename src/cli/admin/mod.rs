//! `longshore admin`: what waits for a person, and what the person decides. A running swarm is told over its control socket; for one
//! that does not run the decision is kept in the SSOT, and `resume` takes it in.
//!
//! `target.rs` finds what is meant, `list.rs` and `show.rs` tell, `actions.rs` knows what can be decided, `decide.rs` decides.
//! Must not: decide by itself what can be decided; the machine says so.

pub mod args;
mod actions;
mod decide;
mod list;
mod show;
mod target;

use crate::protocol::amp::store::{AdminAction, AdminDecision, DecisionTarget, Ssot};
use crate::swarm::{Event, SwarmMachine, TaskAction, TaskDecision};

use super::CommandResult;
use super::context::CommandContext;
use super::error::CommandError;
use args::{AdminArgs, AdminCommand};

/// Carries it out.
pub async fn admin(args: &AdminArgs, here: &CommandContext) -> CommandResult {
    let (about, action) = match &args.command {
        AdminCommand::List(args) => return list::list(args, here).await,
        AdminCommand::Show(args) => return show::show(args, here).await,
        AdminCommand::Answer(args) => (&args.target, TaskAction::Answer { text: decide::read_answer(&args.text)? }),
        AdminCommand::Approve(args) => (args, TaskAction::Approve),
        AdminCommand::Resume(args) => (args, TaskAction::Resume),
        AdminCommand::Retry(args) => (args, TaskAction::Retry),
        AdminCommand::Abort(args) => (args, TaskAction::Abort),
        AdminCommand::Rollback(args) => (args, TaskAction::Rollback),
    };
    decide::decide(about, action, here).await
}

/// The decisions for this swarm that its machine has not taken in and can, and the machine as it is with them.
pub fn pending_decisions(
    ssot: &Ssot,
    machine: &SwarmMachine,
) -> Result<(Vec<TaskDecision>, SwarmMachine), CommandError> {
    let mut then = machine.clone();
    let mut taken = Vec::new();
    for made in ssot.decisions(&machine.spec().swarm)? {
        let Some(decision) =
            resolve_decision(machine, &made).filter(|decision| !machine.has_applied_decision(&decision.id))
        else {
            continue;
        };
        let event = Event::DecisionMade { decision: decision.clone() };
        if !then.handle(&event, then.last_event_at()).is_empty() {
            taken.push(decision);
        }
    }
    Ok((taken, then))
}

/// A decision as the machine takes it; none where it is about nothing of this swarm.
fn resolve_decision(machine: &SwarmMachine, made: &AdminDecision) -> Option<TaskDecision> {
    let task = match &made.target {
        DecisionTarget::Task(task) => task.clone(),
        DecisionTarget::Story(story) => machine.story(story)?.assignment.clone()?,
        DecisionTarget::Escalation(message) => message.task_id().clone(),
    };
    let action = match &made.action {
        AdminAction::Approve => TaskAction::Approve,
        AdminAction::Resume => TaskAction::Resume,
        AdminAction::Retry => TaskAction::Retry,
        AdminAction::Abort => TaskAction::Abort,
        AdminAction::Rollback => TaskAction::Rollback,
        AdminAction::Answer { text } => TaskAction::Answer { text: text.clone() },
    };
    Some(TaskDecision { id: made.id.to_string(), task, action, by: made.by.clone() })
}
