//! The four maker-checker patterns of `tasks/patterns/`: each runs, sends the messages of the spec's sequence, and lands what was
//! checked.

use super::*;

/// A request of bravo's that alpha answers twice before bravo accepts: the flow of test-first and of adversarial.
const TWO_ROUNDS: [(&str, MailboxMessageType, &str); 5] = [
    ("bravo/001", MailboxMessageType::Request, ""),
    ("alpha/001", MailboxMessageType::Response, "bravo/001"),
    ("bravo/002", MailboxMessageType::Response, "alpha/001"),
    ("alpha/002", MailboxMessageType::Response, "bravo/002"),
    ("bravo/003", MailboxMessageType::Ack, "alpha/002"),
];

/// Runs a pattern.
fn pattern(name: &str) -> (SwarmFixture, Mailbox) {
    let scratch = SwarmFixture::new();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tasks/patterns").join(format!("{name}.json"));
    std::fs::copy(file, scratch.folder.path().join("pattern.json")).expect("a pattern");
    scratch.longshore(&["plan", "../pattern.json"]).expect(0, &["in the mailbox alpha", "in the mailbox bravo"]);
    scratch.longshore(&["run", "../pattern.json", "--retries", "0"]).expect(0, &["2 landed"]);
    let mailbox = scratch.mailbox();
    (scratch, mailbox)
}

/// References, types and `re` of the messages, oldest first, without the final DONE of each agent.
#[track_caller]
fn flow(mailbox: &Mailbox) -> Vec<(String, MailboxMessageType, Option<String>)> {
    let mut all: Vec<MailboxMessage> = Vec::new();
    for agent in ["alpha", "bravo"] {
        let mut sent = messages(mailbox, agent);
        let last = sent.pop().expect("it said something");
        assert_eq!(
            (last.message_type, last.to),
            (MailboxMessageType::Done, MessageRecipient::Broadcast),
            "{agent} signed off"
        );
        all.extend(sent);
    }
    assert_eq!(statuses(mailbox).into_values().collect::<Vec<_>>(), [AgentStatus::Done, AgentStatus::Done]);
    // Within a second, a message without `re` comes first.
    all.sort_by_key(|one| (one.timestamp, one.re.is_some()));
    all.into_iter()
        .map(|one| (one.reference().to_string(), one.message_type, one.re.map(|re| re.to_string())))
        .collect()
}

#[track_caller]
fn is_flow(mailbox: &Mailbox, wanted: &[(&str, MailboxMessageType, &str)]) {
    let mut found = flow(mailbox);
    let mut wanted: Vec<_> = (wanted.iter())
        .map(|(name, kind, re)| ((*name).to_owned(), *kind, Some((*re).to_owned()).filter(|re| !re.is_empty())))
        .collect();
    // Within a second, the order is not known.
    found.sort_by(|one, other| one.0.cmp(&other.0));
    wanted.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(found, wanted);
}

fn message(mailbox: &Mailbox, agent: &str, number: usize) -> MailboxMessage {
    messages(mailbox, agent).swap_remove(number - 1)
}

