//! From the machine's words to AMP's messages: what the plan, the repo and the settings add to them. Pure; the same word gives
//! the same message, so that a journal which is read again gives what was said before.
//!
//! Called by `telling.rs`. To say something new: a word in `swarm/word.rs`, and its arm in [`AmpComposer::compose`].
//! Must not: decide what is said, or when.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;
use serde_json::json;

use crate::delivery::Repo;
use crate::handoff::assignment::AgentSpec;
use crate::handoff::review::ReviewAssignment;
use crate::ids::{AssignmentId, StoryKey, SwarmId};
use crate::plan::Plan;
use crate::protocol::amp::message::{
    Ack, AmpDraft, AmpMessage, AmpRole, DiffSummary, MsgId, Payload, ReviewRequest, ReviewVerdict, SelfAssessment,
    Subtask, SubtaskCompletionStatus, TaskDispatch, TaskResult, WorkLogEntry,
};
use crate::protocol::amp::rules::{AmpViolation, LOCK_WARNING_TEXT, LOCK_WARNING_THRESHOLD, MAX_ENTRIES};
use crate::protocol::amp::store::{TaskFile, TaskStatus, TaskStory};
use crate::state::SwarmDir;
use crate::swarm::amp_intent::{
    AmpIntent, DispatchIntent, ResultIntent, ReviewRequestIntent, ReviewSpec, TaskPhase, TaskUpdate,
};
use crate::tasks::Story;
use crate::verdict::{Cause, Failure};

use super::ReviewSettings;

/// The most characters of a text that comes from a sandbox, and of a criterion.
const MAX_TEXT_CHARS: usize = 2000;
/// The same of a subtask, of which there may be hundreds.
const MAX_SUBTASK_CHARS: usize = 200;
/// And of a text that the user wrote: the description of a dispatch, guidance.
const MAX_LONG_TEXT_CHARS: usize = 60_000;
/// The most bytes that a list takes, so that the message that has it stays below
/// [`MAX_BYTES`](crate::protocol::amp::rules::MAX_BYTES) even where JSON writes characters as escapes.
const MAX_LIST_BYTES: usize = 256 * 1024;
/// The most entries of a work log; the newest are kept.
const MAX_LOG_ENTRIES: usize = 100;

/// Something for the SSOT.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum SsotRecord {
    /// A message.
    Message(Box<AmpMessage>),
    /// An ack.
    Ack(Ack),
    /// A task's file.
    Task(Box<TaskFile>),
}

/// What messages are made with, and what was said of each task.
pub struct AmpComposer {
    swarm: SwarmId,
    /// The repo's root.
    repo_root: PathBuf,
    /// The folder of the diffs under review.
    reviews_dir: PathBuf,
    plan: Plan,
    /// Commands that are run after each story, beside those of the tasks file.
    has_verify_commands: bool,
    /// What a reviewer has to answer beside the criteria.
    extra_criteria: Vec<String>,
    histories: BTreeMap<AssignmentId, TaskHistory>,
}

/// What was said of a task, for its reviewers.
#[derive(Default)]
struct TaskHistory {
    dispatch: Option<(Vec<StoryKey>, TaskDispatch)>,
    results: BTreeMap<String, (MsgId, TaskResult)>,
    verdicts: Vec<ReviewVerdict>,
    attempts: u32,
}

impl AmpComposer {
    /// Of a swarm whose folder is `dir`; `verify`: there are commands that check each story, beside those of the tasks file.
    pub fn new(repo: &Repo, dir: &SwarmDir, plan: Plan, verify: bool, review: Option<&ReviewSettings>) -> Self {
        let criteria = review.map(|review| review.criteria.clone()).unwrap_or_default();
        Self::from_parts(dir.swarm(), repo.root().to_owned(), dir.path().join("reviews"), plan, verify, criteria)
    }

    fn from_parts(
        swarm: SwarmId,
        repo: PathBuf,
        reviews: PathBuf,
        plan: Plan,
        verify: bool,
        criteria: Vec<String>,
    ) -> Self {
        Self {
            swarm,
            repo_root: repo,
            reviews_dir: reviews,
            plan,
            has_verify_commands: verify,
            extra_criteria: criteria,
            histories: BTreeMap::new(),
        }
    }

