//! An earlier swarm of the same tasks file that did not finish: `run` does not begin beside it unless that is asked for.
//!
//! Called by `preflight.rs`, so that the user is told with all other problems, and by `setup.rs`, under the repository's lock, so that
//! of two that begin at the same instant one is told. Only the newest swarm of a file counts: one that was passed over with
//! `--new` stays resumable, and is not in the way again.

use std::path::Path;

use crate::cli::error::CommandError;
use crate::ids::SwarmId;
use crate::plan::Plan;
use crate::report::text::sanitize;
use crate::state::recovery::recover;
use crate::state::{Journal, SwarmDir, TasksFileCopy};
use crate::swarm::{AttemptPhase, SwarmMachine};

/// A swarm that did not finish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnfinishedSwarm {
    swarm: SwarmId,
    /// The file that both have, as typed now.
    file: String,
    undecided_stories: usize,
    total_stories: usize,
    /// Sandboxes that may still run.
    running_sandboxes: usize,
    /// Why its record cannot be read, where it cannot.
    read_error: Option<String>,
}

impl UnfinishedSwarm {
    /// Why a new swarm is not begun.
    pub(crate) fn to_error(&self) -> CommandError {
        let Self {
            swarm,
            file,
            undecided_stories: undecided,
            total_stories: stories,
            running_sandboxes: sandboxes,
            read_error: unreadable,
        } = self;
        if let Some(problem) = unreadable {
            return CommandError::input(format!("swarm {swarm} of `{}` may not have finished: {problem}", sanitize(file))).with_hint(
                "its sandboxes may still run: put a good copy of its journal in its place and `longshore resume` it, or give `--new` \
                 to start a fresh swarm",
            );
        }
        let running = if *sandboxes > 0 { ", and sandboxes of it may still be running" } else { "" };
        let message = format!(
            "swarm {swarm} of `{}` did not finish: {undecided} of {stories} stories are undecided{running}",
            sanitize(file)
        );
        let short = swarm.short();
        CommandError::input(message).with_hint(format!(
            "`longshore resume {short}` goes on with it; `--new` starts a fresh swarm and leaves that one as it is"
        ))
    }

    /// What becomes of it where a new one is begun all the same.
    pub(crate) fn ignored_note(&self) -> String {
        let short = self.swarm.short();
        format!(
            "swarm {short} of the same tasks file did not finish and stays as it is: `longshore resume {short}` goes on with it, \
             `longshore gc --all` salvages what it left and removes that"
        )
    }
}

/// The tasks files as the journal keeps them.
pub(crate) fn copy_tasks_files(plan: &Plan) -> Vec<TasksFileCopy> {
    let copy = |file: &crate::plan::PlannedFile| TasksFileCopy {
        path: file.tasks.path.display().to_string(),
        canonical: file.tasks.path.canonicalize().ok().map(|path| path.display().to_string()),
        content: String::from_utf8_lossy(&file.bytes).into_owned(),
    };
    plan.files.iter().map(copy).collect()
}

/// For each of the files the newest swarm of it, where that did not finish and nobody runs it. A live one is told of elsewhere.
pub(crate) fn find_unfinished_swarms(root: &Path, files: &[TasksFileCopy]) -> Vec<UnfinishedSwarm> {
    // One whose header cannot be read may be of any file: nothing can be said of it here.
    let mut swarms: Vec<_> = (SwarmDir::list(root).unwrap_or_default().into_iter())
        .filter_map(|dir| Some((Journal::read_header(&dir.journal_file()).ok()?, dir)))
        .collect();
    swarms.sort_by_key(|(header, _)| std::cmp::Reverse(header.started));
    let mut found: Vec<UnfinishedSwarm> = Vec::new();
    for file in files {
        let Some((_, dir)) =
            swarms.iter().find(|(header, _)| header.tasks.iter().any(|other| is_same_tasks_file(file, other)))
        else {
            continue;
        };
        if found.iter().any(|known| known.swarm == dir.swarm()) || dir.is_locked().unwrap_or(true) {
            continue;
        }
        let recovered = match recover(dir) {
            Ok(recovered) => recovered,
            Err(error) => {
                let unreadable = Some(error.to_string());
                let (swarm, file) = (dir.swarm(), file.path.clone());
                found.push(UnfinishedSwarm {
                    swarm,
                    file,
                    undecided_stories: 0,
                    total_stories: 0,
                    running_sandboxes: 0,
                    read_error: unreadable,
                });
                continue;
            }
        };
        let machine = &recovered.machine;
        // One that never began has done nothing and left nothing.
        if machine.has_begun() && !machine.is_complete() {
            found.push(UnfinishedSwarm { file: file.path.clone(), ..from_machine(machine) });
        }
    }
    found
}

