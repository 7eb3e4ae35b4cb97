//! The machine, event by event.

use super::super::message::{Content, Priority, Recipient};
use super::super::rules;
use super::super::samples::{id, now, seq};
use super::*;

fn at(millis: i64) -> Timestamp {
    now() + SignedDuration::from_millis(millis)
}

/// bravo's, to alpha.
fn message(number: u32) -> Message {
    Message {
        from: id("bravo"),
        to: Recipient::One(id("alpha")),
        seq: seq(number),
        kind: Kind::Status,
        timestamp: now(),
        re: None,
        priority: Priority::Normal,
        ttl: None,
        part: None,
        content: Content { subject: format!("s{number}"), body: format!("b{number}"), ..Content::default() },
    }
}

/// alpha's machine, and bravo's outbox.
struct Scene {
    machine: Machine,
    outbox: BTreeMap<Seq, Read>,
}

impl Scene {
    fn new() -> Self {
        let machine = Machine::new(id("alpha"), Limits::default(), &Snapshot::default());
        Self { machine, outbox: BTreeMap::new() }
    }

    fn put(&mut self, message: Message) {
        self.outbox.insert(message.seq, Read::Message(Box::new(message)));
    }

    /// Lists the outbox and fetches what is wanted; the effects in words.
    fn look(&mut self, now: Timestamp) -> Vec<String> {
        let listed = Event::Listed(id("bravo"), self.outbox.keys().copied().collect());
        self.tell(listed, now)
    }

    fn tell(&mut self, event: Event, now: Timestamp) -> Vec<String> {
        let mut effects: std::collections::VecDeque<Effect> = self.machine.handle(event, now).into();
        let mut words = Vec::new();
        while let Some(effect) = effects.pop_front() {
            match effect {
                Effect::Fetch(agent, seq) => {
                    let read = self.outbox.get(&seq).cloned().unwrap_or(Read::Missing);
                    effects.extend(self.machine.handle(Event::Fetched(agent, seq, read), now));
                }
                Effect::Deliver(letter) => {
                    let late = if letter.late { " late" } else { "" };
                    words.push(format!("{}{late}: {}", letter.message.seq, letter.message.content.body));
                }
                Effect::Ask(missing) => words.push(missing.subject()),
                Effect::Resend { asked_by, first, last } => words.push(format!("resend {first}-{last} for {asked_by}")),
                Effect::Warn(Warning::Lost(missing)) => words.push(format!("lost {}-{}", missing.first, missing.last)),
                Effect::Warn(Warning::Expired(reference)) => words.push(format!("expired {reference}")),
                Effect::Warn(Warning::Incomplete(of, parts)) => words.push(format!("{of} without {parts:?}")),
            }
        }
        words
    }

    fn roster(&mut self, status: Status, now: Timestamp) -> Vec<String> {
        let row = Row { status, ..Row::new(id("bravo"), "r", None, at(0)) };
        self.tell(Event::Roster(vec![row]), now)
    }

    /// Another program of the same agent goes on.
    fn restart(&mut self) {
        let text = serde_json::to_string(&self.machine.snapshot()).expect("it can be written");
        let snapshot = serde_json::from_str(&text).expect("it can be read");
        self.machine = Machine::new(id("alpha"), Limits::default(), &snapshot);
        assert_eq!(self.machine.snapshot(), snapshot);
    }
}

/// Design Principles; Required Fields.
#[test]
fn messages_come_in_order_of_their_numbers_and_once() {
    let mut scene = Scene::new();
    assert_eq!(scene.look(now()), [""; 0]);
    for number in [2, 1, 3] {
        scene.put(message(number));
    }
    assert_eq!(scene.look(now()), ["001: b1", "002: b2", "003: b3"]);
    assert_eq!(scene.look(now()), [""; 0]);
    scene.restart();
    scene.put(Message { to: Recipient::One(id("charlie")), ..message(4) });
    scene.put(Message { to: Recipient::All, ..message(5) });
    assert_eq!(scene.look(now()), ["005: b5"], "what is for others is passed over, a broadcast is for all");
    assert_eq!(scene.machine.next_deadline(), None);
}

