//! Runs the stories of an attempt one after the other, writes their result and bundle, then sends the completion.
//!
//! Started by `setup.rs` once the clone and the tasks file are there. The work finished so far is written before each further story,
//! so that a killed shim or a story that destroys the clone costs no other story's work. Must not: report a story's outcome or
//! `completion` before it is on disk.

use std::collections::BTreeMap;
use std::time::Duration;

use super::fatal_error::FatalError;
use super::result_files::{self, Durability};
use super::sandbox_context::SandboxContext;
use super::stop_budget::StopPhase;
use super::story::{FinalReport, StoryTask};
use super::story_failure::failure_line;
use crate::handoff::assignment::AssignmentFile;
use crate::handoff::result::{RESULT_VERSION, ResultFile, StoryResult};
use crate::ids::{CommitId, StoryId};
use crate::protocol::acp::message::{
    CompletionStatus, ContainerMessage, ErrorCode, ErrorReport, ProgressUpdate, StoryStatus,
};
use crate::verdict::{Cause, Failure, StoryOutcome};

/// How long git may take over the bundle.
pub const BUNDLE_TIMEOUT: Duration = Duration::from_secs(600);

/// The refs of a fresh clone: the assigned branch at the base, and the integration branch's remote-tracking ref at the commit to
/// merge, or else also at the base.
pub fn initial_refs(assignment: &AssignmentFile) -> BTreeMap<String, CommitId> {
    let branch = format!("refs/heads/{}", assignment.branch);
    let remote = format!("refs/remotes/origin/{}", assignment.integration_branch);
    let upstream = assignment.merge.as_ref().map_or(&assignment.base, |merge| &merge.head);
    [(branch, assignment.base.clone()), (remote, upstream.clone())].into()
}

/// The result of an attempt that reached none of its stories.
pub fn not_reached_file(assignment: &AssignmentFile) -> ResultFile {
    let stories = assignment.stories.iter().map(|work| StoryResult::not_run(work.id.clone(), StoryOutcome::NotReached));
    result_file(assignment, assignment.base.clone(), false, stories.collect())
}

fn result_file(assignment: &AssignmentFile, tip: CommitId, bundle: bool, stories: Vec<StoryResult>) -> ResultFile {
    ResultFile {
        schema_version: RESULT_VERSION,
        swarm_id: assignment.swarm_id,
        attempt: assignment.attempt.clone(),
        base: assignment.base.clone(),
        tip,
        bundle,
        stories,
    }
}

/// The contents of the newest bundle on disk.
struct WrittenBundle {
    tip: CommitId,
    exists: bool,
    /// How many results it covers.
    story_count: usize,
}

pub struct AttemptRun {
    pub sandbox: SandboxContext,
    /// Indices of the stories to do, in their order.
    pub story_order: Vec<usize>,
}

