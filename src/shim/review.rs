//! A reviewer's attempt: the material is laid out in files, the reviewer runs like a story's agent, and its verdict is parsed by
//! AMP's rules (04). The result is the verdict and, with `approved_with_fix`, a commit.
//!
//! **Read-only.** The reviewer may write in its clone: builds and tests do, and so does a direct fix. The work under review is safe
//! all the same, because only the verdict leaves the sandbox and, with `approved_with_fix`, commits on top of the reviewed one, which
//! the host examines. With any other verdict, changes to the work tree are dropped. The verdict of a reviewer that moves other refs,
//! leaves the branch or damages the clone is rejected.
//!
//! Started by `setup.rs` in place of the stories. Must not: judge the fix, which the host does, or send `completion` before the
//! result is on disk.

mod files;

use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use self::files::ReviewFiles;
use super::attempt::{BUNDLE_TIMEOUT, initial_refs};
use super::clock::StoryDeadline;
use super::command::CommandSpec;
use super::command_failure::JudgedCommand;
use super::commit_message;
use super::examination::Examination;
use super::fatal_error::FatalError;
use super::progress::ProgressReporter;
use super::result_files::{Durability, write_bundle, write_result};
use super::safe_fs;
use super::sandbox_context::{SandboxContext, elapsed_ms};
use super::stop_budget::StopPhase;
use super::story_failure::{StoryFailure, failure_line};
use super::task_card::{CriterionCard, TaskCard};
use crate::handoff::agent_spec::PromptDelivery;
use crate::handoff::assignment::AssignmentFile;
use crate::handoff::review::{MAX_VERDICT_BYTES, REVIEW_VERSION, ReviewAssignment, ReviewFile};
use crate::handoff::secrets::redact;
use crate::ids::{CommitId, StoryId};
use crate::protocol::acp::message::{CompletionStatus, ContainerMessage, ProgressUpdate, StoryStatus};
use crate::protocol::amp::message::{ReviewDecision, ReviewVerdict};
use crate::verdict::{Cause, Failure};

/// How long git may take over the diff.
const DIFF_TIMEOUT: Duration = Duration::from_secs(600);
/// The verdict's fields in the reviewer's own words. The others have words of the protocol, of the task, or of the repo.
const REVIEWER_TEXT_FIELDS: &[&str] = &["evidence", "description", "suggested_fix", "architecture_notes"];

pub struct ReviewRun {
    pub sandbox: SandboxContext,
    pub review: ReviewAssignment,
}

/// A verdict that follows AMP's rules.
struct ValidVerdict {
    verdict: ReviewVerdict,
    /// The verdict as written, without secret values.
    value: Value,
    fix: Option<CommitId>,
}

type ReviewRunResult = Result<ValidVerdict, Box<Failure>>;

/// The result of a review whose sandbox could not be prepared.
pub fn not_started_file(assignment: &AssignmentFile, fatal: &FatalError, stopped: bool) -> ReviewFile {
    ReviewFile { failure: Some(fatal.to_failure(stopped)), ..empty_file(assignment) }
}

/// A result without a verdict.
fn empty_file(assignment: &AssignmentFile) -> ReviewFile {
    ReviewFile {
        schema_version: REVIEW_VERSION,
        swarm_id: assignment.swarm_id,
        attempt: assignment.attempt.clone(),
        commit: assignment.base.clone(),
        verdict: None,
        failure: None,
        bundle: false,
        fix: None,
        work_log: Vec::new(),
        duration_ms: 0,
    }
}

