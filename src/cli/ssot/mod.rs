//! `longshore ssot`: shows and validates the swarm's AMP messages.
//!
//! `log.rs`, `show.rs`, `check.rs`, `mirror.rs` and `validate.rs` are the commands, `message_summary.rs` a message in a few words,
//! `args.rs` the arguments. What messages say is partly a sandbox's text, and is cleaned for the terminal.

pub mod args;
mod check;
pub(crate) mod message_summary;
pub(crate) mod log;
mod mirror;
mod show;
mod validate;

use serde_json::{Value, json};

use super::CommandResult;
use super::context::CommandContext;
use super::error::{CommandError, CommandErrorKind};
use crate::protocol::amp::store::LogEntry;
use args::{SsotArgs, SsotCommand};
use message_summary::AckState;

pub async fn ssot(args: &SsotArgs, here: &CommandContext) -> CommandResult {
    match &args.command {
        SsotCommand::Log(args) => log::log(args, here).await,
        SsotCommand::Show(args) => show::show(args, here).await,
        SsotCommand::Check(args) => check::check(args, here).await,
        SsotCommand::Mirror => mirror::mirror(here).await,
        SsotCommand::Validate(args) => validate::validate(args),
    }
}

/// A message and its ack as `--json` has them.
fn entry_json(entry: &LogEntry, state: &AckState) -> Result<Value, CommandError> {
    let parse = |text: String| serde_json::from_str::<Value>(&text);
    let message = parse(entry.message.to_json())
        .map_err(|error| CommandError::from_error(CommandErrorKind::Machinery, &error))?;
    let ack = entry.ack.as_ref().map(|ack| parse(ack.to_json())).transpose();
    let ack = ack.map_err(|error| CommandError::from_error(CommandErrorKind::Machinery, &error))?;
    Ok(json!({ "message": message, "ack": ack, "ack_state": state.as_str(), "ack_seconds": state.seconds() }))
}
