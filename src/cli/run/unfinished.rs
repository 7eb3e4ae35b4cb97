//! Finds earlier swarms of the same tasks file that did not finish. `run` refuses to start beside one without `--new`.
//!
//! Called by `preflight.rs`, to report it with all other problems, and by `setup.rs` under the repository's lock, so that one of
//! two swarms that start at the same instant is refused. Only the newest swarm of a file counts: older ones stay resumable and
//! block nothing.

use std::path::Path;

use crate::cli::error::CommandError;
use crate::ids::SwarmId;
use crate::plan::Plan;
use crate::report::text::sanitize;
use crate::state::recovery::recover;
use crate::state::{Journal, SwarmDir, TasksFileCopy};
use crate::swarm::{AttemptPhase, SwarmMachine};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnfinishedSwarm {
    pub(super) swarm: SwarmId,
    /// The tasks file that both have, as typed now.
    file: String,
    undecided_stories: usize,
    total_stories: usize,
    /// Sandboxes that may still be running.
    running_sandboxes: usize,
    /// Why its record cannot be read.
    read_error: Option<String>,
}

impl UnfinishedSwarm {
    /// Why a new swarm may not start.
    pub(crate) fn to_error(&self) -> CommandError {
        let Self { swarm, undecided_stories, total_stories, .. } = self;
        let file = sanitize(&self.file);
        if let Some(problem) = &self.read_error {
            return CommandError::input(format!("swarm {swarm} of `{file}` may not have finished: {problem}")).with_hint(
                "its sandboxes may still be running: restore its journal from a copy and run `longshore resume`, or start \
                 a new swarm with `--new`",
            );
        }
        let running = if self.running_sandboxes > 0 { ", and sandboxes of it may still be running" } else { "" };
        let message = format!(
            "swarm {swarm} of `{file}` did not finish: {undecided_stories} of {total_stories} stories are undecided{running}"
        );
        CommandError::input(message).with_hint(format!(
            "resume it with `longshore resume {}`, or start a new swarm beside it with `--new`",
            swarm.short()
        ))
    }

    /// The note for a new swarm that starts anyway.
    pub(crate) fn ignored_note(&self) -> String {
        let short = self.swarm.short();
        format!(
            "swarm {short} of the same tasks file did not finish and stays as it is: `longshore resume {short}` resumes it, \
             `longshore gc --all` salvages and removes what it left"
        )
    }
}

/// Copies of the tasks files for the journal.
pub(crate) fn copy_tasks_files(plan: &Plan) -> Vec<TasksFileCopy> {
    let copy = |file: &crate::plan::PlannedFile| TasksFileCopy {
        path: file.tasks.path.display().to_string(),
        canonical: file.tasks.path.canonicalize().ok().map(|path| path.display().to_string()),
        content: String::from_utf8_lossy(&file.bytes).into_owned(),
    };
    plan.files.iter().map(copy).collect()
}

/// Finds, for each file, its newest swarm if that did not finish and is not running. Running swarms are reported by
/// `conflicting_swarm_error`.
pub(crate) fn find_unfinished_swarms(root: &Path, files: &[TasksFileCopy]) -> Vec<UnfinishedSwarm> {
    // A swarm without a readable header cannot be matched to a file.
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
                found.push(UnfinishedSwarm {
                    swarm: dir.swarm(),
                    file: file.path.clone(),
                    undecided_stories: 0,
                    total_stories: 0,
                    running_sandboxes: 0,
                    read_error: Some(error.to_string()),
                });
                continue;
            }
        };
        let machine = &recovered.machine;
        // A swarm that never began has left nothing.
        if machine.has_begun() && !machine.is_complete() {
            found.push(from_machine(machine, file.path.clone()));
        }
    }
    found
}

fn from_machine(machine: &SwarmMachine, file: String) -> UnfinishedSwarm {
    let running = |phase| matches!(phase, AttemptPhase::Created | AttemptPhase::Running | AttemptPhase::Completed);
    UnfinishedSwarm {
        swarm: machine.spec().swarm,
        file,
        read_error: None,
        undecided_stories: machine.stories().filter(|story| !story.is_closed()).count(),
        total_stories: machine.stories().count(),
        running_sandboxes: machine.attempts().filter(|attempt| running(attempt.phase) && !attempt.removed).count(),
    }
}

/// Whether both are the same file by path or by content. Old journals have no canonical path.
fn is_same_tasks_file(one: &TasksFileCopy, other: &TasksFileCopy) -> bool {
    (one.canonical.is_some() && one.canonical == other.canonical) || one.content == other.content
}
