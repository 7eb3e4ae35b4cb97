//! The participants of a mailbox: roster and outboxes combined. Used by `show.rs` and the `roster` commands. Pure.

use jiff::Timestamp;

use super::message::{AgentId, MailboxMessage, MailboxMessageType};
use super::roster::{AgentStatus, RosterEntry};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Participant {
    /// Empty but for the id if the agent is not registered.
    pub entry: RosterEntry,
    pub registered: bool,
    /// The number of messages.
    pub sent: usize,
    pub last_sent: Option<Timestamp>,
    /// The last message is a DONE.
    pub said_done: bool,
}

/// Lists every agent that is registered or has an outbox.
pub fn participants(rows: Vec<RosterEntry>, outboxes: &[AgentId], messages: &[MailboxMessage]) -> Vec<Participant> {
    let unregistered: Vec<RosterEntry> = outboxes
        .iter()
        .filter(|agent| !rows.iter().any(|row| row.id == **agent))
        .map(|agent| RosterEntry {
            id: agent.clone(),
            role: String::new(),
            pid: None,
            started: None,
            status: AgentStatus::Other("-".into()),
        })
        .collect();
    let participant = |(entry, registered): (RosterEntry, bool)| {
        let own = || messages.iter().filter(|message| message.from == entry.id);
        let last = own().max_by_key(|message| message.seq);
        Participant {
            registered,
            sent: own().count(),
            last_sent: last.map(|last| last.timestamp),
            said_done: last.is_some_and(|last| last.message_type == MailboxMessageType::Done),
            entry,
        }
    };
    let registered = rows.into_iter().map(|row| (row, true));
    registered.chain(unregistered.into_iter().map(|row| (row, false))).map(participant).collect()
}
