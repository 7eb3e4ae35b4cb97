//! Composes AMP messages from the machine's intents, the plan, the repo and the settings. Pure: the same intent gives the same
//! message, so that a replayed journal gives the messages of the first run.
//!
//! Called by `ssot_writer.rs`. To add a message: a variant in `swarm/amp_intent.rs`, and its arm in [`AmpComposer::compose`].
//! Must not: decide what is sent, or when.

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
use crate::swarm::AssignmentSpec;
use crate::swarm::amp_intent::{
    AmpIntent, DispatchIntent, ResultIntent, ReviewRequestIntent, ReviewSpec, TaskPhase, TaskUpdate,
};
use crate::tasks::Story;
use crate::verdict::{Cause, Failure};

use crate::coordinator::sandbox_settings::ReviewSettings;

/// The most characters of a text from a sandbox, and of a criterion.
const MAX_TEXT_CHARS: usize = 2000;
/// The most characters of a subtask, of which there may be hundreds.
const MAX_SUBTASK_CHARS: usize = 200;
/// The most characters of the user's own text: the description of a dispatch, guidance.
const MAX_LONG_TEXT_CHARS: usize = 60_000;
/// The most bytes of a list. With it a message stays below [`MAX_BYTES`](crate::protocol::amp::rules::MAX_BYTES) even if JSON
/// escapes every character.
const MAX_LIST_BYTES: usize = 256 * 1024;
/// The most entries of a work log; the newest are kept.
const MAX_LOG_ENTRIES: usize = 100;

/// An entry of the SSOT.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum SsotRecord {
    Message(Box<AmpMessage>),
    Ack(Ack),
    Task(Box<TaskFile>),
}

/// Composes messages, and remembers those that reviewers need.
pub struct AmpComposer {
    swarm: SwarmId,
    repo_root: PathBuf,
    /// The directory of the diffs under review.
    reviews_dir: PathBuf,
    plan: Plan,
    /// Whether commands outside the tasks files verify each story.
    has_verify_commands: bool,
    /// A review request says so if nothing was checked. Swarms of earlier versions leave it out.
    names_unchecked: bool,
    /// What a reviewer has to answer in addition to the acceptance criteria.
    extra_criteria: Vec<String>,
    histories: BTreeMap<AssignmentId, TaskHistory>,
}

/// A task's messages, for its reviewers.
#[derive(Default)]
struct TaskHistory {
    dispatch: Option<(Vec<StoryKey>, TaskDispatch)>,
    results: BTreeMap<String, (MsgId, TaskResult)>,
    verdicts: Vec<ReviewVerdict>,
    attempts: u32,
}

impl AmpComposer {
    /// A composer for the swarm in `dir`. `verify`: commands outside the tasks files verify each story.
    pub fn new(repo: &Repo, dir: &SwarmDir, plan: Plan, verify: bool, review: Option<&ReviewSettings>) -> Self {
        let criteria = review.map(|review| review.criteria.clone()).unwrap_or_default();
        Self::from_parts(dir.swarm(), repo.root().to_owned(), dir.path().join("reviews"), plan, verify, criteria)
    }

