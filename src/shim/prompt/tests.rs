//! What a prompt contains.

use super::super::task_card::CriterionCard;
use super::*;
use crate::handoff::assignment::MailboxPeer;

#[test]
fn prompt_contains_all_parts_and_no_empty_sections() {
    let card = TaskCard {
        id: "US-001".into(),
        title: "Add a parser".into(),
        description: String::new(),
        branch: "feat/parser".into(),
        acceptance_criteria: vec![CriterionCard {
            id: "AC-1".into(),
            text: "parses".into(),
            test_command: Some("make check".into()),
        }],
        notes: String::new(),
        verify: vec!["cargo test".into()],
        checked_after: false,
        merge_head: None,
        conflicts: Vec::new(),
        previous_failure: Some("`cargo test` exited 101".into()),
        guidance: vec!["Use the second way.".into()],
    };
    let peer = MailboxPeer {
        agent: "bravo".parse().expect("an id"),
        role: "tester".to_owned(),
        task: "Test the parser".to_owned(),
    };
    let seat =
        MailboxMembership { agent: "alpha".parse().expect("an id"), role: "coder".to_owned(), peers: vec![peer] };
    let none = PromptContext { title: "Parsers", description: "", memory: "", mailbox: None, has_more_stories: false };
    let text = story_prompt(&card, PromptContext { mailbox: Some(&seat), ..none });
    assert!(text.contains("You are `alpha` (coder)") && text.contains("- `bravo` (tester): Test the parser"), "{text}");
    let says_done = "acp-shim mail send --type DONE";
    assert!(text.contains(says_done), "{text}");
    // An agent that signs off counts as gone, so it must not do so between two stories.
    let text = story_prompt(&card, PromptContext { mailbox: Some(&seat), has_more_stories: true, ..none });
    assert!(!text.contains(says_done) && text.contains("DONE is for the end of the last one"), "{text}");
    let text = story_prompt(&card, PromptContext { memory: "- note `n`: it is slow\n", ..none });
    assert!(!text.contains("ailbox"), "{text}");
    for part in [
        "US-001: Add a parser",
        "AC-1: parses",
        "`make check`",
        "`cargo test`",
        "exited 101",
        "`feat/parser`",
        "it is slow",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    assert!(!text.contains("## Notes") && !text.contains("## What to do"));
}
