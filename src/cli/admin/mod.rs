//! `longshore admin`: shows what waits for a decision, and records decisions. A running swarm receives a decision over its control
//! socket. For a stopped swarm, the SSOT stores the decision and `resume` applies it.
//!
//! `target.rs` resolves the target, `list.rs` and `show.rs` print, `actions.rs` describes the decisions, `decide.rs` makes them.
//! Must not: check by itself whether a decision is allowed; the machine does.

pub mod args;
mod actions;
mod decide;
mod list;
mod pending;
mod show;
mod target;

use crate::swarm::TaskAction;

use super::CommandResult;
use super::context::CommandContext;
use args::{AdminArgs, AdminCommand};

pub(crate) use pending::pending_decisions;

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
