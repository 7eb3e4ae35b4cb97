//! `longshore mailbox`: people follow the conversation of agents and take part in it.
//!
//! The mailbox is a swarm's copy on the host, or any directory, whose agents may not know longshore. `location.rs` finds it.
//! `send.rs` and `read.rs` are for participants, `watch.rs` and `log.rs` for everybody. Messages are cleaned for the terminal.

pub mod args;
mod log;
mod location;
mod read;
mod send;
mod watch;

use super::CommandResult;
use super::context::CommandContext;
use args::{MailboxArgs, MailboxCommand};

/// Runs a subcommand.
pub async fn mailbox(args: &MailboxArgs, here: &CommandContext) -> CommandResult {
    match &args.command {
        MailboxCommand::Send(args) => send::send(args, here).await,
        MailboxCommand::Read(args) => read::read(args, here).await,
        MailboxCommand::Watch(args) => watch::watch(args, here).await,
        MailboxCommand::Roster(args) => log::roster(args, here).await,
        MailboxCommand::Log(args) => log::log(args, here).await,
    }
}
