//! `longshore mailbox log` and `roster`.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::args::{MailboxLogArgs, MailboxRosterArgs};
use super::location::MailboxLocation;
use crate::cli::context::CommandContext;
use crate::cli::{CommandResult, ExitStatus, print_stderr, print_stdout};
use crate::protocol::mailbox::agent_mailbox::{InvalidFile, read_all_messages};
use crate::protocol::mailbox::message::{AgentId, MailboxMessage};
use crate::protocol::mailbox::order::conversation_order;
use crate::protocol::mailbox::pending::pending_replies;
use crate::protocol::mailbox::show;
use crate::protocol::mailbox::store::{AGENTS_DIR, Mailbox};
use crate::protocol::mailbox::text::render;

/// Carries out `log`.
pub(super) async fn log(args: &MailboxLogArgs, here: &CommandContext) -> CommandResult {
    let mailbox = MailboxLocation::resolve(&args.location, here).await?.open_mailbox()?;
    let (messages, bad) = read_all_messages(&mailbox)?;
    warn_bad_files(&bad);
    if messages.is_empty() {
        print_stderr("nothing was said");
    }
    for message in sort_chronologically(&mailbox, messages).iter().filter(|message| involves_any(message, &args.agents))
    {
        print_stdout(&format_message(message, args.full, args.location.json))?;
    }
    Ok(ExitStatus::Success)
}

/// Messages as they were said. Of one second the file's time may say more: it was sent before that.
pub(super) fn sort_chronologically(mailbox: &Mailbox, messages: Vec<MailboxMessage>) -> Vec<MailboxMessage> {
    let time = |message: &MailboxMessage| {
        let file = mailbox.root().join(AGENTS_DIR).join(message.from.as_str()).join(message.seq.file_name());
        let written = std::fs::symlink_metadata(file).and_then(|meta| meta.modified());
        let written = written.ok().and_then(|time| Timestamp::try_from(time).ok());
        let within = SignedDuration::from_millis(999);
        let latest = message.timestamp.checked_add(within).unwrap_or(message.timestamp);
        written.unwrap_or(latest).clamp(message.timestamp, latest)
    };
    conversation_order(messages, |message| message, time)
}

/// Whether a message is of one of these, or for one. Of nobody in particular: yes.
fn involves_any(message: &MailboxMessage, agents: &[AgentId]) -> bool {
    agents.is_empty() || agents.iter().any(|agent| message.from == *agent || message.to.is_for(agent))
}

/// A message as `log` and `watch` have it.
pub(super) fn format_message(message: &MailboxMessage, full: bool, json: bool) -> String {
    match (json, full) {
        (true, _) => format!("{}\n", show::message_json(message)),
        (false, true) => format!("==== {}\n{}\n", message.reference(), show::strip_control_chars(&render(message))),
        (false, false) => show::message_summary(message) + "\n",
    }
}

pub(super) fn warn_bad_files(bad: &[InvalidFile]) {
    for bad in bad {
        print_stderr(&show::render_invalid_file(bad));
    }
}

/// Carries out `roster`.
pub(super) async fn roster(args: &MailboxRosterArgs, here: &CommandContext) -> CommandResult {
    let mailbox = MailboxLocation::resolve(&args.location, here).await?.open_mailbox()?;
    let (messages, bad) = read_all_messages(&mailbox)?;
    warn_bad_files(&bad);
    let (now, rows) = (Timestamp::now(), mailbox.roster()?.entries());
    let open = pending_replies(&messages, &rows, now);
    let participants = show::participants(rows, &mailbox.agents()?, &messages);
    if args.location.json {
        for participant in &participants {
            print_stdout(&format!("{}\n", show::participant_json(participant)))?;
        }
        for open in &open {
            print_stdout(&format!("{}\n", json!({ "pending": show::pending_json(open) })))?;
        }
        return Ok(ExitStatus::Success);
    }
    print_stdout(&show::render_roster(&participants))?;
    for open in &open {
        print_stdout(&format!("{}\n", show::render_pending(open, now)))?;
    }
    Ok(ExitStatus::Success)
}