/// Maker-Checker Patterns.
#[test]
fn review_gate() {
    let (scratch, mailbox) = pattern("review-gate");
    is_flow(
        &mailbox,
        &[
            ("alpha/001", MailboxMessageType::Request, ""),
            ("bravo/001", MailboxMessageType::Response, "alpha/001"),
            ("alpha/002", MailboxMessageType::Response, "bravo/001"),
            ("bravo/002", MailboxMessageType::Ack, "alpha/002"),
            ("alpha/003", MailboxMessageType::Status, "bravo/002"),
        ],
    );
    let issues = message(&mailbox, "bravo", 1).content.body;
    assert!(issues.contains("exit code 0") && issues.contains("2. No test"), "{issues}");
    // The commit is the one in the message, and younger than the approval.
    let body = message(&mailbox, "alpha", 3).content.body;
    let commit = body.strip_prefix("Committed: ").expect("a commit");
    // It landed written again, and is kept as it was.
    let is_kept = |name: &String| name.contains("/results/") && scratch.git(&["rev-list", name]).contains(commit);
    assert!(scratch.refs().iter().any(is_kept), "{commit}");
    assert!(scratch.git(&["log", "--format=%s", "main..feat/review-gate"]).contains("Count the words of a file"));
    let at: i64 = scratch.git(&["log", "-1", "--format=%ct", commit]).parse().expect("a time");
    assert!(at >= message(&mailbox, "bravo", 2).timestamp.as_second(), "committed before the ACK");
    assert_eq!(scratch.git(&["log", "--format=%s", &format!("main..{commit}")]), "Count the words of a file");
    assert!(scratch.show("feat/review-gate", "review.md").contains("2 tests pass"));
    let artifacts = std::fs::read_to_string(mailbox.root().join("shared/ARTIFACTS.md")).expect("carried");
    assert!(artifacts.contains("+++ b/word-count-test.sh"), "{artifacts}");
}

/// Maker-Checker Patterns.
#[test]
fn test_first() {
    let (scratch, mailbox) = pattern("test-first");
    is_flow(&mailbox, &TWO_ROUNDS);
    let first = message(&mailbox, "alpha", 1).content.body;
    assert!(first.starts_with("2/3 pass. Failing: not ok 3 partial index"), "{first}");
    assert_eq!(message(&mailbox, "alpha", 2).content.body, "3/3 passing.");
    // The landed files pass their tests together.
    scratch.git(&["checkout", "-q", "feat/test-first"]);
    let results = scratch.command("sh").arg("search-test.sh").output().expect("sh runs");
    let results = (results.status.success(), String::from_utf8_lossy(&results.stdout).into_owned());
    assert!(results.0 && results.1.matches("ok ").count() == 3, "{results:?}");
}

/// Maker-Checker Patterns.
#[test]
fn adversarial() {
    let (scratch, mailbox) = pattern("adversarial");
    is_flow(&mailbox, &TWO_ROUNDS);
    let attack = message(&mailbox, "bravo", 1).content.body;
    assert!(attack.contains("500 lines") && attack.contains("LEAK"), "{attack}");
    assert!(attack.contains("8 calls side by side give 1 output"), "{attack}");
    let report = scratch.show("feat/adversarial", "attacks.md");
    assert!(report.contains("are refused") && report.contains("an error of its own"), "{report}");
    // The landed file is the one that withstood the attacks.
    scratch.git(&["checkout", "-q", "feat/adversarial"]);
    scratch.write("secret", "secret\n");
    let out = scratch.command("sh").args(["note.sh", ".longshore", "../secret"]).output().expect("sh runs");
    assert_eq!((out.status.code(), out.stdout.as_slice()), (Some(2), &b""[..]));
}

/// Maker-Checker Patterns.
#[test]
fn debug_ping_pong() {
    let (scratch, mailbox) = pattern("debug-ping-pong");
    is_flow(
        &mailbox,
        &[
            ("alpha/001", MailboxMessageType::Handoff, ""),
            ("bravo/001", MailboxMessageType::Ack, "alpha/001"),
            ("bravo/002", MailboxMessageType::Status, "alpha/001"),
            ("alpha/002", MailboxMessageType::Response, "bravo/002"),
        ],
    );
    assert!(message(&mailbox, "alpha", 1).content.subject.ends_with("total.sh prints 0"));
    assert!(scratch.show("feat/debug-ping-pong", "diagnosis.md").contains("Seen: 6."));
    scratch.git(&["checkout", "-q", "feat/debug-ping-pong"]);
    scratch.write("numbers", "40\n2\n");
    let out = scratch.command("sh").args(["total.sh", "numbers"]).output().expect("sh runs");
    assert_eq!(String::from_utf8_lossy(&out.stdout), "42\n");
}