    /// Has review requests say whether anything was checked: what is said of a swarm must stay the same when it is resumed.
    pub fn with_unchecked_named(mut self, names_unchecked: bool) -> Self {
        self.names_unchecked = names_unchecked;
        self
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
            names_unchecked: false,
            extra_criteria: criteria,
            histories: BTreeMap::new(),
        }
    }

    pub(super) fn swarm(&self) -> SwarmId {
        self.swarm
    }

    /// # Errors
    /// The text of a message that breaks a rule, and the rule.
    pub(super) fn compose(&mut self, intent: &AmpIntent) -> Result<SsotRecord, (String, AmpViolation)> {
        let (id, from, to, refs, ack_timeout, payload) = match intent {
            AmpIntent::Ack { of, by, at_ms, note } => {
                let note = note.as_deref().map(|note| truncate_chars(note, MAX_LONG_TEXT_CHARS));
                let ack = Ack { ack_of: of.clone(), by: *by, timestamp: timestamp_from_ms(*at_ms), note };
                return Ok(SsotRecord::Ack(ack));
            }
            AmpIntent::TaskUpdate(update) => return Ok(SsotRecord::Task(Box::new(self.compose_task_file(update)))),
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
                let ReviewRequestIntent { id, refs, ack_timeout_secs: ack_timeout, review, attempt } = &**request;
                let payload = Payload::ReviewRequest(self.compose_review_request(&attempt.dir_name(), review));
                (id, AmpRole::Coordinator, AmpRole::Reviewer, refs, *ack_timeout, payload)
            }
            AmpIntent::Verdict { id, refs, ack_timeout_secs: ack_timeout, verdict } => {
                let history = self.histories.entry(id.task_id().clone()).or_default();
                history.verdicts.push((**verdict).clone());
                let payload = Payload::ReviewVerdict((**verdict).clone());
                (id, AmpRole::Reviewer, AmpRole::Coordinator, refs, *ack_timeout, payload)
            }
            AmpIntent::Escalation { id, from, escalation, .. } => {
                return build_message(id, *from, AmpRole::Admin, &escalation.affected_msgs, None, {
                    Payload::Escalation((**escalation).clone())
                });
            }
        };
        build_message(id, from, to, refs, ack_timeout, payload)
    }

    fn story(&self, key: &StoryKey) -> &Story {
        self.plan.story(key)
    }

    fn assignment(&self, task: &AssignmentId) -> Option<&AssignmentSpec> {
        self.plan.assignments.iter().find(|assignment| assignment.id == *task)
    }

    fn subtask_id(&self, task: &AssignmentId, key: &StoryKey) -> String {
        let index = self.assignment(task).and_then(|one| one.stories.iter().position(|story| story == key));
        format!("{task}-S{}", index.unwrap_or_default() + 1)
    }

    /// A story's criteria; for a story without criteria, that it does what its title says.
    fn acceptance_criteria(&self, key: &StoryKey) -> Vec<String> {
        let story = self.story(key);
        let done = || format!("{}: \"{}\" is done, and its checks pass", self.plan.label(key), shorten(&story.title));
        if story.criteria.is_empty() {
            return vec![done()];
        }
        let text = |text: &str| if text.trim().is_empty() { done() } else { shorten(text) };
        story.criteria.iter().map(|criterion| text(&criterion.text)).collect()
    }

    fn compose_dispatch(&mut self, dispatch: &DispatchIntent) -> TaskDispatch {
        let task = dispatch.id.task_id().clone();
        let stories = &dispatch.stories;
        let mut description = String::new();
        for guidance in &dispatch.guidance {
            let speaker = if dispatch.attempt.is_some() { "The admin says: " } else { "" };
            description.push_str(&format!("{speaker}{guidance}\n\n"));
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
        let branch = self.assignment(&task).map(|assignment| assignment.branch.to_string());
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
            let history = self.histories.entry(task).or_default();
            history.attempts = attempt.number;
            history.results.clear();
            history.dispatch = Some((stories.clone(), payload.clone()));
        }
        payload
    }

    fn compose_result(&mut self, end: &ResultIntent) -> TaskResult {
        let task = end.id.task_id().clone();
        let log: Vec<_> = end.result.iter().flat_map(|result| &result.work_log).collect();
        let log = log.iter().skip(log.len().saturating_sub(MAX_LOG_ENTRIES));
        // Skip invalid timestamps from a sandbox.
        let log = log.filter(|entry| entry.at.parse::<Timestamp>().is_ok());
        let payload = TaskResult {
            subtask_id: self.subtask_id(&task, &end.story),
            completion_status: end.status,
            diff_summary: DiffSummary { files_changed: changed_paths(&end.diff), ..end.diff.clone() },
            self_assessment: self.compose_assessment(&task, end),
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
        let history = self.histories.entry(task).or_default();
        history.results.insert(payload.subtask_id.clone(), (end.id.clone(), payload.clone()));
        payload
    }

    /// Which of the dispatch's acceptance criteria are met, in its order.
    fn compose_assessment(&self, task: &AssignmentId, end: &ResultIntent) -> SelfAssessment {
        let dispatch = self.histories.get(task).and_then(|history| history.dispatch.as_ref());
        let stories = dispatch.map_or(std::slice::from_ref(&end.story), |(stories, _)| stories);
        let limit = dispatch.map_or(MAX_ENTRIES, |(_, dispatch)| dispatch.acceptance_criteria.len());
        let criteria = stories.iter().flat_map(|key| {
            (0..self.story(key).criteria.len().max(1)).map(move |index| self.assess_criterion(task, end, key, index))
        });
        let (criteria_met, notes) = criteria.take(limit).unzip();
        SelfAssessment { criteria_met, notes }
    }

    /// Whether a criterion is met, and a note on how that is known.
    fn assess_criterion(
        &self,
        task: &AssignmentId,
        end: &ResultIntent,
        key: &StoryKey,
        index: usize,
    ) -> (Option<bool>, String) {
        if *key != end.story {
            return (None, format!("of another subtask, {}", self.subtask_id(task, key)));
        }
        let story = self.story(key);
        match (&end.result, story.criteria.get(index)) {
            (Some(result), Some(criterion)) => {
                let met = result.criteria.get(index).and_then(|result| result.met);
                (met, criterion_note(met, criterion.test_command.as_deref().unwrap_or_default()))
            }
            _ => {
                let is_checked =
                    self.has_verify_commands || !story.verify.is_empty() || self.has_file_verify_commands(key);
                let met = match end.failure.as_ref().map(|failure| failure.cause) {
                    None if is_checked => Some(true),
                    Some(Cause::VerificationFailed) => Some(false),
                    _ => None,
                };
                (met, criterion_note(met, "the verify commands"))
            }
        }
    }

    /// Whether the story's tasks file has commands that verify it.
    fn has_file_verify_commands(&self, key: &StoryKey) -> bool {
        !self.plan.files[usize::from(key.file)].tasks.verify.is_empty()
    }

    /// The file of the diff under review.
    pub fn diff_path(&self, attempt_dir: &str) -> PathBuf {
        self.reviews_dir.join(format!("{attempt_dir}.patch"))
    }

    fn compose_review_request(&self, attempt_dir: &str, review: &ReviewSpec) -> ReviewRequest {
        let warning = (review.reject_count >= LOCK_WARNING_THRESHOLD)
            .then(|| format!("{LOCK_WARNING_TEXT}: the task was rejected {} times.", review.reject_count));
        let guidance = review.guidance.iter().map(|text| format!("The admin says: {text}"));
        let notes: Vec<String> = warning.into_iter().chain(guidance).collect();
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
            diff_url: self.diff_path(attempt_dir).to_string_lossy().into_owned(),
            reject_count: review.reject_count,
            coordinator_notes: (!notes.is_empty()).then(|| truncate_chars(&notes.join("\n"), MAX_LONG_TEXT_CHARS)),
            // Work whose checks failed is never reviewed.
            ci_status: match (checked, self.names_unchecked) {
                (true, _) => json!({"verify": "passed"}).as_object().cloned(),
                (false, true) => json!({"verify": "not_run"}).as_object().cloned(),
                (false, false) => None,
            },
        }
    }

    /// A reviewer's assignment; `None` if the task was never dispatched.
    pub fn review_assignment(
        &self,
        attempt_dir: &str,
        review: &ReviewSpec,
        agent: &AgentSpec,
    ) -> Option<ReviewAssignment> {
        let history = self.histories.get(&review.reviewed_attempt.assignment)?;
        let (_, dispatch) = history.dispatch.as_ref()?;
        let results: Vec<TaskResult> = history.results.values().map(|(_, result)| result.clone()).collect();
        let newest = history.results.values().find(|(id, _)| *id == review.result).map(|(_, result)| result.clone());
        Some(ReviewAssignment {
            base: review.base.clone(),
            commit: review.commit.clone(),
            dispatch: dispatch.clone(),
            result: newest?,
            results,
            request: self.compose_review_request(attempt_dir, review),
            criteria: self.review_criteria(&review.reviewed_attempt.assignment),
            earlier_verdicts: history.verdicts.clone(),
            guidance: review.guidance.clone(),
            agent: agent.clone(),
        })
    }

    /// The criteria that a reviewer of this task has to answer.
    pub fn review_criteria(&self, task: &AssignmentId) -> Vec<String> {
        let dispatch = self.histories.get(task).and_then(|history| history.dispatch.as_ref());
        let own = dispatch.into_iter().flat_map(|(_, dispatch)| &dispatch.acceptance_criteria);
        own.chain(&self.extra_criteria).cloned().collect()
    }

    fn compose_task_file(&self, update: &TaskUpdate) -> TaskFile {
        let risk = update.stories.iter().map(|(key, _)| self.story(key).risk).max();
        TaskFile {
            task_id: update.task.clone(),
            swarm_id: self.swarm,
            branch: self.assignment(&update.task).map(|one| one.branch.clone()).expect("the plan has the task"),
            status: task_status(update.phase),
            risk_level: risk.unwrap_or_default(),
            attempts: self.histories.get(&update.task).map_or(0, |history| history.attempts),
            reject_count: update.reject_count,
            stories: update
                .stories
                .iter()
                .map(|(key, status)| TaskStory {
                    subtask_id: self.subtask_id(&update.task, key),
                    story: self.plan.label(key),
                    title: self.story(key).title.clone(),
                    status: *status,
                })
                .collect(),
            progress: update.progress.as_deref().map(shorten),
            updated_at: timestamp_from_ms(update.at_ms),
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
        timestamp: id.timestamp(),
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

/// As many texts as fit into a message.
fn limit_list(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut free_bytes = MAX_LIST_BYTES;
    let fits = |text: &String| {
        free_bytes = free_bytes.saturating_sub(text.len() + 8);
        free_bytes > 0
    };
    texts.take(MAX_ENTRIES).take_while(fits).collect()
}

/// The paths of a diff, each once. A path of blanks only is quoted.
fn changed_paths(diff: &DiffSummary) -> Vec<String> {
    let shown = |file: &String| if file.trim().is_empty() { format!("{file:?}") } else { shorten(file) };
    let mut seen = std::collections::BTreeSet::new();
    limit_list(diff.files_changed.iter().map(shown).filter(|file| seen.insert(file.clone())))
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
