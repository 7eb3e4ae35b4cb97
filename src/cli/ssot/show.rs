//! `longshore ssot show`: a message and its ack, whole.

use jiff::Timestamp;

use super::args::SsotShowArgs;
use super::as_json;
use super::gist::AckState;
use crate::cli::error::Shown;
use crate::cli::here::Here;
use crate::cli::{Outcome, say};
use crate::protocol::amp::store::Ssot;
use crate::report::text::sanitize_lines;

/// Carries it out.
pub(super) async fn show(args: &SsotShowArgs, here: &Here) -> Outcome {
    let repo = here.repo().await?;
    let ssot = Ssot::at(repo.root());
    let Some(entry) = ssot.entry(&args.id)? else {
        let shown = Shown::input(format!("there is no message `{}`", args.id));
        return Err(shown.hint(format!("`longshore ssot log {} --json` tells those of its task", args.id.task())));
    };
    let state = AckState::of(&entry, Timestamp::now());
    if args.json {
        say(&format!("{}\n", as_json(&entry, &state)?))?;
        return Ok(0);
    }
    // JSON escapes control characters; those that reorder text it does not.
    let mut text = sanitize_lines(&entry.message.to_json());
    text.push_str("\n\n");
    match &entry.ack {
        Some(ack) => text.push_str(&sanitize_lines(&ack.to_json())),
        None => text.push_str(&format!("ack: {}", state.say())),
    }
    text.push('\n');
    say(&text)?;
    Ok(0)
}
