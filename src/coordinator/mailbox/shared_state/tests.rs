//! The initial `STATE.md`.

use serde_json::json;

use super::*;
use crate::plan;

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
    let plan = plan::build(vec![(tasks, bytes)], "/repo".as_ref(), &plan::tests::options()).expect("a plan");
    let dir = tempfile::tempdir().expect("a directory");
    let mailbox = Mailbox::create(&dir.path().join("m")).expect("created");
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
