//! A check sandbox's attempt: runs the checks of a commit in a new clone of it. No agent runs here, before or besides, so nothing but
//! the commit decides.
//!
//! First come the verify commands that all stories share, up to the first that fails, then the checks of each story.
//! Started by `setup.rs` in place of the stories. Must not: report an outcome before it is on disk.

use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::check_runner::{Check, CheckRunner, unchecked_criteria};
use super::fatal_error::FatalError;
use super::progress::ProgressReporter;
use super::result_files::{Durability, write_result};
use super::sandbox_context::{SandboxContext, elapsed_ms};
use super::story_failure::failure_line;
use crate::handoff::assignment::AssignmentFile;
use crate::handoff::check::{CHECK_VERSION, CheckAssignment, CheckFile, CheckedStory};
use crate::protocol::acp::message::{CompletionStatus, StoryStatus};
use crate::tasks::Story;
use crate::verdict::{Cause, CauseClass, Failure};

pub struct CheckAttempt {
    pub sandbox: SandboxContext,
    pub check: CheckAssignment,
    /// Indices of the stories to check, in their order.
    pub story_order: Vec<usize>,
}

/// The result of a check whose sandbox could not be prepared.
pub fn not_started_file(assignment: &AssignmentFile, fatal: &FatalError, stopped: bool) -> CheckFile {
    CheckFile { failure: Some(fatal.to_failure(stopped)), ..empty_file(assignment) }
}

/// A result without checks.
fn empty_file(assignment: &AssignmentFile) -> CheckFile {
    CheckFile {
        schema_version: CHECK_VERSION,
        swarm_id: assignment.swarm_id,
        attempt: assignment.attempt.clone(),
        commit: assignment.base.clone(),
        checks: Vec::new(),
        stories: Vec::new(),
        failure: None,
        failed_story: None,
        duration_ms: 0,
    }
}

/// A story while its commit is checked.
struct StoryInCheck<'a> {
    story: &'a Story,
    progress: ProgressReporter,
    heartbeat: JoinHandle<()>,
    /// What the story's own checks showed, or what kept them from running.
    failure: Option<Failure>,
}

impl CheckAttempt {
    /// Runs the checks, writes the result, and reports the completion. Returns the exit code.
    pub async fn run(self) -> u8 {
        let started_at = Instant::now();
        let sandbox = &self.sandbox;
        let short = self.check.commit.short();
        sandbox.commands.log.begin_story(&format!("acp-shim: the checks of {short} begin"));
        let mut stories: Vec<StoryInCheck> = self.story_order.iter().map(|index| self.begin_story(*index)).collect();
        let mut result = empty_file(&sandbox.assignment);
        self.run_checks(&mut stories, &mut result).await;
        result.duration_ms = elapsed_ms(started_at);
        if let Err(error) = write_result(&sandbox.out_dir, &result, Durability::Synced) {
            // Without a result there is no verdict, whatever the checks showed.
            let mut failure = sandbox.git_failure(&error, "cannot write the result");
            if failure.cause != Cause::DiskFull {
                failure.cause = Cause::EngineError;
            }
            result.failure = Some(failure);
            result.failed_story = None;
            stories.iter_mut().for_each(|checked| checked.failure = None);
        }
        for StoryInCheck { progress, heartbeat, failure, .. } in stories {
            heartbeat.abort();
            match failure.as_ref().or(result.failure.as_ref().filter(|_| result.failed_story.is_none())) {
                Some(failure) => progress.send_final_status(StoryStatus::Failed, &failure_line(failure)),
                None => progress.send_final_status(StoryStatus::Completed, &format!("{short} passed its checks")),
            }
        }
        self.send_completion(result.failure)
    }

