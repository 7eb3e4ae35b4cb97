//! The review loop: finished work waits for a reviewer, and lands, goes back, or waits for the admin.
//!
//! The executor's attempt stays [`Reviewing`](AttemptPhase::Reviewing) while another attempt of the same assignment reviews
//! it. A verdict counts for that commit alone.
//!
//! | review | then |
//! |---|---|
//! | `approved` | the merge |
//! | `approved_with_fix`, confirmed by git | the merge, of the fix |
//! | `approved_with_fix`, and the fix goes too far | as `rejected` |
//! | `rejected` | back to the executor, on top of its work, with the issues; costs no retry |
//! | `rejected` for the [`review_rounds`](crate::swarm::spec::AmpSpec::review_rounds)th time | locked |
//! | the same finding for the third time, one that came back, or a tree that was rejected before | `escalation conflict`, and on |
//! | confidence below [`MIN_CONFIDENCE`] | the admin decides whether it counts |
//! | no verdict, or one that breaks a rule | once more, then the admin |
//! | the machinery failed | again after a backoff, then the admin |

use std::time::Duration;

use super::attempt::{EndReason, WorkDirFate};
use super::deadlines::AttemptTimer;
use super::diagnosis;
use super::escalation::EscalationDraft;
use super::hold::HoldKind;
use super::review_state::{RESTART_PROMPT, REWORK_PROMPT, RejectedWork, rejection_prompt};
use super::state::{Applied, SwarmMachine};
use super::view::{AttemptPhase, AttemptRole};
use crate::ids::AttemptId;
use crate::protocol::amp::message::{Issue, IssueSeverity, ReviewDecision, ReviewScope, ReviewVerdict};
use crate::swarm::amp_intent::{ReviewSpec, TaskPhase};
use crate::swarm::announcement::Announcement;
use crate::swarm::event::TaskAction;
use crate::swarm::index::{AssignmentIndex, AttemptIndex};
use crate::swarm::review_outcome::ReviewOutcome;
use crate::verdict::{Cause, CauseClass, Failure};

/// A verdict with less goes to the admin first (spec 04, "Confidence Threshold").
const MIN_CONFIDENCE: f64 = 0.8;
/// This many reviews of a commit without a verdict are enough.
const MAX_INVALID_REVIEWS: u32 = 2;

impl SwarmMachine {
    fn review_rounds(&self) -> Option<u32> {
        self.spec.amp.as_ref()?.review_rounds
    }

    /// Whether finished work is reviewed before it lands.
    pub(super) fn is_review_enabled(&self) -> bool {
        self.review_rounds().is_some()
    }

    /// The executor's work is on the host: it waits for its review.
    pub(super) fn submit_for_review(&mut self, attempt: AttemptIndex) {
        let state = &mut self.attempts[attempt];
        state.view.phase = AttemptPhase::Reviewing;
        let assignment = state.assignment;
        let review = &mut self.assignments[assignment].review;
        if review.first_base.is_none() || review.rejected_tip.as_ref() != Some(&state.view.base) {
            // The diff of a merge, or of work on top of one, is against the branch.
            review.first_base = Some(state.branch_base.clone());
        }
        (review.invalid_reviews, review.machinery_failures) = (0, 0);
        self.parked += 1;
        self.queue_review(attempt);
        self.send_task_update(assignment, TaskPhase::AwaitingReview);
    }

    pub(super) fn queue_review(&mut self, attempt: AttemptIndex) {
        // The admin's answer took it out of its wait, for which it gave its slot up.
        self.slots.insert(attempt);
        self.review_queue.insert(self.queue_entry(attempt));
    }

    /// Starts the review of this attempt's work.
    pub(super) fn start_review(&mut self, reviewed: AttemptIndex) {
        let state = &self.attempts[reviewed];
        let assignment = state.assignment;
        let messages = self.amp.task(&self.assignments[assignment].id);
        let (Some(commit), Some(dispatch), Some(result)) = (
            state.view.tip.clone(),
            messages.and_then(|messages| messages.dispatch.clone()),
            messages.and_then(|messages| messages.result.clone()),
        ) else {
            return;
        };
        let stories = state.finished_indices();
        let (keys, refs) = (self.story_keys(&stories), self.story_refs(&stories));
        let review = &mut self.assignments[assignment].review;
        review.review_count += 1;
        let round = review.review_count;
        let spec = ReviewSpec {
            reviewed_attempt: state.view.id.clone(),
            stories: keys,
            base: review.first_base.clone().unwrap_or_else(|| state.view.base.clone()),
            commit: commit.clone(),
            dispatch,
            result,
            scope: ReviewScope::Full,
            reject_count: review.reject_count,
            guidance: review.guidance.clone(),
        };
        self.parked -= 1;
        let reviewer = self.add_attempt(assignment, stories, commit, AttemptRole::Reviewer(spec));
        let attempt = self.attempts[reviewer].view.id.clone();
        self.announce(Announcement::ReviewStarted { attempt, stories: refs, round });
        self.request_start(reviewer);
    }

