//! Sends DONE on behalf of an agent that succeeded without sending it (mailbox spec, Shutdown, 1): others may be waiting for it.
//!
//! Used by `attempt.rs` and `review.rs` once the result is on disk. Must not: fail the attempt.

use std::path::PathBuf;

use jiff::Timestamp;

use super::layout::Layout;
use crate::handoff::assignment::MailboxMembership;
use crate::ids::AgentId;
use crate::protocol::mailbox::message::{MailboxDraft, MailboxMessageType, MessageRecipient, Seq};
use crate::protocol::mailbox::store::{Mailbox, MailboxResult, ReadOutcome};

/// An agent's outbox, as it was when its sandbox started.
#[derive(Debug, Clone)]
pub struct SignOff {
    root: PathBuf,
    agent: AgentId,
    /// The last message of earlier attempts.
    last_seq_before: Option<Seq>,
}

impl SignOff {
    /// Records the last message of earlier attempts.
    pub fn new(layout: &Layout, member: &MailboxMembership) -> Self {
        let (root, agent) = (layout.mailbox_volume(), member.agent.clone());
        let listed = Mailbox::open(&root).and_then(|mailbox| mailbox.list_outbox(&agent));
        let last_seq_before = listed.ok().and_then(|listing| listing.files.into_keys().next_back());
        Self { root, agent, last_seq_before }
    }

    /// Sends DONE to everybody unless the agent has. Returns whether it was sent.
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
        let body = format!("{what}. Sent by longshore, because the agent ended without DONE.");
        let draft = MailboxDraft::new(MessageRecipient::Broadcast, MailboxMessageType::Done, "Signing off", body);
        mailbox.send(&self.agent, &draft, self.last_seq_before, Timestamp::now()).map(|_| true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn done_is_sent_once_per_attempt() {
        let dir = tempfile::tempdir().expect("a directory");
        let layout = Layout::with_root(dir.path());
        let mailbox = Mailbox::create(&layout.mailbox_volume()).expect("made");
        let member =
            MailboxMembership { agent: "alpha".parse().expect("an id"), role: "coder".to_owned(), peers: Vec::new() };
        let kinds = || -> Vec<MailboxMessageType> {
            let files = mailbox.list_outbox(&member.agent).expect("listed").files;
            let read = |(seq, name): (Seq, String)| match mailbox.read_message(&member.agent, seq, &name).expect("read")
            {
                ReadOutcome::Message(message) => message.message_type,
                other => panic!("{other:?}"),
            };
            files.into_iter().map(read).collect()
        };
        let first = SignOff::new(&layout, &member);
        assert!(first.send_done_if_missing("US-001 is done").expect("said"));
        assert!(!first.send_done_if_missing("US-001 is done").expect("heard"));
        assert_eq!(kinds(), [MailboxMessageType::Done]);
        // Messages of an earlier attempt do not count, those of the agent do.
        let second = SignOff::new(&layout, &member);
        let own = MailboxDraft::new(MessageRecipient::Broadcast, MailboxMessageType::Done, "Bye", "");
        mailbox.send(&member.agent, &own, None, Timestamp::now()).expect("sent");
        assert!(!second.send_done_if_missing("US-001 is done").expect("heard"));
        assert!(SignOff::new(&layout, &member).send_done_if_missing("US-001 is done").expect("said"));
        assert_eq!(kinds(), [MailboxMessageType::Done; 3]);
        // A DONE followed by more messages does not count. ERROR messages, which ask for a resend, do not matter.
        let third = SignOff::new(&layout, &member);
        for kind in [MailboxMessageType::Done, MailboxMessageType::Status] {
            let draft = MailboxDraft::new(MessageRecipient::Broadcast, kind, "s", "b");
            mailbox.send(&member.agent, &draft, None, Timestamp::now()).expect("sent");
        }
        assert!(third.send_done_if_missing("US-001 is done").expect("said"));
        let resend_request = MailboxDraft::new(MessageRecipient::Broadcast, MailboxMessageType::Error, "s", "b");
        mailbox.send(&member.agent, &resend_request, None, Timestamp::now()).expect("sent");
        assert!(!third.send_done_if_missing("US-001 is done").expect("heard"));
    }
}
