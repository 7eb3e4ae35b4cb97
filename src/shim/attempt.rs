//! The stories of an attempt, one after the other, and what is written of them: result and bundle, then the last word.
//!
//! Begun by `serve.rs` once clone and tasks file are there. After each story, what is finished so far is written too, so that
//! a shim that is killed, or a story that destroys the clone, costs no other story's work. Must not: say what became of a
//! story, or `completion`, before it is on the disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::disk_space;
use super::examination::{StoryFailure, git_failure};
use super::git::GitError;
use super::safe_fs;
use super::salvage;
use super::stop_budget::StopPhase;
use super::story::{FinalReport, SandboxContext, failure_line};
use crate::handoff::agent_notes::AgentNotes;
use crate::handoff::assignment::AssignmentFile;
use crate::handoff::layout as names;
use crate::handoff::result::{RESULT_VERSION, ResultFile, StoryResult};
use crate::ids::{CommitId, StoryId};
use crate::protocol::acp::message::{
    Completion, CompletionStatus, ContainerMessage, ErrorCode, ErrorReport, ProgressUpdate, StoryStatus,
};
use crate::verdict::{Cause, Failure, StoryOutcome};

/// The longest that git may take over the bundle.
pub const BUNDLE_TIMEOUT: Duration = Duration::from_secs(600);

/// In the folder of the result: what is given up where there is no space for it.
const RESERVE_FILE: &str = "reserve";
/// Its bytes: more than a result of some stories has.
const RESERVE_BYTES: usize = 256 * 1024;

/// Why the sandbox as a whole fails.
#[derive(Debug)]
pub struct FatalError {
    /// ACP's code for it.
    pub code: ErrorCode,
    /// For people.
    pub message: String,
}

impl FatalError {
    /// A reason in words.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// The refs of a fresh clone: the assigned branch and the integration branch's remote-tracking ref, both at the base.
pub fn initial_refs(assignment: &AssignmentFile) -> BTreeMap<String, CommitId> {
    let branch = format!("refs/heads/{}", assignment.branch);
    let remote = format!("refs/remotes/origin/{}", assignment.integration_branch);
    [(branch, assignment.base.clone()), (remote, assignment.base.clone())].into()
}

/// The result of an attempt that reached none of its stories.
pub fn not_reached_results(assignment: &AssignmentFile) -> Vec<StoryResult> {
    assignment.stories.iter().map(|work| unrun_result(work.id.clone(), StoryOutcome::NotReached)).collect()
}

fn unrun_result(id: StoryId, outcome: StoryOutcome) -> StoryResult {
    StoryResult {
        id,
        outcome,
        criteria: Vec::new(),
        work_log: Vec::new(),
        commits: Vec::new(),
        duration_ms: 0,
        agent_notes: AgentNotes::default(),
    }
}

/// What the newest bundle on the disk has.
struct WrittenResult {
    tip: CommitId,
    bundle: bool,
    /// How many results were known then.
    story_count: usize,
}

/// The stories, one after the other, and what is written of them.
pub struct AttemptRun {
    /// What they share.
    pub sandbox: SandboxContext,
    /// Where the result goes.
    pub out_dir: PathBuf,
    /// Indices of the stories to do, in their order.
    pub story_order: Vec<usize>,
}

impl AttemptRun {
    /// Does the stories, writes what came of them, and says so. The exit code.
    pub async fn run(self) -> u8 {
        let sandbox = &self.sandbox;
        let mut refs = initial_refs(&sandbox.assignment);
        let mut results: Vec<StoryResult> = Vec::new();
        let (mut fatal, mut sealed) = (None, false);
        let mut written = WrittenResult { tip: sandbox.assignment.base.clone(), bundle: false, story_count: 0 };
        let mut closing: Option<FinalReport> = None;
        for (place, index) in self.story_order.iter().enumerate() {
            let story = &sandbox.tasks.stories[*index];
            if fatal.is_some() || sealed || sandbox.stop.is_cancelled() {
                results.push(unrun_result(story.id.clone(), StoryOutcome::NotReached));
                continue;
            }
            if let Some(because) = failed_dependency(&story.depends_on, &results) {
                self.report_skipped(&story.id, &because);
                results.push(unrun_result(story.id.clone(), StoryOutcome::Skipped { because }));
                continue;
            }
            if let Some(closing) = closing.take() {
                match self.write_result_and_bundle(&refs, &results, false).await {
                    Ok(now) => written = now,
                    Err(error) => {
                        let why = &error.failure.evidence.summary;
                        sandbox.log.write_line(&format!("cannot write what is finished so far: {why}"));
                    }
                }
                closing.send(None);
            }
            let work = sandbox.assignment.stories.iter().find(|work| work.id == story.id);
            let last = place + 1 == self.story_order.len();
            let told = {
                let work = work.expect("the order has the assignment's stories only");
                sandbox.run_story(story, work, &mut refs, &results, last).await
            };
            results.push(told.result);
            sealed = told.has_unsaved_work;
            // A stop has cut short whatever could not be put in order.
            let unusable = told.unusable_reason.filter(|_| !sandbox.stop.is_cancelled());
            fatal = unusable.map(|message| FatalError::new(ErrorCode::UNKNOWN_ERROR, message));
            closing = Some(told.final_report);
        }
        self.fail_unchanged_rework(&refs, &mut results);
        if let Err(StoryFailure { mut failure, .. }) = self.write_result_and_bundle(&refs, &results, true).await {
            disk_space::add_disk_evidence(&mut failure, &sandbox.writable_dirs());
            if failure.cause != Cause::StoppedByUser {
                fatal = Some(FatalError::new(ErrorCode::UNKNOWN_ERROR, failure.evidence.summary.clone()));
            }
            self.write_without_bundle(&failure, &mut results, &written);
        }
        if let Some(closing) = closing {
            // The newest result that is not of a story that was never begun: its word may be another by now.
            let began = |result: &&StoryResult| {
                matches!(result.outcome, StoryOutcome::Finished { .. } | StoryOutcome::Failed { .. })
            };
            closing.send(results.iter().rev().find(began).and_then(|result| match &result.outcome {
                StoryOutcome::Failed { failure, .. } => Some(failure),
                _ => None,
            }));
        }
        if fatal.is_none() && results.iter().all(|result| matches!(result.outcome, StoryOutcome::Finished { .. })) {
            let stories: Vec<&str> = results.iter().map(|result| result.id.as_str()).collect();
            sandbox.sign_off(&format!("{} done", stories.join(", ")));
        }
        self.send_completion(fatal, &results)
    }