    pub(super) fn on_review_collected(&mut self, id: &AttemptId, outcome: &ReviewOutcome) -> Option<Applied> {
        let reviewed = self.reviewed_attempt(self.attempt_index(id)?)?;
        let reviewer = self.finish_collecting(id)?;
        self.request_removal(reviewer, WorkDirFate::Remove);
        let Some(verdict) = &outcome.verdict else {
            let default = || Failure::new(Cause::ProtocolViolation, "the reviewer gave no verdict");
            let failure = outcome.failure.clone().unwrap_or_else(default);
            let failure = diagnosis::story_failure(&self.attempts[reviewer], &failure);
            self.on_no_verdict(reviewer, &failure, true);
            return Some(Applied);
        };
        self.send_verdict(reviewer, verdict);
        self.end_review(reviewer);
        if self.apply_admin_end(reviewer, reviewed) {
            return Some(Applied);
        }
        if verdict.confidence < MIN_CONFIDENCE {
            self.announce_review_ended(reviewer, reviewed, verdict);
            let assignment = self.attempts[reviewed].assignment;
            let state = &mut self.assignments[assignment];
            state.review.low_confidence_outcome = Some(outcome.clone());
            let draft = EscalationDraft::low_confidence(&state.id, verdict, MIN_CONFIDENCE);
            self.record_reviewed_salvage(reviewed);
            self.hold_for_admin(assignment, HoldKind::LowConfidence, draft);
        } else {
            self.apply_verdict(reviewed, outcome, verdict.clone(), Some(reviewer));
        }
        Some(Applied)
    }

    fn announce_review_ended(&mut self, reviewer: AttemptIndex, reviewed: AttemptIndex, verdict: &ReviewVerdict) {
        let state = &self.attempts[reviewed];
        self.announce(Announcement::ReviewEnded {
            attempt: self.attempts[reviewer].view.id.clone(),
            stories: self.story_refs(&state.finished_indices()),
            decision: verdict.decision,
            confidence: verdict.confidence,
            issues: verdict.issues.len(),
            reject_count: self.assignments[state.assignment].review.reject_count,
        });
    }

    /// The verdict counts. `reviewer`: announce the end of its review.
    fn apply_verdict(
        &mut self,
        reviewed: AttemptIndex,
        outcome: &ReviewOutcome,
        mut verdict: ReviewVerdict,
        reviewer: Option<AttemptIndex>,
    ) {
        let refused_fix = match (&outcome.fix, verdict.decision) {
            (Some(fix), ReviewDecision::ApprovedWithFix) => fix.scope_violation.clone(),
            (None, ReviewDecision::ApprovedWithFix) => Some("there is no commit with the fix".to_owned()),
            _ => None,
        };
        let assignment = self.attempts[reviewed].assignment;
        if let Some(problem) = refused_fix {
            verdict.decision = ReviewDecision::Rejected;
            verdict.issues.push(Issue {
                severity: IssueSeverity::Major,
                file: verdict.direct_fixes.first().map(|fix| fix.file.clone()).unwrap_or_default(),
                line: None,
                description: format!("the reviewer's own fix is more than a reviewer may mend: {problem}"),
                suggested_fix: "do what the reviewer wanted to do".to_owned(),
            });
            let draft = EscalationDraft::refused_fix(&self.assignments[assignment].id, &problem);
            self.escalate(assignment, draft);
        }
        let rejected = verdict.decision == ReviewDecision::Rejected;
        self.assignments[assignment].review.reject_count += u32::from(rejected);
        if let Some(reviewer) = reviewer {
            self.announce_review_ended(reviewer, reviewed, &verdict);
        }
        if rejected {
            self.reject_work(reviewed, &verdict);
            return;
        }
        let fix = outcome.fix.as_ref().filter(|_| verdict.decision == ReviewDecision::ApprovedWithFix);
        if let Some(fix) = fix {
            let state = &mut self.attempts[reviewed];
            state.view.tip = Some(fix.commit.clone());
            if let Some(last) = state.finished_stories.last_mut() {
                last.commit = fix.commit.clone();
            }
        }
        self.approve_work(reviewed, fix.is_some());
    }

