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

mod brief;

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use self::brief::Files;
use super::attempt::{BUNDLE_LIMIT, Fatal, starting_refs, write_result};
use super::clock::Deadline;
use super::commit_message;
use super::examine::{Examination, Fault, git_failure};
use super::git::GitError;
use super::halt::Share;
use super::progress::Progress;
use super::run::{Job, run};
use super::salvage;
use super::scene;
use super::socket::{CriterionCard, TaskCard};
use super::space;
use super::special;
use super::story::{Sandbox, cut_off, said};
use crate::handoff::assignment::{AssignmentFile, PromptVia};
use crate::handoff::layout as names;
use crate::handoff::review::{REVIEW_VERSION, ReviewFile, ReviewWork, VERDICT_MAX_BYTES};
use crate::ids::{CommitId, StoryId};
use crate::protocol::acp::message::{
    Completion, CompletionStatus, ContainerMessage, ErrorCode, ProgressUpdate, StoryStatus,
};
use crate::protocol::amp::message::{Decision, ReviewVerdict};
use crate::verdict::{Cause, Failure};

/// How long git may take over the diff.
const DIFF_LIMIT: Duration = Duration::from_secs(600);
/// A review's fields that are the reviewer's own words. The others are words of the protocol, of the task, or of the repo.
const OWN_WORDS: &[&str] = &["evidence", "description", "suggested_fix", "architecture_notes"];

/// The review, and where its result goes.
pub struct Review {
    /// What is shared with stories.
    pub sandbox: Sandbox,
    /// Where the result goes.
    pub out: PathBuf,
    /// What to review.
    pub work: ReviewWork,
}

/// A verdict that breaks no rule.
struct Answer {
    verdict: ReviewVerdict,
    /// As it was written, without values that must not be shown.
    value: Value,
    /// The commit with the fix, where there is one.
    fix: Option<CommitId>,
}

/// What came of a review.
type Found = Result<Answer, Box<Failure>>;

/// The result of a review whose sandbox could not be made ready.
pub fn not_begun(assignment: &AssignmentFile, fatal: &Fatal, stopped: bool) -> ReviewFile {
    let cause = match &fatal.code {
        _ if stopped => Cause::StoppedByUser,
        code if *code == ErrorCode::GIT_CLONE_FAILED => Cause::CloneFailed,
        code if *code == ErrorCode::GIT_CHECKOUT_FAILED => Cause::CheckoutFailed,
        code if *code == ErrorCode::TASK_FILE_NOT_FOUND => Cause::TaskFileNotFound,
        code if *code == ErrorCode::TASK_FILE_INVALID => Cause::TaskFileInvalid,
        _ => Cause::EngineError,
    };
    result_of(assignment, Err(Box::new(Failure::new(cause, fatal.message.clone()))))
}

