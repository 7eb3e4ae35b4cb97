//! The text of messages: the spec's example byte for byte, what others write, and what breaks a rule.

use super::super::message::{ExpectedReply, MailboxDraft, MailboxMessageType, MessageRecipient, MessageRef, Seq};
use super::super::rules::RULES;
use super::*;

/// The spec's own (Message Format), byte for byte.
const SPEC_EXAMPLE: &str = "\
<!-- amp-version: 1 -->
<!-- from: alpha -->
<!-- to: bravo -->
<!-- seq: 003 -->
<!-- type: REQUEST -->
<!-- timestamp: 2026-02-19T11:32:15 -->
<!-- re: bravo/002 -->

## Subject
Search the brain for MCP transport patterns

## Body
I need to understand how MCP stdio transport works on Windows.
Focus on gotchas and failure modes. Return a summary with file IDs.

## Context
Working on fixing MCP server hang. See shared/STATE.md for full context.

## Expected Response
- Summary of relevant findings (< 500 words)
- List of brain file IDs consulted
- Any new discoveries to deposit
";

fn message() -> MailboxMessage {
    parse(SPEC_EXAMPLE.as_bytes()).expect("the spec's own")
}

/// Design Principles; Optional Fields.
#[test]
fn the_spec_example_round_trips_byte_for_byte() {
    let message = message();
    assert_eq!(message.reference().to_string(), "alpha/003");
    assert_eq!(message.to, MessageRecipient::Agent("bravo".parse().expect("an id")));
    assert_eq!((message.message_type, message.expects()), (MailboxMessageType::Request, ExpectedReply::Response));
    assert_eq!(message.timestamp.to_string(), "2026-02-19T11:32:15Z");
    assert_eq!(message.re, Some("bravo/002".parse::<MessageRef>().expect("a reference")));
    assert_eq!(message.priority, Priority::Normal);
    assert_eq!((message.ttl, message.part), (None, None));
    let content = &message.content;
    assert_eq!(content.subject, "Search the brain for MCP transport patterns");
    assert!(content.body.starts_with("I need") && content.body.ends_with("file IDs."));
    assert_eq!(content.expected_response.as_ref().map(|text| text.lines().count()), Some(3));
    assert_eq!(render(&message), SPEC_EXAMPLE);
}

/// Optional Fields.
#[test]
fn optional_fields_are_written_after_re() {
    let mut message = message();
    message.priority = Priority::Critical;
    message.ttl = Some(30);
    message.part = Some("2/3".parse().expect("a part"));
    let text = render(&message);
    assert!(
        text.contains(
            "<!-- re: bravo/002 -->\n<!-- priority: critical -->\n<!-- ttl: 30 -->\n<!-- part: 2/3 -->\n\n##"
        )
    );
    assert_eq!(parse(text.as_bytes()).expect("it can be read"), message);
}

/// Required Fields.
#[test]
fn variant_formatting_is_accepted() {
    let same = |text: &str| assert_eq!(parse(text.as_bytes()).expect("it can be read"), message(), "{text}");
    same(&SPEC_EXAMPLE.replace('\n', "\r\n"));
    same(&format!("\u{feff}{SPEC_EXAMPLE}"));
    same(SPEC_EXAMPLE.trim_end());
    same(&SPEC_EXAMPLE.replace("seq: 003", "seq: 3").replace("re: bravo/002", "re: bravo/2.md"));
    same(&SPEC_EXAMPLE.replace("11:32:15", "11:32:15Z"));
    same(&SPEC_EXAMPLE.replace("11:32:15", "13:32:15+02:00"));
    same(&SPEC_EXAMPLE.replace("11:32:15", "11:32:15.000"));
    same(
        &SPEC_EXAMPLE
            .replace("<!-- type: REQUEST -->", "\n<!--Type:request-->\n<!-- mood: good -->\n<!-- a remark -->"),
    );
    same(
        &SPEC_EXAMPLE
            .replace("-->\n\n## Subject", "-->\n## Subject")
            .replace("## Body\n", "## Body\n\n\n")
            .replace("## C", "\n\n## C"),
    );
    same(&SPEC_EXAMPLE.replace("Expected Response", "expected response  "));
    same(&SPEC_EXAMPLE.replace("<!-- to: bravo -->", "<!-- to: bravo -->\n<!-- priority: Normal -->\n<!-- ttl: -->"));
    let bare = format!("{}Only words.\n", &SPEC_EXAMPLE[..SPEC_EXAMPLE.find("\n## Subject").expect("a section")]);
    assert_eq!(parse(bare.as_bytes()).expect("it can be read").content.body, "Only words.");
    let both = SPEC_EXAMPLE.replace("\n## Subject", "\nHello.\n\n## Notes\nnone\n\n## Subject");
    assert!(
        parse(both.as_bytes()).expect("it can be read").content.body.starts_with("Hello.\n\n## Notes\nnone\n\nI need")
    );
}

