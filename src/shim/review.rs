//! A reviewer's attempt: what to review is laid out in files, the reviewer is run like a story's agent, and its verdict is read
//! by AMP's rules (04). What it brings back is the verdict, and with `approved_with_fix` a commit.
//!
//! **Read-only.** The reviewer may write in its clone: builds and tests do, and so does a direct fix. What is under review
//! cannot be changed all the same, because nothing leaves but the verdict and, for `approved_with_fix`, commits on top of the
//! commit under review, which the host looks at. With any other verdict, whatever the work tree has come to is left where it
//! is. A reviewer that moves other refs, leaves the branch or damages the clone is not believed.
//!
//! Begun by `serve.rs` in the place of the stories. Must not: judge the fix, which is the host's to do, or say `completion`
//! before the result is on the disk.

mod files;

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use self::files::ReviewFiles;
use super::agent_requests::{CriterionCard, TaskCard};
use super::attempt::{BUNDLE_TIMEOUT, FatalError, initial_refs, write_result};
use super::clock::StoryDeadline;
use super::command::{CommandSpec, run_command};
use super::commit_message;
use super::disk_space;
use super::examination::{Examination, StoryFailure, git_failure};
use super::git::GitError;
use super::hang_snapshot;
use super::progress::ProgressReporter;
use super::safe_fs;
use super::salvage;
use super::stop_budget::StopPhase;
use super::story::{SandboxContext, failure_line, stopped_before};
use crate::handoff::assignment::{AssignmentFile, PromptDelivery};
use crate::handoff::layout as names;
use crate::handoff::review::{MAX_VERDICT_BYTES, REVIEW_VERSION, ReviewAssignment, ReviewFile};
use crate::ids::{CommitId, StoryId};
use crate::protocol::acp::message::{
    Completion, CompletionStatus, ContainerMessage, ErrorCode, ProgressUpdate, StoryStatus,
};
use crate::protocol::amp::message::{ReviewDecision, ReviewVerdict};
use crate::verdict::{Cause, Failure};

/// How long git may take over the diff.
const DIFF_TIMEOUT: Duration = Duration::from_secs(600);
/// A review's fields that are the reviewer's own words. The others are words of the protocol, of the task, or of the repo.
const REVIEWER_TEXT_FIELDS: &[&str] = &["evidence", "description", "suggested_fix", "architecture_notes"];

/// The review, and where its result goes.
pub struct ReviewRun {
    /// What is shared with stories.
    pub sandbox: SandboxContext,
    /// Where the result goes.
    pub out_dir: PathBuf,
    /// What to review.
    pub review: ReviewAssignment,
}

/// A verdict that breaks no rule.
struct ValidVerdict {
    verdict: ReviewVerdict,
    /// As it was written, without values that must not be shown.
    value: Value,
    /// The commit with the fix, where there is one.
    fix: Option<CommitId>,
}

/// What came of a review.
type ReviewRunResult = Result<ValidVerdict, Box<Failure>>;

/// The result of a review whose sandbox could not be made ready.
pub fn not_started_file(assignment: &AssignmentFile, fatal: &FatalError, stopped: bool) -> ReviewFile {
    let cause = match &fatal.code {
        _ if stopped => Cause::StoppedByUser,
        code if *code == ErrorCode::GIT_CLONE_FAILED => Cause::CloneFailed,
        code if *code == ErrorCode::GIT_CHECKOUT_FAILED => Cause::CheckoutFailed,
        code if *code == ErrorCode::TASK_FILE_NOT_FOUND => Cause::TaskFileNotFound,
        code if *code == ErrorCode::TASK_FILE_INVALID => Cause::TaskFileInvalid,
        _ => Cause::EngineError,
    };
    to_review_file(assignment, Err(Box::new(Failure::new(cause, fatal.message.clone()))))
}

fn to_review_file(assignment: &AssignmentFile, found: ReviewRunResult) -> ReviewFile {
    let (verdict, fix, failure) = match found {
        Ok(ValidVerdict { value, fix, .. }) => (Some(value), fix, None),
        Err(failure) => (None, None, Some(*failure)),
    };
    ReviewFile {
        schema_version: REVIEW_VERSION,
        swarm_id: assignment.swarm_id,
        attempt: assignment.attempt.clone(),
        commit: assignment.base.clone(),
        verdict,
        failure,
        bundle: fix.is_some(),
        fix,
        work_log: Vec::new(),
        duration_ms: 0,
    }
}