fn result_of(assignment: &AssignmentFile, found: Found) -> ReviewFile {
    let (verdict, fix, failure) = match found {
        Ok(Answer { value, fix, .. }) => (Some(value), fix, None),
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

impl Review {
    /// Runs the reviewer, writes what it found, and says so. The exit code.
    pub async fn run(self) -> u8 {
        let began = Instant::now();
        let sandbox = &self.sandbox;
        let short = self.work.commit.short();
        sandbox.log.begin_story(&format!("acp-shim: the review of {short} begins"));
        let stories = self.stories();
        let first = stories.first().cloned();
        let progress = first.map(|id| Progress::new(id, sandbox.channel.clone(), sandbox.heartbeat));
        let speaker = progress.clone().map(|progress| tokio::spawn(async move { progress.speak().await }));
        if let Some(progress) = &progress {
            sandbox.desk.open(self.card(), progress.clone());
            progress.change(StoryStatus::InProgress, "review started");
        }
        self.say_of_others(StoryStatus::InProgress, "review started");

        let found = self.review(progress.as_ref()).await;
        sandbox.desk.close();
        let mut found = found.map_err(|failure| self.without_secrets(failure));
        let mut result = self.write(&mut found, progress.as_ref(), began).await;
        if let Some(speaker) = speaker {
            speaker.abort();
        }
        if found.is_ok() {
            sandbox.sign_off(&format!("{short} reviewed"));
        }
        let (status, text) = last_word(&found);
        if let Some(progress) = &progress {
            progress.last_word(status, &text);
        }
        self.say_of_others(status, &text);
        let errors = result.failure.take().map(|failure| said(&failure)).into_iter().collect();
        let stopped = sandbox.stop.is_cancelled();
        let status = if stopped { CompletionStatus::Stopped } else { CompletionStatus::Completed };
        sandbox.channel.send(&ContainerMessage::Completion(Completion { status, pr_url: None, errors }));
        0
    }

    fn stories(&self) -> Vec<StoryId> {
        self.sandbox.assignment.stories.iter().map(|work| work.id.clone()).collect()
    }

    /// Says something of every story but the first, whose voice the review has.
    fn say_of_others(&self, status: StoryStatus, text: &str) {
        for story_id in self.stories().into_iter().skip(1) {
            let update = ProgressUpdate { story_id, status, output: text.to_owned() };
            self.sandbox.channel.send(&ContainerMessage::Progress(update));
        }
    }

    /// What `acp-shim task` shows.
    fn card(&self) -> TaskCard {
        let criterion = |(place, text): (usize, &String)| CriterionCard {
            id: format!("AC-{}", place + 1),
            text: text.clone(),
            test_command: None,
        };
        TaskCard {
            id: self.stories().first().map(StoryId::to_string).unwrap_or_default(),
            title: format!("Review of {}", self.work.commit.short()),
            description: self.work.dispatch.description.clone(),
            branch: self.sandbox.assignment.branch.to_string(),
            acceptance_criteria: self.work.criteria.iter().enumerate().map(criterion).collect(),
            notes: format!("How to answer is said in `{}`.", self.files().prompt.display()),
            verify: Vec::new(),
            previous_failure: None,
            guidance: Vec::new(),
        }
    }

    fn files(&self) -> Files {
        Files::below(&self.sandbox.run_dir)
    }

    async fn review(&self, progress: Option<&Progress>) -> Found {
        let sandbox = &self.sandbox;
        let files = self.files();
        let prompt = files.write(&self.work, sandbox.assignment.branch.as_str(), sandbox.assignment.mailbox.as_ref());
        let prompt = prompt.map_err(|error| Box::new(sandbox.no_prompt(&files.prompt, &error)))?;
        self.write_diff(&files).await?;
        let job = self.job(&files, prompt, &sandbox.time());
        let printed = |line: &str| {
            if let Some(progress) = progress {
                progress.printed(line);
            }
        };
        let ran = run(job, &sandbox.surroundings(), printed).await;
        let given_up = sandbox.desk.given_up();
        if let Some(failure) = sandbox.judge(&ran, "the reviewer", &self.work.agent.name, Cause::AgentFailed, given_up)
        {
            return Err(Box::new(failure));
        }
        let text = read_verdict(&files.verdict)?;
        let verdict = ReviewVerdict::read(&text, &self.work.criteria)
            .map_err(|violation| invalid(format!("the verdict is not valid: {violation}")))?;
        let mut value: Value =
            serde_json::from_str(&text).map_err(|error| invalid(format!("the verdict is not JSON: {error}")))?;
        self.hide(&mut value, false);
        let fix = self.examine(&verdict).await?;
        Ok(Answer { verdict, value, fix })
    }

    /// What changed, as git tells it. It can be large: git writes it itself.
    async fn write_diff(&self, files: &Files) -> Result<(), Box<Failure>> {
        let deadline = self.sandbox.halt.by(Share::Work);
        let (clone, to) = (self.sandbox.clone.until(deadline.clone()), files.diff.clone());
        let (base, commit) = (self.work.base.clone(), self.work.commit.clone());
        let writing = deadline.bound(move || {
            let output = format!("--output={}", to.display());
            let args =
                ["diff", "--no-ext-diff", "--no-textconv", "--no-color", &output, base.as_str(), commit.as_str()];
            clone.git().within(DIFF_LIMIT).run(&[&args[..], &["--"]].concat()).map(drop)
        });
        let written = writing.await.unwrap_or_else(|| Err(GitError::Halted { what: "diff".into() }));
        written.map_err(|error| {
            let mut failure = Box::new(git_failure(&error, "the diff cannot be made"));
            if failure.cause == Cause::RepoDamaged {
                // Nobody was in the clone yet.
                failure.cause = Cause::CloneFailed;
            }
            space::explain(&mut failure, &self.sandbox.places());
            failure
        })
    }

    fn job(&self, files: &Files, prompt: String, deadline: &Deadline) -> Job {
        let (sandbox, work) = (&self.sandbox, &self.work);
        let story = self.stories().first().map(StoryId::to_string).unwrap_or_default();
        let mut env = sandbox.env.clone();
        let ours = [
            ("LONGSHORE_STORY", story.clone().into()),
            ("LONGSHORE_STORY_TITLE", format!("Review of {}", work.commit.short()).into()),
            ("LONGSHORE_PROMPT_FILE", files.prompt.clone().into_os_string()),
            ("LONGSHORE_REVIEW", "1".into()),
            ("LONGSHORE_REVIEW_DIR", files.folder.clone().into()),
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
        let stdin = (work.agent.prompt == PromptVia::Stdin).then_some(prompt);
        sandbox.job(argv, env, stdin, deadline)
    }

    /// Sees that the reviewer stayed where it belongs; with `approved_with_fix`, commits what it mended.
    async fn examine(&self, verdict: &ReviewVerdict) -> Result<Option<CommitId>, Box<Failure>> {
        let sandbox = &self.sandbox;
        let files: Vec<&str> = verdict.direct_fixes.iter().map(|fix| fix.file.as_str()).collect();
        let deadline = sandbox.halt.by(Share::Work);
        let examination = Examination {
            clone: sandbox.clone.until(deadline.clone()),
            branch_ref: sandbox.branch_ref(),
            start: self.work.commit.clone(),
            refs: starting_refs(&sandbox.assignment),
            message: commit_message::mended(&self.stories(), &files, &sandbox.assignment.swarm_id),
        };
        let mended = verdict.decision == Decision::ApprovedWithFix;
        let examined = deadline.bound(move || match mended {
            true => examination.examine().map(|committed| Some(committed.commit)),
            false => examination.tip().map(|_| None),
        });
        let examined = examined.await.unwrap_or_else(|| Err(cut_off("the clone was examined")));
        examined.map_err(|Fault { failure, .. }| match failure.cause {
            Cause::NoChanges => invalid("the verdict is `approved_with_fix`, and nothing was changed".to_owned()),
            _ => failure,
        })
    }

    /// Writes bundle and result. What cannot be written is a failure in the place of the verdict.
    async fn write(&self, found: &mut Found, progress: Option<&Progress>, began: Instant) -> ReviewFile {
        let sandbox = &self.sandbox;
        if let Ok(Answer { fix: Some(_), .. }) = found
            && let Err(failure) = self.bundle().await
        {
            *found = Err(self.without_secrets(failure));
        }
        let (_, text) = last_word(found);
        let mut result = match found {
            Ok(Answer { verdict, value, fix }) => {
                let answer = Answer { verdict: verdict.clone(), value: value.clone(), fix: fix.clone() };
                result_of(&sandbox.assignment, Ok(answer))
            }
            Err(failure) => result_of(&sandbox.assignment, Err(failure.clone())),
        };
        result.work_log = progress.map(|progress| progress.close(&text)).unwrap_or_default();
        result.duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        if let Err(error) = write_result(&self.out, &result, true) {
            sandbox.log.say(&format!("cannot write the result: {error}"));
            let mut failure = Box::new(git_failure(&error, "the result cannot be written"));
            space::explain(&mut failure, &sandbox.places());
            *found = Err(failure.clone());
            result.failure = Some(*failure);
        }
        result
    }

    /// The assigned branch, which is at the fix, without what was under review.
    async fn bundle(&self) -> Result<(), Box<Failure>> {
        let deadline = self.sandbox.halt.by(Share::Bundle);
        let (clone, out) = (self.sandbox.clone.until(deadline.clone()), self.out.clone());
        let (base, branch) = (self.work.commit.clone(), self.sandbox.branch_ref());
        let writing = deadline.bound(move || {
            special::ensure_folder(&out).map_err(|error| GitError::file("open up", &out, error))?;
            let to = out.join(names::RESULT_BUNDLE);
            salvage::write_bundle(&clone.git().within(BUNDLE_LIMIT), &to, &base, &[branch], true)
        });
        let written = writing.await.unwrap_or_else(|| Err(GitError::Halted { what: "bundle".into() }));
        written.map_err(|error| {
            let mut failure = Box::new(git_failure(&error, "the fix cannot be written"));
            space::explain(&mut failure, &self.sandbox.places());
            failure
        })
    }

    /// Puts the names of variables in the place of their values where the reviewer speaks in its own words.
    fn hide(&self, value: &mut Value, own: bool) {
        match value {
            Value::String(text) if own => *text = scene::without(text, &self.sandbox.secrets),
            Value::Array(items) => items.iter_mut().for_each(|item| self.hide(item, own)),
            Value::Object(fields) => {
                for (name, field) in fields {
                    self.hide(field, OWN_WORDS.contains(&name.as_str()));
                }
            }
            _ => {}
        }
    }

    fn without_secrets(&self, mut failure: Box<Failure>) -> Box<Failure> {
        let evidence = &mut failure.evidence;
        for text in evidence.tail.iter_mut().chain([&mut evidence.summary]) {
            *text = scene::without(text, &self.sandbox.secrets);
        }
        failure
    }
}

/// An answer that is none.
fn invalid(summary: String) -> Box<Failure> {
    Box::new(Failure::new(Cause::ProtocolViolation, summary))
}

/// The status and the words with which a review ends.
fn last_word(found: &Found) -> (StoryStatus, String) {
    match found {
        Ok(Answer { verdict, .. }) => {
            let decision = match verdict.decision {
                Decision::Approved => "approved",
                Decision::ApprovedWithFix => "approved with fix",
                Decision::Rejected => "rejected",
            };
            (StoryStatus::Completed, format!("review: {decision}, confidence {}", verdict.confidence))
        }
        Err(failure) => (StoryStatus::Failed, format!("review: {}", said(failure))),
    }
}

/// The verdict file's text. It is in a folder that the reviewer could write to: links are not followed, and nothing but a
/// regular file is read.
fn read_verdict(path: &Path) -> Result<String, Box<Failure>> {
    let shown = path.file_name().unwrap_or_default().to_string_lossy();
    let mut bytes = Vec::new();
    let read = special::open(path).and_then(|file| file.take(VERDICT_MAX_BYTES + 1).read_to_end(&mut bytes));
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(invalid(format!("the reviewer ended and left no verdict: there is no `{shown}`")))
        }
        Err(error) => Err(invalid(format!("the verdict `{shown}` cannot be read: {error}"))),
        Ok(length) if length as u64 > VERDICT_MAX_BYTES => {
            Err(invalid(format!("the verdict `{shown}` has more than {VERDICT_MAX_BYTES} bytes")))
        }
        Ok(_) => String::from_utf8(bytes).map_err(|_| invalid(format!("the verdict `{shown}` is not UTF-8"))),
    }
}
