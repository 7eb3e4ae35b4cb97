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
use super::error::{CommandError, CommandErrorKind};
use crate::protocol::mailbox::store::MailboxError;
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

impl From<MailboxError> for CommandError {
    fn from(error: MailboxError) -> Self {
        let kind = match &error {
            MailboxError::Io { .. } | MailboxError::Locked(_) => CommandErrorKind::Machinery,
            _ => CommandErrorKind::Input,
        };
        let shown = CommandError::from_error(kind, &error);
        match &error {
            MailboxError::NoMailbox(_) => shown.with_hint("`longshore mailbox send --dir` makes one"),
            MailboxError::IdTaken { .. } => shown.with_hint("choose another id with `--as ID`"),
            _ => shown,
        }
    }
}
