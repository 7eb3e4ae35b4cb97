//! The machine, event by event.

use std::collections::BTreeSet;

use jiff::SignedDuration;

use super::super::message::{MessageContent, MessageRecipient};
use super::super::roster::RosterEntry;
use super::super::rules::{self, MailboxViolation};
use super::super::tests::fixtures::{self, id, now, seq};
use super::*;

fn at(millis: i64) -> Timestamp {
    now() + SignedDuration::from_millis(millis)
}

/// From bravo to alpha.
fn message(number: u32) -> MailboxMessage {
    let content =
        MessageContent { subject: format!("s{number}"), body: format!("b{number}"), ..MessageContent::default() };
    MailboxMessage { content, ..fixtures::message(&format!("bravo/{number}"), "alpha") }
}

/// alpha's machine, and bravo's outbox.
struct MachineFixture {
    machine: MailboxMachine,
    outbox: BTreeMap<Seq, ReadOutcome>,
}

impl MachineFixture {
    fn new() -> Self {
        let machine = MailboxMachine::new(id("alpha"), ReaderTimeouts::default(), &ReaderSnapshot::default());
        Self { machine, outbox: BTreeMap::new() }
    }

    fn put(&mut self, message: MailboxMessage) {
        self.outbox.insert(message.seq, ReadOutcome::Message(Box::new(message)));
    }

    /// Lists the outbox and fetches what is wanted; the effects in words.
    fn list_outbox(&mut self, now: Timestamp) -> Vec<String> {
        let listed = MailboxEvent::OutboxListed(id("bravo"), self.outbox.keys().copied().collect());
        self.handle_event(listed, now)
    }

    fn handle_event(&mut self, event: MailboxEvent, now: Timestamp) -> Vec<String> {
        let mut effects: std::collections::VecDeque<MailboxEffect> = self.machine.handle(event, now).into();
        let mut words = Vec::new();
        while let Some(effect) = effects.pop_front() {
            match effect {
                MailboxEffect::Fetch(agent, seq) => {
                    let read = self.outbox.get(&seq).cloned().unwrap_or(ReadOutcome::Missing);
                    effects.extend(self.machine.handle(MailboxEvent::Fetched(agent, seq, read), now));
                }
                MailboxEffect::Deliver(delivered) => {
                    let late = if delivered.late { " late" } else { "" };
                    words.push(format!("{}{late}: {}", delivered.message.seq, delivered.message.content.body));
                }
                MailboxEffect::RequestResend(missing) => words.push(missing.resend_subject()),
                MailboxEffect::Resend { requested_by, first, last } => {
                    words.push(format!("resend {first}-{last} for {requested_by}"))
                }
                MailboxEffect::Warn(Warning::Lost(missing)) => {
                    words.push(format!("lost {}-{}", missing.first, missing.last))
                }
                MailboxEffect::Warn(Warning::Expired(reference)) => words.push(format!("expired {reference}")),
                MailboxEffect::Warn(Warning::Returned(agent)) => words.push(format!("{agent} is back")),
                MailboxEffect::Warn(Warning::Incomplete(of, parts)) => words.push(format!("{of} without {parts:?}")),
            }
        }
        words
    }

    fn roster(&mut self, status: AgentStatus, now: Timestamp) -> Vec<String> {
        let row = RosterEntry { status, ..RosterEntry::new(id("bravo"), "r", None, at(0)) };
        self.handle_event(MailboxEvent::RosterRead(vec![row]), now)
    }

    /// Continues from the snapshot, as another process of the agent does.
    fn restart(&mut self) {
        let text = serde_json::to_string(&self.machine.snapshot()).expect("it can be written");
        let snapshot = serde_json::from_str(&text).expect("it can be read");
        self.machine = MailboxMachine::new(id("alpha"), ReaderTimeouts::default(), &snapshot);
        assert_eq!(self.machine.snapshot(), snapshot);
    }
}