impl ReviewRun {
    /// Runs the reviewer, writes the result, and reports the completion. Returns the exit code.
    pub async fn run(self) -> u8 {
        let started_at = Instant::now();
        let sandbox = &self.sandbox;
        let short = self.review.commit.short();
        sandbox.commands.log.begin_story(&format!("acp-shim: the review of {short} begins"));
        let progress = self.story_ids().first().map(|id| sandbox.progress_reporter(id.clone()));
        let heartbeat = progress.as_ref().map(ProgressReporter::spawn);
        if let Some(progress) = &progress {
            sandbox.commands.agent_requests.begin_story(self.task_card(), progress.clone());
            progress.set_status(StoryStatus::InProgress, "review started");
        }
        self.report_other_stories(StoryStatus::InProgress, "review started");

        let outcome = self.run_reviewer(progress.as_ref()).await;
        sandbox.commands.agent_requests.end_story();
        let outcome = self.write_outcome(outcome, progress.as_ref(), started_at).await;
        if let Some(heartbeat) = heartbeat {
            heartbeat.abort();
        }
        if outcome.is_ok() {
            sandbox.sign_off(&format!("{short} reviewed"));
        }
        let (status, text) = final_status(&outcome);
        if let Some(progress) = &progress {
            progress.send_final_status(status, &text);
        }
        self.report_other_stories(status, &text);
        let errors = outcome.err().map(|failure| failure_line(&failure)).into_iter().collect();
        let stopped = sandbox.is_stopped();
        let status = if stopped { CompletionStatus::Stopped } else { CompletionStatus::Completed };
        sandbox.channel.send_completion(status, errors);
        0
    }

    fn story_ids(&self) -> Vec<StoryId> {
        self.sandbox.assignment.stories.iter().map(|work| work.id.clone()).collect()
    }

    fn first_story_id(&self) -> String {
        self.story_ids().first().map(StoryId::to_string).unwrap_or_default()
    }

    /// Reports every story but the first, whose progress reporter the review uses.
    fn report_other_stories(&self, status: StoryStatus, text: &str) {
        for story_id in self.story_ids().into_iter().skip(1) {
            let update = ProgressUpdate { story_id, status, output: text.to_owned() };
            self.sandbox.channel.send(&ContainerMessage::Progress(update));
        }
    }

    fn title(&self) -> String {
        format!("Review of {}", self.review.commit.short())
    }

    /// The review as `acp-shim task` prints it.
    fn task_card(&self) -> TaskCard {
        let criterion = |(position, text): (usize, &String)| CriterionCard {
            id: format!("AC-{}", position + 1),
            text: text.clone(),
            test_command: None,
        };
        TaskCard {
            id: self.first_story_id(),
            title: self.title(),
            description: self.review.dispatch.description.clone(),
            branch: self.sandbox.assignment.branch.to_string(),
            acceptance_criteria: self.review.criteria.iter().enumerate().map(criterion).collect(),
            notes: format!("`{}` describes how to answer.", self.files().prompt.display()),
            verify: Vec::new(),
            checked_after: false,
            merge_head: None,
            conflicts: Vec::new(),
            previous_failure: None,
            guidance: Vec::new(),
        }
    }

    fn files(&self) -> ReviewFiles {
        ReviewFiles::in_run_dir(&self.sandbox.run_dir)
    }

    async fn run_reviewer(&self, progress: Option<&ProgressReporter>) -> ReviewRunResult {
        let sandbox = &self.sandbox;
        let files = self.files();
        let prompt = files
            .write(&self.review, sandbox.assignment.branch.as_str(), sandbox.assignment.mailbox.as_ref())
            .map_err(|error| Box::new(sandbox.prompt_failure(&files.prompt, &error)))?;
        self.write_diff(&files).await?;
        let spec = self.command_spec(&files, prompt, &sandbox.story_deadline());
        let on_line = |line: &str| {
            if let Some(progress) = progress {
                progress.report_output(line);
            }
        };
        let output = sandbox.commands.run(spec, on_line).await;
        let give_up_reason = sandbox.commands.agent_requests.give_up_reason();
        let command = JudgedCommand {
            who: "the reviewer",
            shown: &self.review.agent.name,
            cause: Cause::AgentFailed,
            give_up_reason: give_up_reason.as_deref(),
        };
        if let Some(failure) = command.failure(&output, sandbox) {
            return Err(Box::new(failure));
        }
        let text = read_verdict(&files.verdict)?;
        let verdict = ReviewVerdict::parse(&text, &self.review.criteria)
            .map_err(|violation| invalid_verdict(format!("invalid verdict: {violation}")))?;
        let mut value: Value = serde_json::from_str(&text)
            .map_err(|error| invalid_verdict(format!("the verdict is not JSON: {error}")))?;
        self.redact_value(&mut value, false);
        let fix = self.examine_clone(&verdict).await?;
        Ok(ValidVerdict { verdict, value, fix })
    }

