//! Messages as they land.

use super::*;
use crate::delivery::tests::landing_repo::message;

#[test]
fn claims_are_removed_with_their_continuations() {
    for (from, to) in [
        ("a\n\nLongshore-Story: US-001\n", "a"),
        ("a\n\nbody\nlongshore-anything:x\n\tmore\n more\nkept\n", "a\n\nbody\nkept"),
        ("a\n\n  LONGSHORE-Tasks \t: x\n", "a"),
        ("a\n\nLongshore-Story=US-1\nLongshore-Story#US-1\n", "a"),
        ("a\n\nLong\u{0}shore-St\u{202e}ory: US-001\n", "a"),
        ("a\r\n\r\nLongshore-Story: US-001\r\n", "a"),
        (
            "longshore-like words\n\nLongshore is a word. Longshore-Story too\n",
            "longshore-like words\n\nLongshore is a word. Longshore-Story too",
        ),
        ("\n\n a\n\n\n", " a"),
        ("Longshore-Story: US-001", "instead"),
    ] {
        assert_eq!(clean_agent_message(from, "instead"), format!("{to}\n"), "{from:?}");
    }
}

#[test]
fn trailers_join_a_paragraph_of_trailers() {
    let trailers = message(&["US-001"]).trailers();
    let amended = |text: &str| message(&["US-001"]).amend(text);
    assert_eq!(amended("a\n\nCo-authored-by: B <b@c>\n"), format!("a\n\nCo-authored-by: B <b@c>\n{trailers}"));
    assert_eq!(amended("a\n\nbody: of words\nmore\n"), format!("a\n\nbody: of words\nmore\n\n{trailers}"));
    assert_eq!(amended("fix: a subject\n"), format!("fix: a subject\n\n{trailers}"));
    assert_eq!(amended("Longshore-Story: US-009"), format!("Merge US-001: a title\n\n{trailers}"));
}

#[test]
fn trailer_values_stay_on_one_line() {
    assert_eq!(tasks_trailer("tasks/über all.json"), "Longshore-Tasks: tasks/über all.json");
    assert_eq!(tasks_trailer(" a\nb%\u{7f} "), "Longshore-Tasks: %20a%0Ab%25%7F%20");
}

#[test]
fn long_messages_end_at_a_character() {
    let text = clean_agent_message(&"é".repeat(MAX_MESSAGE), "");
    assert!(text.len() <= MAX_MESSAGE + 1 && text.len() > MAX_MESSAGE - 4, "{}", text.len());
}
