//! `longshore admin`: what waits for a person, and what the person decides. A running swarm is told over its control socket; for one
//! that does not run the decision is kept in the SSOT, and `resume` takes it in.
//!
//! `target.rs` finds what is meant, `list.rs` and `show.rs` tell, `choice.rs` knows what can be decided, `decide.rs` decides.
//! Must not: decide by itself what can be decided; the machine says so.

pub mod args;
mod choice;
mod decide;
mod list;
mod show;
mod target;

use crate::protocol::amp::store::{AdminAction, AdminDecision, Ssot, Target};
use crate::swarm::{Action, Decision, Event, Machine};

use super::Outcome;
use super::error::Shown;
use super::here::Here;
use args::{AdminArgs, AdminCommand};

/// Carries it out.
pub async fn admin(args: &AdminArgs, here: &Here) -> Outcome {
    let (about, action) = match &args.command {
        AdminCommand::List(args) => return list::list(args, here).await,
        AdminCommand::Show(args) => return show::show(args, here).await,
        AdminCommand::Answer(args) => (&args.about, Action::Answer { text: decide::words(&args.text)? }),
        AdminCommand::Approve(args) => (args, Action::Approve),
        AdminCommand::Resume(args) => (args, Action::Resume),
        AdminCommand::Retry(args) => (args, Action::Retry),
        AdminCommand::Abort(args) => (args, Action::Abort),
        AdminCommand::Rollback(args) => (args, Action::Rollback),
    };
    decide::decide(about, action, here).await
}

/// The decisions for this swarm that its machine has not taken in and can, and the machine as it is with them.
pub fn pending(ssot: &Ssot, machine: &Machine) -> Result<(Vec<Decision>, Machine), Shown> {
    let mut then = machine.clone();
    let mut taken = Vec::new();
    for made in ssot.decisions(&machine.spec().swarm)? {
        let Some(decision) = decision(machine, &made).filter(|decision| !machine.knows(&decision.id)) else { continue };
        let event = Event::Decided { decision: decision.clone() };
        if !then.handle(&event, then.updated()).is_empty() {
            taken.push(decision);
        }
    }
    Ok((taken, then))
}

/// A decision as the machine takes it; none where it is about nothing of this swarm.
fn decision(machine: &Machine, made: &AdminDecision) -> Option<Decision> {
    let task = match &made.target {
        Target::Task(task) => task.clone(),
        Target::Story(story) => machine.story(story)?.assignment.clone()?,
        Target::Escalation(message) => message.task().clone(),
    };
    let action = match &made.action {
        AdminAction::Approve => Action::Approve,
        AdminAction::Resume => Action::Resume,
        AdminAction::Retry => Action::Retry,
        AdminAction::Abort => Action::Abort,
        AdminAction::Rollback => Action::Rollback,
        AdminAction::Answer { text } => Action::Answer { text: text.clone() },
    };
    Some(Decision { id: made.id.to_string(), task, action, by: made.by.clone() })
}
