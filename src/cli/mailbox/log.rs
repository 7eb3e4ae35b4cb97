//! `longshore mailbox log` and `longshore mailbox roster`.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::args::{MailboxLocationArgs, MailboxLogArgs};
use super::location::MailboxLocation;
use crate::cli::context::CommandContext;
use crate::cli::{CommandResult, ExitStatus, print_stderr, print_stdout};
use crate::protocol::mailbox::layout::AGENTS_DIR;
use crate::protocol::mailbox::message::{AgentId, MailboxMessage};
use crate::protocol::mailbox::order::conversation_order;
use crate::protocol::mailbox::outbox::InvalidFile;
use crate::protocol::mailbox::participant::participants;
use crate::protocol::mailbox::pending::pending_replies;
use crate::protocol::mailbox::show;
use crate::protocol::mailbox::store::Mailbox;
use crate::protocol::mailbox::text::render;

pub(super) async fn log(args: &MailboxLogArgs, here: &CommandContext) -> CommandResult {
    let mailbox = MailboxLocation::resolve(&args.location, here).await?.open_mailbox()?;
    let (messages, invalid) = mailbox.read_all()?;
    warn_invalid_files(&invalid);
    if messages.is_empty() {
        print_stderr("the mailbox has no messages");
    }
    for message in sort_chronologically(&mailbox, messages) {
        if involves_any(&message, &args.agents) {
            print_stdout(&format_message(&message, args.full, args.location.json))?;
        }
    }
    Ok(ExitStatus::Success)
}

/// Sorts messages in the order of the conversation. The file's modification time refines a timestamp within its second.
pub(super) fn sort_chronologically(mailbox: &Mailbox, messages: Vec<MailboxMessage>) -> Vec<MailboxMessage> {
    let time = |message: &MailboxMessage| {
        let file = mailbox.root().join(AGENTS_DIR).join(message.from.as_str()).join(message.seq.file_name());
        let written = std::fs::symlink_metadata(file).and_then(|meta| meta.modified());
        let written = written.ok().and_then(|time| Timestamp::try_from(time).ok());
        let latest = message.timestamp.checked_add(SignedDuration::from_millis(999)).unwrap_or(message.timestamp);
        written.unwrap_or(latest).clamp(message.timestamp, latest)
    };
    conversation_order(messages, |message| message, time)
}

/// Whether a message is from or to one of the agents. Without agents, every message is.
fn involves_any(message: &MailboxMessage, agents: &[AgentId]) -> bool {
    agents.is_empty() || agents.iter().any(|agent| message.from == *agent || message.to.is_for(agent))
}

/// A message as `log` and `watch` print it.
pub(super) fn format_message(message: &MailboxMessage, full: bool, json: bool) -> String {
    match (json, full) {
        (true, _) => format!("{}\n", show::message_json(message)),
        (false, true) => format!("==== {}\n{}\n", message.reference(), show::strip_control_chars(&render(message))),
        (false, false) => show::message_summary(message) + "\n",
    }
}

pub(super) fn warn_invalid_files(invalid: &[InvalidFile]) {
    for file in invalid {
        print_stderr(&show::render_invalid_file(file));
    }
}

pub(super) async fn roster(args: &MailboxLocationArgs, here: &CommandContext) -> CommandResult {
    let mailbox = MailboxLocation::resolve(args, here).await?.open_mailbox()?;
    let (messages, invalid) = mailbox.read_all()?;
    warn_invalid_files(&invalid);
    let (now, rows, json) = (Timestamp::now(), mailbox.roster()?.entries(), args.json);
    let pending = pending_replies(&messages, &rows, now);
    print_stdout(&show::format_participants(&participants(rows, &mailbox.agents()?, &messages), json))?;
    for pending in &pending {
        print_stdout(&if json {
            format!("{}\n", json!({ "pending": show::pending_json(pending) }))
        } else {
            format!("{}\n", show::render_pending(pending, now))
        })?;
    }
    Ok(ExitStatus::Success)
}