/// Design Principles; Required Fields.
#[test]
fn messages_are_delivered_once_and_in_seq_order() {
    let mut fixture = MachineFixture::new();
    assert_eq!(fixture.list_outbox(now()), [""; 0]);
    for number in [2, 1, 3] {
        fixture.put(message(number));
    }
    assert_eq!(fixture.list_outbox(now()), ["001: b1", "002: b2", "003: b3"]);
    assert_eq!(fixture.list_outbox(now()), [""; 0]);
    fixture.restart();
    fixture.put(MailboxMessage { to: MessageRecipient::Agent(id("charlie")), ..message(4) });
    fixture.put(MailboxMessage { to: MessageRecipient::Broadcast, ..message(5) });
    assert_eq!(fixture.list_outbox(now()), ["005: b5"], "what is for others is passed over, a broadcast is for all");
    assert_eq!(fixture.machine.next_deadline(), None);
}

#[test]
fn a_gap_is_requested_and_resent_messages_are_delivered_in_order() {
    let mut fixture = MachineFixture::new();
    for number in [1, 4, 5] {
        fixture.put(message(number));
    }
    assert_eq!(fixture.list_outbox(at(0)), ["001: b1"]);
    assert_eq!(fixture.machine.next_deadline(), Some(at(300)), "it may be on its way");
    assert_eq!(fixture.list_outbox(at(299)), [""; 0]);
    fixture.restart();
    assert_eq!(fixture.list_outbox(at(300)), ["Please send bravo/002 to bravo/003 again"]);
    fixture.restart();
    assert_eq!(fixture.list_outbox(at(10_000)), [""; 0], "once");
    assert_eq!(fixture.machine.next_deadline(), Some(at(30_300)));
    fixture.put(message(2));
    assert_eq!(fixture.list_outbox(at(11_000)), ["002: b2"]);
    fixture.put(message(3));
    assert_eq!(fixture.list_outbox(at(12_000)), ["003: b3", "004: b4", "005: b5"]);
    assert_eq!(fixture.machine.next_deadline(), None);
}

/// Error Handling.
#[test]
fn lost_messages_warn_after_the_timeout_and_arrive_late() {
    let mut fixture = MachineFixture::new();
    fixture.put(message(3));
    fixture.list_outbox(at(0));
    assert_eq!(fixture.list_outbox(at(300)), ["Please send bravo/001 to bravo/002 again"]);
    assert_eq!(fixture.list_outbox(at(30_299)), [""; 0]);
    assert_eq!(fixture.list_outbox(at(30_300)), ["lost 001-002", "003: b3"]);
    fixture.restart();
    fixture.put(message(2));
    assert_eq!(fixture.list_outbox(at(40_000)), ["002 late: b2"]);
    assert_eq!(fixture.list_outbox(at(50_000)), [""; 0]);
}

#[test]
fn a_gap_of_millions_is_cheap() {
    let mut fixture = MachineFixture::new();
    fixture.put(message(999_999_999));
    fixture.list_outbox(at(0));
    assert_eq!(fixture.list_outbox(at(300)), ["Please send bravo/001 to bravo/999999998 again"]);
    assert_eq!(fixture.list_outbox(at(30_300)), ["lost 001-999999998", "999999999: b999999999"]);
    assert!(serde_json::to_string(&fixture.machine.snapshot()).expect("it can be written").len() < 10_000);
    fixture.restart();
    assert_eq!(fixture.list_outbox(at(30_400)), [""; 0]);
}

/// Known Issues.
#[test]
fn an_invalid_file_is_retried_then_given_up() {
    let mut fixture = MachineFixture::new();
    let bad = || ReadOutcome::Invalid(MailboxViolation::new(rules::REQUIRED, "`to` is missing"));
    fixture.outbox.insert(seq(1), bad());
    fixture.put(message(2));
    assert_eq!(fixture.list_outbox(at(0)), [""; 0]);
    fixture.put(message(1));
    assert_eq!(fixture.list_outbox(at(900)), ["001: b1", "002: b2"]);
    fixture.outbox.insert(seq(3), bad());
    assert_eq!(fixture.list_outbox(at(1000)), [""; 0]);
    assert_eq!(fixture.list_outbox(at(2000)), ["Please send bravo/003 again"]);
    fixture.put(message(4));
    assert_eq!(fixture.list_outbox(at(31_999)), [""; 0]);
    assert_eq!(fixture.list_outbox(at(32_000)), ["lost 003-003", "004: b4"]);
    // It is given up for good: nobody looks at it for ever.
    fixture.put(message(3));
    assert_eq!(fixture.list_outbox(at(33_000)), [""; 0]);
}

