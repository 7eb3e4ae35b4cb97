//! Runs a swarm and finishes it: the report's files, the final table, and the outcome in the tasks files with `--write-back`.
//!
//! Shared by `run` and `resume`. Finishing reads the swarm's record and happens after failures too: what landed before has
//! landed.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write, stderr, stdout};
use std::path::{Path, PathBuf};

use super::preflight::Preflight;
use crate::cli::args::RunArgs;
use crate::cli::context::CommandContext;
use crate::cli::error::CommandError;
use crate::cli::{CommandResult, print_stderr, print_stdout, terminal_columns};
use crate::coordinator::{self, StopSignals, SwarmSetup, reason_to_keep_volumes};
use crate::delivery::Repo;
use crate::ids::StoryId;
use crate::protocol::acp::message::StoryStatus;
use crate::report::summary::Summary;
use crate::report::{FirstWriteError, TextStyle, report_file};
use crate::state::recovery::recover;
use crate::state::{SwarmDir, SwarmState, SwarmStatus};
use crate::tasks::write_back::{self, WriteBackStatus};

/// What finishing needs, taken before the coordinator gets the rest.
pub(crate) struct FinishContext {
    repo: Repo,
    json: bool,
    write_back: bool,
    notes: Vec<String>,
    relaxations: Vec<String>,
    keep: bool,
}

impl FinishContext {
    pub(super) fn for_run(args: &RunArgs, checked: &Preflight) -> Self {
        Self {
            repo: checked.repo.clone(),
            json: args.json,
            write_back: args.write_back,
            notes: checked.notes.clone(),
            relaxations: checked.relaxations.clone(),
            keep: checked.settings.keep.value,
        }
    }

    pub(crate) fn for_resume(repo: Repo, json: bool, write_back: bool, keep: bool) -> Self {
        Self { repo, json, write_back, notes: Vec::new(), relaxations: Vec::new(), keep }
    }
}

pub(crate) async fn run_and_finish(
    setup: SwarmSetup,
    signals: StopSignals,
    context: &FinishContext,
    write_error: &FirstWriteError,
) -> CommandResult {
    let dir = setup.dir.clone();
    let ended = coordinator::run(setup, signals).await;
    let finished = finish(context, &dir).await;
    let ended = ended.map_err(CommandError::from)?;
    finished?;
    check_events_written(write_error)?;
    Ok(ended.into())
}

/// Fails if events were lost: a program must not take a broken stream for a whole one.
fn check_events_written(write_error: &FirstWriteError) -> Result<(), CommandError> {
    match write_error.error() {
        None => Ok(()),
        Some(error) => {
            Err(CommandError::machinery("events could not be written to standard output: the stream is incomplete")
                .with_cause(error)
                .with_hint("`longshore status` shows how the swarm ended"))
        }
    }
}

/// Reports how the swarm ended.
pub(crate) async fn finish(context: &FinishContext, dir: &SwarmDir) -> Result<(), CommandError> {
    let recovered = recover(dir)?;
    if recovered.event_count == 0 {
        // It did not start. The error says why.
        return Ok(());
    }
    let state = SwarmState::from_machine(&recovered.machine, recovered.header.started);
    let mut summary = Summary::from_state(&state, &recovered.header.spec, dir);
    for branch in &mut summary.branches {
        branch.head = context.repo.branch_head(&branch.name).await?.map(|commit| commit.to_string());
    }
    summary.relaxations.clone_from(&context.relaxations);
    summary.notes.splice(0..0, context.notes.iter().cloned());
    if let Some(reason) = reason_to_keep_volumes(&recovered.machine, context.keep) {
        let short = dir.swarm().short();
        let containers = if context.keep { " and the containers" } else { "" };
        let volumes = format!("volumes longshore-{short}-in and longshore-{short}-work{containers}");
        summary.notes.push(format!("kept: {volumes}, because {reason}"));
    }
    if context.write_back {
        let written = write_outcomes(&state);
        summary.notes.extend(written);
    }
    if state.status == SwarmStatus::Suspended {
        let short = dir.swarm().short();
        summary.notes.push(format!(
            "exit code 4: the rest waits for you. `longshore admin list` shows it, `longshore admin show TARGET` what you can \
             decide; then run `longshore resume {short}`"
        ));
    }
    if matches!(state.status, SwarmStatus::Interrupted | SwarmStatus::Running | SwarmStatus::Stopping) {
        summary.notes.push(format!("swarm {} did not finish: resume it with `longshore resume`", summary.swarm));
    }
    if let Err(error) = report_file::write_report(&mut summary, &dir.path()) {
        print_stderr(&format!("warning: cannot write the report: {error}"));
    }
    if context.json {
        // Standard output belongs to the event stream.
        print_summary(&summary, &stderr(), |text| {
            let _ = stderr().write_all(text.as_bytes());
            Ok(())
        })
    } else {
        print_summary(&summary, &stdout(), print_stdout)
    }
}

