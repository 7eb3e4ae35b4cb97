//! `longshore mailbox`: people read along where agents talk, and take part.
//!
//! The mailbox is a swarm's copy on the host, or any folder, where agents that know nothing of longshore may be. `location.rs`
//! finds it, `send.rs` and `read.rs` are a participant's, `watch.rs` and `log.rs` anybody's. What messages say is cleaned for
//! the terminal.

pub mod args;
mod log;
mod location;
mod read;
mod send;
mod watch;

use super::CommandResult;
use super::context::CommandContext;
use args::{MailboxArgs, MailboxCommand};

/// Carries it out.
pub async fn mailbox(args: &MailboxArgs, here: &CommandContext) -> CommandResult {
    match &args.command {
        MailboxCommand::Send(args) => send::send(args, here).await,
        MailboxCommand::Read(args) => read::read(args, here).await,
        MailboxCommand::Watch(args) => watch::watch(args, here).await,
        MailboxCommand::Roster(args) => log::roster(args, here).await,
        MailboxCommand::Log(args) => log::log(args, here).await,
    }
}