    /// Has git write the diff, which can be large.
    async fn write_diff(&self, files: &ReviewFiles) -> Result<(), Box<Failure>> {
        let output = format!("--output={}", files.diff.display());
        let (base, commit) = (self.review.base.clone(), self.review.commit.clone());
        let diff = self.sandbox.run_git(StopPhase::Work, "diff", move |clone| {
            let args =
                ["diff", "--no-ext-diff", "--no-textconv", "--no-color", &output, base.as_str(), commit.as_str()];
            clone.git().with_timeout(DIFF_TIMEOUT).run(&[&args[..], &["--"]].concat()).map(drop)
        });
        diff.await.map_err(|error| {
            let mut failure = Box::new(self.sandbox.git_failure(&error, "cannot create the diff"));
            if failure.cause == Cause::RepoDamaged {
                // No agent has used the clone yet.
                failure.cause = Cause::CloneFailed;
            }
            failure
        })
    }

    fn command_spec(&self, files: &ReviewFiles, prompt: String, deadline: &StoryDeadline) -> CommandSpec {
        let (sandbox, review) = (&self.sandbox, &self.review);
        let story = self.first_story_id();
        let argv = review.agent.expand_argv(&files.prompt.to_string_lossy(), &story);
        let stdin = (review.agent.prompt == PromptDelivery::Stdin).then_some(prompt);
        let mut env = sandbox.env.clone();
        let variables = [
            ("LONGSHORE_STORY", story.into()),
            ("LONGSHORE_STORY_TITLE", self.title().into()),
            ("LONGSHORE_PROMPT_FILE", files.prompt.clone().into_os_string()),
            ("LONGSHORE_REVIEW", "1".into()),
            ("LONGSHORE_REVIEW_DIR", files.dir.clone().into()),
            ("LONGSHORE_REVIEW_DIFF", files.diff.clone().into()),
            ("LONGSHORE_REVIEW_BASE", review.base.as_str().into()),
            ("LONGSHORE_REVIEW_COMMIT", review.commit.as_str().into()),
            ("LONGSHORE_VERDICT_FILE", files.verdict.clone().into()),
            ("LONGSHORE_REJECT_COUNT", review.request.reject_count.to_string().into()),
        ];
        env.extend(variables.map(|(name, value)| (name.into(), value)));
        sandbox.command_spec(argv, env, stdin, deadline)
    }

    /// Checks that the reviewer moved nothing else. With `approved_with_fix`, commits its fix.
    async fn examine_clone(&self, verdict: &ReviewVerdict) -> Result<Option<CommitId>, Box<Failure>> {
        let sandbox = &self.sandbox;
        let files: Vec<&str> = verdict.direct_fixes.iter().map(|fix| fix.file.as_str()).collect();
        let examination = Examination {
            clone: sandbox.clone.clone(),
            branch_ref: sandbox.branch_ref(),
            start: self.review.commit.clone(),
            expected_refs: initial_refs(&sandbox.assignment),
            merge: None,
            message: commit_message::for_review_fix(&self.story_ids(), &files, &sandbox.assignment.swarm_id),
        };
        let has_fix = verdict.decision == ReviewDecision::ApprovedWithFix;
        let examined = sandbox.stop_budget.run_blocking(StopPhase::Work, move || match has_fix {
            true => examination.examine().map(|committed| Some(committed.commit)),
            false => examination.check_tip().map(|_| None),
        });
        let examined = examined.await.unwrap_or_else(|| Err(StoryFailure::stopped_before("the clone was examined")));
        examined.map_err(|StoryFailure { failure, .. }| match failure.cause {
            Cause::NoChanges => {
                invalid_verdict("the verdict is `approved_with_fix`, and nothing was changed".to_owned())
            }
            _ => failure,
        })
    }