impl ReviewRun {
    /// Runs the reviewer, writes what it found, and says so. The exit code.
    pub async fn run(self) -> u8 {
        let began = Instant::now();
        let sandbox = &self.sandbox;
        let short = self.review.commit.short();
        sandbox.log.begin_story(&format!("acp-shim: the review of {short} begins"));
        let stories = self.story_ids();
        let first = stories.first().cloned();
        let progress = first.map(|id| ProgressReporter::new(id, sandbox.channel.clone(), sandbox.heartbeat_interval));
        let speaker = progress.clone().map(|progress| tokio::spawn(async move { progress.run().await }));
        if let Some(progress) = &progress {
            sandbox.agent_requests.begin_story(self.task_card(), progress.clone());
            progress.set_status(StoryStatus::InProgress, "review started");
        }
        self.report_other_stories(StoryStatus::InProgress, "review started");

        let found = self.run_reviewer(progress.as_ref()).await;
        sandbox.agent_requests.end_story();
        let mut found = found.map_err(|failure| self.redact_failure(failure));
        let mut result = self.write_outcome(&mut found, progress.as_ref(), began).await;
        if let Some(speaker) = speaker {
            speaker.abort();
        }
        if found.is_ok() {
            sandbox.sign_off(&format!("{short} reviewed"));
        }
        let (status, text) = final_status(&found);
        if let Some(progress) = &progress {
            progress.send_final_status(status, &text);
        }
        self.report_other_stories(status, &text);
        let errors = result.failure.take().map(|failure| failure_line(&failure)).into_iter().collect();
        let stopped = sandbox.stop.is_cancelled();
        let status = if stopped { CompletionStatus::Stopped } else { CompletionStatus::Completed };
        sandbox.channel.send(&ContainerMessage::Completion(Completion { status, pr_url: None, errors }));
        0
    }

    fn story_ids(&self) -> Vec<StoryId> {
        self.sandbox.assignment.stories.iter().map(|work| work.id.clone()).collect()
    }

    /// Says something of every story but the first, whose voice the review has.
    fn report_other_stories(&self, status: StoryStatus, text: &str) {
        for story_id in self.story_ids().into_iter().skip(1) {
            let update = ProgressUpdate { story_id, status, output: text.to_owned() };
            self.sandbox.channel.send(&ContainerMessage::Progress(update));
        }
    }