    /// Whose words they are.
    pub(super) fn swarm(&self) -> SwarmId {
        self.swarm
    }

    /// What goes to the SSOT for a word.
    ///
    /// # Errors
    /// The text of a message that breaks a rule, with the rule: it is not said.
    pub(super) fn compose(&mut self, word: &AmpIntent) -> Result<SsotRecord, (String, AmpViolation)> {
        let (id, from, to, refs, ack_within, payload) = match word {
            AmpIntent::Ack { of, by, at_ms, note } => {
                let note = note.as_deref().map(|note| truncate_chars(note, MAX_LONG_TEXT_CHARS));
                let ack = Ack { ack_of: of.clone(), by: *by, timestamp: timestamp_from_ms(*at_ms), note };
                return Ok(SsotRecord::Ack(ack));
            }
            AmpIntent::TaskUpdate(news) => return Ok(SsotRecord::Task(Box::new(self.compose_task_file(news)))),
            AmpIntent::Dispatch(dispatch) => {
                let payload = self.compose_dispatch(dispatch);
                let (from, to) = match dispatch.attempt {
                    Some(_) => (AmpRole::Coordinator, AmpRole::Executor),
                    None => (AmpRole::Admin, AmpRole::Coordinator),
                };
                (&dispatch.id, from, to, &dispatch.refs, dispatch.ack_timeout_secs, Payload::TaskDispatch(payload))
            }
            AmpIntent::Result(end) => {
                let payload = self.compose_result(end);
                (
                    &end.id,
                    AmpRole::Executor,
                    AmpRole::Coordinator,
                    &end.refs,
                    end.ack_timeout_secs,
                    Payload::TaskResult(payload),
                )
            }
            AmpIntent::ReviewRequest(request) => {
                let ReviewRequestIntent { id, refs, ack_timeout_secs: ack_within, review, attempt } = &**request;
                let payload = Payload::ReviewRequest(self.compose_review_request(&attempt.dir_name(), review));
                (id, AmpRole::Coordinator, AmpRole::Reviewer, refs, *ack_within, payload)
            }
            AmpIntent::Verdict { id, refs, ack_timeout_secs: ack_within, verdict } => {
                let told = self.histories.entry(id.task_id().clone()).or_default();
                told.verdicts.push((**verdict).clone());
                let payload = Payload::ReviewVerdict((**verdict).clone());
                (id, AmpRole::Reviewer, AmpRole::Coordinator, refs, *ack_within, payload)
            }
            AmpIntent::Escalation { id, from, escalation, .. } => {
                return build_message(id, *from, AmpRole::Admin, &escalation.affected_msgs, None, {
                    Payload::Escalation((**escalation).clone())
                });
            }
        };
        build_message(id, from, to, refs, ack_within, payload)
    }

    fn story(&self, key: &StoryKey) -> &Story {
        self.plan.story(key)
    }

    fn subtask_id(&self, task: &AssignmentId, key: &StoryKey) -> String {
        let assignment = self.plan.assignments.iter().find(|one| one.id == *task);
        let place = assignment.and_then(|one| one.stories.iter().position(|story| story == key)).unwrap_or_default();
        format!("{task}-S{}", place + 1)
    }

    /// What makes a story done: its criteria; for one that has none, that it does what its title says.
    fn acceptance_criteria(&self, key: &StoryKey) -> Vec<String> {
        let story = self.story(key);
        let done = || format!("{}: \"{}\" is done, and its checks pass", self.plan.label(key), shorten(&story.title));
        if story.criteria.is_empty() {
            return vec![done()];
        }
        let said = |text: &str| if text.trim().is_empty() { done() } else { shorten(text) };
        story.criteria.iter().map(|criterion| said(&criterion.text)).collect()
    }

