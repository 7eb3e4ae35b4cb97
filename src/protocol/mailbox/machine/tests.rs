//! The machine, event by event.

use super::super::fixtures::{id, now, seq};
use super::super::message::{MessageContent, MessageRecipient, Priority};
use super::super::rules;
use super::*;

fn at(millis: i64) -> Timestamp {
    now() + SignedDuration::from_millis(millis)
}

/// bravo's, to alpha.
fn message(number: u32) -> MailboxMessage {
    MailboxMessage {
        from: id("bravo"),
        to: MessageRecipient::Agent(id("alpha")),
        seq: seq(number),
        message_type: MailboxMessageType::Status,
        timestamp: now(),
        re: None,
        priority: Priority::Normal,
        ttl: None,
        part: None,
        content: MessageContent {
            subject: format!("s{number}"),
            body: format!("b{number}"),
            ..MessageContent::default()
        },
    }
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
                MailboxEffect::Deliver(letter) => {
                    let late = if letter.late { " late" } else { "" };
                    words.push(format!("{}{late}: {}", letter.message.seq, letter.message.content.body));
                }
                MailboxEffect::RequestResend(missing) => words.push(missing.resend_subject()),
                MailboxEffect::Resend { requested_by: asked_by, first, last } => {
                    words.push(format!("resend {first}-{last} for {asked_by}"))
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

    /// Another program of the same agent goes on.
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
    let mut scene = MachineFixture::new();
    assert_eq!(scene.list_outbox(now()), [""; 0]);
    for number in [2, 1, 3] {
        scene.put(message(number));
    }
    assert_eq!(scene.list_outbox(now()), ["001: b1", "002: b2", "003: b3"]);
    assert_eq!(scene.list_outbox(now()), [""; 0]);
    scene.restart();
    scene.put(MailboxMessage { to: MessageRecipient::Agent(id("charlie")), ..message(4) });
    scene.put(MailboxMessage { to: MessageRecipient::Broadcast, ..message(5) });
    assert_eq!(scene.list_outbox(now()), ["005: b5"], "what is for others is passed over, a broadcast is for all");
    assert_eq!(scene.machine.next_deadline(), None);
}

#[test]
fn a_gap_is_requested_and_resent_messages_are_delivered_in_order() {
    let mut scene = MachineFixture::new();
    for number in [1, 4, 5] {
        scene.put(message(number));
    }
    assert_eq!(scene.list_outbox(at(0)), ["001: b1"]);
    assert_eq!(scene.machine.next_deadline(), Some(at(300)), "it may be on its way");
    assert_eq!(scene.list_outbox(at(299)), [""; 0]);
    scene.restart();
    assert_eq!(scene.list_outbox(at(300)), ["Please send bravo/002 to bravo/003 again"]);
    scene.restart();
    assert_eq!(scene.list_outbox(at(10_000)), [""; 0], "once");
    assert_eq!(scene.machine.next_deadline(), Some(at(30_300)));
    scene.put(message(2));
    assert_eq!(scene.list_outbox(at(11_000)), ["002: b2"]);
    scene.put(message(3));
    assert_eq!(scene.list_outbox(at(12_000)), ["003: b3", "004: b4", "005: b5"]);
    assert_eq!(scene.machine.next_deadline(), None);
}

/// Error Handling.
#[test]
fn lost_messages_warn_after_the_timeout_and_arrive_late() {
    let mut scene = MachineFixture::new();
    scene.put(message(3));
    scene.list_outbox(at(0));
    assert_eq!(scene.list_outbox(at(300)), ["Please send bravo/001 to bravo/002 again"]);
    assert_eq!(scene.list_outbox(at(30_299)), [""; 0]);
    assert_eq!(scene.list_outbox(at(30_300)), ["lost 001-002", "003: b3"]);
    scene.restart();
    scene.put(message(2));
    assert_eq!(scene.list_outbox(at(40_000)), ["002 late: b2"]);
    assert_eq!(scene.list_outbox(at(50_000)), [""; 0]);
}

#[test]
fn a_gap_of_millions_is_cheap() {
    let mut scene = MachineFixture::new();
    scene.put(message(999_999_999));
    scene.list_outbox(at(0));
    assert_eq!(scene.list_outbox(at(300)), ["Please send bravo/001 to bravo/999999998 again"]);
    assert_eq!(scene.list_outbox(at(30_300)), ["lost 001-999999998", "999999999: b999999999"]);
    assert!(serde_json::to_string(&scene.machine.snapshot()).expect("it can be written").len() < 10_000);
    scene.restart();
    assert_eq!(scene.list_outbox(at(30_400)), [""; 0]);
}

/// Known Issues.
#[test]
fn an_invalid_file_is_retried_then_given_up() {
    let mut scene = MachineFixture::new();
    let bad = || ReadOutcome::Invalid(MailboxViolation::new(rules::REQUIRED, "`to` is missing"));
    scene.outbox.insert(seq(1), bad());
    scene.put(message(2));
    assert_eq!(scene.list_outbox(at(0)), [""; 0]);
    scene.put(message(1));
    assert_eq!(scene.list_outbox(at(900)), ["001: b1", "002: b2"]);
    scene.outbox.insert(seq(3), bad());
    assert_eq!(scene.list_outbox(at(1000)), [""; 0]);
    assert_eq!(scene.list_outbox(at(2000)), ["Please send bravo/003 again"]);
    scene.put(message(4));
    assert_eq!(scene.list_outbox(at(31_999)), [""; 0]);
    assert_eq!(scene.list_outbox(at(32_000)), ["lost 003-003", "004: b4"]);
    // It is given up for good: nobody looks at it for ever.
    scene.put(message(3));
    assert_eq!(scene.list_outbox(at(33_000)), [""; 0]);
}

/// Error Handling.
#[test]
fn no_resend_is_requested_from_agents_that_are_gone() {
    let mut scene = MachineFixture::new();
    scene.put(message(2));
    scene.list_outbox(at(0));
    assert_eq!(scene.roster(AgentStatus::Crashed, at(100)), [""; 0]);
    assert_eq!(scene.machine.finished_status(&id("bravo")), None, "there is something yet");
    assert_eq!(scene.list_outbox(at(300)), ["lost 001-001", "002: b2"]);
    assert_eq!(scene.machine.finished_status(&id("bravo")), Some(AgentStatus::Crashed));
    assert!(scene.machine.all_finished());
    scene.roster(AgentStatus::Active, at(400));
    assert_eq!(scene.machine.finished_status(&id("bravo")), None, "it came back");
}

/// Shutdown.
#[test]
fn a_done_followed_by_more_messages_does_not_count() {
    let mut scene = MachineFixture::new();
    scene.put(MailboxMessage {
        message_type: MailboxMessageType::Done,
        to: MessageRecipient::Agent(id("charlie")),
        ..message(1)
    });
    scene.roster(AgentStatus::Active, at(0));
    assert!(!scene.machine.all_finished());
    assert_eq!(scene.list_outbox(at(0)), [""; 0]);
    assert_eq!(scene.machine.finished_status(&id("bravo")), Some(AgentStatus::Done));
    scene.restart();
    assert_eq!(scene.machine.finished_status(&id("bravo")), Some(AgentStatus::Done));
    scene.put(message(2));
    assert_eq!(scene.list_outbox(at(0)), ["002: b2"]);
    assert_eq!(scene.machine.finished_status(&id("bravo")), None);
    // A second attempt, with a row of its own.
    scene.put(MailboxMessage { message_type: MailboxMessageType::Done, ..message(3) });
    scene.list_outbox(at(0));
    let row = RosterEntry::new(id("bravo"), "r", None, at(60_000));
    scene.handle_event(MailboxEvent::RosterRead(vec![row]), at(60_000));
    assert_eq!(scene.machine.finished_status(&id("bravo")), None);
}

/// Optional Fields.
#[test]
fn expired_messages_are_not_delivered() {
    let mut scene = MachineFixture::new();
    scene.put(MailboxMessage { ttl: Some(1), ..message(1) });
    scene.put(MailboxMessage { ttl: Some(2), ..message(2) });
    assert_eq!(scene.list_outbox(at(60_000)), ["expired bravo/001", "002: b2"]);
}

fn part(number: u32, part: &str) -> MailboxMessage {
    MailboxMessage { part: Some(part.parse().expect("a part")), ..message(number) }
}

/// Error Handling.
#[test]
fn parts_are_joined_across_restarts_and_interleaved_messages() {
    let mut scene = MachineFixture::new();
    scene.put(part(1, "1/3"));
    scene.put(message(2));
    scene.put(part(3, "2/3"));
    assert_eq!(scene.list_outbox(at(0)), ["002: b2"]);
    scene.restart();
    assert_eq!(scene.list_outbox(at(0)), [""; 0], "what was delivered is not delivered again");
    scene.put(message(4));
    assert_eq!(scene.list_outbox(at(0)), ["004: b4"]);
    scene.restart();
    scene.put(part(5, "3/3"));
    assert_eq!(scene.list_outbox(at(0)), ["001: b1\nb3\nb5"]);
    scene.restart();
    assert_eq!(scene.list_outbox(at(0)), [""; 0]);
}

#[test]
fn a_gap_between_parts_is_requested_across_restarts() {
    let mut scene = MachineFixture::new();
    scene.put(part(1, "1/2"));
    scene.put(message(3));
    assert_eq!(scene.list_outbox(at(0)), [""; 0]);
    scene.restart();
    assert_eq!(scene.list_outbox(at(200)), [""; 0]);
    scene.restart();
    assert_eq!(scene.list_outbox(at(300)), ["Please send bravo/002 again"]);
    scene.restart();
    scene.put(part(2, "2/2"));
    assert_eq!(scene.list_outbox(at(400)), ["001: b1\nb2", "003: b3"]);
}

#[test]
fn incomplete_messages_are_delivered_after_the_parts_timeout() {
    let mut scene = MachineFixture::new();
    scene.put(part(1, "1/3"));
    scene.list_outbox(at(0));
    assert_eq!(scene.machine.next_deadline(), Some(at(60_000)));
    assert_eq!(
        scene.handle_event(MailboxEvent::Tick, at(60_000)),
        ["bravo/001 without [2, 3]", "001: b1\n[part 2 of 3 is missing]\n[part 3 of 3 is missing]"]
    );
    // The next message begins before the last has ended.
    scene.put(part(2, "1/2"));
    scene.put(part(3, "1/2"));
    scene.put(part(4, "2/2"));
    assert_eq!(
        scene.list_outbox(at(60_000)),
        ["bravo/002 without [2]", "002: b2\n[part 2 of 2 is missing]", "003: b3\nb4"]
    );
    // Its sender is gone.
    scene.put(part(5, "1/2"));
    assert_eq!(scene.list_outbox(at(60_000)), [""; 0]);
    assert_eq!(
        scene.roster(AgentStatus::Done, at(60_000)),
        ["bravo/005 without [2]", "005: b5\n[part 2 of 2 is missing]"]
    );
    // Its head was lost.
    scene.put(part(7, "2/2"));
    scene.list_outbox(at(60_000));
    assert_eq!(
        scene.list_outbox(at(60_300)),
        ["lost 006-006", "bravo/007 without [1]", "007: [part 1 of 2 is missing]\nb7"]
    );
}

#[test]
fn resend_requests_are_answered_and_not_delivered() {
    let mut scene = MachineFixture::new();
    let ask = |number: u32, subject: &str| {
        let content = MessageContent { subject: subject.to_owned(), ..MessageContent::default() };
        MailboxMessage {
            message_type: MailboxMessageType::Error,
            re: Some("alpha/003".parse().expect("a reference")),
            content,
            ..message(number)
        }
    };
    scene.put(ask(1, "Please send alpha/003 to alpha/005 again"));
    scene.put(ask(2, "It went wrong"));
    scene.put(ask(3, "Please send alpha/005 to alpha/003 again"));
    let words = scene.list_outbox(at(0));
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
    let mut scene = MachineFixture::new();
    scene.put(message(2));
    scene.list_outbox(at(0));
    let content = MessageContent { subject: "Please send bravo/001 again".to_owned(), ..MessageContent::default() };
    let ask = MailboxMessage {
        from: id("charlie"),
        to: MessageRecipient::Agent(id("bravo")),
        message_type: MailboxMessageType::Error,
        content,
        ..message(1)
    };
    let event = MailboxEvent::OutboxListed(id("charlie"), BTreeSet::from([seq(1)]));
    assert_eq!(scene.machine.handle(event, at(100)), [MailboxEffect::Fetch(id("charlie"), seq(1))]);
    let event = MailboxEvent::Fetched(id("charlie"), seq(1), ReadOutcome::Message(Box::new(ask)));
    assert_eq!(scene.machine.handle(event, at(100)), []);
    assert_eq!(scene.list_outbox(at(300)), [""; 0]);
    assert_eq!(scene.list_outbox(at(29_999)), [""; 0]);
    assert_eq!(scene.list_outbox(at(30_000)), ["lost 001-001", "002: b2"]);
}

#[test]
fn a_resend_request_by_others_covers_only_its_range() {
    let mut scene = MachineFixture::new();
    for number in [2, 4] {
        scene.put(message(number));
    }
    scene.list_outbox(at(0));
    let content = MessageContent { subject: "Please send bravo/003 again".to_owned(), ..MessageContent::default() };
    let ask = MailboxMessage { from: id("charlie"), message_type: MailboxMessageType::Error, content, ..message(1) };
    scene.machine.handle(MailboxEvent::OutboxListed(id("charlie"), BTreeSet::from([seq(1)])), at(100));
    scene.machine.handle(MailboxEvent::Fetched(id("charlie"), seq(1), ReadOutcome::Message(Box::new(ask))), at(100));
    assert_eq!(scene.list_outbox(at(300)), ["Please send bravo/001 again"]);
    scene.put(message(1));
    assert_eq!(scene.list_outbox(at(400)), ["001: b1", "002: b2"]);
    assert_eq!(scene.list_outbox(at(29_999)), [""; 0], "charlie has asked for 003");
    assert_eq!(scene.list_outbox(at(30_000)), ["lost 003-003", "004: b4"]);
}

#[test]
fn the_own_outbox_is_ignored() {
    let mut scene = MachineFixture::new();
    let own = MailboxEvent::OutboxListed(id("alpha"), BTreeSet::from([seq(1)]));
    assert_eq!(scene.handle_event(own, at(0)), [""; 0]);
    assert!(!scene.machine.all_finished(), "nobody is there");
}

/// Error Handling.
#[test]
fn unavailable_messages_are_given_up_at_once() {
    let mut scene = MachineFixture::new();
    for number in [1, 4, 5] {
        scene.put(message(number));
    }
    scene.list_outbox(at(0));
    scene.list_outbox(at(300));
    assert_eq!(scene.list_outbox(at(400)), [""; 0], "bravo may send it again");
    let answer = |number: u32, of: &str| {
        let content = MessageContent { subject: format!("{of} cannot be sent again"), ..MessageContent::default() };
        MailboxMessage {
            message_type: MailboxMessageType::Error,
            re: Some("alpha/001".parse().expect("a reference")),
            content,
            ..message(number)
        }
    };
    scene.put(answer(6, "bravo/003"));
    assert_eq!(scene.list_outbox(at(500)), [""; 0], "of another");
    scene.put(MailboxMessage { to: MessageRecipient::Agent(id("charlie")), ..answer(7, "bravo/002") });
    scene.restart();
    scene.put(message(8));
    assert_eq!(scene.list_outbox(at(600)), ["lost 002-003", "004: b4", "005: b5", "008: b8"]);
    assert_eq!(scene.machine.next_deadline(), None);
}

#[test]
fn an_unavailable_reply_outweighs_later_resend_requests() {
    let mut scene = MachineFixture::new();
    let ask = |scene: &mut MachineFixture, number: u32| {
        let content = MessageContent { subject: "Please send bravo/001 again".to_owned(), ..MessageContent::default() };
        let ask =
            MailboxMessage { from: id("charlie"), message_type: MailboxMessageType::Error, content, ..message(number) };
        scene.machine.handle(MailboxEvent::OutboxListed(id("charlie"), (1..=number).map(seq).collect()), at(100));
        scene
            .machine
            .handle(MailboxEvent::Fetched(id("charlie"), seq(number), ReadOutcome::Message(Box::new(ask))), at(100));
    };
    ask(&mut scene, 1);
    let content = MessageContent { subject: "bravo/001 cannot be sent again".to_owned(), ..MessageContent::default() };
    scene.put(MailboxMessage { message_type: MailboxMessageType::Error, content, ..message(3) });
    scene.put(message(2));
    assert_eq!(scene.list_outbox(at(100)), [""; 0], "it may be on its way");
    ask(&mut scene, 2);
    scene.restart();
    assert_eq!(scene.list_outbox(at(400)), ["lost 001-001", "002: b2"]);
}