    /// Writes the bundle and the result. If that fails, the failure replaces the verdict.
    async fn write_outcome(
        &self,
        mut outcome: ReviewRunResult,
        progress: Option<&ProgressReporter>,
        started_at: Instant,
    ) -> ReviewRunResult {
        let sandbox = &self.sandbox;
        if let Ok(ValidVerdict { fix: Some(_), .. }) = outcome
            && let Err(failure) = self.write_fix_bundle().await
        {
            outcome = Err(failure);
        }
        let outcome = outcome.map_err(|failure| self.redact_failure(failure));
        let (_, text) = final_status(&outcome);
        let mut result = empty_file(&sandbox.assignment);
        match &outcome {
            Ok(ValidVerdict { value, fix, .. }) => {
                result.verdict = Some(value.clone());
                result.fix.clone_from(fix);
                result.bundle = fix.is_some();
            }
            Err(failure) => result.failure = Some(failure.as_ref().clone()),
        }
        result.work_log = progress.map(|progress| progress.close(&text)).unwrap_or_default();
        result.duration_ms = elapsed_ms(started_at);
        write_result(&sandbox.out_dir, &result, Durability::Synced).map_err(|error| {
            sandbox.log(&format!("cannot write the result: {error}"));
            Box::new(sandbox.git_failure(&error, "cannot write the result"))
        })?;
        outcome
    }

    /// Bundles the assigned branch, which points to the fix, without the work under review.
    async fn write_fix_bundle(&self) -> Result<(), Box<Failure>> {
        let (base, branch) = (self.review.commit.clone(), self.sandbox.branch_ref());
        let out_dir = self.sandbox.out_dir.clone();
        let writing = self.sandbox.run_git(StopPhase::Bundle, "bundle", move |clone| {
            write_bundle(&clone.git().with_timeout(BUNDLE_TIMEOUT), &out_dir, &[base], &[branch], Durability::Synced)
        });
        writing.await.map_err(|error| Box::new(self.sandbox.git_failure(&error, "cannot write the fix")))
    }

    /// Replaces the values of variables by their names in the reviewer's own words.
    fn redact_value(&self, value: &mut Value, is_reviewer_text: bool) {
        match value {
            Value::String(text) if is_reviewer_text => *text = redact(text, &self.sandbox.commands.secrets),
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_value(item, is_reviewer_text)),
            Value::Object(fields) => {
                for (name, field) in fields {
                    self.redact_value(field, REVIEWER_TEXT_FIELDS.contains(&name.as_str()));
                }
            }
            _ => {}
        }
    }

    fn redact_failure(&self, mut failure: Box<Failure>) -> Box<Failure> {
        let evidence = &mut failure.evidence;
        for text in evidence.tail.iter_mut().chain([&mut evidence.summary]) {
            *text = redact(text, &self.sandbox.commands.secrets);
        }
        failure
    }
}

fn invalid_verdict(summary: String) -> Box<Failure> {
    Box::new(Failure::new(Cause::ProtocolViolation, summary))
}

/// The status and the text with which a review ends.
fn final_status(outcome: &ReviewRunResult) -> (StoryStatus, String) {
    match outcome {
        Ok(ValidVerdict { verdict, .. }) => {
            let decision = match verdict.decision {
                ReviewDecision::Approved => "approved",
                ReviewDecision::ApprovedWithFix => "approved with fix",
                ReviewDecision::Rejected => "rejected",
            };
            (StoryStatus::Completed, format!("review: {decision}, confidence {}", verdict.confidence))
        }
        Err(failure) => (StoryStatus::Failed, format!("review: {}", failure_line(failure))),
    }
}

/// Reads the verdict file. The reviewer could write to its directory, so only a regular file is read.
fn read_verdict(path: &Path) -> Result<String, Box<Failure>> {
    let shown = path.file_name().unwrap_or_default().to_string_lossy();
    let mut bytes = Vec::new();
    let read = safe_fs::open_regular(path).and_then(|file| file.take(MAX_VERDICT_BYTES + 1).read_to_end(&mut bytes));
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(invalid_verdict(format!("the reviewer left no verdict: there is no `{shown}`")))
        }
        Err(error) => Err(invalid_verdict(format!("cannot read the verdict `{shown}`: {error}"))),
        Ok(length) if length as u64 > MAX_VERDICT_BYTES => {
            Err(invalid_verdict(format!("the verdict `{shown}` has more than {MAX_VERDICT_BYTES} bytes")))
        }
        Ok(_) => String::from_utf8(bytes).map_err(|_| invalid_verdict(format!("the verdict `{shown}` is not UTF-8"))),
    }
}
