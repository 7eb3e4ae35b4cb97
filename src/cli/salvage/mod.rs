//! `longshore salvage`: the work that did not land, kept under refs: lists it, shows it, hands it over.
//!
//! `find.rs` knows the refs and which of them is meant; `list.rs`, `show.rs` and `apply.rs` are the three commands. What commits
//! and paths say is a sandbox's text, and is cleaned for the terminal.

mod apply;
mod find;
mod list;
mod show;

use super::CommandResult;
use super::args::{SalvageArgs, SalvageCommand};
use super::context::CommandContext;

pub async fn salvage(args: &SalvageArgs, here: &CommandContext) -> CommandResult {
    match &args.command {
        None => list::list(&args.list, here).await,
        Some(SalvageCommand::List(args)) => list::list(args, here).await,
        Some(SalvageCommand::Show(args)) => show::show(args, here).await,
        Some(SalvageCommand::Apply(args)) => apply::apply(args, here).await,
    }
}
