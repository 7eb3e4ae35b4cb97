//! Changes in a mailbox, with and without inotify.

use super::super::message::{AgentId, MailboxDraft, MailboxMessageType, MessageRecipient};
use super::super::store::Mailbox;
use super::super::tests::fixtures::id;
use super::*;

fn test_deadline() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

/// How long it takes to notice the first message of a new outbox.
fn notice_delay(watch: &mut MailboxWatcher, mailbox: &Mailbox, agent: &AgentId, draft: &MailboxDraft) -> Duration {
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            let mailbox = Mailbox::open(mailbox.root()).expect("a mailbox");
            mailbox.send(agent, draft, None, jiff::Timestamp::now()).expect("sent");
            Instant::now()
        });
        while mailbox.list_outbox(agent).expect("a listing").files.is_empty() {
            assert_eq!(watch.wait(test_deadline()), WatchOutcome::Changed);
        }
        let noticed = Instant::now();
        noticed.saturating_duration_since(sender.join().expect("the message is sent"))
    })
}

fn assert_changes_are_noticed(mut watch: MailboxWatcher, root: &Path) {
    let mailbox = Mailbox::open(root).expect("a mailbox");
    let draft = MailboxDraft::new(MessageRecipient::Broadcast, MailboxMessageType::Status, "s", "b");
    let now = jiff::Timestamp::now;
    assert_eq!(watch.wait(Instant::now() + Duration::from_millis(250)), WatchOutcome::TimedOut);
    // A busy machine may delay some of the notices, but not all.
    let agents: Vec<AgentId> = (0..10).map(|number| id(&format!("agent-{number}"))).collect();
    let delays = agents.iter().map(|agent| notice_delay(&mut watch, &mailbox, agent, &draft));
    assert!(delays.into_iter().any(|delay| delay < Duration::from_millis(200)));
    let alpha = id("alpha");
    // Changes while nobody waits are not lost.
    let settle = |watch: &mut MailboxWatcher| {
        while watch.wait(Instant::now() + Duration::from_millis(200)) == WatchOutcome::Changed {}
    };
    settle(&mut watch);
    mailbox.send(&alpha, &draft, None, now()).expect("sent");
    assert_eq!(watch.wait(test_deadline()), WatchOutcome::Changed);
    settle(&mut watch);
    mailbox.register(&super::super::roster::RosterEntry::new(id("bravo"), "b", None, now())).expect("registered");
    assert_eq!(watch.wait(test_deadline()), WatchOutcome::Changed);
    settle(&mut watch);
    // Other programs write in place.
    std::fs::write(root.join("shared/STATE.md"), "# Shared State\n").expect("written");
    assert_eq!(watch.wait(test_deadline()), WatchOutcome::Changed);
    settle(&mut watch);
    std::fs::write(root.join("shared/STATE.md"), "# Shared State\n\nmore\n").expect("written");
    assert_eq!(watch.wait(test_deadline()), WatchOutcome::Changed);
    settle(&mut watch);
    // Reading is not a change.
    mailbox.roster().expect("a roster");
    mailbox.read_shared(&"STATE.md".parse().expect("a name")).expect("readable");
    assert_eq!(watch.wait(Instant::now() + Duration::from_millis(300)), WatchOutcome::TimedOut);
}

/// Polling Frequency.
#[test]
fn changes_are_reported_at_once() {
    let root = tempfile::tempdir().expect("a directory");
    Mailbox::create(root.path()).expect("created");
    let watch = MailboxWatcher::new(root.path());
    assert_eq!(watch.notifier.is_some(), cfg!(target_os = "linux"));
    assert_changes_are_noticed(watch, root.path());
}

/// Polling Frequency.
#[test]
fn changes_are_found_by_polling_without_inotify() {
    let root = tempfile::tempdir().expect("a directory");
    Mailbox::create(root.path()).expect("created");
    assert_changes_are_noticed(MailboxWatcher::polling(root.path()), root.path());
}
