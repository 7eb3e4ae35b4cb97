//! The review loop: finished work waits for a reviewer, and lands, goes back, or waits for the admin.
//!
//! The executor's attempt stays where it is (`AttemptPhase::Reviewing`) while another attempt of the same assignment reviews it. A
//! verdict counts for that commit alone.
//!
//! | the review | then |
//! |---|---|
//! | `approved` | the merge |
//! | `approved_with_fix`, and git shows that it is one | the merge, of the fix |
//! | `approved_with_fix`, and it is more | as `rejected` |
//! | `rejected` | back to the executor, on top of what it did, with the issues; costs no retry |
//! | `rejected` for the [`review_rounds`](crate::swarm::spec::AmpSpec::review_rounds)th time | locked |
//! | the same finding for the third time, one that came back, a tree that was there before | `escalation conflict`, and on |
//! | less than [`MIN_CONFIDENCE`] confidence | the admin decides whether it counts |
//! | no verdict, or one that breaks a rule | once more, then the admin |
//! | the machinery failed | again after a backoff, then the admin |

use super::amp_state::EscalationDraft;
use super::diagnosis::{self, EndReason};
use super::sandbox::WorkDirFate;
use super::timer::AttemptTimer;
use super::{AttemptPhase, HoldKind, SwarmMachine};
use crate::ids::{AttemptId, CommitId};
use crate::protocol::acp::message::StoryStatus;
use crate::protocol::amp::message::{
    AmpRole, EscalationSeverity, EscalationType, Issue, IssueSeverity, ReviewDecision, ReviewScope, ReviewVerdict,
};
use crate::swarm::amp_intent::ReviewSpec;
use crate::swarm::effect::{Announcement, Effect};
use crate::swarm::event::TaskAction;
use crate::swarm::review_outcome::ReviewOutcome;
use crate::verdict::{Cause, CauseClass, Failure};

/// Below this a verdict goes to the admin first (spec 04, "Confidence Threshold").
const MIN_CONFIDENCE: f64 = 0.8;
/// Reviews that gave no verdict, of one commit, before the admin is asked.
const MAX_INVALID_REVIEWS: u32 = 2;
/// The same finding so often is a conflict.
const REPEATED_FINDING_LIMIT: usize = 3;

/// What the reviews of an assignment came to.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ReviewState {
    /// `reject_count`.
    pub(super) reject_count: u32,
    /// Reviews of the newest commit that gave no verdict, and that the machinery failed.
    invalid_reviews: u32,
    machinery_failures: u32,
    /// How many reviews there were.
    review_count: u32,
    /// What was rejected: the next attempt starts there.
    pub(super) rejected_tip: Option<CommitId>,
    /// The attempt that made it, and the ref that keeps it.
    pub(super) rejected_ref: Option<(usize, String)>,
    /// Where the first of the attempts that build upon each other started.
    first_base: Option<CommitId>,
    /// What each rejection found, in few words.
    findings: Vec<Vec<String>>,
    /// The trees that were rejected.
    rejected_trees: Vec<String>,
    /// What the admin said.
    pub(super) guidance: Vec<String>,
    /// A verdict that the admin has to believe first.
    low_confidence_outcome: Option<ReviewOutcome>,
}

impl ReviewState {
    pub(super) fn reset_counts(&mut self, from_the_branch: bool) {
        let (guidance, unsure) = (std::mem::take(&mut self.guidance), self.low_confidence_outcome.take());
        let kept = (!from_the_branch).then(|| (self.rejected_tip.take(), self.first_base.take()));
        let (tip, origin) = kept.unwrap_or_default();
        *self = Self {
            rejected_tip: tip,
            first_base: origin,
            guidance,
            low_confidence_outcome: unsure,
            review_count: self.review_count,
            ..Self::default()
        };
    }

    /// The next attempt starts from the integration branch.
    pub(super) fn discard_tip(&mut self) {
        self.rejected_ref = None;
        (self.rejected_tip, self.first_base) = (None, None);
    }

