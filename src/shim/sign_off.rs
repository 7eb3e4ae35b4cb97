//! DONE on behalf of an agent whose work ended well and who said nothing (Shutdown, 1): others may be waiting for it.
//!
//! Used by `attempt.rs` and `review.rs`, once the work is written down. Must not: fail what the mailbox is no part of.

use std::path::PathBuf;

use jiff::Timestamp;

use super::layout::Layout;
use crate::handoff::assignment::MailboxMembership;
use crate::ids::AgentId;
use crate::protocol::mailbox::message::{MailboxDraft, MailboxMessageType, MessageRecipient, Seq};
use crate::protocol::mailbox::store::{Mailbox, MailboxResult, ReadOutcome};

/// An agent's place in the mailbox, as it was when its sandbox began.
#[derive(Debug, Clone)]
pub struct SignOff {
    root: PathBuf,
    agent: AgentId,
    /// The last message of earlier attempts.
    last_seq_before: Option<Seq>,
}

impl SignOff {
    /// Notes what was said before.
    pub fn new(layout: &Layout, seat: &MailboxMembership) -> Self {
        let (root, agent) = (layout.mailbox_volume(), seat.agent.clone());
        let listed = Mailbox::open(&root).and_then(|mailbox| mailbox.list_outbox(&agent));
        let before = listed.ok().and_then(|listing| listing.files.into_keys().next_back());
        Self { root, agent, last_seq_before: before }
    }

    /// Says DONE to all, where the agent has not. Whether it had to.
    ///
    /// # Errors
    /// The mailbox cannot be read or written.
    pub fn send_done_if_missing(&self, what: &str) -> MailboxResult<bool> {
        let mailbox = Mailbox::open(&self.root)?;
        let mut done = false;
        for (seq, name) in mailbox.list_outbox(&self.agent)?.files {
            if Some(seq) > self.last_seq_before
                && let ReadOutcome::Message(message) = mailbox.read_message(&self.agent, seq, &name)?
                && message.message_type != MailboxMessageType::Error
            {
                done = message.message_type == MailboxMessageType::Done;
            }
        }
        if done {
            return Ok(false);
        }
        let body = format!("{what}. Said by longshore, because the agent ended without a word.");
        let draft = MailboxDraft::new(MessageRecipient::Broadcast, MailboxMessageType::Done, "Signing off", body);
        mailbox.send(&self.agent, &draft, self.last_seq_before, Timestamp::now()).map(|_| true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn done_is_sent_once_per_attempt() {
        let folder = tempfile::tempdir().expect("a folder");
        let layout = Layout::with_root(folder.path());
        let mailbox = Mailbox::create(&layout.mailbox_volume()).expect("made");
        let seat =
            MailboxMembership { agent: "alpha".parse().expect("an id"), role: "coder".to_owned(), peers: Vec::new() };
        let kinds = || -> Vec<MailboxMessageType> {
            let files = mailbox.list_outbox(&seat.agent).expect("listed").files;
            let read = |(seq, name): (Seq, String)| match mailbox.read_message(&seat.agent, seq, &name).expect("read") {
                ReadOutcome::Message(message) => message.message_type,
                other => panic!("{other:?}"),
            };
            files.into_iter().map(read).collect()
        };
        let first = SignOff::new(&layout, &seat);
        assert!(first.send_done_if_missing("US-001 is done").expect("said"));
        assert!(!first.send_done_if_missing("US-001 is done").expect("heard"));
        assert_eq!(kinds(), [MailboxMessageType::Done]);
        // What an earlier attempt said does not count, what the agent says does.
        let second = SignOff::new(&layout, &seat);
        let own = MailboxDraft::new(MessageRecipient::Broadcast, MailboxMessageType::Done, "Bye", "");
        mailbox.send(&seat.agent, &own, None, Timestamp::now()).expect("sent");
        assert!(!second.send_done_if_missing("US-001 is done").expect("heard"));
        assert!(SignOff::new(&layout, &seat).send_done_if_missing("US-001 is done").expect("said"));
        assert_eq!(kinds(), [MailboxMessageType::Done; 3]);
        // A DONE behind which more was said is none, whatever was asked for again.
        let third = SignOff::new(&layout, &seat);
        for kind in [MailboxMessageType::Done, MailboxMessageType::Status] {
            let said = MailboxDraft::new(MessageRecipient::Broadcast, kind, "s", "b");
            mailbox.send(&seat.agent, &said, None, Timestamp::now()).expect("sent");
        }
        assert!(third.send_done_if_missing("US-001 is done").expect("said"));
        let asks = MailboxDraft::new(MessageRecipient::Broadcast, MailboxMessageType::Error, "s", "b");
        mailbox.send(&seat.agent, &asks, None, Timestamp::now()).expect("sent");
        assert!(!third.send_done_if_missing("US-001 is done").expect("heard"));
    }
}