    fn approve_work(&mut self, reviewed: AttemptIndex, is_fixed: bool) {
        self.parked -= 1;
        self.slots.insert(reviewed);
        self.send_task_update(self.attempts[reviewed].assignment, TaskPhase::Landing);
        self.attempts[reviewed].is_approved = true;
        if is_fixed && self.has_checks(reviewed) && !self.lands_in_batch(reviewed) {
            // The reviewer's commit is not the one that was checked.
            self.check_story(reviewed);
        } else {
            self.queue_merge(reviewed);
        }
    }

    fn reject_work(&mut self, reviewed: AttemptIndex, verdict: &ReviewVerdict) {
        let assignment = self.attempts[reviewed].assignment;
        self.set_rejection_prompts(reviewed, verdict);
        let state = &mut self.assignments[assignment];
        let rejects = state.review.reject_count;
        let tree = self.attempts[reviewed].tree.as_ref();
        if let Some(conflict) = state.review.record_findings(&verdict.issues, tree) {
            let draft = EscalationDraft::review_conflict(&state.id, &conflict);
            self.escalate(assignment, draft);
        }
        if self.review_rounds().is_none_or(|rounds| rejects < rounds) {
            self.send_back(reviewed);
            return;
        }
        let newest = verdict.issues.first().map(|issue| issue.description.as_str()).unwrap_or_default();
        let draft = EscalationDraft::locked(&self.assignments[assignment].id, rejects, newest);
        self.hold_for_admin(assignment, HoldKind::Locked, draft);
        self.record_reviewed_salvage(reviewed);
        let failure = self.rejection_failure(reviewed);
        for story in self.attempts[reviewed].finished_indices() {
            self.stories[story].view.failure = Some(failure.clone());
        }
    }

    fn set_rejection_prompts(&mut self, reviewed: AttemptIndex, verdict: &ReviewVerdict) {
        for story in self.attempts[reviewed].finished_indices() {
            self.stories[story].previous_failure = Some(rejection_prompt(verdict));
        }
    }

    fn rejection_failure(&self, reviewed: AttemptIndex) -> Failure {
        let state = &self.attempts[reviewed];
        let summary = match self.assignments[state.assignment].review.reject_count {
            0 => "the admin sent it back".to_owned(),
            1 => "the reviewer rejected it".to_owned(),
            times => format!(
                "the reviewer rejected it, for the {times}{} time",
                ["st", "nd", "rd"].get(times as usize - 1).unwrap_or(&"th")
            ),
        };
        Failure { salvage: state.result_ref.clone(), ..Failure::new(Cause::Rejected, summary) }
    }

    /// The work goes back to the executor.
    fn send_back(&mut self, reviewed: AttemptIndex) {
        let failure = self.rejection_failure(reviewed);
        let state = &self.attempts[reviewed];
        let review = &mut self.assignments[state.assignment].review;
        review.rejected_tip = state.view.tip.clone();
        review.rejected_work = state.result_ref.clone().map(|reference| RejectedWork { attempt: reviewed, reference });
        self.requeue_stories(reviewed, &failure);
    }

    fn requeue_stories(&mut self, reviewed: AttemptIndex, failure: &Failure) {
        self.parked -= 1;
        for finished in std::mem::take(&mut self.attempts[reviewed].finished_stories) {
            self.retry_story(finished.story, failure, Duration::ZERO);
        }
        self.send_task_update(self.attempts[reviewed].assignment, TaskPhase::Rejected);
        self.settle_attempt(reviewed);
    }

    /// The reviewer's attempt is over; the work that it reviewed waits again.
    fn end_review(&mut self, reviewer: AttemptIndex) {
        self.parked += 1;
        self.settle_attempt(reviewer);
    }