#[test]
fn a_gap_is_asked_for_and_what_comes_again_is_delivered_in_its_place() {
    let mut scene = Scene::new();
    for number in [1, 4, 5] {
        scene.put(message(number));
    }
    assert_eq!(scene.look(at(0)), ["001: b1"]);
    assert_eq!(scene.machine.next_deadline(), Some(at(300)), "it may be on its way");
    assert_eq!(scene.look(at(299)), [""; 0]);
    scene.restart();
    assert_eq!(scene.look(at(300)), ["Please send bravo/002 to bravo/003 again"]);
    scene.restart();
    assert_eq!(scene.look(at(10_000)), [""; 0], "once");
    assert_eq!(scene.machine.next_deadline(), Some(at(30_300)));
    scene.put(message(2));
    assert_eq!(scene.look(at(11_000)), ["002: b2"]);
    scene.put(message(3));
    assert_eq!(scene.look(at(12_000)), ["003: b3", "004: b4", "005: b5"]);
    assert_eq!(scene.machine.next_deadline(), None);
}

/// Error Handling.
#[test]
fn after_the_limit_it_goes_on_with_a_warning_and_what_comes_then_is_late() {
    let mut scene = Scene::new();
    scene.put(message(3));
    scene.look(at(0));
    assert_eq!(scene.look(at(300)), ["Please send bravo/001 to bravo/002 again"]);
    assert_eq!(scene.look(at(30_299)), [""; 0]);
    assert_eq!(scene.look(at(30_300)), ["lost 001-002", "003: b3"]);
    scene.restart();
    scene.put(message(2));
    assert_eq!(scene.look(at(40_000)), ["002 late: b2"]);
    assert_eq!(scene.look(at(50_000)), [""; 0]);
}

#[test]
fn a_gap_of_millions_costs_nothing() {
    let mut scene = Scene::new();
    scene.put(message(999_999_999));
    scene.look(at(0));
    assert_eq!(scene.look(at(300)), ["Please send bravo/001 to bravo/999999998 again"]);
    assert_eq!(scene.look(at(30_300)), ["lost 001-999999998", "999999999: b999999999"]);
    assert!(serde_json::to_string(&scene.machine.snapshot()).expect("it can be written").len() < 10_000);
    scene.restart();
    assert_eq!(scene.look(at(30_400)), [""; 0]);
}

/// Known Issues.
#[test]
fn a_file_that_is_no_message_may_be_half_written() {
    let mut scene = Scene::new();
    let bad = || Read::Bad(Violation::new(rules::REQUIRED, "`to` is missing"));
    scene.outbox.insert(seq(1), bad());
    scene.put(message(2));
    assert_eq!(scene.look(at(0)), [""; 0]);
    scene.put(message(1));
    assert_eq!(scene.look(at(900)), ["001: b1", "002: b2"]);
    scene.outbox.insert(seq(3), bad());
    assert_eq!(scene.look(at(1000)), [""; 0]);
    assert_eq!(scene.look(at(2000)), ["Please send bravo/003 again"]);
    scene.put(message(4));
    assert_eq!(scene.look(at(31_999)), [""; 0]);
    assert_eq!(scene.look(at(32_000)), ["lost 003-003", "004: b4"]);
    // It is given up for good: nobody looks at it for ever.
    scene.put(message(3));
    assert_eq!(scene.look(at(33_000)), [""; 0]);
}