    /// Takes a rejection's findings in; why they cannot be reconciled with earlier ones, where that is so.
    fn record_findings(&mut self, issues: &[Issue], tree: Option<&String>) -> Option<String> {
        let mut now: Vec<String> = issues.iter().map(normalize_finding).collect();
        now.sort();
        now.dedup();
        let mut conflict = None;
        for (finding, issue) in issues.iter().map(|issue| (normalize_finding(issue), issue)) {
            let seen: Vec<bool> = self.findings.iter().map(|round| round.contains(&finding)).collect();
            let times = seen.iter().filter(|seen| **seen).count() + 1;
            if times == REPEATED_FINDING_LIMIT {
                conflict = Some(format!(
                    "the same finding came {REPEATED_FINDING_LIMIT} times: {}: {}",
                    issue.file, issue.description
                ));
            } else if seen.last() == Some(&false) && seen.contains(&true) {
                conflict = Some(format!("a finding that was mended came back: {}: {}", issue.file, issue.description));
            }
        }
        if let Some(tree) = tree {
            if self.rejected_trees.contains(tree) {
                conflict.get_or_insert_with(|| "the work is again what was rejected before".to_owned());
            }
            self.rejected_trees.push(tree.clone());
        }
        self.findings.push(now);
        conflict
    }
}

/// An issue without what changes from one telling to the next: case, punctuation.
fn normalize_finding(issue: &Issue) -> String {
    let words = issue.description.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let words: Vec<String> = words.map(str::to_lowercase).collect();
    format!("{}: {}", issue.file, words.join(" "))
}

/// How the executor is told of work to be mended, and of work that was put aside.
const REWORK_PROMPT: &str = "The reviewer did not pass the work. It is where you begin; mend it, do not begin anew.\n";
const RESTART_PROMPT: &str = "The reviewer did not pass earlier work, and it was put aside. Begin anew.\n";

/// What the executor is told of a rejection.
fn rejection_prompt(verdict: &ReviewVerdict) -> String {
    let mut text = String::from(REWORK_PROMPT);
    for issue in &verdict.issues {
        let severity = issue.severity.as_str();
        let line = issue.line.map(|line| format!(":{line}")).unwrap_or_default();
        text.push_str(&format!("- [{severity}] {}{line}: {}\n", issue.file, issue.description));
        if !issue.suggested_fix.is_empty() {
            text.push_str(&format!("  Suggested: {}\n", issue.suggested_fix));
        }
    }
    for result in verdict.criteria_results.iter().filter(|result| result.passed == Some(false)) {
        text.push_str(&format!("- not met: {}: {}\n", result.criterion, result.evidence));
    }
    diagnosis::truncate_chars(&text, diagnosis::MAX_PREVIOUS_FAILURE_CHARS)
}

impl SwarmMachine {
    /// Whether finished work is reviewed before it lands.
    pub(super) fn is_review_enabled(&self) -> bool {
        self.spec.amp.as_ref().is_some_and(|amp| amp.review_rounds.is_some())
    }

    /// The executor's work is on the host: it waits for its review.
    pub(super) fn submit_for_review(&mut self, place: usize, out: &mut Vec<Effect>) {
        let assignment = self.attempts[place].assignment;
        let base = self.attempts[place].view.base.clone();
        let state = &mut self.review_states[assignment];
        if state.first_base.is_none() || state.rejected_tip.as_ref() != Some(&base) {
            state.first_base = Some(base);
        }
        (state.invalid_reviews, state.machinery_failures) = (0, 0);
        self.attempts[place].view.phase = AttemptPhase::Reviewing;
        self.parked += 1;
        self.queue_review(place);
        self.send_task_update(assignment, "awaiting_review", None, out);
    }

    fn queue_review(&mut self, place: usize) {
        self.review_queue.insert((self.spec.assignments[self.attempts[place].assignment].priority, place));
    }

    /// Starts the review of this attempt's work.
    pub(super) fn start_review(&mut self, of: usize, out: &mut Vec<Effect>) {
        let assignment = self.attempts[of].assignment;
        let talk = &self.task_amp_states[assignment];
        let (Some(commit), Some(dispatch), Some(result)) =
            (self.attempts[of].view.tip.clone(), talk.dispatch.clone(), talk.result.clone())
        else {
            return;
        };
        let stories: Vec<usize> = self.attempts[of].finished_stories.iter().map(|done| done.story).collect();
        let state = &mut self.review_states[assignment];
        state.review_count += 1;
        let round = state.review_count;
        let review = ReviewSpec {
            reviewed_attempt: self.attempts[of].view.id.clone(),
            stories: stories.iter().map(|story| self.stories[*story].key.clone()).collect(),
            base: state.first_base.clone().unwrap_or_else(|| self.attempts[of].view.base.clone()),
            commit: commit.clone(),
            dispatch,
            result,
            scope: ReviewScope::Full,
            reject_count: state.reject_count,
            guidance: state.guidance.clone(),
        };
        self.parked -= 1;
        let place = self.add_attempt(assignment, stories, commit, Some(review), out);
        let view = &self.attempts[place].view;
        let stories = view.stories.iter().map(|(key, _)| key.clone()).collect();
        out.push(Effect::Announce(Announcement::ReviewStarted { attempt: view.id.clone(), stories, round }));
        out.push(self.start_effect(place));
    }