    /// Rejected work in which no story changed anything is what was rejected.
    fn fail_unchanged_rework(&self, refs: &BTreeMap<String, CommitId>, results: &mut [StoryResult]) {
        let assignment = &self.sandbox.assignment;
        let tip = refs.get(&self.sandbox.branch_ref()).unwrap_or(&assignment.base);
        if !assignment.rework || *tip != assignment.base {
            return;
        }
        for result in results.iter_mut().filter(|result| matches!(result.outcome, StoryOutcome::Finished { .. })) {
            let failure = Failure::new(Cause::NoChanges, "nothing of what was rejected was changed");
            result.outcome = StoryOutcome::Failed { failure, salvage: None, unsaved: false };
        }
    }

    fn report_skipped(&self, story: &StoryId, because: &StoryId) {
        let output = format!("skipped: {because} did not finish");
        let update = ProgressUpdate { story_id: story.clone(), status: StoryStatus::Skipped, output };
        self.sandbox.channel.send(&ContainerMessage::Progress(update));
    }

    /// The last word. The result is on the disk.
    fn send_completion(&self, fatal: Option<FatalError>, results: &[StoryResult]) -> u8 {
        let sandbox = &self.sandbox;
        let mut errors: Vec<String> = results
            .iter()
            .filter_map(|result| match &result.outcome {
                StoryOutcome::Failed { failure, .. } => Some(format!("{}: {}", result.id, failure_line(failure))),
                _ => None,
            })
            .collect();
        let status = match fatal {
            Some(fatal) => {
                errors.push(fatal.message.clone());
                let report = ErrorReport { code: fatal.code, message: fatal.message };
                sandbox.channel.send(&ContainerMessage::Error(report));
                CompletionStatus::Failed
            }
            None if sandbox.stop.is_cancelled() => CompletionStatus::Stopped,
            None => CompletionStatus::Completed,
        };
        sandbox.channel.send(&ContainerMessage::Completion(Completion { status, pr_url: None, errors }));
        u8::from(status == CompletionStatus::Failed)
    }

