//! The files of an outbox: which of them are messages. Used by `store.rs` and `machine.rs`. Pure.

use std::collections::BTreeMap;

use super::message::{AgentId, MailboxMessage, Seq};
use super::rules::{self, MailboxViolation};
use super::text;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutboxListing {
    /// The files that can be messages, by number. If two files have one number (`3.md`, `003.md`), the name of the spec wins.
    pub files: BTreeMap<Seq, String>,
    /// Other names that end with `.md`, at most 100.
    pub unnumbered: Vec<String>,
}

/// The result of reading a message's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadOutcome {
    /// A message whose sender and number are those of its outbox and file name.
    Message(Box<MailboxMessage>),
    /// Not a message.
    Invalid(MailboxViolation),
    /// There is no such file.
    Missing,
}

/// A file in an outbox that is not a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidFile {
    pub agent: AgentId,
    pub name: String,
    pub violation: MailboxViolation,
}

/// Parses a file of `agent`'s outbox. Its sender and number must be those of the outbox and of the file's name.
pub fn parse_outbox_file(agent: &AgentId, seq: Seq, bytes: &[u8]) -> Result<MailboxMessage, MailboxViolation> {
    let message = text::parse(bytes)?;
    if message.from != *agent {
        let problem = format!("`from` is `{}`, in the outbox of `{agent}`", message.from);
        return Err(MailboxViolation::new(rules::FROM, problem));
    }
    if message.seq != seq {
        return Err(MailboxViolation::new(rules::SEQ, format!("`seq` is `{}`, in the file of `{seq}`", message.seq)));
    }
    Ok(message)
}
