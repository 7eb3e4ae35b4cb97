//! The protocol's documentation: its table of sentences and `PROTOCOL.md`.

pub mod fixtures;
mod properties;

use super::rules::RULES;

/// The rows of the tables in the module's documentation.
fn table_rows() -> Vec<Vec<&'static str>> {
    let lines = include_str!("mod.rs").lines().filter_map(|line| line.strip_prefix("//! | "));
    lines.map(|line| line.trim_end_matches(" |").split(" | ").collect()).collect()
}

fn backticked(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

#[test]
fn every_spec_sentence_has_tests_and_every_rule_a_sentence() {
    let tests = [
        include_str!("claim/tests.rs"),
        include_str!("parts/tests.rs"),
        include_str!("order/tests.rs"),
        include_str!("pending/tests.rs"),
        include_str!("roster/tests.rs"),
        include_str!("watch/tests.rs"),
        include_str!("machine/tests.rs"),
        include_str!("agent_mailbox/tests.rs"),
        include_str!("store/tests.rs"),
        include_str!("text/tests.rs"),
        include_str!("tests/properties.rs"),
        include_str!("tests.rs"),
        include_str!("../../coordinator/mailbox/shared_state/tests.rs"),
        include_str!("../../coordinator/mailbox/summary/tests.rs"),
        include_str!("../../shim/mail/tests.rs"),
        include_str!("../../../tests/it/offline/cli/mailbox.rs"),
        include_str!("../../../tests/it/docker/run/mailbox.rs"),
        include_str!("../../../tests/it/docker/run/mailbox/patterns.rs"),
        include_str!("../../../tests/it/docker/run/mailbox/session.rs"),
    ]
    .concat();
    let rows = table_rows();
    let sentences: Vec<_> = rows.iter().filter(|row| row.len() == 4 && row[0] != "section").collect();
    assert!(sentences.len() > 25, "{}", sentences.len());
    for row in &sentences {
        let named = backticked(row[3]);
        assert!(!named.is_empty(), "`{}` has no test", row[1]);
        for name in named {
            let (before, _) = tests.split_once(&format!("fn {name}(")).unwrap_or_else(|| panic!("no test `{name}`"));
            let marks = before.lines().rev().map(str::trim).filter(|line| !line.is_empty());
            let mut marks = marks.take_while(|line| line.starts_with("///") || line.starts_with("#["));
            let section = row[0].to_lowercase();
            assert!(marks.any(|mark| mark.to_lowercase().contains(&section)), "`{name}` does not name `{section}`");
        }
    }
    let places: Vec<&str> = sentences.iter().flat_map(|row| backticked(row[2])).collect();
    for rule in RULES {
        assert!(places.contains(&rule.name), "no sentence has the rule `{}`", rule.name);
    }
}

/// Directory Layout.
/// Startup.
#[test]
fn protocol_md_describes_the_whole_protocol() {
    let text = super::layout::PROTOCOL_TEXT;
    for kind in super::message::MailboxMessageType::ALL {
        assert!(text.contains(kind.word()), "{kind}");
    }
    for word in ["amp-version: 1", "ROSTER.md", "shared/STATE.md", "`priority`", "`ttl`", "part: 1/3", ".claim-STATE-"]
    {
        assert!(text.contains(word), "{word}");
    }
    // The indented example is a message.
    let example: Vec<&str> = text.lines().skip_while(|line| !line.contains("amp-version")).collect();
    let example = example.iter().map_while(|line| line.strip_prefix("    ").or(line.is_empty().then_some("")));
    let example = example.collect::<Vec<_>>().join("\n");
    let message = super::text::parse(example.as_bytes()).expect("a message");
    assert_eq!(message.content.subject, "One line");
}
