//! Splitting drafts and joining parts.

use super::super::message::{MailboxMessageType, MessageRecipient};
use super::super::text::parse;
use super::*;

fn alpha() -> AgentId {
    "alpha".parse().expect("an id")
}

fn split_and_reparse(body: &str) -> Vec<MailboxMessage> {
    let mut draft = MailboxDraft::new(MessageRecipient::Broadcast, MailboxMessageType::Status, "Long", body);
    draft.content.context = Some("what for".to_owned());
    let messages = split(&alpha(), Seq::FIRST, Timestamp::UNIX_EPOCH, &draft).expect("it can be sent");
    let read = |message: &MailboxMessage| {
        let text = render(message);
        assert!(text.len() <= MAX_FILE_BYTES, "{} bytes", text.len());
        let read = parse(text.as_bytes()).expect("what is written can be read");
        assert_eq!(&read, message);
        read
    };
    messages.iter().map(read).collect()
}

/// Design Principles; Error Handling.
#[test]
fn long_messages_are_split_and_joined_again() {
    assert_eq!(split_and_reparse("short").len(), 1);
    let lines: String = (0..3000).map(|n| format!("line {n}\n\n")).collect();
    let headings = "## Body\n\\## Context\n".repeat(2000);
    for body in [lines.as_str(), headings.as_str(), &"x".repeat(50_000), &"ä€𝄞".repeat(6000), &"\n".repeat(30_000)]
    {
        let body = &format!("begin{body}end");
        let messages = split_and_reparse(body);
        assert!(messages.len() > 2, "{}", messages.len());
        let numbers: Vec<u32> = messages.iter().map(|message| message.seq.get()).collect();
        assert_eq!(numbers, (1..=messages.len() as u32).collect::<Vec<_>>());
        let joined = join(&messages).expect("there are parts");
        assert!(joined.content.body == *body, "{:.40}", joined.content.body);
        assert_eq!((joined.part, joined.content.context.as_deref()), (None, Some("what for")));
    }
}

#[test]
fn a_missing_part_is_marked_in_the_joined_body() {
    let body: String = (0..3000).map(|n| format!("line {n}\n")).collect();
    let mut messages = split_and_reparse(&body);
    messages.remove(1);
    let joined = join(&messages).expect("there are parts").content.body;
    assert!(joined.starts_with("line 0\n") && joined.ends_with("line 2999"));
    assert!(joined.contains("\n[part 2 of 3 is missing]\nline "), "{:.100}", joined);
}

#[test]
fn empty_and_oversized_drafts_are_rejected() {
    let split = |draft: &MailboxDraft| split(&alpha(), Seq::FIRST, Timestamp::UNIX_EPOCH, draft);
    let draft = |subject: &str, body: &str| {
        MailboxDraft::new(MessageRecipient::Broadcast, MailboxMessageType::Status, subject, body)
    };
    assert_eq!(split(&draft(" ", "\n\n")), Err(DraftError::Empty));
    assert_eq!(split(&draft("", "one\ntwo")).expect("it says something")[0].content.subject, "one");
    assert!(matches!(split(&draft(&"s".repeat(201), "")), Err(DraftError::TooLong { section: "subject", .. })));
    assert!(matches!(
        split(&draft("s", &"x".repeat(MAX_BODY_BYTES + 1))),
        Err(DraftError::TooLong { section: "body", .. })
    ));
    assert!(split(&draft("s", &"x".repeat(MAX_BODY_BYTES))).is_ok_and(|messages| messages.len() < 40));
    let mut long = draft("s", "b");
    long.content.context = Some("x".repeat(MAX_SECTION_BYTES + 1));
    assert!(matches!(split(&long), Err(DraftError::TooLong { section: "context", .. })));
}
