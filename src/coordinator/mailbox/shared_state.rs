//! `STATE.md` as a swarm begins (Startup, 5): the goal, and who does what, as far as the plan knows. From then on it is the
//! agents' own. Must not: write over what is there.

use std::fmt::Write as _;

use crate::plan::Plan;
use crate::protocol::mailbox::store::{Mailbox, MailboxResult, SharedName};
use crate::tasks::DoneStatus;

/// The most stories that are listed, and the most characters of a title and of a description.
const MAX_STORIES: usize = 500;
const MAX_TITLE_CHARS: usize = 120;
const MAX_DESCRIPTION_CHARS: usize = 4_000;

/// Writes it into the copy, where there is none.
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
        // A heading of its own would end the section.
        for words in description.lines() {
            let _ = writeln!(text, "> {words}");
        }
    }
    text.push_str("\n## Task Assignments\n| Task | Owner | Status |\n|------|-------|--------|\n");
    for story in plan.stories.iter().take(MAX_STORIES) {
        let place = plan.assignments.iter().position(|assignment| assignment.stories.contains(&story.key));
        let owner = place.and_then(|place| plan.agents.get(place)).map_or("", |seat| seat.id.as_str());
        let status = match story.done {
            None => "pending",
            Some(DoneStatus::Completed) => "complete",
            Some(DoneStatus::Skipped) => "skipped",
        };
        let task =
            format!("{}: {}", plan.label(&story.key), single_line(&plan.story(&story.key).title, MAX_TITLE_CHARS));
        let _ = writeln!(text, "| {} | {owner} | {status} |", task.replace('|', "\\|"));
    }
    if plan.stories.len() > MAX_STORIES {
        let _ = writeln!(text, "| and {} more | | |", plan.stories.len() - MAX_STORIES);
    }
    text.push_str("\n## Decisions Made\n\n## Shared Artifacts\n");
    text
}

/// On one line, as many characters of it.
fn single_line(text: &str, most: usize) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(most).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plan::{FanOut, PlanOptions};

    /// Startup, 5; STATE.md Structure.
    #[test]
    fn initial_state_lists_goal_and_owners_and_is_written_once() {
        let file = json!({
            "metadata": {"title": "Fix the\nhang", "branchName": "feat/a", "mailbox": true, "description": "On Windows.\n\n# Now"},
            "userStories": [
                {"id": "US-001", "title": "Diagnose | cause", "command": "true", "mailbox": {"agent": "alpha"}},
                {"id": "US-002", "title": "Test", "command": "true", "status": "completed"},
            ],
        });
        let bytes = file.to_string().into_bytes();
        let tasks = crate::tasks::parse(&bytes, "a.json".as_ref()).expect("a tasks file");
        let options = PlanOptions {
            fan_out: FanOut::Story,
            rerun_done: false,
            branch: None,
            year: 2026,
            has_agent: true,
            mailbox: None,
        };
        let plan = crate::plan::build(vec![(tasks, bytes)], "/repo".as_ref(), &options).expect("a plan");
        let folder = tempfile::tempdir().expect("a folder");
        let mailbox = Mailbox::create(&folder.path().join("m")).expect("made");
        write_initial_state(&mailbox, &plan).expect("written");
        let read = || mailbox.read_shared(&SharedName::state()).expect("read").expect("there");
        let expected = "# Shared State\n\n## Current Goal\nFix the hang\n> On Windows.\n> \n> # Now\n\n## Task Assignments\n\
                        | Task | Owner | Status |\n|------|-------|--------|\n\
                        | US-001: Diagnose \\| cause | alpha | pending |\n| US-002: Test |  | complete |\n\
                        \n## Decisions Made\n\n## Shared Artifacts\n";
        assert_eq!(read(), expected);
        mailbox.write_shared(&SharedName::state(), "ours\n").expect("written");
        write_initial_state(&mailbox, &plan).expect("nothing to do");
        assert_eq!(read(), "ours\n");
    }
}
