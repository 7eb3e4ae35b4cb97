//! Agents and their mailbox in a real directory.

use std::fs;

use super::super::message::Priority;
use super::super::roster::RosterEntry;
use super::super::tests::fixtures::{id, now};
use super::*;

fn at(millis: i64) -> Timestamp {
    now() + jiff::SignedDuration::from_millis(millis)
}

struct AgentMailboxFixture {
    dir: tempfile::TempDir,
}

impl AgentMailboxFixture {
    fn new() -> Self {
        let fixture = Self { dir: tempfile::tempdir().expect("a directory") };
        Mailbox::create(&fixture.root()).expect("created");
        fixture
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("amp")
    }

    fn agent_mailbox(&self, agent: &str) -> AgentMailbox {
        let mailbox = Mailbox::open(&self.root()).expect("a mailbox");
        AgentMailbox::new(mailbox, id(agent), &self.dir.path().join("private").join(agent))
    }

    fn send(&self, from: &str, to: &str, body: &str) -> String {
        let draft = MailboxDraft::new(to.parse().expect("a recipient"), MailboxMessageType::Status, "s", body);
        self.agent_mailbox(from).send(&draft, at(0)).expect("sent")[0].reference().to_string()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.root().join("agents").join(name)
    }

    /// The messages and warnings of an agent.
    fn read(&self, agent: &str, now: Timestamp) -> Vec<String> {
        let batch = self.agent_mailbox(agent).collect(now).expect("collected");
        let messages = batch.messages.iter().map(|delivered| delivered.message.content.body.clone());
        let words = messages.chain(batch.warnings.iter().map(super::super::show::render_warning)).collect();
        batch.commit().expect("committed");
        words
    }
}

/// Polling Protocol.
#[test]
fn committed_messages_are_read_once_and_uncommitted_ones_again() {
    let fixture = AgentMailboxFixture::new();
    fixture.send("alpha", "bravo", "one");
    fixture.send("alpha", "*", "two");
    let batch = fixture.agent_mailbox("bravo").collect(at(0)).expect("collected");
    assert_eq!(batch.messages.len(), 2);
    drop(batch);
    assert_eq!(fixture.read("bravo", at(0)), ["one", "two"]);
    assert_eq!(fixture.read("bravo", at(0)), [""; 0]);
    assert_eq!(fixture.read("alpha", at(0)), [""; 0], "own messages are not read");
    assert_eq!(fixture.read("charlie", at(0)), ["two"]);
    assert_eq!(fixture.agent_mailbox("bravo").history(at(0)).expect("read").len(), 2);
}

/// Error Handling.
#[test]
fn the_sender_resends_missing_messages() {
    let fixture = AgentMailboxFixture::new();
    for body in ["one", "two", "three"] {
        fixture.send("alpha", "bravo", body);
    }
    let lost = fixture.file("alpha/002.md");
    let bytes = fs::read(&lost).expect("a file");
    fs::remove_file(&lost).expect("removed");
    assert_eq!(fixture.read("bravo", at(0)), ["one"]);
    assert_eq!(fixture.read("bravo", at(300)), [""; 0], "now it is asked for");
    // Sequence gap: "Send ERROR requesting resend".
    let ask = fs::read_to_string(fixture.file("bravo/001.md")).expect("a file");
    for line in ["<!-- to: alpha -->", "<!-- type: ERROR -->", "<!-- re: alpha/002 -->", "Please send alpha/002 again"]
    {
        assert!(ask.lines().any(|found| found == line), "{ask}");
    }
    assert_eq!(fixture.read("alpha", at(400)), [""; 0], "alpha is not bothered with it");
    assert_eq!(fs::read(&lost).expect("it is there again"), bytes);
    assert_eq!(fixture.read("bravo", at(500)), ["two", "three"]);
}

/// Known Issues.
#[test]
fn torn_messages_are_restored_and_missing_copies_are_reported() {
    let fixture = AgentMailboxFixture::new();
    for body in ["one", "two", "three"] {
        fixture.send("alpha", "bravo", body);
    }
    fs::write(fixture.file("alpha/001.md"), "<!-- amp-ver").expect("torn");
    fixture.read("bravo", at(0));
    fixture.read("bravo", at(1000));
    fixture.read("alpha", at(1100));
    assert_eq!(fixture.read("bravo", at(1200)), ["one", "two", "three"]);
    // Without the copy it is an ERROR, and bravo goes on with a warning.
    fixture.send("alpha", "bravo", "four");
    fixture.send("alpha", "bravo", "five");
    fs::remove_file(fixture.file("alpha/004.md")).expect("removed");
    fs::remove_dir_all(fixture.dir.path().join("private/alpha/sent")).expect("removed");
    fixture.read("bravo", at(2000));
    fixture.read("bravo", at(2300));
    fixture.read("alpha", at(2400));
    let warning = "alpha/004 is missing and was not sent again; later messages were delivered";
    assert_eq!(fixture.read("bravo", at(2500)), ["five", warning], "at once: alpha has said that it will not come");
    assert_eq!(fixture.read("bravo", at(40_000)), [""; 0]);
    assert_eq!(fixture.read("charlie", at(40_000)), [""; 0], "the question and its answer are for nobody to read");
    assert!(
        fs::read_to_string(fixture.file("alpha/006.md")).expect("a file").contains("alpha/004 cannot be sent again")
    );
    assert_eq!(fixture.read("alpha", at(50_000)), [""; 0]);
    assert!(
        !fixture.file("alpha/007.md").exists() && !fixture.file("bravo/004.md").exists(),
        "and nobody answers the answer"
    );
}