    fn compose_dispatch(&mut self, dispatch: &DispatchIntent) -> TaskDispatch {
        let task = dispatch.id.task_id().clone();
        let stories = &dispatch.stories;
        let mut description = String::new();
        for words in &dispatch.guidance {
            let words = if dispatch.attempt.is_some() { format!("The admin says: {words}") } else { words.clone() };
            description.push_str(&format!("{words}\n\n"));
        }
        if dispatch.attempt.is_some() || description.trim().is_empty() {
            for key in stories {
                let story = self.story(key);
                description.push_str(&format!("{}: {}\n", self.plan.label(key), story.title));
                if !story.description.is_empty() {
                    description.push_str(&format!("\n{}\n\n", story.description));
                }
            }
        }
        let branch = self.plan.assignments.iter().find(|one| one.id == task).map(|one| one.branch.to_string());
        let payload = TaskDispatch {
            description: truncate_chars(description.trim_end(), MAX_LONG_TEXT_CHARS),
            repo: self.repo_root.to_string_lossy().into_owned(),
            branch: branch.unwrap_or_default(),
            subtasks: stories
                .iter()
                .map(|key| Subtask {
                    subtask_id: self.subtask_id(&task, key),
                    description: truncate_chars(
                        &format!("{}: {}", self.plan.label(key), self.story(key).title),
                        MAX_SUBTASK_CHARS,
                    ),
                    estimated_lines: 0,
                })
                .collect(),
            acceptance_criteria: limit_list(stories.iter().flat_map(|key| self.acceptance_criteria(key))),
            risk_level: stories.iter().map(|key| self.story(key).risk).max().unwrap_or_default(),
            forbidden_actions: Vec::new(),
            tech_constraints: None,
        };
        if let Some(attempt) = &dispatch.attempt {
            let told = self.histories.entry(task).or_default();
            told.attempts = attempt.number;
            told.results.clear();
            told.dispatch = Some((stories.clone(), payload.clone()));
        }
        payload
    }

    fn compose_result(&mut self, end: &ResultIntent) -> TaskResult {
        let task = end.id.task_id().clone();
        let dispatched = self.histories.get(&task).and_then(|told| told.dispatch.as_ref());
        let stories = dispatched.map_or_else(|| vec![end.story.clone()], |(stories, _)| stories.clone());
        let mut assessment = SelfAssessment { criteria_met: Vec::new(), notes: Vec::new() };
        for key in &stories {
            let own = *key == end.story;
            let story = self.story(key);
            let checked = self.has_verify_commands || !story.verify.is_empty() || self.has_file_verify_commands(key);
            for place in 0..story.criteria.len().max(1) {
                let (met, note) = match (&end.result, own) {
                    (_, false) => (None, format!("of another subtask, {}", self.subtask_id(&task, key))),
                    (Some(result), true) if !story.criteria.is_empty() => {
                        let met = result.criteria.get(place).and_then(|criterion| criterion.met);
                        let tested = story.criteria[place].test_command.as_deref().unwrap_or_default();
                        (met, criterion_note(met, tested))
                    }
                    _ => {
                        let failed = end.failure.as_ref().map(|failure| failure.cause);
                        let met = match failed {
                            None if checked => Some(true),
                            Some(Cause::VerificationFailed) => Some(false),
                            _ => None,
                        };
                        (met, criterion_note(met, "the verify commands"))
                    }
                };
                assessment.criteria_met.push(met);
                assessment.notes.push(note);
            }
        }
        // A time that is none is a sandbox's doing, and no reason to say nothing.
        let log: Vec<_> = end.result.iter().flat_map(|result| &result.work_log).collect();
        let log = log.iter().skip(log.len().saturating_sub(MAX_LOG_ENTRIES));
        let log = log.filter(|entry| entry.at.parse::<Timestamp>().is_ok());
        let most = dispatched.map_or(MAX_ENTRIES, |(_, dispatch)| dispatch.acceptance_criteria.len());
        assessment.criteria_met.truncate(most);
        assessment.notes.truncate(most);
        let payload = TaskResult {
            subtask_id: self.subtask_id(&task, &end.story),
            completion_status: end.status,
            diff_summary: DiffSummary { files_changed: changed_paths(&end.diff), ..end.diff.clone() },
            self_assessment: assessment,
            work_log: log
                .map(|entry| WorkLogEntry {
                    timestamp: entry.at.clone(),
                    action: "progress".to_owned(),
                    file: String::new(),
                    detail: shorten(&entry.text),
                })
                .collect(),
            commit_hash: end.commit.as_ref().map(ToString::to_string),
            blockers: match (&end.failure, end.status) {
                (_, SubtaskCompletionStatus::Complete) => Vec::new(),
                (Some(failure), _) => blockers(failure),
                (None, _) => vec!["the sandbox does not say why".to_owned()],
            },
        };
        let told = self.histories.entry(task).or_default();
        told.results.insert(payload.subtask_id.clone(), (end.id.clone(), payload.clone()));
        payload
    }