    /// The attempt whose work this one reviews.
    pub(super) fn reviewed_attempt(&self, place: usize) -> Option<usize> {
        self.attempts[place].view.review.as_ref().and_then(|review| self.attempt_index(&review.reviewed_attempt))
    }

    pub(super) fn on_review_collected(
        &mut self,
        id: &AttemptId,
        reviewed: &ReviewOutcome,
        out: &mut Vec<Effect>,
    ) -> bool {
        let Some(of) = self.attempt_index(id).and_then(|place| self.reviewed_attempt(place)) else { return false };
        let Some(place) = self.finish_collecting(id) else { return false };
        self.request_removal(place, WorkDirFate::Remove, out);
        let Some(verdict) = &reviewed.verdict else {
            let none = || Failure::new(Cause::ProtocolViolation, "the reviewer gave no verdict");
            let failure = reviewed.failure.clone().unwrap_or_else(none);
            let failure = diagnosis::story_failure(&self.attempts[place], &failure);
            self.on_no_verdict(place, &failure, true, out);
            return true;
        };
        self.send_verdict(place, verdict, out);
        self.end_review(place);
        if self.apply_admin_end(place, of, out) {
            return true;
        }
        if verdict.confidence < MIN_CONFIDENCE {
            let assignment = self.attempts[of].assignment;
            self.announce_review_ended(place, of, verdict, out);
            self.review_states[assignment].low_confidence_outcome = Some(reviewed.clone());
            let task = self.spec.assignments[assignment].id.clone();
            let trouble = EscalationDraft {
                escalation_type: EscalationType::Unknown,
                severity: EscalationSeverity::Critical,
                triggered_by: AmpRole::Reviewer,
                description: format!(
                    "the reviewer of {task} says {} with a confidence of {}: below {MIN_CONFIDENCE} the admin decides whether it counts",
                    decision_name(verdict.decision),
                    verdict.confidence
                ),
                task_status: "suspended",
                suggested_actions: vec![
                    format!("let the verdict count: longshore admin approve {task}"),
                    format!("have it reviewed again: longshore admin resume {task}"),
                    format!("send it back with your words: longshore admin answer {task} TEXT"),
                ],
                failed_stories: None,
            };
            self.record_reviewed_salvage(of, out);
            self.hold_for_admin(assignment, HoldKind::LowConfidence, trouble, out);
            return true;
        }
        self.apply_verdict(of, reviewed, Some(place), out);
        true
    }

    fn announce_review_ended(&self, place: usize, of: usize, verdict: &ReviewVerdict, out: &mut Vec<Effect>) {
        let finished = self.attempts[of].finished_stories.iter().map(|done| self.stories[done.story].key.clone());
        out.push(Effect::Announce(Announcement::ReviewEnded {
            attempt: self.attempts[place].view.id.clone(),
            stories: finished.collect(),
            decision: verdict.decision,
            confidence: verdict.confidence,
            issues: verdict.issues.len(),
            reject_count: self.review_states[self.attempts[of].assignment].reject_count,
        }));
    }

    /// The verdict counts.
    fn apply_verdict(&mut self, of: usize, reviewed: &ReviewOutcome, by: Option<usize>, out: &mut Vec<Effect>) {
        let Some(verdict) = &reviewed.verdict else { return };
        let mut verdict = verdict.clone();
        let refused = match (&reviewed.fix, verdict.decision) {
            (Some(fix), ReviewDecision::ApprovedWithFix) => fix.scope_violation.clone(),
            (None, ReviewDecision::ApprovedWithFix) => Some("there is no commit with the fix".to_owned()),
            _ => None,
        };
        if let Some(problem) = &refused {
            verdict.decision = ReviewDecision::Rejected;
            verdict.issues.push(Issue {
                severity: IssueSeverity::Major,
                file: verdict.direct_fixes.first().map(|fix| fix.file.clone()).unwrap_or_default(),
                line: None,
                description: format!("the reviewer's own fix is more than a reviewer may mend: {problem}"),
                suggested_fix: "do what the reviewer wanted to do".to_owned(),
            });
        }
        let assignment = self.attempts[of].assignment;
        if let Some(problem) = refused {
            self.escalate_refused_fix(assignment, &problem, out);
        }
        self.review_states[assignment].reject_count += u32::from(verdict.decision == ReviewDecision::Rejected);
        if let Some(by) = by {
            self.announce_review_ended(by, of, &verdict, out);
        }
        match verdict.decision {
            ReviewDecision::Approved => self.approve_work(of, out),
            ReviewDecision::ApprovedWithFix => {
                if let Some(fix) = &reviewed.fix {
                    self.attempts[of].view.tip = Some(fix.commit.clone());
                    if let Some(last) = self.attempts[of].finished_stories.last_mut() {
                        last.commit = fix.commit.clone();
                    }
                }
                self.approve_work(of, out);
            }
            ReviewDecision::Rejected => self.reject_work(of, &verdict, out),
        }
    }

