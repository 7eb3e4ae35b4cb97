//! Which earlier swarms stop a new run.

use std::path::Path;
use std::time::Duration;

use crate::cli::ExitStatus;
use crate::cli::run::unfinished::find_unfinished_swarms;
use crate::ids::SwarmId;
use crate::report::story_labels::tests::spec;
use crate::state::journal::JOURNAL_VERSION;
use crate::state::{Journal, JournalHeader, SwarmDir, TasksFileCopy};
use crate::swarm::{Event, StopLevel};

fn tasks_copy(canonical: Option<&str>, content: &str) -> TasksFileCopy {
    let canonical = canonical.map(str::to_owned);
    TasksFileCopy { path: "typed.json".to_owned(), canonical, content: content.to_owned() }
}

/// Creates a swarm that began `started` seconds after 1970 and was stopped, or that never began.
fn create_swarm(root: &Path, started: i64, tasks: TasksFileCopy, began: bool) -> SwarmDir {
    let swarm = SwarmId::random();
    let header = JournalHeader {
        schema_version: JOURNAL_VERSION,
        program_version: String::new(),
        swarm_id: swarm,
        started: jiff::Timestamp::from_second(started).expect("a time"),
        spec: crate::swarm::SwarmSpec { swarm, ..spec(1) },
        settings: serde_json::Value::Null,
        tasks: vec![tasks],
    };
    let dir = SwarmDir::create(root, swarm).expect("made");
    let mut journal = Journal::create(&dir.journal_file(), &header).expect("begun");
    if began {
        let stop = Event::StopRequested { level: StopLevel::Kill, by: "test".to_owned() };
        let events = [(Event::Began, Duration::ZERO), (stop, Duration::from_secs(1))];
        journal.append(&events, header.started).expect("written");
    }
    dir
}

#[test]
fn newest_unfinished_swarm_blocks_a_new_run() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path();
    let find = |file: TasksFileCopy| -> Vec<SwarmId> {
        find_unfinished_swarms(root, &[file.clone(), file]).into_iter().map(|found| found.swarm).collect()
    };
    let old = create_swarm(root, 1, tasks_copy(Some("/a"), "one"), true);
    assert_eq!(find(tasks_copy(Some("/a"), "edited since")), [old.swarm()], "by its path");
    assert_eq!(find(tasks_copy(Some("/b"), "one")), [old.swarm()], "by its text");
    assert_eq!(find(tasks_copy(None, "two")), [], "no path is no path in common");
    assert_eq!(find(tasks_copy(Some("/b"), "two")), []);
    let lock = old.lock().expect("free");
    assert_eq!(find(tasks_copy(Some("/a"), "one")), [], "a running one is reported elsewhere");
    drop(lock);
    let never = create_swarm(root, 2, tasks_copy(Some("/a"), "one"), false);
    assert_eq!(find(tasks_copy(Some("/a"), "one")), [], "the newest did not begin");
    let newest = create_swarm(root, 3, tasks_copy(Some("/a"), "one"), true);
    assert_eq!(find(tasks_copy(Some("/a"), "one")), [newest.swarm()]);
    assert_ne!(never.swarm(), newest.swarm());

    let found = find_unfinished_swarms(root, &[tasks_copy(Some("/a"), "one")]).remove(0);
    let refusal = found.to_error();
    assert_eq!(refusal.exit_status(), ExitStatus::InvalidInput);
    let text = refusal.to_string();
    assert!(text.contains("2 of 2 stories are undecided"), "{text}");
    assert!(
        text.contains(&format!("`longshore resume {}`", newest.swarm().short())) && text.contains("--new"),
        "{text}"
    );
}