#[test]
fn texts_that_look_like_sections_round_trip() {
    let mut message = message();
    message.content.body =
        "## Context\n\\## Body\n## Notes\n\\\\## Subject \n# Body\n\\x\n## expected response".to_owned();
    message.content.expected_response = Some("## Subject".to_owned());
    let text = render(&message);
    assert!(text.contains("\n\\## Context\n\\\\## Body\n## Notes\n"), "{text}");
    assert_eq!(parse(text.as_bytes()).expect("it can be read"), message);
    // A header cannot be told from inside a text.
    message.content.body = "<!-- from: charlie -->\n-->".to_owned();
    assert_eq!(parse(render(&message).as_bytes()).expect("it can be read"), message);
}

/// A diff may end with a blank line of its context.
#[test]
fn trailing_whitespace_in_a_body_is_preserved() {
    let draft = MailboxDraft::new(
        MessageRecipient::Broadcast,
        MailboxMessageType::Status,
        "a diff",
        "\n@@ -1,2 +1,2 @@\n-a\n+b\n \n\n",
    );
    let alpha = "alpha".parse().expect("an id");
    let sent = super::super::parts::split(&alpha, Seq::FIRST, Timestamp::UNIX_EPOCH, &draft).expect("a message");
    assert_eq!(sent[0].content.body, "@@ -1,2 +1,2 @@\n-a\n+b\n ");
    assert_eq!(parse(render(&sent[0]).as_bytes()).expect("it can be read"), sent[0]);
    let nothing = MailboxDraft::new(MessageRecipient::Broadcast, MailboxMessageType::Status, "", " \n\t");
    assert!(super::super::parts::split(&alpha, Seq::FIRST, Timestamp::UNIX_EPOCH, &nothing).is_err());
}

/// Required Fields; Optional Fields.
#[test]
fn each_violation_names_its_rule() {
    let line = |field: &str| {
        SPEC_EXAMPLE.lines().find(|line| line.contains(&format!(" {field}:"))).expect("a field").to_owned() + "\n"
    };
    let mut broken: Vec<(&str, Vec<u8>)> = Vec::new();
    for field in ["amp-version", "from", "to", "seq", "type", "timestamp"] {
        broken.push((rules::REQUIRED, SPEC_EXAMPLE.replace(&line(field), "").into_bytes()));
        broken.push((rules::FIELD_TWICE, SPEC_EXAMPLE.replace(&line(field), &line(field).repeat(2)).into_bytes()));
    }
    let replaced = |from: &str, to: &str| SPEC_EXAMPLE.replace(from, to).into_bytes();
    for (rule, from, to) in [
        (rules::VERSION, "version: 1", "version: 2"),
        (rules::FROM, "from: alpha", "from: ../alpha"),
        (rules::TO, "to: bravo", "to: bravo, charlie"),
        (rules::SEQ, "seq: 003", "seq: 0"),
        (rules::SEQ, "seq: 003", "seq: 4000000000"),
        (rules::SEQ, "seq: 003", "seq: +3"),
        (rules::TYPE, "REQUEST", "QUESTION"),
        (rules::TIMESTAMP, "2026-02-19T", "yesterday "),
        (rules::RE, "bravo/002", "bravo"),
        (rules::PRIORITY, "re: bravo/002", "priority: urgent"),
        (rules::TTL, "re: bravo/002", "ttl: -1"),
        (rules::TTL, "re: bravo/002", "ttl: 2h"),
        (rules::PART, "re: bravo/002", "part: 4/3"),
        (rules::PART, "re: bravo/002", "part: 1/60000"),
        (rules::REQUIRED, "<!-- amp-version: 1 -->\n", "x\n<!-- amp-version: 1 -->\n"),
    ] {
        broken.push((rule, replaced(from, to)));
    }
    broken.push((rules::REQUIRED, Vec::new()));
    broken.push((rules::UTF8, [SPEC_EXAMPLE.as_bytes(), b"\xff"].concat()));
    broken.push((rules::SIZE, SPEC_EXAMPLE.bytes().chain(std::iter::repeat_n(b'x', MAX_READ_BYTES)).collect()));
    for (rule, bytes) in &broken {
        let violation = parse(bytes).expect_err(&String::from_utf8_lossy(bytes));
        assert_eq!(violation.rule, *rule, "{violation}");
    }
    for rule in RULES.iter().filter(|rule| ![rules::FILE_NAME, rules::FILE_KIND].contains(&rule.name)) {
        assert!(broken.iter().any(|(broken, _)| *broken == rule.name), "`{}` is broken by nothing here", rule.name);
    }
}

