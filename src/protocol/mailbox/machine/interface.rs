//! What goes into the machine and what comes out of it. Pure.

use std::collections::BTreeSet;
use std::time::Duration;

use super::super::message::{AgentId, MailboxMessage, MessageRef, Seq};
use super::super::outbox::ReadOutcome;
use super::super::roster::RosterEntry;
use super::missing_range::MissingRange;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReaderTimeouts {
    /// From noticing a missing number to requesting it: files may become visible out of order.
    pub gap_grace: Duration,
    /// The same for a file that is not a message: it may be half written.
    pub bad_file_grace: Duration,
    /// From the request to giving up.
    pub resend_timeout: Duration,
    /// From one part to giving up on the next.
    pub parts_timeout: Duration,
}

impl Default for ReaderTimeouts {
    fn default() -> Self {
        Self {
            gap_grace: Duration::from_millis(300),
            bad_file_grace: Duration::from_secs(1),
            resend_timeout: Duration::from_secs(30),
            parts_timeout: Duration::from_secs(60),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MailboxEvent {
    /// All numbers for which an outbox has files.
    OutboxListed(AgentId, BTreeSet<Seq>),
    /// The answer to [`MailboxEffect::Fetch`].
    Fetched(AgentId, Seq, ReadOutcome),
    RosterRead(Vec<RosterEntry>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MailboxEffect {
    /// Read this file and report it with [`MailboxEvent::Fetched`].
    Fetch(AgentId, Seq),
    /// Pass this message to the reader.
    Deliver(Box<DeliveredMessage>),
    /// Send an ERROR that requests these messages.
    RequestResend(MissingRange),
    /// Another agent requests a range of the reader's own messages: restore those whose files are missing.
    Resend { requested_by: MessageRef, first: Seq, last: Seq },
    /// Pass this warning to the reader.
    Warn(Warning),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// These messages were given up; later ones are delivered.
    Lost(MissingRange),
    /// The message arrived after its `ttl`.
    Expired(MessageRef),
    /// The message was delivered without these parts.
    Incomplete(MessageRef, Vec<u16>),
    /// A known agent registered again.
    Returned(AgentId),
}

/// A complete message for the reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveredMessage {
    /// Joined from its parts; has the number of the first.
    pub message: MailboxMessage,
    /// The number of the last part.
    pub last_seq: Seq,
    /// The message had been given up before it arrived.
    pub late: bool,
}
