//! `longshore ssot`: shows and validates the swarm's AMP messages.
//!
//! `log.rs`, `show.rs`, `check.rs`, `mirror.rs` and `validate.rs` are the commands, `message_summary.rs` a message in a few words,
//! `args.rs` the arguments. What messages say is partly a sandbox's text, and is cleaned for the terminal.

pub mod args;
mod check;
mod entry_json;
pub(crate) mod message_summary;
pub(crate) mod log;
mod mirror;
mod show;
mod validate;

use super::CommandResult;
use super::context::CommandContext;
use args::{SsotArgs, SsotCommand};

pub async fn ssot(args: &SsotArgs, here: &CommandContext) -> CommandResult {
    match &args.command {
        SsotCommand::Log(args) => log::log(args, here).await,
        SsotCommand::Show(args) => show::show(args, here).await,
        SsotCommand::Check(args) => check::check(args, here).await,
        SsotCommand::Mirror => mirror::mirror(here).await,
        SsotCommand::Validate(args) => validate::validate(args),
    }
}
