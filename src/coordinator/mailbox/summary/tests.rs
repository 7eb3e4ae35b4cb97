//! The summary at the end.

use super::*;
use crate::protocol::mailbox::message::{MailboxDraft, MailboxMessageType, MessageRecipient};
use crate::protocol::mailbox::roster::RosterEntry;

/// Shutdown.
#[test]
fn summary_follows_agents_text_and_appears_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let mailbox = Mailbox::create(&dir.path().join("m")).expect("created");
    let now = Timestamp::UNIX_EPOCH;
    let alpha: crate::ids::AgentId = "alpha".parse().expect("an id");
    mailbox.register(&RosterEntry::new(alpha.clone(), "coder", None, now)).expect("registered");
    let draft = MailboxDraft::new(MessageRecipient::Broadcast, MailboxMessageType::Done, "Signing off", "");
    let fifth = Seq::new(4);
    mailbox.send(&alpha, &draft, None, now).expect("sent");
    mailbox.send(&alpha, &draft, fifth, now).expect("sent");
    mailbox.set_status(&alpha, &AgentStatus::Done).expect("set");
    let own = "# Shared State\n\n## Decisions Made\n- none\n";
    mailbox.write_shared(&SharedName::state(), own).expect("written");
    for _ in 0..2 {
        write_summary(&mailbox, now).expect("written");
        let text = mailbox.read_shared(&SharedName::state()).expect("read").expect("there");
        assert!(text.starts_with(own) && text.matches("## Summary").count() == 1, "{text}");
        assert!(text.contains("| alpha | coder | done | 2 |") && text.contains("002 to 004"), "{text}");
    }
}
