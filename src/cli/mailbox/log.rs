//! `longshore mailbox log` and `roster`.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::args::{MailboxLogArgs, MailboxRosterArgs};
use super::place::Place;
use crate::cli::error::Shown;
use crate::cli::here::Here;
use crate::cli::{Outcome, remark, say};
use crate::protocol::mailbox::message::{AgentId, Message};
use crate::protocol::mailbox::order::in_order;
use crate::protocol::mailbox::pending::pending;
use crate::protocol::mailbox::reader::{BadFile, everything};
use crate::protocol::mailbox::show;
use crate::protocol::mailbox::store::{AGENTS, Mailbox};
use crate::protocol::mailbox::text::render;

/// Carries out `log`.
pub(super) async fn log(args: &MailboxLogArgs, here: &Here) -> Outcome {
    let mailbox = Place::of(&args.place, here).await?.open()?;
    let (messages, bad) = everything(&mailbox)?;
    warn(&bad);
    if messages.is_empty() {
        remark("nothing was said");
    }
    for message in conversation(&mailbox, messages).iter().filter(|message| concerns(message, &args.agents)) {
        say(&shown(message, args.full, args.place.json))?;
    }
    Ok(0)
}

/// Messages as they were said. Of one second the file's time may say more: it was sent before that.
pub(super) fn conversation(mailbox: &Mailbox, messages: Vec<Message>) -> Vec<Message> {
    let time = |message: &Message| {
        let file = mailbox.root().join(AGENTS).join(message.from.as_str()).join(message.seq.file_name());
        let written = std::fs::symlink_metadata(file).and_then(|meta| meta.modified());
        let written = written.ok().and_then(|time| Timestamp::try_from(time).ok());
        let within = SignedDuration::from_millis(999);
        let latest = message.timestamp.checked_add(within).unwrap_or(message.timestamp);
        written.unwrap_or(latest).clamp(message.timestamp, latest)
    };
    in_order(messages, |message| message, time)
}

/// Whether a message is of one of these, or for one. Of nobody in particular: yes.
fn concerns(message: &Message, agents: &[AgentId]) -> bool {
    agents.is_empty() || agents.iter().any(|agent| message.from == *agent || message.to.is_for(agent))
}

/// A message as `log` and `watch` have it.
pub(super) fn shown(message: &Message, full: bool, json: bool) -> String {
    match (json, full) {
        (true, _) => format!("{}\n", show::message_json(message)),
        (false, true) => format!("==== {}\n{}\n", message.reference(), show::clean(&render(message))),
        (false, false) => show::summary(message) + "\n",
    }
}

pub(super) fn warn(bad: &[BadFile]) {
    for bad in bad {
        remark(&show::bad_file(bad));
    }
}

/// Carries out `roster`.
pub(super) async fn roster(args: &MailboxRosterArgs, here: &Here) -> Outcome {
    let mailbox = Place::of(&args.place, here).await?.open()?;
    let (messages, bad) = everything(&mailbox)?;
    warn(&bad);
    let (now, rows) = (Timestamp::now(), mailbox.roster()?.rows());
    let open = pending(&messages, &rows, now);
    let participants = show::participants(rows, &mailbox.agents()?, &messages);
    if args.place.json {
        for participant in &participants {
            say(&format!("{}\n", show::participant_json(participant)))?;
        }
        for open in &open {
            say(&format!("{}\n", json!({ "pending": show::pending_json(open) })))?;
        }
        return Ok::<u8, Shown>(0);
    }
    say(&show::roster(&participants))?;
    for open in &open {
        say(&format!("{}\n", show::pending(open, now)))?;
    }
    Ok(0)
}