/// Error Handling.
#[test]
fn nothing_is_asked_of_who_is_gone() {
    let mut scene = Scene::new();
    scene.put(message(2));
    scene.look(at(0));
    assert_eq!(scene.roster(Status::Crashed, at(100)), [""; 0]);
    assert_eq!(scene.machine.finished(&id("bravo")), None, "there is something yet");
    assert_eq!(scene.look(at(300)), ["lost 001-001", "002: b2"]);
    assert_eq!(scene.machine.finished(&id("bravo")), Some(Status::Crashed));
    assert!(scene.machine.all_finished());
    scene.roster(Status::Active, at(400));
    assert_eq!(scene.machine.finished(&id("bravo")), None, "it came back");
}

/// Shutdown.
#[test]
fn a_done_is_the_end_until_more_is_said() {
    let mut scene = Scene::new();
    scene.put(Message { kind: Kind::Done, to: Recipient::One(id("charlie")), ..message(1) });
    scene.roster(Status::Active, at(0));
    assert!(!scene.machine.all_finished());
    assert_eq!(scene.look(at(0)), [""; 0]);
    assert_eq!(scene.machine.finished(&id("bravo")), Some(Status::Done));
    scene.restart();
    assert_eq!(scene.machine.finished(&id("bravo")), Some(Status::Done));
    scene.put(message(2));
    assert_eq!(scene.look(at(0)), ["002: b2"]);
    assert_eq!(scene.machine.finished(&id("bravo")), None);
    // A second attempt, with a row of its own.
    scene.put(Message { kind: Kind::Done, ..message(3) });
    scene.look(at(0));
    let row = Row::new(id("bravo"), "r", None, at(60_000));
    scene.tell(Event::Roster(vec![row]), at(60_000));
    assert_eq!(scene.machine.finished(&id("bravo")), None);
}

/// Optional Fields.
#[test]
fn what_is_expired_is_not_delivered() {
    let mut scene = Scene::new();
    scene.put(Message { ttl: Some(1), ..message(1) });
    scene.put(Message { ttl: Some(2), ..message(2) });
    assert_eq!(scene.look(at(60_000)), ["expired bravo/001", "002: b2"]);
}

fn part(number: u32, part: &str) -> Message {
    Message { part: Some(part.parse().expect("a part")), ..message(number) }
}

/// Error Handling.
#[test]
fn parts_are_joined_even_over_restarts_and_with_others_between() {
    let mut scene = Scene::new();
    scene.put(part(1, "1/3"));
    scene.put(message(2));
    scene.put(part(3, "2/3"));
    assert_eq!(scene.look(at(0)), ["002: b2"]);
    scene.restart();
    assert_eq!(scene.look(at(0)), [""; 0], "what was delivered is not delivered again");
    scene.put(message(4));
    assert_eq!(scene.look(at(0)), ["004: b4"]);
    scene.restart();
    scene.put(part(5, "3/3"));
    assert_eq!(scene.look(at(0)), ["001: b1\nb3\nb5"]);
    scene.restart();
    assert_eq!(scene.look(at(0)), [""; 0]);
}

#[test]
fn a_gap_between_parts_is_asked_for_by_readers_that_start_again_each_time() {
    let mut scene = Scene::new();
    scene.put(part(1, "1/2"));
    scene.put(message(3));
    assert_eq!(scene.look(at(0)), [""; 0]);
    scene.restart();
    assert_eq!(scene.look(at(200)), [""; 0]);
    scene.restart();
    assert_eq!(scene.look(at(300)), ["Please send bravo/002 again"]);
    scene.restart();
    scene.put(part(2, "2/2"));
    assert_eq!(scene.look(at(400)), ["001: b1\nb2", "003: b3"]);
}