    /// A review that gave no verdict is repeated, or the admin decides.
    pub(super) fn on_no_verdict(&mut self, reviewer: AttemptIndex, failure: &Failure, retryable: bool) {
        let Some(reviewed) = self.reviewed_attempt(reviewer) else { return };
        let state = &mut self.attempts[reviewer];
        state.view.error.get_or_insert_with(|| failure.evidence.summary.clone());
        let (assignment, end_reason, engine_lost) = (state.assignment, state.end_reason, state.engine_lost);
        self.end_review(reviewer);
        if self.apply_admin_end(reviewer, reviewed) {
            return;
        }
        if self.stop_level.is_some() || matches!(end_reason, Some(EndReason::SwarmStopped | EndReason::AdminRetry)) {
            self.queue_review(reviewed);
            return;
        }
        let review = &mut self.assignments[assignment].review;
        if failure.cause.class() == CauseClass::Machinery {
            review.machinery_failures += u32::from(!engine_lost);
            let failures = review.machinery_failures;
            if engine_lost || retryable && failures <= self.spec.limits.machinery_retries {
                let wait = self.backoff_duration(failures.max(1));
                self.set_timer(reviewed, AttemptTimer::ReviewRetry, wait);
                return;
            }
        } else {
            review.invalid_reviews += 1;
            if review.invalid_reviews < MAX_INVALID_REVIEWS {
                self.queue_review(reviewed);
                return;
            }
        }
        self.record_reviewed_salvage(reviewed);
        let draft = EscalationDraft::no_verdict(&self.assignments[assignment].id, failure);
        self.hold_for_admin(assignment, HoldKind::NoVerdict, draft);
    }

    /// Applies what the admin decided about the work while its reviewer was paused.
    fn apply_admin_end(&mut self, reviewer: AttemptIndex, reviewed: AttemptIndex) -> bool {
        match self.attempts[reviewer].end_reason {
            Some(EndReason::AdminAbort) => self.abort_reviewed(reviewed),
            Some(EndReason::AdminRollback) => self.roll_back_reviewed(reviewed),
            _ => return false,
        }
        true
    }

    /// A swarm that is being stopped waits for no backoff of a review.
    pub(super) fn cancel_review_backoffs(&mut self) {
        for attempt in self.find_attempts(|attempt| attempt.timer == Some(AttemptTimer::ReviewRetry)) {
            self.clear_timer(attempt);
            self.queue_review(attempt);
        }
    }

    pub(super) fn apply_decision_to_reviewed(
        &mut self,
        assignment: AssignmentIndex,
        kind: HoldKind,
        action: &TaskAction,
    ) {
        let state = &mut self.assignments[assignment];
        let waits = |attempt: &AttemptIndex| self.attempts[*attempt].view.phase == AttemptPhase::Reviewing;
        let Some(reviewed) = state.attempts.iter().copied().rev().find(waits) else { return };
        let unsure = state.review.low_confidence_outcome.take();
        let verdict = unsure.as_ref().and_then(|outcome| outcome.verdict.clone());
        match action {
            TaskAction::Approve => match (unsure, verdict) {
                (Some(outcome), Some(verdict)) => self.apply_verdict(reviewed, &outcome, verdict, None),
                _ => self.approve_work(reviewed, false),
            },
            TaskAction::Resume if matches!(kind, HoldKind::LowConfidence | HoldKind::NoVerdict) => {
                (state.review.invalid_reviews, state.review.machinery_failures) = (0, 0);
                self.queue_review(reviewed);
            }
            TaskAction::Abort => self.abort_reviewed(reviewed),
            TaskAction::Resume | TaskAction::Retry | TaskAction::Answer { .. } | TaskAction::Rollback => {
                // The findings of a verdict that does not count go with the admin's guidance.
                if let Some(verdict) = verdict {
                    self.set_rejection_prompts(reviewed, &verdict);
                }
                match action {
                    TaskAction::Rollback => self.roll_back_reviewed(reviewed),
                    _ => self.send_back(reviewed),
                }
            }
        }
    }

    /// The work does not land, and its stories begin again from the integration branch.
    fn roll_back_reviewed(&mut self, reviewed: AttemptIndex) {
        let state = &self.attempts[reviewed];
        let salvage = state.result_ref.clone();
        let failure = Failure { salvage, ..Failure::new(Cause::Rejected, "the admin put its commits aside") };
        self.assignments[state.assignment].review.discard_tip();
        self.record_reviewed_salvage(reviewed);
        for story in self.attempts[reviewed].finished_indices() {
            if let Some(prompt) = &mut self.stories[story].previous_failure {
                *prompt = prompt.replace(REWORK_PROMPT, RESTART_PROMPT);
            }
        }
        self.requeue_stories(reviewed, &failure);
    }

    /// The work does not land, and nothing of its task is retried.
    fn abort_reviewed(&mut self, reviewed: AttemptIndex) {
        self.parked -= 1;
        self.abort_attempt(reviewed, self.attempts[reviewed].result_ref.clone());
    }

    /// Records that a ref keeps the finished work, which may not land.
    pub(super) fn record_reviewed_salvage(&mut self, reviewed: AttemptIndex) {
        let state = &self.attempts[reviewed];
        if let Some(reference) = state.result_ref.clone() {
            self.record_salvage(reviewed, &state.finished_indices(), &reference);
        }
    }
}