    /// Whether the story's tasks file has commands that verify it.
    fn has_file_verify_commands(&self, key: &StoryKey) -> bool {
        !self.plan.files[usize::from(key.file)].tasks.verify.is_empty()
    }

    /// Where the diff under review is.
    pub(super) fn diff_path(&self, folder: &str) -> PathBuf {
        self.reviews_dir.join(format!("{folder}.patch"))
    }

    fn compose_review_request(&self, folder: &str, review: &ReviewSpec) -> ReviewRequest {
        let near = (review.reject_count >= LOCK_WARNING_THRESHOLD)
            .then(|| format!("{LOCK_WARNING_TEXT}: the task was rejected {} times.", review.reject_count));
        let guidance = review.guidance.iter().map(|words| format!("The admin says: {words}"));
        let notes: Vec<String> = near.into_iter().chain(guidance).collect();
        let checked = self.has_verify_commands
            || review.stories.iter().any(|key| {
                let story = self.story(key);
                let tested = story.criteria.iter().any(|criterion| criterion.test_command.is_some());
                self.has_file_verify_commands(key) || !story.verify.is_empty() || tested
            });
        ReviewRequest {
            original_dispatch_ref: review.dispatch.clone(),
            task_result_ref: review.result.clone(),
            review_scope: review.scope,
            diff_url: self.diff_path(folder).to_string_lossy().into_owned(),
            reject_count: review.reject_count,
            coordinator_notes: (!notes.is_empty()).then(|| truncate_chars(&notes.join("\n"), MAX_LONG_TEXT_CHARS)),
            // Work whose checks failed is never reviewed.
            ci_status: checked.then(|| json!({"verify": "passed"}).as_object().cloned()).flatten(),
        }
    }

    /// What a reviewer is given; none where the task was never dispatched.
    pub(super) fn review_work(&self, folder: &str, review: &ReviewSpec, agent: &AgentSpec) -> Option<ReviewAssignment> {
        let told = self.histories.get(&review.reviewed_attempt.assignment)?;
        let (_, dispatch) = told.dispatch.as_ref()?;
        let results: Vec<TaskResult> = told.results.values().map(|(_, result)| result.clone()).collect();
        let newest = told.results.values().find(|(id, _)| *id == review.result).map(|(_, result)| result.clone());
        Some(ReviewAssignment {
            base: review.base.clone(),
            commit: review.commit.clone(),
            dispatch: dispatch.clone(),
            result: newest?,
            results,
            request: self.compose_review_request(folder, review),
            criteria: dispatch.acceptance_criteria.iter().chain(&self.extra_criteria).cloned().collect(),
            earlier_verdicts: told.verdicts.clone(),
            guidance: review.guidance.clone(),
            agent: agent.clone(),
        })
    }

    /// What a reviewer of this task has to answer.
    pub(super) fn review_criteria(&self, task: &AssignmentId) -> Vec<String> {
        let dispatch = self.histories.get(task).and_then(|told| told.dispatch.as_ref());
        let own = dispatch.into_iter().flat_map(|(_, dispatch)| &dispatch.acceptance_criteria);
        own.chain(&self.extra_criteria).cloned().collect()
    }