/// Error Handling.
#[test]
fn repeated_resend_requests_are_answered_once() {
    let fixture = AgentMailboxFixture::new();
    for body in ["one", "two", "three"] {
        fixture.send("alpha", "bravo", body);
    }
    fs::remove_file(fixture.file("alpha/002.md")).expect("removed");
    fs::remove_dir_all(fixture.dir.path().join("private/alpha/sent")).expect("removed");
    let ask = |number: u32| {
        let subject = format!("Please send alpha/{number:03} again");
        let draft = MailboxDraft::new("alpha".parse().expect("one"), MailboxMessageType::Error, subject, "");
        fixture.agent_mailbox("mallory").send(&draft, at(0)).expect("sent");
    };
    let answers = || fs::read_dir(fixture.file("alpha")).expect("a directory").count() - 3;
    let before = answers();
    // What was never sent, and what is gone, in one go and again.
    for _ in 0..2 {
        (1..30).rev().for_each(ask);
        (0..30).for_each(|_| ask(2));
        fixture.read("alpha", at(0));
        ask(2);
        fixture.read("alpha", at(0));
        assert_eq!(answers() - before, 1, "what is gone was named");
    }
    // Whoever else asks is answered all the same.
    let draft =
        MailboxDraft::new("alpha".parse().expect("one"), MailboxMessageType::Error, "Please send alpha/003 again", "");
    fixture.agent_mailbox("bravo").send(&draft, at(0)).expect("sent");
    fixture.send("alpha", "bravo", "five");
    fs::remove_file(fixture.file("alpha/005.md")).expect("removed");
    let draft =
        MailboxDraft::new("alpha".parse().expect("one"), MailboxMessageType::Error, "Please send alpha/005 again", "");
    (1..30).for_each(|number| ask(number + 100));
    fixture.agent_mailbox("bravo").send(&draft, at(0)).expect("sent");
    fixture.read("alpha", at(0));
    assert!(fixture.file("alpha/005.md").exists());
}

/// Error Handling.
#[test]
fn a_returning_agent_is_awaited_and_reported() {
    let fixture = AgentMailboxFixture::new();
    let alpha = fixture.agent_mailbox("alpha");
    let begins = |seconds: i64| {
        let row = RosterEntry::new(id("bravo"), "r", None, at(seconds * 1000));
        alpha
            .mailbox()
            .update_roster(|roster| {
                roster.add(&row);
                Ok(true)
            })
            .expect("written");
    };
    begins(0);
    assert_eq!(fixture.read("alpha", at(0)), [""; 0]);
    alpha.mailbox().set_status(&id("bravo"), &AgentStatus::Crashed).expect("changed");
    assert_eq!(fixture.read("alpha", at(0)), [""; 0]);
    begins(3);
    let back = "bravo was gone and has started again: it may not know what was said before";
    assert_eq!(fixture.read("alpha", at(0)), [back]);
    assert_eq!(fixture.read("alpha", at(0)), [""; 0], "once");
    // Also where nobody looked in between.
    begins(6);
    assert_eq!(fixture.read("alpha", at(0)), [back]);
    assert_eq!(fixture.read("charlie", at(0)), [""; 0], "who has not known it before has nothing to hear");
}

#[test]
fn history_returns_messages_in_conversation_order() {
    let fixture = AgentMailboxFixture::new();
    let draft =
        |to: &str, body: &str| MailboxDraft::new(to.parse().expect("one"), MailboxMessageType::Request, "s", body);
    let say =
        |from: &str, draft: &MailboxDraft| fixture.agent_mailbox(from).send(draft, at(0)).expect("sent")[0].reference();
    let asked = say("bravo", &draft("*", "first"));
    let answered = say("alpha", &draft("charlie", "second").in_reply_to(asked));
    say("bravo", &draft("charlie", "third").in_reply_to(answered));
    let messages = fixture.agent_mailbox("charlie").history(at(0)).expect("read");
    let bodies: Vec<&str> = messages.iter().map(|delivered| delivered.message.content.body.as_str()).collect();
    assert_eq!(bodies, ["first", "second", "third"], "all of one second");
}