/// Error Handling.
#[test]
fn no_resend_is_requested_from_agents_that_are_gone() {
    let mut fixture = MachineFixture::new();
    fixture.put(message(2));
    fixture.list_outbox(at(0));
    assert_eq!(fixture.roster(AgentStatus::Crashed, at(100)), [""; 0]);
    assert_eq!(fixture.machine.finished_status(&id("bravo")), None, "there is something yet");
    assert_eq!(fixture.list_outbox(at(300)), ["lost 001-001", "002: b2"]);
    assert_eq!(fixture.machine.finished_status(&id("bravo")), Some(AgentStatus::Crashed));
    assert!(fixture.machine.all_finished());
    fixture.roster(AgentStatus::Active, at(400));
    assert_eq!(fixture.machine.finished_status(&id("bravo")), None, "it came back");
}

/// Shutdown.
#[test]
fn a_done_followed_by_more_messages_does_not_count() {
    let mut fixture = MachineFixture::new();
    fixture.put(MailboxMessage {
        message_type: MailboxMessageType::Done,
        to: MessageRecipient::Agent(id("charlie")),
        ..message(1)
    });
    fixture.roster(AgentStatus::Active, at(0));
    assert!(!fixture.machine.all_finished());
    assert_eq!(fixture.list_outbox(at(0)), [""; 0]);
    assert_eq!(fixture.machine.finished_status(&id("bravo")), Some(AgentStatus::Done));
    fixture.restart();
    assert_eq!(fixture.machine.finished_status(&id("bravo")), Some(AgentStatus::Done));
    fixture.put(message(2));
    assert_eq!(fixture.list_outbox(at(0)), ["002: b2"]);
    assert_eq!(fixture.machine.finished_status(&id("bravo")), None);
    // A second attempt, with a row of its own.
    fixture.put(MailboxMessage { message_type: MailboxMessageType::Done, ..message(3) });
    fixture.list_outbox(at(0));
    let row = RosterEntry::new(id("bravo"), "r", None, at(60_000));
    fixture.handle_event(MailboxEvent::RosterRead(vec![row]), at(60_000));
    assert_eq!(fixture.machine.finished_status(&id("bravo")), None);
}

/// Optional Fields.
#[test]
fn expired_messages_are_not_delivered() {
    let mut fixture = MachineFixture::new();
    fixture.put(MailboxMessage { ttl: Some(1), ..message(1) });
    fixture.put(MailboxMessage { ttl: Some(2), ..message(2) });
    assert_eq!(fixture.list_outbox(at(60_000)), ["expired bravo/001", "002: b2"]);
}

fn part(number: u32, part: &str) -> MailboxMessage {
    MailboxMessage { part: Some(part.parse().expect("a part")), ..message(number) }
}

/// Error Handling.
#[test]
fn parts_are_joined_across_restarts_and_interleaved_messages() {
    let mut fixture = MachineFixture::new();
    fixture.put(part(1, "1/3"));
    fixture.put(message(2));
    fixture.put(part(3, "2/3"));
    assert_eq!(fixture.list_outbox(at(0)), ["002: b2"]);
    fixture.restart();
    assert_eq!(fixture.list_outbox(at(0)), [""; 0], "what was delivered is not delivered again");
    fixture.put(message(4));
    assert_eq!(fixture.list_outbox(at(0)), ["004: b4"]);
    fixture.restart();
    fixture.put(part(5, "3/3"));
    assert_eq!(fixture.list_outbox(at(0)), ["001: b1\nb3\nb5"]);
    fixture.restart();
    assert_eq!(fixture.list_outbox(at(0)), [""; 0]);
}

#[test]
fn a_gap_between_parts_is_requested_across_restarts() {
    let mut fixture = MachineFixture::new();
    fixture.put(part(1, "1/2"));
    fixture.put(message(3));
    assert_eq!(fixture.list_outbox(at(0)), [""; 0]);
    fixture.restart();
    assert_eq!(fixture.list_outbox(at(200)), [""; 0]);
    fixture.restart();
    assert_eq!(fixture.list_outbox(at(300)), ["Please send bravo/002 again"]);
    fixture.restart();
    fixture.put(part(2, "2/2"));
    assert_eq!(fixture.list_outbox(at(400)), ["001: b1\nb2", "003: b3"]);
}