    /// What `acp-shim task` shows.
    fn task_card(&self) -> TaskCard {
        let criterion = |(place, text): (usize, &String)| CriterionCard {
            id: format!("AC-{}", place + 1),
            text: text.clone(),
            test_command: None,
        };
        TaskCard {
            id: self.story_ids().first().map(StoryId::to_string).unwrap_or_default(),
            title: format!("Review of {}", self.review.commit.short()),
            description: self.review.dispatch.description.clone(),
            branch: self.sandbox.assignment.branch.to_string(),
            acceptance_criteria: self.review.criteria.iter().enumerate().map(criterion).collect(),
            notes: format!("How to answer is said in `{}`.", self.files().prompt.display()),
            verify: Vec::new(),
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
        let prompt = files.write(&self.review, sandbox.assignment.branch.as_str(), sandbox.assignment.mailbox.as_ref());
        let prompt = prompt.map_err(|error| Box::new(sandbox.prompt_failure(&files.prompt, &error)))?;
        self.write_diff(&files).await?;
        let job = self.command_spec(&files, prompt, &sandbox.story_deadline());
        let printed = |line: &str| {
            if let Some(progress) = progress {
                progress.report_output(line);
            }
        };
        let ran = run_command(job, &sandbox.command_context(), printed).await;
        let given_up = sandbox.agent_requests.give_up_reason();
        if let Some(failure) =
            sandbox.command_failure(&ran, "the reviewer", &self.review.agent.name, Cause::AgentFailed, given_up)
        {
            return Err(Box::new(failure));
        }
        let text = read_verdict(&files.verdict)?;
        let verdict = ReviewVerdict::parse(&text, &self.review.criteria)
            .map_err(|violation| invalid_verdict(format!("the verdict is not valid: {violation}")))?;
        let mut value: Value = serde_json::from_str(&text)
            .map_err(|error| invalid_verdict(format!("the verdict is not JSON: {error}")))?;
        self.redact_value(&mut value, false);
        let fix = self.examine_clone(&verdict).await?;
        Ok(ValidVerdict { verdict, value, fix })
    }

    /// What changed, as git tells it. It can be large: git writes it itself.
    async fn write_diff(&self, files: &ReviewFiles) -> Result<(), Box<Failure>> {
        let deadline = self.sandbox.stop_budget.deadline(StopPhase::Work);
        let (clone, to) = (self.sandbox.clone.with_stop_deadline(deadline.clone()), files.diff.clone());
        let (base, commit) = (self.review.base.clone(), self.review.commit.clone());
        let writing = deadline.run_blocking(move || {
            let output = format!("--output={}", to.display());
            let args =
                ["diff", "--no-ext-diff", "--no-textconv", "--no-color", &output, base.as_str(), commit.as_str()];
            clone.git().with_timeout(DIFF_TIMEOUT).run(&[&args[..], &["--"]].concat()).map(drop)
        });
        let written = writing.await.unwrap_or_else(|| Err(GitError::Stopped { what: "diff".into() }));
        written.map_err(|error| {
            let mut failure = Box::new(git_failure(&error, "the diff cannot be made"));
            if failure.cause == Cause::RepoDamaged {
                // Nobody was in the clone yet.
                failure.cause = Cause::CloneFailed;
            }
            disk_space::add_disk_evidence(&mut failure, &self.sandbox.writable_dirs());
            failure
        })
    }

    fn command_spec(&self, files: &ReviewFiles, prompt: String, deadline: &StoryDeadline) -> CommandSpec {
        let (sandbox, work) = (&self.sandbox, &self.review);
        let story = self.story_ids().first().map(StoryId::to_string).unwrap_or_default();
        let mut env = sandbox.env.clone();
        let ours = [
            ("LONGSHORE_STORY", story.clone().into()),
            ("LONGSHORE_STORY_TITLE", format!("Review of {}", work.commit.short()).into()),
            ("LONGSHORE_PROMPT_FILE", files.prompt.clone().into_os_string()),
            ("LONGSHORE_REVIEW", "1".into()),
            ("LONGSHORE_REVIEW_DIR", files.dir.clone().into()),
            ("LONGSHORE_REVIEW_DIFF", files.diff.clone().into()),
            ("LONGSHORE_REVIEW_BASE", work.base.as_str().into()),
            ("LONGSHORE_REVIEW_COMMIT", work.commit.as_str().into()),
            ("LONGSHORE_VERDICT_FILE", files.verdict.clone().into()),
            ("LONGSHORE_REJECT_COUNT", work.request.reject_count.to_string().into()),
        ];
        env.extend(ours.map(|(name, value)| (name.into(), value)));
        let file = files.prompt.to_string_lossy();
        let fill = |arg: &String| arg.replace("{prompt_file}", &file).replace("{story}", &story);
        let argv = work.agent.argv.iter().map(fill).collect();
        let stdin = (work.agent.prompt == PromptDelivery::Stdin).then_some(prompt);
        sandbox.command_spec(argv, env, stdin, deadline)
    }

    /// Sees that the reviewer stayed where it belongs; with `approved_with_fix`, commits what it mended.
    async fn examine_clone(&self, verdict: &ReviewVerdict) -> Result<Option<CommitId>, Box<Failure>> {
        let sandbox = &self.sandbox;
        let files: Vec<&str> = verdict.direct_fixes.iter().map(|fix| fix.file.as_str()).collect();
        let deadline = sandbox.stop_budget.deadline(StopPhase::Work);
        let examination = Examination {
            clone: sandbox.clone.with_stop_deadline(deadline.clone()),
            branch_ref: sandbox.branch_ref(),
            start: self.review.commit.clone(),
            expected_refs: initial_refs(&sandbox.assignment),
            message: commit_message::for_review_fix(&self.story_ids(), &files, &sandbox.assignment.swarm_id),
        };
        let mended = verdict.decision == ReviewDecision::ApprovedWithFix;
        let examined = deadline.run_blocking(move || match mended {
            true => examination.examine().map(|committed| Some(committed.commit)),
            false => examination.check_tip().map(|_| None),
        });
        let examined = examined.await.unwrap_or_else(|| Err(stopped_before("the clone was examined")));
        examined.map_err(|StoryFailure { failure, .. }| match failure.cause {
            Cause::NoChanges => {
                invalid_verdict("the verdict is `approved_with_fix`, and nothing was changed".to_owned())
            }
            _ => failure,
        })
    }

    /// Writes bundle and result. What cannot be written is a failure in the place of the verdict.
    async fn write_outcome(
        &self,
        found: &mut ReviewRunResult,
        progress: Option<&ProgressReporter>,
        began: Instant,
    ) -> ReviewFile {
        let sandbox = &self.sandbox;
        if let Ok(ValidVerdict { fix: Some(_), .. }) = found
            && let Err(failure) = self.write_fix_bundle().await
        {
            *found = Err(self.redact_failure(failure));
        }
        let (_, text) = final_status(found);
        let mut result = match found {
            Ok(ValidVerdict { verdict, value, fix }) => {
                let answer = ValidVerdict { verdict: verdict.clone(), value: value.clone(), fix: fix.clone() };
                to_review_file(&sandbox.assignment, Ok(answer))
            }
            Err(failure) => to_review_file(&sandbox.assignment, Err(failure.clone())),
        };
        result.work_log = progress.map(|progress| progress.close(&text)).unwrap_or_default();
        result.duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        if let Err(error) = write_result(&self.out_dir, &result, true) {
            sandbox.log.write_line(&format!("cannot write the result: {error}"));
            let mut failure = Box::new(git_failure(&error, "the result cannot be written"));
            disk_space::add_disk_evidence(&mut failure, &sandbox.writable_dirs());
            *found = Err(failure.clone());
            result.failure = Some(*failure);
        }
        result
    }

    /// The assigned branch, which is at the fix, without what was under review.
    async fn write_fix_bundle(&self) -> Result<(), Box<Failure>> {
        let deadline = self.sandbox.stop_budget.deadline(StopPhase::Bundle);
        let (clone, out) = (self.sandbox.clone.with_stop_deadline(deadline.clone()), self.out_dir.clone());
        let (base, branch) = (self.review.commit.clone(), self.sandbox.branch_ref());
        let writing = deadline.run_blocking(move || {
            safe_fs::ensure_dir(&out).map_err(|error| GitError::file("open up", &out, error))?;
            let to = out.join(names::BUNDLE_FILE);
            salvage::write_bundle(&clone.git().with_timeout(BUNDLE_TIMEOUT), &to, &base, &[branch], true)
        });
        let written = writing.await.unwrap_or_else(|| Err(GitError::Stopped { what: "bundle".into() }));
        written.map_err(|error| {
            let mut failure = Box::new(git_failure(&error, "the fix cannot be written"));
            disk_space::add_disk_evidence(&mut failure, &self.sandbox.writable_dirs());
            failure
        })
    }

    /// Puts the names of variables in the place of their values where the reviewer speaks in its own words.
    fn redact_value(&self, value: &mut Value, own: bool) {
        match value {
            Value::String(text) if own => *text = hang_snapshot::redact(text, &self.sandbox.secrets),
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_value(item, own)),
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
            *text = hang_snapshot::redact(text, &self.sandbox.secrets);
        }
        failure
    }
}

