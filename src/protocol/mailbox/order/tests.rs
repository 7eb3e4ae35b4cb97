//! The order of a conversation.

use super::super::tests::fixtures;
use super::*;

fn message(reference: &str, seconds: i64, re: Option<&str>) -> MailboxMessage {
    let message = fixtures::message(reference, "*");
    MailboxMessage {
        timestamp: message.timestamp + jiff::SignedDuration::from_secs(seconds),
        re: re.map(|re| re.parse().expect("a reference")),
        ..message
    }
}

fn ordered_references(messages: Vec<MailboxMessage>) -> String {
    let ordered = conversation_order(messages, |message| message, |message| message.timestamp);
    ordered.iter().map(|message| message.reference().to_string()).collect::<Vec<_>>().join(" ")
}

#[test]
fn replies_follow_what_they_answer_and_senders_stay_in_order() {
    // All within one second, as scripts send them.
    let messages = vec![
        message("alpha/001", 0, Some("bravo/001")),
        message("alpha/002", 0, Some("bravo/002")),
        message("bravo/001", 0, None),
        message("bravo/002", 0, Some("alpha/001")),
        message("bravo/003", 0, Some("alpha/002")),
        message("zulu/001", 0, None),
    ];
    assert_eq!(ordered_references(messages.clone()), "bravo/001 alpha/001 bravo/002 alpha/002 bravo/003 zulu/001");
    // One clock is ahead.
    let ahead = messages.into_iter().map(|mut message| {
        if message.from.as_str() == "bravo" {
            message.timestamp += jiff::SignedDuration::from_secs(100);
        }
        message
    });
    assert_eq!(ordered_references(ahead.collect()), "bravo/001 alpha/001 bravo/002 alpha/002 zulu/001 bravo/003");
}

#[test]
fn without_replies_time_decides_and_reply_cycles_terminate() {
    let messages = vec![message("alpha/001", 2, None), message("alpha/002", 1, None), message("bravo/001", 1, None)];
    assert_eq!(ordered_references(messages), "alpha/001 alpha/002 bravo/001", "a sender's numbers are its order");
    let messages = vec![message("alpha/001", 3, None), message("bravo/001", 2, None), message("alpha/002", 4, None)];
    assert_eq!(ordered_references(messages), "bravo/001 alpha/001 alpha/002");
    let circle = vec![message("alpha/001", 0, Some("bravo/001")), message("bravo/001", 0, Some("alpha/001"))];
    assert_eq!(ordered_references(circle), "bravo/001 alpha/001");
    // A reference to a later part, or to a message that is not there, counts as one to the message before it.
    let parts =
        vec![message("alpha/001", 0, Some("bravo/004")), message("bravo/003", 0, None), message("bravo/009", 0, None)];
    assert_eq!(ordered_references(parts), "bravo/003 alpha/001 bravo/009");
    let many = (1..5000).map(|n| message(&format!("alpha/{n}"), 5000 - n, None)).collect::<Vec<_>>();
    assert!(ordered_references(many).starts_with("alpha/001 alpha/002 "));
}
