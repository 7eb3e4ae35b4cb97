//! The words in which an agent is told what to do.
//!
//! Made by `story.rs` for each story; written to a file, and given on standard input where the agent wants it there. Must
//! not: hold values of environment variables.

use super::agent_requests::TaskCard;
use super::received_dispatch::MEMORY_DISCLAIMER;
use crate::handoff::assignment::MailboxMembership;

/// Where the story stands in its tasks file.
#[derive(Debug, Clone, Copy)]
pub struct PromptContext<'a> {
    /// The tasks file's title.
    pub title: &'a str,
    /// The tasks file's description; may be empty.
    pub description: &'a str,
    /// What earlier stories learned, as markdown; may be empty.
    pub memory: &'a str,
    /// Who the agent is in the mailbox, where there is one.
    pub mailbox: Option<&'a MailboxMembership>,
    /// The same agent has other stories after this one.
    pub has_more_stories: bool,
}

/// How an agent takes part in the mailbox, and who else does. `more`: it has other stories after this one.
pub fn mailbox_section(seat: &MailboxMembership, more: bool) -> String {
    let MailboxMembership { agent, role, peers } = seat;
    let mut text = format!(
        "\n## Mailbox\n\n\
         You can write to the other agents, and they to you. You are `{agent}` ({role}).\n\n"
    );
    for peer in peers {
        text.push_str(&format!("- `{}` ({}): {}\n", peer.agent, peer.role, peer.task));
    }
    text.push_str(
        "\n- `acp-shim mail roster` shows who has come so far and who is gone; people on the host may write too.\n\
         - `acp-shim mail send --to ID --type REQUEST \"TEXT\"` sends a message, `--to '*'` to everybody. Types: REQUEST (wants a \
         RESPONSE), RESPONSE, STATUS, HANDOFF (wants an ACK), ACK, ERROR, DONE. `--re ID/NNN` says which message it answers.\n\
         - `acp-shim mail read` shows what is new; look between two steps of your work. `acp-shim mail wait --from ID` waits for \
         something new (exit code 3: nothing more will come, 4: nothing came in time).\n\
         - `acp-shim mail state` shows the shared state of the work, `acp-shim mail state --append \"TEXT\"` adds a line to it; \
         `--file NAME` for other shared files.\n\
         - `acp-shim mail --help` shows the rest. ",
    );
    text.push_str(if more {
        "You have other stories after this one: DONE is for the end of the last.\n"
    } else {
        "When you are finished, say so: `acp-shim mail send --type DONE \"TEXT\"`.\n"
    });
    text
}

/// The prompt for a story.
pub fn story_prompt(card: &TaskCard, context: PromptContext<'_>) -> String {
    let mut text = format!("# {}: {}\n", card.id, card.title);
    if !context.title.is_empty() {
        text.push_str(&format!("\nThis story is part of \"{}\".\n", context.title));
    }
    if !context.description.is_empty() {
        text.push_str(&format!("\n{}\n", context.description));
    }
    if !card.description.is_empty() {
        text.push_str(&format!("\n## What to do\n\n{}\n", card.description));
    }
    if !card.acceptance_criteria.is_empty() {
        text.push_str("\n## Acceptance criteria\n\n");
        for criterion in &card.acceptance_criteria {
            text.push_str(&format!("- {}: {}\n", criterion.id, criterion.text));
            if let Some(command) = &criterion.test_command {
                text.push_str(&format!("  Checked by running: `{command}`\n"));
            }
        }
    }
    if !card.notes.is_empty() {
        text.push_str(&format!("\n## Notes\n\n{}\n", card.notes));
    }
    if !context.memory.is_empty() {
        text.push_str(&format!("\n## What earlier stories learned\n\n{MEMORY_DISCLAIMER}\n\n{}", context.memory));
    }
    if !card.verify.is_empty() {
        text.push_str("\n## How the work is verified\n\nEach of these must exit with 0 once you are done:\n\n");
        for command in &card.verify {
            text.push_str(&format!("- `{command}`\n"));
        }
    }
    if !card.guidance.is_empty() {
        text.push_str("\n## What the admin says\n\n");
        for words in &card.guidance {
            text.push_str(&format!("{words}\n\n"));
        }
    }
    if let Some(failure) = &card.previous_failure {
        text.push_str(&format!("\n## The previous try failed\n\n{failure}\n"));
    }
    if let Some(seat) = context.mailbox {
        text.push_str(&mailbox_section(seat, context.has_more_stories));
    }
    text.push_str(&format!(
        "\n## Rules\n\n\
         - The current folder is a git clone with the branch `{}` checked out. Work on this branch alone: do not switch, \
         create, move or delete other branches or tags, and do not change `.git` by hand.\n\
         - You may commit, and need not: what you leave uncommitted is committed for you. Files that git ignores are not \
         kept.\n\
         - Leave no merge markers and no git repositories inside the work tree.\n\
         - Do this story only. Processes that you leave running are killed when you end.\n\
         - Say how it goes with `acp-shim progress \"what was done\"`. `acp-shim task` shows this story again. If it cannot \
         be done, run `acp-shim fail \"why\"` and end.\n\
         - What stories after this one should know (a decision, a trap, how something works), tell them with \
         `acp-shim remember \"what you learned\"`, adding `--about FILE` where it is about a file.\n",
        card.branch
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::super::agent_requests::CriterionCard;
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
        let none =
            PromptContext { title: "Parsers", description: "", memory: "", mailbox: None, has_more_stories: false };
        let text = story_prompt(&card, PromptContext { mailbox: Some(&seat), ..none });
        assert!(
            text.contains("You are `alpha` (coder)") && text.contains("- `bravo` (tester): Test the parser"),
            "{text}"
        );
        let says_done = "acp-shim mail send --type DONE";
        assert!(text.contains(says_done), "{text}");
        // Who signs off counts as gone: not between two stories.
        let text = story_prompt(&card, PromptContext { mailbox: Some(&seat), has_more_stories: true, ..none });
        assert!(!text.contains(says_done) && text.contains("DONE is for the end of the last"), "{text}");
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
}