    fn compose_task_file(&self, news: &TaskUpdate) -> TaskFile {
        let assignment = self.plan.assignments.iter().find(|one| one.id == news.task);
        let risk = news.stories.iter().map(|(key, _)| self.story(key).risk).max();
        TaskFile {
            task_id: news.task.clone(),
            swarm_id: self.swarm,
            branch: assignment.map(|one| one.branch.clone()).expect("the plan has the task"),
            status: task_status(news.phase),
            risk_level: risk.unwrap_or_default(),
            attempts: self.histories.get(&news.task).map_or(0, |told| told.attempts),
            reject_count: news.reject_count,
            stories: news
                .stories
                .iter()
                .map(|(key, status)| TaskStory {
                    subtask_id: self.subtask_id(&news.task, key),
                    story: self.plan.label(key),
                    title: self.story(key).title.clone(),
                    status: *status,
                })
                .collect(),
            progress: news.progress.as_deref().map(shorten),
            updated_at: timestamp_from_ms(news.at_ms),
        }
    }
}

fn build_message(
    id: &MsgId,
    from: AmpRole,
    to: AmpRole,
    refs: &[MsgId],
    ack_timeout_sec: Option<u32>,
    payload: Payload,
) -> Result<SsotRecord, (String, AmpViolation)> {
    let draft = AmpDraft {
        from,
        to,
        task_id: id.task_id().clone(),
        timestamp: timestamp_from_ms(id.unix_ms()),
        requires_ack: payload.message_type().ack_timeout().is_some(),
        ack_timeout_sec,
        context_ref: refs.to_vec(),
        payload,
    };
    let text = format!("{draft:?}");
    AmpMessage::new(id.clone(), draft)
        .map(|message| SsotRecord::Message(Box::new(message)))
        .map_err(|rule| (text, rule))
}

fn timestamp_from_ms(ms: u64) -> Timestamp {
    i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok()).unwrap_or(Timestamp::MAX)
}

fn criterion_note(met: Option<bool>, by: &str) -> String {
    match met {
        Some(true) => format!("passed: {}", truncate_chars(by, MAX_SUBTASK_CHARS)),
        Some(false) => format!("failed: {}", truncate_chars(by, MAX_SUBTASK_CHARS)),
        None => "nobody could check it".to_owned(),
    }
}

fn blockers(failure: &Failure) -> Vec<String> {
    let Failure { cause, evidence, salvage } = failure;
    let mut all = vec![format!("{} ({}): {}", cause.as_str(), cause.acp_code(), shorten(&evidence.summary))];
    if !evidence.paths.is_empty() {
        all.push(shorten(&format!("paths: {}", evidence.paths.join(", "))));
    }
    all.extend(salvage.iter().map(|reference| format!("what was there is kept in {reference}")));
    all
}

fn shorten(text: &str) -> String {
    truncate_chars(text, MAX_TEXT_CHARS)
}

fn truncate_chars(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

/// As many of them as a message has room for.
fn limit_list(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut room = MAX_LIST_BYTES;
    let fits = |text: &String| {
        room = room.saturating_sub(text.len() + 8);
        room > 0
    };
    texts.take(MAX_ENTRIES).take_while(fits).collect()
}

/// The paths of a diff. One of blanks alone is a file's name for git, and says nothing to a reader without its quotes.
fn changed_paths(diff: &DiffSummary) -> Vec<String> {
    let said = |file: &String| if file.trim().is_empty() { format!("{file:?}") } else { shorten(file) };
    let mut seen = std::collections::BTreeSet::new();
    limit_list(diff.files_changed.iter().map(said).filter(|file| seen.insert(file.clone())))
}

fn task_status(phase: TaskPhase) -> TaskStatus {
    match phase {
        TaskPhase::AwaitingApproval => TaskStatus::WaitingApproval,
        TaskPhase::Dispatched | TaskPhase::InProgress | TaskPhase::Retrying | TaskPhase::Rejected => {
            TaskStatus::Running
        }
        TaskPhase::AwaitingReview | TaskPhase::InReview | TaskPhase::Landing => TaskStatus::InReview,
        TaskPhase::Suspended => TaskStatus::Suspended,
        TaskPhase::Locked => TaskStatus::Locked,
        TaskPhase::Landed => TaskStatus::Completed,
        TaskPhase::Failed => TaskStatus::Failed,
        TaskPhase::Aborted => TaskStatus::Aborted,
    }
}

#[cfg(test)]
mod tests;