impl AttemptRun {
    /// Runs the stories, writes their results, and reports the completion. Returns the exit code.
    pub async fn run(self) -> u8 {
        let sandbox = &self.sandbox;
        let mut refs = initial_refs(&sandbox.assignment);
        let mut results: Vec<StoryResult> = Vec::new();
        let (mut fatal, mut has_unsaved_work) = (None, false);
        let mut written = WrittenBundle { tip: sandbox.assignment.base.clone(), exists: false, story_count: 0 };
        let mut final_report: Option<FinalReport> = None;
        for (position, index) in self.story_order.iter().enumerate() {
            let story = &sandbox.tasks.stories[*index];
            if fatal.is_some() || has_unsaved_work || sandbox.is_stopped() {
                results.push(StoryResult::not_run(story.id.clone(), StoryOutcome::NotReached));
                continue;
            }
            if let Some(because) = failed_dependency(&story.depends_on, &results) {
                self.report_skipped(&story.id, &because);
                results.push(StoryResult::not_run(story.id.clone(), StoryOutcome::Skipped { because }));
                continue;
            }
            if let Some(report) = final_report.take() {
                match self.write_result_and_bundle(&refs, &results, Durability::Buffered).await {
                    Ok(now) => written = now,
                    Err(failure) => {
                        sandbox.log(&format!("cannot save the finished stories: {}", failure.evidence.summary));
                    }
                }
                report.send(None);
            }
            let assigned = sandbox.assignment.stories.iter().find(|work| work.id == story.id);
            let assigned = assigned.expect("the order contains the assignment's stories only");
            let is_last = position + 1 == self.story_order.len();
            let run = sandbox.run_story(StoryTask { story, assigned, earlier: &results, is_last }, &mut refs).await;
            results.push(run.result);
            has_unsaved_work = run.has_unsaved_work;
            // A stop cuts the reset short, which does not make the clone unusable.
            let unusable = run.unusable_reason.filter(|_| !sandbox.is_stopped());
            fatal = unusable.map(|message| FatalError::new(ErrorCode::UNKNOWN_ERROR, message));
            final_report = Some(run.final_report);
        }
        self.fail_unchanged_rework(&refs, &mut results);
        if let Err(failure) = self.write_result_and_bundle(&refs, &results, Durability::Synced).await {
            if failure.cause != Cause::StoppedByUser {
                fatal = Some(FatalError::new(ErrorCode::UNKNOWN_ERROR, failure.evidence.summary.clone()));
            }
            self.write_without_bundle(&failure, &mut results, &written);
        }
        if let Some(report) = final_report {
            // The report belongs to the last story that ran. Its outcome may have changed since.
            let ran = |result: &&StoryResult| {
                matches!(result.outcome, StoryOutcome::Finished { .. } | StoryOutcome::Failed { .. })
            };
            report.send(results.iter().rev().find(ran).and_then(|result| match &result.outcome {
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

    /// Fails rework in which no story changed anything: it is what the reviewer rejected.
    fn fail_unchanged_rework(&self, refs: &BTreeMap<String, CommitId>, results: &mut [StoryResult]) {
        let assignment = &self.sandbox.assignment;
        if !assignment.rework || *self.sandbox.branch_tip(refs) != assignment.base {
            return;
        }
        for result in results.iter_mut().filter(|result| matches!(result.outcome, StoryOutcome::Finished { .. })) {
            let failure = Failure::new(Cause::NoChanges, "nothing was changed in the rejected work");
            result.outcome = StoryOutcome::Failed { failure, salvage: None, unsaved: false };
        }
    }

    fn report_skipped(&self, story: &StoryId, because: &StoryId) {
        let output = format!("skipped: {because} did not finish");
        let update = ProgressUpdate { story_id: story.clone(), status: StoryStatus::Skipped, output };
        self.sandbox.channel.send(&ContainerMessage::Progress(update));
    }

    /// Sends the completion. The result is on disk.
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
            None if sandbox.is_stopped() => CompletionStatus::Stopped,
            None => CompletionStatus::Completed,
        };
        sandbox.channel.send_completion(status, errors);
        u8::from(status == CompletionStatus::Failed)
    }

    /// Writes the bundle, then `result.json`, in which stories without a result are not reached.
    async fn write_result_and_bundle(
        &self,
        refs: &BTreeMap<String, CommitId>,
        results: &[StoryResult],
        durability: Durability,
    ) -> Result<WrittenBundle, Box<Failure>> {
        let sandbox = &self.sandbox;
        let assignment = &sandbox.assignment;
        let branch = sandbox.branch_ref();
        let bundled: Vec<String> = refs
            .iter()
            .filter(|(name, commit)| {
                (**name == branch && **commit != assignment.base) || name.starts_with("refs/longshore/salvage/")
            })
            .map(|(name, _)| name.clone())
            .collect();
        let mut stories = results.to_vec();
        for index in &self.story_order[results.len()..] {
            stories.push(StoryResult::not_run(sandbox.tasks.stories[*index].id.clone(), StoryOutcome::NotReached));
        }
        let tip = sandbox.branch_tip(refs).clone();
        let written = WrittenBundle { tip: tip.clone(), exists: !bundled.is_empty(), story_count: results.len() };
        let (result, out_dir) = (result_file(assignment, tip, written.exists, stories), sandbox.out_dir.clone());
        let merged = assignment.merge.as_ref().map(|merge| merge.head.clone());
        let writing = sandbox.run_git(StopPhase::Bundle, "bundle", move |clone| {
            if result.bundle {
                let git = clone.git().with_timeout(BUNDLE_TIMEOUT);
                let known: Vec<CommitId> = [result.base.clone()].into_iter().chain(merged).collect();
                result_files::write_bundle(&git, &out_dir, &known, &bundled, durability)?;
            }
            result_files::write_result(&out_dir, &result, durability)
        });
        writing.await.map_err(|error| Box::new(sandbox.git_failure(&error, "cannot write the result")))?;
        Ok(written)
    }

    /// Records in `result.json` that the work since the last bundle did not come out, so that nobody counts it.
    fn write_without_bundle(&self, failure: &Failure, results: &mut [StoryResult], written: &WrittenBundle) {
        for result in results.iter_mut().skip(written.story_count) {
            if let StoryOutcome::Failed { salvage, unsaved, .. } = &mut result.outcome {
                *unsaved |= salvage.take().is_some();
            } else if matches!(result.outcome, StoryOutcome::Finished { .. }) {
                let cause = match failure.cause {
                    cause @ (Cause::DiskFull | Cause::OomSuspected | Cause::StoppedByUser) => cause,
                    _ => Cause::RepoDamaged,
                };
                let failure = Failure { cause, ..failure.clone() };
                result.outcome = StoryOutcome::Failed { failure, salvage: None, unsaved: true };
            }
        }
        let sandbox = &self.sandbox;
        let result = result_file(&sandbox.assignment, written.tip.clone(), written.exists, results.to_vec());
        if let Err(error) = result_files::write_result(&sandbox.out_dir, &result, Durability::Synced) {
            sandbox.log(&format!("cannot write the result: {error}"));
        }
    }
}

/// The failed story at the root of why a story with these dependencies cannot run.
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