    /// A fix that is more than one is no approval: the record says why.
    fn escalate_refused_fix(&mut self, assignment: usize, problem: &str, out: &mut Vec<Effect>) {
        let task = self.spec.assignments[assignment].id.clone();
        let trouble = EscalationDraft {
            escalation_type: EscalationType::PermissionDenied,
            severity: EscalationSeverity::Info,
            triggered_by: AmpRole::Coordinator,
            description: format!(
                "the reviewer's own fix of {task} is more than a reviewer may mend, and counts as a rejection: {problem}"
            ),
            task_status: "rejected",
            suggested_actions: Vec::new(),
            failed_stories: None,
        };
        self.escalate(assignment, trouble, out);
    }

    /// The work lands.
    fn approve_work(&mut self, of: usize, out: &mut Vec<Effect>) {
        self.parked -= 1;
        self.send_task_update(self.attempts[of].assignment, "landing", None, out);
        self.queue_merge(of, out);
    }

    fn reject_work(&mut self, of: usize, verdict: &ReviewVerdict, out: &mut Vec<Effect>) {
        let assignment = self.attempts[of].assignment;
        let task = self.spec.assignments[assignment].id.clone();
        let tree = self.attempts[of].tree.clone();
        let conflict = self.review_states[assignment].record_findings(&verdict.issues, tree.as_ref());
        let text = rejection_prompt(verdict);
        for at in 0..self.attempts[of].finished_stories.len() {
            let story = self.attempts[of].finished_stories[at].story;
            self.stories[story].previous_failure = Some(text.clone());
        }
        let rejects = self.review_states[assignment].reject_count;
        if let Some(conflict) = conflict {
            let trouble = EscalationDraft {
                escalation_type: EscalationType::Conflict,
                severity: EscalationSeverity::Info,
                triggered_by: AmpRole::Coordinator,
                description: format!("the executor and the reviewer of {task} go round in circles: {conflict}"),
                task_status: "rejected",
                suggested_actions: vec![format!("decide it once it is locked: longshore admin answer {task} TEXT")],
                failed_stories: None,
            };
            self.escalate(assignment, trouble, out);
        }
        if rejects >= self.spec.amp.as_ref().and_then(|amp| amp.review_rounds).unwrap_or(u32::MAX) {
            let newest = verdict.issues.first().map(|issue| issue.description.clone()).unwrap_or_default();
            let trouble = EscalationDraft {
                escalation_type: EscalationType::HallucinationLock,
                severity: EscalationSeverity::Critical,
                triggered_by: AmpRole::Coordinator,
                description: format!(
                    "{task} is locked: the reviewer rejected it {rejects} times, the last time for: {newest}"
                ),
                task_status: "locked",
                suggested_actions: vec![
                    format!("say how to do it: longshore admin answer {task} TEXT, then longshore resume"),
                    format!("begin again from the integration branch: longshore admin rollback {task}"),
                    format!("let it land as it is: longshore admin approve {task}"),
                    format!("give it up: longshore admin abort {task}"),
                ],
                failed_stories: None,
            };
            self.hold_for_admin(assignment, HoldKind::Locked, trouble, out);
            self.record_reviewed_salvage(of, out);
            let failure = self.rejection_failure(of);
            for at in 0..self.attempts[of].finished_stories.len() {
                let story = self.attempts[of].finished_stories[at].story;
                self.stories[story].failure = Some(failure.clone());
            }
            return;
        }
        self.send_back(of, out);
    }

