//! `longshore ssot show`: a message and its ack, whole.

use jiff::Timestamp;

use super::args::SsotShowArgs;
use super::entry_json::entry_json;
use super::message_summary::AckState;
use crate::cli::context::CommandContext;
use crate::cli::error::CommandError;
use crate::cli::output::print_json_line;
use crate::cli::{CommandResult, ExitStatus, print_stdout};
use crate::protocol::amp::store::Ssot;
use crate::report::text::sanitize_lines;

pub(super) async fn show(args: &SsotShowArgs, here: &CommandContext) -> CommandResult {
    let repo = here.discover_repo().await?;
    let ssot = Ssot::open_read_only(repo.root());
    let Some(entry) = ssot.log_entry(&args.id)? else {
        let error = CommandError::input(format!("there is no message `{}`", args.id));
        return Err(error
            .with_hint(format!("`longshore ssot log {} --json` lists the messages of its task", args.id.task_id())));
    };
    let state = AckState::from_entry(&entry, Timestamp::now());
    if args.json {
        print_json_line(&entry_json(&entry, &state)?)?;
        return Ok(ExitStatus::Success);
    }
    // JSON escapes control characters; those that reorder text it does not.
    let mut text = sanitize_lines(&entry.message.to_json());
    text.push_str("\n\n");
    match &entry.ack {
        Some(ack) => text.push_str(&sanitize_lines(&ack.to_json())),
        None => text.push_str(&format!("ack: {}", state.describe())),
    }
    text.push('\n');
    print_stdout(&text)?;
    Ok(ExitStatus::Success)
}