/// Message Format.
#[test]
fn invalid_files_are_reported_and_skipped() {
    let fixture = AgentMailboxFixture::new();
    fixture.send("alpha", "bravo", "one");
    let good = fs::read_to_string(fixture.file("alpha/001.md")).expect("a file");
    fs::write(fixture.file("alpha/002.md"), good.replace("001", "007")).expect("written");
    fs::write(fixture.file("alpha/003.md"), good.replace("001", "003").replace("\none\n", "\nthree\n"))
        .expect("written");
    assert_eq!(fixture.read("bravo", at(0)), ["one"]);
    fixture.read("bravo", at(1000));
    let delivered = fixture.read("bravo", at(31_000));
    let warning = "alpha/002 is not a message and was skipped: `seq` is `007`, in the file of `002` (rule `seq`)";
    assert_eq!(delivered, ["three", warning]);
    fs::write(fixture.file("alpha/notes.md"), "").expect("written");
    let (messages, bad) = fixture.agent_mailbox("bravo").mailbox().read_all().expect("all");
    assert_eq!(messages.len(), 3, "with bravo's question");
    let bad: Vec<&str> = bad.iter().map(|bad| bad.violation.rule).collect();
    assert_eq!(bad, [rules::SEQ, rules::FILE_NAME]);
}

#[test]
fn used_seq_numbers_are_never_reused() {
    let fixture = AgentMailboxFixture::new();
    assert_eq!([fixture.send("alpha", "*", "one"), fixture.send("alpha", "*", "two")], ["alpha/001", "alpha/002"]);
    fs::remove_file(fixture.file("alpha/002.md")).expect("removed");
    assert_eq!(fixture.send("alpha", "*", "three"), "alpha/003");
    fs::remove_file(fixture.file("alpha/003.md")).expect("removed");
    fs::remove_dir_all(fixture.dir.path().join("private/alpha/sent")).expect("removed");
    assert_eq!(fixture.send("alpha", "*", "four"), "alpha/004");
}

#[test]
fn a_message_in_parts_is_found_by_any_of_them() {
    let fixture = AgentMailboxFixture::new();
    let body: String = (0..3000).map(|n| format!("line {n}\n")).collect();
    fixture.send("alpha", "bravo", &body);
    for seq in ["alpha/001", "alpha/3"] {
        let found = fixture
            .agent_mailbox("bravo")
            .find(&seq.parse().expect("a reference"))
            .expect("readable")
            .expect("it is there");
        assert_eq!((found.seq.get(), found.part, found.content.body.as_str()), (1, None, body.trim_end()));
    }
    let nothing = fixture.agent_mailbox("bravo").find(&"alpha/009".parse().expect("a reference")).expect("readable");
    assert_eq!(nothing, Err("there is no message alpha/009".to_owned()));
    assert_eq!(fixture.read("bravo", at(0)), [body.trim_end()]);
}

#[test]
fn draft_warnings_name_unknown_and_gone_recipients() {
    let fixture = AgentMailboxFixture::new();
    let alpha = fixture.agent_mailbox("alpha");
    for (agent, status) in [("bravo", AgentStatus::Active), ("charlie", AgentStatus::Crashed)] {
        alpha.mailbox().register(&RosterEntry::new(id(agent), "r", None, at(0))).expect("registered");
        alpha.mailbox().set_status(&id(agent), &status).expect("changed");
    }
    let warning = |to: &str| {
        let draft = MailboxDraft {
            priority: Priority::High,
            ..MailboxDraft::new(to.parse().expect("one"), MailboxMessageType::Status, "s", "b")
        };
        alpha.draft_warning(&draft).expect("readable").unwrap_or_default()
    };
    assert_eq!(["*", "bravo"].map(warning), ["", ""]);
    assert_eq!(warning("charlie"), "charlie is gone (`crashed`)");
    assert!(warning("delta").starts_with("no agent is called delta") && warning("alpha").contains("yourself"));
}

#[test]
fn a_torn_snapshot_restarts_reading_and_symlinks_are_not_followed() {
    let fixture = AgentMailboxFixture::new();
    fixture.send("alpha", "bravo", "one");
    fixture.read("bravo", at(0));
    let read_state = fixture.dir.path().join("private/bravo/read.json");
    fs::write(&read_state, "{\"senders\":{\"al").expect("torn");
    assert_eq!(fixture.read("bravo", at(0)), ["one"]);
    let outside = fixture.dir.path().join("outside");
    fs::rename(&read_state, &outside).expect("moved");
    std::os::unix::fs::symlink(&outside, &read_state).expect("linked");
    assert_eq!(fixture.read("bravo", at(0)), ["one"]);
    assert!(read_state.symlink_metadata().expect("a file").is_file());
}