/// An answer that is none.
fn invalid_verdict(summary: String) -> Box<Failure> {
    Box::new(Failure::new(Cause::ProtocolViolation, summary))
}

/// The status and the words with which a review ends.
fn final_status(found: &ReviewRunResult) -> (StoryStatus, String) {
    match found {
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

/// The verdict file's text. It is in a folder that the reviewer could write to: links are not followed, and nothing but a
/// regular file is read.
fn read_verdict(path: &Path) -> Result<String, Box<Failure>> {
    let shown = path.file_name().unwrap_or_default().to_string_lossy();
    let mut bytes = Vec::new();
    let read = safe_fs::open_regular(path).and_then(|file| file.take(MAX_VERDICT_BYTES + 1).read_to_end(&mut bytes));
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(invalid_verdict(format!("the reviewer ended and left no verdict: there is no `{shown}`")))
        }
        Err(error) => Err(invalid_verdict(format!("the verdict `{shown}` cannot be read: {error}"))),
        Ok(length) if length as u64 > MAX_VERDICT_BYTES => {
            Err(invalid_verdict(format!("the verdict `{shown}` has more than {MAX_VERDICT_BYTES} bytes")))
        }
        Ok(_) => String::from_utf8(bytes).map_err(|_| invalid_verdict(format!("the verdict `{shown}` is not UTF-8"))),
    }
}