fn from_machine(machine: &SwarmMachine) -> UnfinishedSwarm {
    let running = |phase| matches!(phase, AttemptPhase::Created | AttemptPhase::Running | AttemptPhase::Completed);
    UnfinishedSwarm {
        swarm: machine.spec().swarm,
        file: String::new(),
        read_error: None,
        undecided_stories: machine.stories().filter(|story| !story.is_closed()).count(),
        total_stories: machine.stories().count(),
        running_sandboxes: machine.attempts().filter(|attempt| running(attempt.phase) && !attempt.removed).count(),
    }
}

/// The same file by its path, or by its text. Journals of before have no path that can be compared.
fn is_same_tasks_file(one: &TasksFileCopy, other: &TasksFileCopy) -> bool {
    (one.canonical.is_some() && one.canonical == other.canonical) || one.content == other.content
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::story_labels::tests::spec;
    use crate::state::JournalHeader;
    use crate::state::journal::JOURNAL_VERSION;
    use crate::swarm::{Event, StopLevel};
    use std::time::Duration;

    fn tasks_copy(canonical: Option<&str>, content: &str) -> TasksFileCopy {
        let canonical = canonical.map(str::to_owned);
        TasksFileCopy { path: "typed.json".to_owned(), canonical, content: content.to_owned() }
    }

    /// A swarm that was begun so many seconds after 1970, and stopped, or that never began.
    fn create_swarm(root: &Path, at: i64, tasks: TasksFileCopy, began: bool) -> SwarmDir {
        let swarm = SwarmId::random();
        let header = JournalHeader {
            schema_version: JOURNAL_VERSION,
            program_version: String::new(),
            swarm_id: swarm,
            started: jiff::Timestamp::from_second(at).expect("a time"),
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
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        let asked = |file: TasksFileCopy| -> Vec<SwarmId> {
            find_unfinished_swarms(root, &[file.clone(), file]).into_iter().map(|found| found.swarm).collect()
        };
        let old = create_swarm(root, 1, tasks_copy(Some("/a"), "one"), true);
        assert_eq!(asked(tasks_copy(Some("/a"), "edited since")), [old.swarm()], "by its path");
        assert_eq!(asked(tasks_copy(Some("/b"), "one")), [old.swarm()], "by its text");
        assert_eq!(asked(tasks_copy(None, "two")), [], "no path is no path in common");
        assert_eq!(asked(tasks_copy(Some("/b"), "two")), []);
        let lock = old.lock().expect("free");
        assert_eq!(asked(tasks_copy(Some("/a"), "one")), [], "a live one is told of elsewhere");
        drop(lock);
        let never = create_swarm(root, 2, tasks_copy(Some("/a"), "one"), false);
        assert_eq!(asked(tasks_copy(Some("/a"), "one")), [], "the newest did not begin");
        let newest = create_swarm(root, 3, tasks_copy(Some("/a"), "one"), true);
        assert_eq!(asked(tasks_copy(Some("/a"), "one")), [newest.swarm()]);
        assert_ne!(never.swarm(), newest.swarm());

        let told = find_unfinished_swarms(root, &[tasks_copy(Some("/a"), "one")]).remove(0);
        let refusal = told.to_error();
        assert_eq!(refusal.exit_code(), 2);
        let text = refusal.to_string();
        assert!(text.contains("2 of 2 stories are undecided"), "{text}");
        assert!(
            text.contains(&format!("`longshore resume {}`", newest.swarm().short())) && text.contains("--new"),
            "{text}"
        );
    }
}