    /// What a rejection is to a story.
    fn rejection_failure(&self, of: usize) -> Failure {
        let summary = match self.review_states[self.attempts[of].assignment].reject_count {
            0 => "the admin sent it back".to_owned(),
            1 => "the reviewer rejected it".to_owned(),
            times => format!(
                "the reviewer rejected it, for the {times}{} time",
                ["st", "nd", "rd"].get(times as usize - 1).unwrap_or(&"th")
            ),
        };
        Failure { salvage: self.attempts[of].result_ref.clone(), ..Failure::new(Cause::Rejected, summary) }
    }

    /// The work goes back to the executor.
    fn send_back(&mut self, of: usize, out: &mut Vec<Effect>) {
        let assignment = self.attempts[of].assignment;
        let failure = self.rejection_failure(of);
        self.review_states[assignment].rejected_tip = self.attempts[of].view.tip.clone();
        self.review_states[assignment].rejected_ref =
            self.attempts[of].result_ref.clone().map(|reference| (of, reference));
        self.requeue_stories(of, &failure, out);
    }

    /// Its stories are to be done again.
    fn requeue_stories(&mut self, of: usize, failure: &Failure, out: &mut Vec<Effect>) {
        self.parked -= 1;
        let assignment = self.attempts[of].assignment;
        let next = self.assignments[assignment].attempts.len() as u32 + 1;
        for done in std::mem::take(&mut self.attempts[of].finished_stories) {
            let view = &mut self.stories[done.story];
            view.status = StoryStatus::Pending;
            view.failure = Some(failure.clone());
            let (story, failure, after) = (view.key.clone(), failure.clone(), std::time::Duration::ZERO);
            out.push(Effect::Announce(Announcement::StoryRetried { story, failure, next_attempt: next, delay: after }));
        }
        self.send_task_update(assignment, "rejected", None, out);
        self.settle_attempt(of);
    }

    /// The reviewer's attempt is over; the work that it reviewed waits again.
    fn end_review(&mut self, place: usize) {
        self.parked += 1;
        self.settle_attempt(place);
    }

    /// A review that gave no verdict: again, or the admin.
    pub(super) fn on_no_verdict(&mut self, place: usize, failure: &Failure, retryable: bool, out: &mut Vec<Effect>) {
        let Some(of) = self.reviewed_attempt(place) else { return };
        let assignment = self.attempts[place].assignment;
        let (stopped, lost) = (self.attempts[place].end_reason, self.attempts[place].engine_lost);
        self.attempts[place].view.error.get_or_insert_with(|| failure.evidence.summary.clone());
        self.end_review(place);
        if self.apply_admin_end(place, of, out) {
            return;
        }
        if self.stop_level.is_some() || matches!(stopped, Some(EndReason::SwarmStopped | EndReason::AdminRetry)) {
            self.queue_review(of);
            return;
        }
        let state = &mut self.review_states[assignment];
        let again = if failure.cause.class() == CauseClass::Machinery {
            state.machinery_failures += u32::from(!lost);
            let tries = state.machinery_failures;
            let again = lost || retryable && tries <= self.spec.limits.machinery_retries;
            if again {
                let wait = self.backoff_duration(tries.max(1));
                self.set_timer(of, Some((wait, AttemptTimer::ReviewRetry)));
                return;
            }
            again
        } else {
            state.invalid_reviews += 1;
            state.invalid_reviews < MAX_INVALID_REVIEWS
        };
        if again {
            self.queue_review(of);
            return;
        }
        let task = self.spec.assignments[assignment].id.clone();
        let trouble = EscalationDraft {
            escalation_type: EscalationType::Unknown,
            severity: EscalationSeverity::Critical,
            triggered_by: AmpRole::Reviewer,
            description: format!(
                "no review of {task} gave a verdict: {} ({}): {}",
                failure.cause.as_str(),
                failure.cause.acp_code(),
                failure.evidence.summary
            ),
            task_status: "suspended",
            suggested_actions: vec![
                format!("have it reviewed again: longshore admin resume {task}"),
                format!("let it land as it is: longshore admin approve {task}"),
                format!("give it up: longshore admin abort {task}"),
            ],
            failed_stories: None,
        };
        self.record_reviewed_salvage(of, out);
        self.hold_for_admin(assignment, HoldKind::NoVerdict, trouble, out);
    }

    /// What was decided about work while its reviewer was paused is done now that the reviewer has ended.
    fn apply_admin_end(&mut self, place: usize, of: usize, out: &mut Vec<Effect>) -> bool {
        match self.attempts[place].end_reason {
            Some(EndReason::AdminAbort) => self.abort_reviewed(of, out),
            Some(EndReason::AdminRollback) => self.roll_back_reviewed(of, out),
            _ => return false,
        }
        true
    }