#[test]
fn parts_that_do_not_come_are_done_without() {
    let mut scene = Scene::new();
    scene.put(part(1, "1/3"));
    scene.look(at(0));
    assert_eq!(scene.machine.next_deadline(), Some(at(60_000)));
    assert_eq!(
        scene.tell(Event::Tick, at(60_000)),
        ["bravo/001 without [2, 3]", "001: b1\n[part 2 of 3 is missing]\n[part 3 of 3 is missing]"]
    );
    // The next message begins before the last has ended.
    scene.put(part(2, "1/2"));
    scene.put(part(3, "1/2"));
    scene.put(part(4, "2/2"));
    assert_eq!(scene.look(at(60_000)), ["bravo/002 without [2]", "002: b2\n[part 2 of 2 is missing]", "003: b3\nb4"]);
    // Its sender is gone.
    scene.put(part(5, "1/2"));
    assert_eq!(scene.look(at(60_000)), [""; 0]);
    assert_eq!(scene.roster(Status::Done, at(60_000)), ["bravo/005 without [2]", "005: b5\n[part 2 of 2 is missing]"]);
    // Its head was lost.
    scene.put(part(7, "2/2"));
    scene.look(at(60_000));
    assert_eq!(scene.look(at(60_300)), ["lost 006-006", "bravo/007 without [1]", "007: [part 1 of 2 is missing]\nb7"]);
}

#[test]
fn who_is_asked_sends_again_and_is_not_bothered_with_it() {
    let mut scene = Scene::new();
    let ask = |number: u32, subject: &str| {
        let content = Content { subject: subject.to_owned(), ..Content::default() };
        Message { kind: Kind::Error, re: Some("alpha/003".parse().expect("a reference")), content, ..message(number) }
    };
    scene.put(ask(1, "Please send alpha/003 to alpha/005 again"));
    scene.put(ask(2, "It went wrong"));
    scene.put(ask(3, "Please send alpha/005 to alpha/003 again"));
    let words = scene.look(at(0));
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
fn one_who_asks_is_enough() {
    let mut scene = Scene::new();
    scene.put(message(2));
    scene.look(at(0));
    let content = Content { subject: "Please send bravo/001 again".to_owned(), ..Content::default() };
    let ask =
        Message { from: id("charlie"), to: Recipient::One(id("bravo")), kind: Kind::Error, content, ..message(1) };
    let event = Event::Listed(id("charlie"), BTreeSet::from([seq(1)]));
    assert_eq!(scene.machine.handle(event, at(100)), [Effect::Fetch(id("charlie"), seq(1))]);
    let event = Event::Fetched(id("charlie"), seq(1), Read::Message(Box::new(ask)));
    assert_eq!(scene.machine.handle(event, at(100)), []);
    assert_eq!(scene.look(at(300)), [""; 0]);
    assert_eq!(scene.look(at(29_999)), [""; 0]);
    assert_eq!(scene.look(at(30_000)), ["lost 001-001", "002: b2"]);
}

#[test]
fn a_question_of_others_counts_for_what_it_asks_for() {
    let mut scene = Scene::new();
    for number in [2, 4] {
        scene.put(message(number));
    }
    scene.look(at(0));
    let content = Content { subject: "Please send bravo/003 again".to_owned(), ..Content::default() };
    let ask = Message { from: id("charlie"), kind: Kind::Error, content, ..message(1) };
    scene.machine.handle(Event::Listed(id("charlie"), BTreeSet::from([seq(1)])), at(100));
    scene.machine.handle(Event::Fetched(id("charlie"), seq(1), Read::Message(Box::new(ask))), at(100));
    assert_eq!(scene.look(at(300)), ["Please send bravo/001 again"]);
    scene.put(message(1));
    assert_eq!(scene.look(at(400)), ["001: b1", "002: b2"]);
    assert_eq!(scene.look(at(29_999)), [""; 0], "charlie has asked for 003");
    assert_eq!(scene.look(at(30_000)), ["lost 003-003", "004: b4"]);
}

#[test]
fn one_s_own_outbox_is_no_news() {
    let mut scene = Scene::new();
    let own = Event::Listed(id("alpha"), BTreeSet::from([seq(1)]));
    assert_eq!(scene.tell(own, at(0)), [""; 0]);
    assert!(!scene.machine.all_finished(), "nobody is there");
}