#[test]
fn incomplete_messages_are_delivered_after_the_parts_timeout() {
    let mut fixture = MachineFixture::new();
    fixture.put(part(1, "1/3"));
    fixture.list_outbox(at(0));
    assert_eq!(fixture.machine.next_deadline(), Some(at(60_000)));
    assert_eq!(
        fixture.list_outbox(at(60_000)),
        ["bravo/001 without [2, 3]", "001: b1\n[part 2 of 3 is missing]\n[part 3 of 3 is missing]"]
    );
    // The next message begins before the last has ended.
    fixture.put(part(2, "1/2"));
    fixture.put(part(3, "1/2"));
    fixture.put(part(4, "2/2"));
    assert_eq!(
        fixture.list_outbox(at(60_000)),
        ["bravo/002 without [2]", "002: b2\n[part 2 of 2 is missing]", "003: b3\nb4"]
    );
    // Its sender is gone.
    fixture.put(part(5, "1/2"));
    assert_eq!(fixture.list_outbox(at(60_000)), [""; 0]);
    assert_eq!(
        fixture.roster(AgentStatus::Done, at(60_000)),
        ["bravo/005 without [2]", "005: b5\n[part 2 of 2 is missing]"]
    );
    // Its head was lost.
    fixture.put(part(7, "2/2"));
    fixture.list_outbox(at(60_000));
    assert_eq!(
        fixture.list_outbox(at(60_300)),
        ["lost 006-006", "bravo/007 without [1]", "007: [part 1 of 2 is missing]\nb7"]
    );
}

#[test]
fn resend_requests_are_answered_and_not_delivered() {
    let mut fixture = MachineFixture::new();
    let ask = |number: u32, subject: &str| {
        let content = MessageContent { subject: subject.to_owned(), ..MessageContent::default() };
        MailboxMessage {
            message_type: MailboxMessageType::Error,
            re: Some("alpha/003".parse().expect("a reference")),
            content,
            ..message(number)
        }
    };
    fixture.put(ask(1, "Please send alpha/003 to alpha/005 again"));
    fixture.put(ask(2, "It went wrong"));
    fixture.put(ask(3, "Please send alpha/005 to alpha/003 again"));
    let words = fixture.list_outbox(at(0));
    assert_eq!(
        words,
        [
            "resend 003-005 for bravo/001",
            "resend 003-003 for bravo/002",
            "002: ",
            "resend 003-003 for bravo/003",
            "003: "
        ]
    );
}

#[test]
fn one_resend_request_counts_for_all_readers() {
    let mut fixture = MachineFixture::new();
    fixture.put(message(2));
    fixture.list_outbox(at(0));
    let content = MessageContent { subject: "Please send bravo/001 again".to_owned(), ..MessageContent::default() };
    let ask = MailboxMessage {
        from: id("charlie"),
        to: MessageRecipient::Agent(id("bravo")),
        message_type: MailboxMessageType::Error,
        content,
        ..message(1)
    };
    let event = MailboxEvent::OutboxListed(id("charlie"), BTreeSet::from([seq(1)]));
    assert_eq!(fixture.machine.handle(event, at(100)), [MailboxEffect::Fetch(id("charlie"), seq(1))]);
    let event = MailboxEvent::Fetched(id("charlie"), seq(1), ReadOutcome::Message(Box::new(ask)));
    assert_eq!(fixture.machine.handle(event, at(100)), []);
    assert_eq!(fixture.list_outbox(at(300)), [""; 0]);
    assert_eq!(fixture.list_outbox(at(29_999)), [""; 0]);
    assert_eq!(fixture.list_outbox(at(30_000)), ["lost 001-001", "002: b2"]);
}