    /// The backoff after a review that the machinery failed is over.
    pub(super) fn retry_review(&mut self, of: usize) {
        self.queue_review(of);
    }

    /// A swarm that is being stopped waits for no backoff of a review.
    pub(super) fn cancel_review_backoffs(&mut self) {
        for place in 0..self.attempts.len() {
            if matches!(self.attempts[place].timer, Some((_, AttemptTimer::ReviewRetry))) {
                self.set_timer(place, None);
                self.queue_review(place);
            }
        }
    }

    /// What the admin decided about work that was reviewed.
    pub(super) fn apply_decision_to_reviewed(
        &mut self,
        assignment: usize,
        kind: HoldKind,
        action: &TaskAction,
        out: &mut Vec<Effect>,
    ) {
        let waits = |place: &usize| self.attempts[*place].view.phase == AttemptPhase::Reviewing;
        let Some(of) = self.assignments[assignment].attempts.iter().copied().rev().find(waits) else { return };
        let unsure = self.review_states[assignment].low_confidence_outcome.take();
        match action {
            TaskAction::Approve => match unsure {
                Some(reviewed) => self.apply_verdict(of, &reviewed, None, out),
                None => self.approve_work(of, out),
            },
            TaskAction::Resume if matches!(kind, HoldKind::LowConfidence | HoldKind::NoVerdict) => {
                self.review_states[assignment].invalid_reviews = 0;
                self.review_states[assignment].machinery_failures = 0;
                self.queue_review(of);
            }
            TaskAction::Resume | TaskAction::Retry | TaskAction::Answer { .. } => {
                self.record_low_confidence_findings(of, unsure.as_ref());
                self.send_back(of, out);
            }
            TaskAction::Rollback => {
                self.record_low_confidence_findings(of, unsure.as_ref());
                self.roll_back_reviewed(of, out);
            }
            TaskAction::Abort => self.abort_reviewed(of, out),
        }
    }

    /// The work does not land, and its stories begin again from the integration branch.
    fn roll_back_reviewed(&mut self, of: usize, out: &mut Vec<Effect>) {
        let salvage = self.attempts[of].result_ref.clone();
        let failure = Failure { salvage, ..Failure::new(Cause::Rejected, "the admin put its commits aside") };
        self.record_reviewed_salvage(of, out);
        self.review_states[self.attempts[of].assignment].discard_tip();
        for at in 0..self.attempts[of].finished_stories.len() {
            let view = &mut self.stories[self.attempts[of].finished_stories[at].story];
            view.previous_failure =
                view.previous_failure.take().map(|text| text.replace(REWORK_PROMPT, RESTART_PROMPT));
        }
        self.requeue_stories(of, &failure, out);
    }

    /// The work does not land, and nothing of its task is tried again.
    fn abort_reviewed(&mut self, of: usize, out: &mut Vec<Effect>) {
        let salvage = self.attempts[of].result_ref.clone();
        let failure = Failure { salvage, ..Failure::new(Cause::AbortedByAdmin, diagnosis::ADMIN_ABORT_SUMMARY) };
        self.record_reviewed_salvage(of, out);
        self.parked -= 1;
        self.attempts[of].finished_stories.clear();
        self.settle_attempt(of);
        self.abort_assignment(self.attempts[of].assignment, &failure, out);
    }

    /// What will not land is kept, and said so.
    pub(super) fn record_reviewed_salvage(&mut self, of: usize, out: &mut Vec<Effect>) {
        if let Some(reference) = self.attempts[of].result_ref.clone() {
            let stories: Vec<usize> = self.attempts[of].finished_stories.iter().map(|done| done.story).collect();
            self.record_salvage(of, &stories, &reference, out);
        }
    }

    /// What a verdict found that does not count goes with the admin's words.
    fn record_low_confidence_findings(&mut self, of: usize, unsure: Option<&ReviewOutcome>) {
        let Some(verdict) = unsure.and_then(|reviewed| reviewed.verdict.as_ref()) else { return };
        for at in 0..self.attempts[of].finished_stories.len() {
            let story = self.attempts[of].finished_stories[at].story;
            self.stories[story].previous_failure = Some(rejection_prompt(verdict));
        }
    }
}

/// The spec's word.
fn decision_name(decision: ReviewDecision) -> &'static str {
    match decision {
        ReviewDecision::Approved => "approved",
        ReviewDecision::ApprovedWithFix => "approved_with_fix",
        ReviewDecision::Rejected => "rejected",
    }
}
