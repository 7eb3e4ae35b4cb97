//! The initial `STATE.md` of a swarm (Startup, 5): the goal, and the tasks with their owners. After that it belongs to the agents.
//! Must not: replace an existing file.

use std::fmt::Write as _;

use crate::plan::Plan;
use crate::protocol::mailbox::error::MailboxResult;
use crate::protocol::mailbox::layout::SharedName;
use crate::protocol::mailbox::store::Mailbox;
use crate::tasks::DoneStatus;

const MAX_STORIES: usize = 500;
const MAX_TITLE_CHARS: usize = 120;
const MAX_DESCRIPTION_CHARS: usize = 4_000;

pub(super) fn write_initial_state(mailbox: &Mailbox, plan: &Plan) -> MailboxResult<()> {
    let name = SharedName::state();
    match mailbox.read_shared(&name)? {
        Some(_) => Ok(()),
        None => mailbox.write_shared(&name, &render_state(plan)),
    }
}

fn render_state(plan: &Plan) -> String {
    let mut text = "# Shared State\n\n## Current Goal\n".to_owned();
    for file in &plan.files {
        let _ = writeln!(text, "{}", single_line(&file.tasks.title, MAX_TITLE_CHARS));
        let description: String = file.tasks.description.trim().chars().take(MAX_DESCRIPTION_CHARS).collect();
        // Quoted, so that a heading in it does not end the section.
        for line in description.lines() {
            let _ = writeln!(text, "> {line}");
        }
    }
    text.push_str("\n## Task Assignments\n| Task | Owner | Status |\n|------|-------|--------|\n");
    for story in plan.stories.iter().take(MAX_STORIES) {
        let index = plan.assignments.iter().position(|assignment| assignment.stories.contains(&story.key));
        let owner = index.and_then(|index| plan.agents.get(index)).map_or("", |seat| seat.id.as_str());
        let status = match story.done {
            None => "pending",
            Some(DoneStatus::Completed) => "complete",
            Some(DoneStatus::Skipped) => "skipped",
        };
        let title = single_line(&plan.story(&story.key).title, MAX_TITLE_CHARS);
        let task = format!("{}: {title}", plan.label(&story.key));
        let _ = writeln!(text, "| {} | {owner} | {status} |", task.replace('|', "\\|"));
    }
    if plan.stories.len() > MAX_STORIES {
        let _ = writeln!(text, "| and {} more | | |", plan.stories.len() - MAX_STORIES);
    }
    text.push_str("\n## Decisions Made\n\n## Shared Artifacts\n");
    text
}

fn single_line(text: &str, max_chars: usize) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(max_chars).collect()
}

#[cfg(test)]
mod tests;