fn print_summary(
    summary: &Summary,
    stream: &impl IsTerminal,
    write: impl FnOnce(&str) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    let style = TextStyle::for_stream(stream, &CommandContext::env_var);
    write(&format!("\n{}", summary.render(terminal_columns(stream), style.colour)))
}

/// Writes the outcomes into the tasks files as they are now, since they may have been edited meanwhile. Gives notes about
/// what was written and what could not be.
fn write_outcomes(state: &SwarmState) -> Vec<String> {
    let mut notes = Vec::new();
    for (path, outcomes) in outcomes_by_file(state) {
        if outcomes.is_empty() {
            continue;
        }
        match write_back_file(&path, &outcomes) {
            Ok(false) => {}
            Ok(true) => notes.push(format!("the outcome was written into {}", path.display())),
            Err(problem) => notes.push(format!("the outcome could not be written into {}: {problem}", path.display())),
        }
    }
    notes
}

/// The outcomes by tasks file, without stories that were done before.
fn outcomes_by_file(state: &SwarmState) -> BTreeMap<PathBuf, BTreeMap<StoryId, WriteBackStatus>> {
    let mut files: BTreeMap<PathBuf, BTreeMap<StoryId, WriteBackStatus>> = BTreeMap::new();
    for story in state.stories.iter().filter(|story| !story.done_before) {
        let written = match story.status {
            StoryStatus::Completed => WriteBackStatus::Completed,
            StoryStatus::Failed => WriteBackStatus::Failed,
            // Skipped because of another story, so still to be done.
            StoryStatus::Skipped | StoryStatus::Pending | StoryStatus::InProgress => WriteBackStatus::Pending,
        };
        files.entry(PathBuf::from(&story.tasks_file)).or_default().insert(story.id.clone(), written);
    }
    files
}

/// Gives whether the file changed.
fn write_back_file(path: &Path, outcomes: &BTreeMap<StoryId, WriteBackStatus>) -> Result<bool, String> {
    // A link stays, and the file that it leads to is replaced.
    let real = path.canonicalize().map_err(|error| error.to_string())?;
    let original = std::fs::read(&real).map_err(|error| error.to_string())?;
    let bytes = write_back::apply_outcomes(&original, path, outcomes).map_err(|error| error.to_string())?;
    if bytes == original {
        return Ok(false);
    }
    let mut file = atomic_write_file::AtomicWriteFile::open(&real).map_err(|error| error.to_string())?;
    file.write_all(&bytes).and_then(|()| file.commit()).map(|()| true).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_stories_are_written_back_as_pending() {
        let story = |id: &str, status: &str, before: bool| {
            serde_json::json!({
                "id": id, "status": status, "attempts": 0, "branch": null, "commit": null, "cause": null,
                "evidence": null, "salvage": null, "because": null, "assignment": null, "title": "",
                "tasksFile": "t.json", "doneBefore": before, "startedAt": null, "endedAt": null, "durationMs": null
            })
        };
        let state: SwarmState = serde_json::from_value(serde_json::json!({
            "schemaVersion": 1, "swarmId": "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d", "createdAt": "2026-11-21T12:00:00Z",
            "updatedAt": "2026-11-21T12:00:00Z", "status": "some_failed", "containers": [], "checksum": "",
            "stories": [
                story("US-001", "completed", false), story("US-002", "failed", false), story("US-003", "skipped", false),
                story("US-004", "completed", true), story("US-005", "pending", false),
            ]
        }))
        .expect("a state");
        let all = outcomes_by_file(&state);
        let found: Vec<_> = all[Path::new("t.json")].iter().map(|(id, written)| (id.as_str(), *written)).collect();
        let wanted = [
            ("US-001", WriteBackStatus::Completed),
            ("US-002", WriteBackStatus::Failed),
            ("US-003", WriteBackStatus::Pending),
            ("US-005", WriteBackStatus::Pending),
        ];
        assert_eq!(found, wanted);
    }
}