    fn begin_story(&self, index: usize) -> StoryInCheck<'_> {
        let story = &self.sandbox.tasks.stories[index];
        let progress = self.sandbox.progress_reporter(story.id.clone());
        progress.set_status(StoryStatus::InProgress, &format!("checking {}", self.check.commit.short()));
        StoryInCheck { story, heartbeat: progress.spawn(), progress, failure: None }
    }

    /// Runs all checks, and adds what they show to the result.
    async fn run_checks(&self, stories: &mut [StoryInCheck<'_>], result: &mut CheckFile) {
        result.stories = stories.iter().map(|checked| checked_story(checked.story)).collect();
        let mut runner = match CheckRunner::in_check_sandbox(&self.sandbox, self.check.commit.clone()).await {
            Ok(runner) => runner,
            Err(error) => {
                let mut failure = self.sandbox.git_failure(&error, "cannot read the clone");
                if failure.cause == Cause::RepoDamaged {
                    // Nothing has used the clone yet.
                    failure.cause = Cause::CloneFailed;
                }
                result.failure = Some(failure);
                return;
            }
        };
        result.failure = self.run_shared_checks(&mut runner, stories.first().map(|first| &first.progress)).await;
        if result.failure.is_none() {
            self.run_story_checks(&mut runner, stories, result).await;
        }
        result.checks = runner.runs;
    }

    /// Runs the checks of each story, also after one failed, so that all criteria have a result.
    async fn run_story_checks(
        &self,
        runner: &mut CheckRunner<'_>,
        stories: &mut [StoryInCheck<'_>],
        result: &mut CheckFile,
    ) {
        for position in 0..stories.len() {
            let StoryInCheck { story, progress, .. } = &stories[position];
            let (criteria, deadline) = (&mut result.stories[position].criteria, self.sandbox.story_deadline());
            let failure = runner.run_story(story, &story.verify, criteria, progress, &deadline).await;
            let Some(failure) = failure else { continue };
            let is_verdict = failure.cause.class() == CauseClass::Story;
            if result.failure.is_none() {
                result.failed_story = is_verdict.then(|| story.id.clone());
                result.failure = Some(failure.clone());
            }
            if !is_verdict {
                // It says nothing about the commit, and the other checks would fail like this one.
                stories[position..].iter_mut().for_each(|checked| checked.failure = Some(failure.clone()));
                return;
            }
            stories[position].failure = Some(failure);
        }
    }

    /// Runs the verify commands that all stories share, each once, up to the first that fails.
    async fn run_shared_checks(
        &self,
        runner: &mut CheckRunner<'_>,
        progress: Option<&ProgressReporter>,
    ) -> Option<Failure> {
        // Without stories it is a branch's own head, of which all failures must be known.
        let is_head = self.sandbox.assignment.stories.is_empty();
        let mut deadline = self.sandbox.story_deadline();
        let mut first_failure = None;
        let commands: Vec<&String> = self.sandbox.tasks.verify.iter().chain(&self.sandbox.assignment.verify).collect();
        for (position, command) in commands.iter().enumerate() {
            if commands[..position].contains(command) {
                continue;
            }
            let failure = runner.run(Check { command, story: None, criterion: None }, progress, &deadline).await;
            let Some(failure) = failure else { continue };
            let is_verdict = failure.cause.class() == CauseClass::Story;
            if is_verdict && (is_head || self.check.tolerated.contains(command)) {
                // The next command does not pay for the time of this one.
                deadline = self.sandbox.story_deadline();
                first_failure = first_failure.or(Some(failure).filter(|_| is_head));
            } else {
                return Some(failure);
            }
        }
        first_failure
    }

    /// Sends the completion. A failed check is a result, and completes the attempt like a passed one.
    fn send_completion(&self, failure: Option<Failure>) -> u8 {
        let sandbox = &self.sandbox;
        let errors: Vec<String> = failure.iter().map(failure_line).collect();
        let status = match failure.map(|failure| (failure.cause.class(), failure)) {
            Some((CauseClass::Machinery, failure)) => {
                let code = failure.cause.acp_code().parse().expect("the code is one of the protocol's");
                return FatalError::new(code, failure_line(&failure)).send(&sandbox.channel, &sandbox.commands.log);
            }
            Some((CauseClass::User, _)) => CompletionStatus::Stopped,
            Some((CauseClass::Story, _)) | None => CompletionStatus::Completed,
        };
        sandbox.channel.send_completion(status, errors);
        0
    }
}

fn checked_story(story: &Story) -> CheckedStory {
    CheckedStory { id: story.id.clone(), criteria: unchecked_criteria(story) }
}
