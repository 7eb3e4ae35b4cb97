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
use super::error::{CommandError, CommandErrorKind};
use crate::protocol::mailbox::store::MailboxError;
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

impl From<MailboxError> for CommandError {
    fn from(error: MailboxError) -> Self {
        let kind = match &error {
            MailboxError::Io { .. } | MailboxError::Locked(_) => CommandErrorKind::Machinery,
            _ => CommandErrorKind::Input,
        };
        let shown = CommandError::from_error(kind, &error);
        match &error {
            MailboxError::NoMailbox(_) => shown.with_hint("`longshore mailbox send --dir DIR` creates one"),
            MailboxError::IdTaken { .. } => shown.with_hint("choose another id with `--as ID`"),
            _ => shown,
        }
    }
}