#[test]
fn a_resend_request_by_others_covers_only_its_range() {
    let mut fixture = MachineFixture::new();
    for number in [2, 4] {
        fixture.put(message(number));
    }
    fixture.list_outbox(at(0));
    let content = MessageContent { subject: "Please send bravo/003 again".to_owned(), ..MessageContent::default() };
    let ask = MailboxMessage { from: id("charlie"), message_type: MailboxMessageType::Error, content, ..message(1) };
    fixture.machine.handle(MailboxEvent::OutboxListed(id("charlie"), BTreeSet::from([seq(1)])), at(100));
    fixture.machine.handle(MailboxEvent::Fetched(id("charlie"), seq(1), ReadOutcome::Message(Box::new(ask))), at(100));
    assert_eq!(fixture.list_outbox(at(300)), ["Please send bravo/001 again"]);
    fixture.put(message(1));
    assert_eq!(fixture.list_outbox(at(400)), ["001: b1", "002: b2"]);
    assert_eq!(fixture.list_outbox(at(29_999)), [""; 0], "charlie has asked for 003");
    assert_eq!(fixture.list_outbox(at(30_000)), ["lost 003-003", "004: b4"]);
}

#[test]
fn the_own_outbox_is_ignored() {
    let mut fixture = MachineFixture::new();
    let own = MailboxEvent::OutboxListed(id("alpha"), BTreeSet::from([seq(1)]));
    assert_eq!(fixture.handle_event(own, at(0)), [""; 0]);
    assert!(!fixture.machine.all_finished(), "nobody is there");
}

/// Error Handling.
#[test]
fn unavailable_messages_are_given_up_at_once() {
    let mut fixture = MachineFixture::new();
    for number in [1, 4, 5] {
        fixture.put(message(number));
    }
    fixture.list_outbox(at(0));
    fixture.list_outbox(at(300));
    assert_eq!(fixture.list_outbox(at(400)), [""; 0], "bravo may send it again");
    let answer = |number: u32, of: &str| {
        let content = MessageContent { subject: format!("{of} cannot be sent again"), ..MessageContent::default() };
        MailboxMessage {
            message_type: MailboxMessageType::Error,
            re: Some("alpha/001".parse().expect("a reference")),
            content,
            ..message(number)
        }
    };
    fixture.put(answer(6, "bravo/003"));
    assert_eq!(fixture.list_outbox(at(500)), [""; 0], "of another");
    fixture.put(MailboxMessage { to: MessageRecipient::Agent(id("charlie")), ..answer(7, "bravo/002") });
    fixture.restart();
    fixture.put(message(8));
    assert_eq!(fixture.list_outbox(at(600)), ["lost 002-003", "004: b4", "005: b5", "008: b8"]);
    assert_eq!(fixture.machine.next_deadline(), None);
}

#[test]
fn an_unavailable_reply_outweighs_later_resend_requests() {
    let mut fixture = MachineFixture::new();
    let ask = |fixture: &mut MachineFixture, number: u32| {
        let content = MessageContent { subject: "Please send bravo/001 again".to_owned(), ..MessageContent::default() };
        let ask =
            MailboxMessage { from: id("charlie"), message_type: MailboxMessageType::Error, content, ..message(number) };
        fixture.machine.handle(MailboxEvent::OutboxListed(id("charlie"), (1..=number).map(seq).collect()), at(100));
        fixture
            .machine
            .handle(MailboxEvent::Fetched(id("charlie"), seq(number), ReadOutcome::Message(Box::new(ask))), at(100));
    };
    ask(&mut fixture, 1);
    let content = MessageContent { subject: "bravo/001 cannot be sent again".to_owned(), ..MessageContent::default() };
    fixture.put(MailboxMessage { message_type: MailboxMessageType::Error, content, ..message(3) });
    fixture.put(message(2));
    assert_eq!(fixture.list_outbox(at(100)), [""; 0], "it may be on its way");
    ask(&mut fixture, 2);
    fixture.restart();
    assert_eq!(fixture.list_outbox(at(400)), ["lost 001-001", "002: b2"]);
}

#[test]
fn the_snapshot_format_is_stable() {
    let json = r#"{"senders":{"bravo":{"next":3,"settled":[5],"lost":[1,2],"missed":[3,"2026-02-19T11:32:15Z"],"asked":[[3,4,"2026-02-19T11:32:15.3Z"]],"peeked":6,"done":true,"started":"2026-02-19T11:30:00Z"},"charlie":{"next":0,"done":false}}}"#;
    let snapshot: ReaderSnapshot = serde_json::from_str(json).expect("a snapshot");
    let machine = MailboxMachine::new(id("alpha"), ReaderTimeouts::default(), &snapshot);
    assert_eq!(serde_json::to_string(&machine.snapshot()).expect("JSON"), json);
}