    /// Writes the bundle, then `result.json`. Stories without an entry are entered as not reached.
    /// Only the last time it has to survive a crash of the machine.
    async fn write_result_and_bundle(
        &self,
        refs: &BTreeMap<String, CommitId>,
        results: &[StoryResult],
        durable: bool,
    ) -> Result<WrittenResult, StoryFailure> {
        let assignment = &self.sandbox.assignment;
        let branch = self.sandbox.branch_ref();
        let tip = refs.get(&branch).unwrap_or(&assignment.base).clone();
        let bundled: Vec<String> = refs
            .iter()
            .filter(|(name, commit)| {
                (**name == branch && **commit != assignment.base) || name.starts_with("refs/longshore/salvage/")
            })
            .map(|(name, _)| name.clone())
            .collect();
        let mut result = ResultFile {
            schema_version: RESULT_VERSION,
            swarm_id: assignment.swarm_id,
            attempt: assignment.attempt.clone(),
            base: assignment.base.clone(),
            tip,
            bundle: !bundled.is_empty(),
            stories: results.to_vec(),
        };
        for index in &self.story_order[results.len()..] {
            result.stories.push(unrun_result(self.sandbox.tasks.stories[*index].id.clone(), StoryOutcome::NotReached));
        }
        let written = WrittenResult { tip: result.tip.clone(), bundle: result.bundle, story_count: results.len() };
        let deadline = self.sandbox.stop_budget.deadline(StopPhase::Bundle);
        let (clone, out) = (self.sandbox.clone.with_stop_deadline(deadline.clone()), self.out_dir.clone());
        let writing = deadline.run_blocking(move || {
            safe_fs::ensure_dir(&out).map_err(|error| GitError::file("open up", &out, error))?;
            if result.bundle {
                let to = out.join(names::BUNDLE_FILE);
                salvage::write_bundle(&clone.git().with_timeout(BUNDLE_TIMEOUT), &to, &result.base, &bundled, durable)?;
            }
            write_result(&out, &result, durable)
        });
        let done = writing.await.unwrap_or_else(|| Err(GitError::Stopped { what: "bundle".into() }));
        done.map(|()| written).map_err(|error| git_failure(&error, "the result cannot be written").into())
    }

    /// Says in `result.json` that what was not written before did not come out, so that nobody counts what is not there.
    fn write_without_bundle(&self, failure: &Failure, results: &mut [StoryResult], written: &WrittenResult) {
        for result in results.iter_mut().skip(written.story_count) {
            if let StoryOutcome::Failed { salvage, unsaved, .. } = &mut result.outcome {
                *unsaved |= salvage.take().is_some();
            } else if matches!(result.outcome, StoryOutcome::Finished { .. }) {
                let cause = match failure.cause {
                    cause @ (Cause::DiskFull | Cause::StoppedByUser) => cause,
                    _ => Cause::RepoDamaged,
                };
                let failure = Failure { cause, ..failure.clone() };
                result.outcome = StoryOutcome::Failed { failure, salvage: None, unsaved: true };
            }
        }
        let assignment = &self.sandbox.assignment;
        let result = ResultFile {
            schema_version: RESULT_VERSION,
            swarm_id: assignment.swarm_id,
            attempt: assignment.attempt.clone(),
            base: assignment.base.clone(),
            tip: written.tip.clone(),
            bundle: written.bundle,
            stories: results.to_vec(),
        };
        if let Err(error) = write_result(&self.out_dir, &result, true) {
            self.sandbox.log.write_line(&format!("cannot write the result: {error}"));
        }
    }
}

/// The story at the root of why a story with these dependencies cannot be done here; none where it can.
fn failed_dependency(depends_on: &[StoryId], results: &[StoryResult]) -> Option<StoryId> {
    depends_on.iter().find_map(|id| {
        let result = results.iter().find(|result| result.id == *id)?;
        match &result.outcome {
            StoryOutcome::Finished { .. } => None,
            StoryOutcome::Skipped { because } => Some(because.clone()),
            StoryOutcome::Failed { .. } | StoryOutcome::NotReached => Some(id.clone()),
        }
    })
}

/// Takes some space in the folder, so that a result can be written where an agent has taken all that there was.
pub fn reserve_space(out: &Path) {
    // Where there is no space to begin with, what comes next says so.
    let _ = safe_fs::ensure_dir(out)
        .and_then(|()| safe_fs::write_replacing(&out.join(RESERVE_FILE), &vec![0; RESERVE_BYTES]));
}

/// Writes `result.json`, whole or not at all; where no space is left, into what was reserved for it. `durable`: it and what was written to the folder before it are on the disk then.
pub fn write_result(out: &Path, result: &impl serde::Serialize, durable: bool) -> Result<(), GitError> {
    let to = out.join(names::RESULT_FILE);
    let temporary = to.with_extension("json-tmp");
    let text = serde_json::to_vec_pretty(result).expect("a result is always JSON");
    safe_fs::ensure_dir(out).map_err(|error| GitError::file("open up", out, error))?;
    let mut wrote = safe_fs::write_replacing(&temporary, &text);
    if wrote.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::StorageFull) {
        let _ = safe_fs::remove_any(&out.join(RESERVE_FILE));
        wrote = safe_fs::write_replacing(&temporary, &text);
    }
    wrote.map_err(|error| GitError::file("write", &temporary, error))?;
    salvage::rename_into_place(&temporary, &to, durable)?;
    if durable { salvage::sync_path(out) } else { Ok(()) }
}
