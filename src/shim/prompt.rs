//! The prompts of agents.
//!
//! Made by `story.rs` for each story. Must not: hold values of environment variables.

use super::received_dispatch::MEMORY_DISCLAIMER;
use super::task_card::TaskCard;
use crate::handoff::assignment::MailboxMembership;

/// What a prompt says besides the story.
#[derive(Debug, Clone, Copy)]
pub struct PromptContext<'a> {
    /// The tasks file's title.
    pub title: &'a str,
    /// The tasks file's description.
    pub description: &'a str,
    /// What earlier stories learned, as markdown.
    pub memory: &'a str,
    pub mailbox: Option<&'a MailboxMembership>,
    /// Whether the same agent has further stories.
    pub has_more_stories: bool,
}

/// The section about the mailbox and its other members.
pub fn mailbox_section(member: &MailboxMembership, has_more_stories: bool) -> String {
    let MailboxMembership { agent, role, peers } = member;
    let mut text = format!(
        "\n## Mailbox\n\n\
         You can exchange messages with the other agents. You are `{agent}` ({role}).\n\n"
    );
    for peer in peers {
        text.push_str(&format!("- `{}` ({}): {}\n", peer.agent, peer.role, peer.task));
    }
    text.push_str(
        "\n- `acp-shim mail roster` shows which agents have joined and which have left. People on the host may write too.\n\
         - `acp-shim mail send --to ID --type REQUEST \"TEXT\"` sends a message, `--to '*'` to everybody. Types: REQUEST (expects a \
         RESPONSE), RESPONSE, STATUS, HANDOFF (expects an ACK), ACK, ERROR, DONE. `--re ID/NNN` names the message that it answers.\n\
         - `acp-shim mail read` shows new messages; read them between the steps of your work. `acp-shim mail wait --from ID` waits for \
         a new one (exit code 3: the agent has left, 4: timeout).\n\
         - `acp-shim mail state` shows the shared state of the work, `acp-shim mail state --append \"TEXT\"` adds a line to it; \
         `--file NAME` for other shared files.\n\
         - `acp-shim mail --help` shows all commands. ",
    );
    text.push_str(if has_more_stories {
        "You have further stories: DONE is for the end of the last one.\n"
    } else {
        "When you are finished, run `acp-shim mail send --type DONE \"TEXT\"`.\n"
    });
    text
}

/// The prompt for a story.
pub fn story_prompt(card: &TaskCard, context: PromptContext<'_>) -> String {
    let mut text = card.heading();
    if !context.title.is_empty() {
        text.push_str(&format!("\nThis story is part of \"{}\".\n", context.title));
    }
    if !context.description.is_empty() {
        text.push_str(&format!("\n{}\n", context.description));
    }
    text.push_str(&card.sections());
    if !context.memory.is_empty() {
        text.push_str(&format!("\n## What earlier stories learned\n\n{MEMORY_DISCLAIMER}\n\n{}", context.memory));
    }
    if let Some(member) = context.mailbox {
        text.push_str(&mailbox_section(member, context.has_more_stories));
    }
    text.push_str(&format!(
        "\n## Rules\n\n\
         - The current directory is a git clone with the branch `{}` checked out. Work on this branch only: do not switch, \
         create, move or delete other branches or tags, and do not change `.git` by hand.\n\
         - You may commit, but need not: uncommitted changes are committed for you. Files that git ignores are not kept.\n\
         - Leave no merge markers and no git repositories inside the work tree.\n\
         - Do this story only. Processes that you leave running are killed when you end.\n\
         - Report progress with `acp-shim progress \"what was done\"`. `acp-shim task` shows this story again. If it cannot \
         be done, run `acp-shim fail \"why\"` and end.\n\
         - Tell later stories what they should know (a decision, a trap, how something works) with \
         `acp-shim remember \"what you learned\"`. Add `--about FILE` if it is about a file.\n",
        card.branch
    ));
    text
}

#[cfg(test)]
mod tests;