/// Required Fields.
#[test]
fn file_names_have_at_least_three_digits() {
    let name = |number| Seq::new(number).expect("a number").file_name();
    assert_eq!([name(1), name(999), name(1000)], ["001.md", "999.md", "1000.md"]);
    assert_eq!(Seq::from_file_name("0012.md"), Seq::new(12));
    for wrong in ["000.md", "12", ".012.md", "a.md", "-1.md", "1 .md", "99999999999999999999999.md", "1000000000.md"] {
        assert_eq!(Seq::from_file_name(wrong), None, "{wrong}");
    }
    assert!(Seq::from_file_name("999.md") < Seq::from_file_name("1000.md"));
    assert_eq!(Seq::LAST.next(), None);
}

/// Message Types.
#[test]
fn each_message_type_expects_the_specified_reply() {
    let mut message = message();
    let mut expects = |kind: MailboxMessageType| {
        message.message_type = kind;
        let with = message.expects();
        let expected_response = message.content.expected_response.take();
        let pair = (message.expects(), with);
        message.content.expected_response = expected_response;
        pair
    };
    // Message Types. "Depends": on whether it says what it expects.
    assert_eq!(expects(MailboxMessageType::Request), (ExpectedReply::Response, ExpectedReply::Response));
    assert_eq!(expects(MailboxMessageType::Handoff), (ExpectedReply::Ack, ExpectedReply::Ack));
    assert_eq!(expects(MailboxMessageType::Error), (ExpectedReply::Nothing, ExpectedReply::Response));
    for kind in
        [MailboxMessageType::Response, MailboxMessageType::Status, MailboxMessageType::Ack, MailboxMessageType::Done]
    {
        assert_eq!(expects(kind), (ExpectedReply::Nothing, ExpectedReply::Nothing), "{kind}");
    }
}

/// Optional Fields.
#[test]
fn messages_expire_after_their_ttl() {
    let mut message = message();
    let after = |seconds: i64| message.timestamp + jiff::SignedDuration::from_secs(seconds);
    let (before, end) = (after(119), after(120));
    assert!(!message.is_expired(Timestamp::MAX), "without a ttl it stays good");
    message.ttl = Some(2);
    assert!(!message.is_expired(before) && message.is_expired(end));
    message.ttl = Some(u32::MAX);
    assert!(!message.is_expired(end));
}

mod property {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn drafts_round_trip_normalized(
            subject in "\\PC{1,60}", body in "(\\PC|\n|\r|## Body\n|\n## Context\n|\\\\){0,200}", context in "(\\PC|\n){0,40}"
        ) {
            let mut draft = MailboxDraft::new(MessageRecipient::Broadcast, MailboxMessageType::Status, subject, body);
            draft.content.context = Some(context);
            let alpha = "alpha".parse().expect("an id");
            if let Ok(messages) = super::super::super::parts::split(&alpha, Seq::FIRST, Timestamp::UNIX_EPOCH, &draft) {
                prop_assert_eq!(messages.len(), 1);
                prop_assert_eq!(&parse(render(&messages[0]).as_bytes()).expect("it can be read"), &messages[0]);
            }
        }

        #[test]
        fn parsing_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400), at in 0..SPEC_EXAMPLE.len()) {
            let _ = parse(&bytes);
            let mut text = SPEC_EXAMPLE.as_bytes().to_vec();
            text.splice(at..at, bytes);
            if let Ok(message) = parse(&text) {
                // What could be read says the same when it is written again.
                let again = parse(render(&message).as_bytes()).expect("it can be read");
                prop_assert_eq!(again.content, message.content);
            }
        }
    }
}
