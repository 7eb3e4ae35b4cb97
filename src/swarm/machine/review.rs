//! The review loop: finished work waits for a reviewer, and lands, goes back, or waits for the admin.
//!
//! The executor's attempt stays where it is (`Phase::Reviewing`) while another attempt of the same assignment reviews it. A
//! verdict counts for that commit alone.
//!
//! | the review | then |
//! |---|---|
//! | `approved` | the merge |
//! | `approved_with_fix`, and git shows that it is one | the merge, of the fix |
//! | `approved_with_fix`, and it is more | as `rejected` |
//! | `rejected` | back to the executor, on top of what it did, with the issues; costs no retry |
//! | `rejected` for the [`rounds`](crate::swarm::spec::AmpSpec::rounds)th time | locked |
//! | the same finding for the third time, one that came back, a tree that was there before | `escalation conflict`, and on |
//! | less than [`SURE`] confidence | the admin decides whether it counts |
//! | no verdict, or one that breaks a rule | once more, then the admin |
//! | the machinery failed | again after a backoff, then the admin |

use super::deadline::AttemptTimer;
use super::judge::{self, Ending};
use super::sandbox::Folder;
use super::talk::Trouble;
use super::{HoldKind, Machine, Phase};
use crate::ids::{AttemptId, CommitId};
use crate::protocol::acp::message::StoryStatus;
use crate::protocol::amp::message::{
    Decision, EscalationType, Issue, IssueSeverity, ReviewScope, ReviewVerdict, Role, Severity,
};
use crate::swarm::effect::{Announcement, Effect};
use crate::swarm::event::Action;
use crate::swarm::reviewed::Reviewed;
use crate::swarm::word::Review;
use crate::verdict::{Cause, CauseClass, Failure};

/// Below this a verdict goes to the admin first (spec 04, "Confidence Threshold").
const SURE: f64 = 0.8;
/// Reviews that gave no verdict, of one commit, before the admin is asked.
const TRIES: u32 = 2;
/// The same finding so often is a conflict.
const SAME: usize = 3;

/// What the reviews of an assignment came to.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Loop {
    /// `reject_count`.
    pub(super) rejects: u32,
    /// Reviews of the newest commit that gave no verdict, and that the machinery failed.
    invalid: u32,
    machinery: u32,
    /// How many reviews there were.
    reviews: u32,
    /// What was rejected: the next attempt starts there.
    pub(super) tip: Option<CommitId>,
    /// The attempt that made it, and the ref that keeps it.
    pub(super) kept: Option<(usize, String)>,
    /// Where the first of the attempts that build upon each other started.
    origin: Option<CommitId>,
    /// What each rejection found, in few words.
    findings: Vec<Vec<String>>,
    /// The trees that were rejected.
    trees: Vec<String>,
    /// What the admin said.
    pub(super) guidance: Vec<String>,
    /// A verdict that the admin has to believe first.
    unsure: Option<Reviewed>,
}

impl Loop {
    pub(super) fn begin_anew(&mut self, from_the_branch: bool) {
        let (guidance, unsure) = (std::mem::take(&mut self.guidance), self.unsure.take());
        let kept = (!from_the_branch).then(|| (self.tip.take(), self.origin.take()));
        let (tip, origin) = kept.unwrap_or_default();
        *self = Self { tip, origin, guidance, unsure, reviews: self.reviews, ..Self::default() };
    }

    /// The next attempt starts from the integration branch.
    pub(super) fn leave_tip(&mut self) {
        self.kept = None;
        (self.tip, self.origin) = (None, None);
    }

    /// Takes a rejection's findings in; why they cannot be reconciled with earlier ones, where that is so.
    fn found(&mut self, issues: &[Issue], tree: Option<&String>) -> Option<String> {
        let mut now: Vec<String> = issues.iter().map(gist).collect();
        now.sort();
        now.dedup();
        let mut conflict = None;
        for (finding, issue) in issues.iter().map(|issue| (gist(issue), issue)) {
            let seen: Vec<bool> = self.findings.iter().map(|round| round.contains(&finding)).collect();
            let times = seen.iter().filter(|seen| **seen).count() + 1;
            if times == SAME {
                conflict = Some(format!("the same finding came {SAME} times: {}: {}", issue.file, issue.description));
            } else if seen.last() == Some(&false) && seen.contains(&true) {
                conflict = Some(format!("a finding that was mended came back: {}: {}", issue.file, issue.description));
            }
        }
        if let Some(tree) = tree {
            if self.trees.contains(tree) {
                conflict.get_or_insert_with(|| "the work is again what was rejected before".to_owned());
            }
            self.trees.push(tree.clone());
        }
        self.findings.push(now);
        conflict
    }
}

/// An issue without what changes from one telling to the next: case, punctuation.
fn gist(issue: &Issue) -> String {
    let words = issue.description.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let words: Vec<String> = words.map(str::to_lowercase).collect();
    format!("{}: {}", issue.file, words.join(" "))
}

/// How the executor is told of work to be mended, and of work that was put aside.
const MEND: &str = "The reviewer did not pass the work. It is where you begin; mend it, do not begin anew.\n";
const ANEW: &str = "The reviewer did not pass earlier work, and it was put aside. Begin anew.\n";

/// What the executor is told of a rejection.
fn told(verdict: &ReviewVerdict) -> String {
    let mut text = String::from(MEND);
    for issue in &verdict.issues {
        let severity = issue.severity.word();
        let line = issue.line.map(|line| format!(":{line}")).unwrap_or_default();
        text.push_str(&format!("- [{severity}] {}{line}: {}\n", issue.file, issue.description));
        if !issue.suggested_fix.is_empty() {
            text.push_str(&format!("  Suggested: {}\n", issue.suggested_fix));
        }
    }
    for result in verdict.criteria_results.iter().filter(|result| result.passed == Some(false)) {
        text.push_str(&format!("- not met: {}: {}\n", result.criterion, result.evidence));
    }
    judge::shorten(&text, judge::PREVIOUS)
}

impl Machine {
    /// Whether finished work is reviewed before it lands.
    pub(super) fn reviews_wanted(&self) -> bool {
        self.spec.amp.as_ref().is_some_and(|amp| amp.rounds.is_some())
    }

    /// The executor's work is on the host: it waits for its review.
    pub(super) fn want_review(&mut self, place: usize, out: &mut Vec<Effect>) {
        let assignment = self.attempts[place].assignment;
        let base = self.attempts[place].view.base.clone();
        let state = &mut self.loops[assignment];
        if state.origin.is_none() || state.tip.as_ref() != Some(&base) {
            state.origin = Some(base);
        }
        (state.invalid, state.machinery) = (0, 0);
        self.attempts[place].view.phase = Phase::Reviewing;
        self.parked += 1;
        self.review_again(place);
        self.tell_task(assignment, "awaiting_review", None, out);
    }

    fn review_again(&mut self, place: usize) {
        self.reviews.insert((self.spec.assignments[self.attempts[place].assignment].priority, place));
    }

    /// Starts the review of this attempt's work.
    pub(super) fn start_review(&mut self, of: usize, out: &mut Vec<Effect>) {
        let assignment = self.attempts[of].assignment;
        let talk = &self.talks[assignment];
        let (Some(commit), Some(dispatch), Some(result)) =
            (self.attempts[of].view.tip.clone(), talk.dispatch.clone(), talk.result.clone())
        else {
            return;
        };
        let stories: Vec<usize> = self.attempts[of].finished.iter().map(|done| done.story).collect();
        let state = &mut self.loops[assignment];
        state.reviews += 1;
        let round = state.reviews;
        let review = Review {
            of: self.attempts[of].view.id.clone(),
            stories: stories.iter().map(|story| self.stories[*story].key.clone()).collect(),
            base: state.origin.clone().unwrap_or_else(|| self.attempts[of].view.base.clone()),
            commit: commit.clone(),
            dispatch,
            result,
            scope: ReviewScope::Full,
            rejects: state.rejects,
            guidance: state.guidance.clone(),
        };
        self.parked -= 1;
        let place = self.new_attempt(assignment, stories, commit, Some(review), out);
        let view = &self.attempts[place].view;
        let stories = view.stories.iter().map(|(key, _)| key.clone()).collect();
        out.push(Effect::Announce(Announcement::ReviewStarted { attempt: view.id.clone(), stories, round }));
        out.push(self.start_effect(place));
    }

    /// The attempt whose work this one reviews.
    pub(super) fn reviewed_by(&self, place: usize) -> Option<usize> {
        self.attempts[place].view.review.as_ref().and_then(|review| self.attempt_place(&review.of))
    }

    pub(super) fn review_collected(&mut self, id: &AttemptId, reviewed: &Reviewed, out: &mut Vec<Effect>) -> bool {
        let Some(of) = self.attempt_place(id).and_then(|place| self.reviewed_by(place)) else { return false };
        let Some(place) = self.collected(id) else { return false };
        self.remove(place, Folder::Goes, out);
        let Some(verdict) = &reviewed.verdict else {
            let none = || Failure::new(Cause::ProtocolViolation, "the reviewer gave no verdict");
            let failure = reviewed.failure.clone().unwrap_or_else(none);
            let failure = judge::story(&self.attempts[place], &failure);
            self.no_verdict(place, &failure, true, out);
            return true;
        };
        self.tell_verdict(place, verdict, out);
        self.end_review(place);
        if self.ended_by_admin(place, of, out) {
            return true;
        }
        if verdict.confidence < SURE {
            let assignment = self.attempts[of].assignment;
            self.tell_verdict_taken(place, of, verdict, out);
            self.loops[assignment].unsure = Some(reviewed.clone());
            let task = self.spec.assignments[assignment].id.clone();
            let trouble = Trouble {
                what: EscalationType::Unknown,
                severity: Severity::Critical,
                triggered_by: Role::Reviewer,
                description: format!(
                    "the reviewer of {task} says {} with a confidence of {}: below {SURE} the admin decides whether it counts",
                    word(verdict.decision),
                    verdict.confidence
                ),
                status: "suspended",
                actions: vec![
                    format!("let the verdict count: longshore admin approve {task}"),
                    format!("have it reviewed again: longshore admin resume {task}"),
                    format!("send it back with your words: longshore admin answer {task} TEXT"),
                ],
                failed: None,
            };
            self.keep_reviewed(of, out);
            self.hold(assignment, HoldKind::LowConfidence, trouble, out);
            return true;
        }
        self.take_verdict(of, reviewed, Some(place), out);
        true
    }

    fn tell_verdict_taken(&self, place: usize, of: usize, verdict: &ReviewVerdict, out: &mut Vec<Effect>) {
        let finished = self.attempts[of].finished.iter().map(|done| self.stories[done.story].key.clone());
        out.push(Effect::Announce(Announcement::ReviewEnded {
            attempt: self.attempts[place].view.id.clone(),
            stories: finished.collect(),
            decision: verdict.decision,
            confidence: verdict.confidence,
            issues: verdict.issues.len(),
            rejects: self.loops[self.attempts[of].assignment].rejects,
        }));
    }

    /// The verdict counts.
    fn take_verdict(&mut self, of: usize, reviewed: &Reviewed, by: Option<usize>, out: &mut Vec<Effect>) {
        let Some(verdict) = &reviewed.verdict else { return };
        let mut verdict = verdict.clone();
        let refused = match (&reviewed.fix, verdict.decision) {
            (Some(fix), Decision::ApprovedWithFix) => fix.refused.clone(),
            (None, Decision::ApprovedWithFix) => Some("there is no commit with the fix".to_owned()),
            _ => None,
        };
        if let Some(problem) = &refused {
            verdict.decision = Decision::Rejected;
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
            self.tell_fix_refused(assignment, &problem, out);
        }
        self.loops[assignment].rejects += u32::from(verdict.decision == Decision::Rejected);
        if let Some(by) = by {
            self.tell_verdict_taken(by, of, &verdict, out);
        }
        match verdict.decision {
            Decision::Approved => self.pass(of, out),
            Decision::ApprovedWithFix => {
                if let Some(fix) = &reviewed.fix {
                    self.attempts[of].view.tip = Some(fix.commit.clone());
                    if let Some(last) = self.attempts[of].finished.last_mut() {
                        last.commit = fix.commit.clone();
                    }
                }
                self.pass(of, out);
            }
            Decision::Rejected => self.rejected(of, &verdict, out),
        }
    }

    /// A fix that is more than one is no approval: the record says why.
    fn tell_fix_refused(&mut self, assignment: usize, problem: &str, out: &mut Vec<Effect>) {
        let task = self.spec.assignments[assignment].id.clone();
        let trouble = Trouble {
            what: EscalationType::PermissionDenied,
            severity: Severity::Info,
            triggered_by: Role::Coordinator,
            description: format!(
                "the reviewer's own fix of {task} is more than a reviewer may mend, and counts as a rejection: {problem}"
            ),
            status: "rejected",
            actions: Vec::new(),
            failed: None,
        };
        self.escalate(assignment, trouble, out);
    }

    /// The work lands.
    fn pass(&mut self, of: usize, out: &mut Vec<Effect>) {
        self.parked -= 1;
        self.tell_task(self.attempts[of].assignment, "landing", None, out);
        self.queue_merge(of, out);
    }

    fn rejected(&mut self, of: usize, verdict: &ReviewVerdict, out: &mut Vec<Effect>) {
        let assignment = self.attempts[of].assignment;
        let task = self.spec.assignments[assignment].id.clone();
        let tree = self.attempts[of].tree.clone();
        let conflict = self.loops[assignment].found(&verdict.issues, tree.as_ref());
        let text = told(verdict);
        for at in 0..self.attempts[of].finished.len() {
            let story = self.attempts[of].finished[at].story;
            self.stories[story].previous = Some(text.clone());
        }
        let rejects = self.loops[assignment].rejects;
        if let Some(conflict) = conflict {
            let trouble = Trouble {
                what: EscalationType::Conflict,
                severity: Severity::Info,
                triggered_by: Role::Coordinator,
                description: format!("the executor and the reviewer of {task} go round in circles: {conflict}"),
                status: "rejected",
                actions: vec![format!("decide it once it is locked: longshore admin answer {task} TEXT")],
                failed: None,
            };
            self.escalate(assignment, trouble, out);
        }
        if rejects >= self.spec.amp.as_ref().and_then(|amp| amp.rounds).unwrap_or(u32::MAX) {
            let newest = verdict.issues.first().map(|issue| issue.description.clone()).unwrap_or_default();
            let trouble = Trouble {
                what: EscalationType::HallucinationLock,
                severity: Severity::Critical,
                triggered_by: Role::Coordinator,
                description: format!(
                    "{task} is locked: the reviewer rejected it {rejects} times, the last time for: {newest}"
                ),
                status: "locked",
                actions: vec![
                    format!("say how to do it: longshore admin answer {task} TEXT, then longshore resume"),
                    format!("begin again from the integration branch: longshore admin rollback {task}"),
                    format!("let it land as it is: longshore admin approve {task}"),
                    format!("give it up: longshore admin abort {task}"),
                ],
                failed: None,
            };
            self.hold(assignment, HoldKind::Locked, trouble, out);
            self.keep_reviewed(of, out);
            let failure = self.rejection(of);
            for at in 0..self.attempts[of].finished.len() {
                let story = self.attempts[of].finished[at].story;
                self.stories[story].failure = Some(failure.clone());
            }
            return;
        }
        self.rework(of, out);
    }

    /// What a rejection is to a story.
    fn rejection(&self, of: usize) -> Failure {
        let summary = match self.loops[self.attempts[of].assignment].rejects {
            0 => "the admin sent it back".to_owned(),
            1 => "the reviewer rejected it".to_owned(),
            times => format!(
                "the reviewer rejected it, for the {times}{} time",
                ["st", "nd", "rd"].get(times as usize - 1).unwrap_or(&"th")
            ),
        };
        Failure { salvage: self.attempts[of].kept.clone(), ..Failure::new(Cause::Rejected, summary) }
    }

    /// The work goes back to the executor.
    fn rework(&mut self, of: usize, out: &mut Vec<Effect>) {
        let assignment = self.attempts[of].assignment;
        let failure = self.rejection(of);
        self.loops[assignment].tip = self.attempts[of].view.tip.clone();
        self.loops[assignment].kept = self.attempts[of].kept.clone().map(|reference| (of, reference));
        self.back(of, &failure, out);
    }

    /// Its stories are to be done again.
    fn back(&mut self, of: usize, failure: &Failure, out: &mut Vec<Effect>) {
        self.parked -= 1;
        let assignment = self.attempts[of].assignment;
        let next = self.assignments[assignment].attempts.len() as u32 + 1;
        for done in std::mem::take(&mut self.attempts[of].finished) {
            let view = &mut self.stories[done.story];
            view.status = StoryStatus::Pending;
            view.failure = Some(failure.clone());
            let (story, failure, after) = (view.key.clone(), failure.clone(), std::time::Duration::ZERO);
            out.push(Effect::Announce(Announcement::StoryRetried { story, failure, next, after }));
        }
        self.tell_task(assignment, "rejected", None, out);
        self.settle(of);
    }

    /// The reviewer's attempt is over; the work that it reviewed waits again.
    fn end_review(&mut self, place: usize) {
        self.parked += 1;
        self.settle(place);
    }

    /// A review that gave no verdict: again, or the admin.
    pub(super) fn no_verdict(&mut self, place: usize, failure: &Failure, retryable: bool, out: &mut Vec<Effect>) {
        let Some(of) = self.reviewed_by(place) else { return };
        let assignment = self.attempts[place].assignment;
        let (stopped, lost) = (self.attempts[place].ending, self.attempts[place].engine_lost);
        self.attempts[place].view.error.get_or_insert_with(|| failure.evidence.summary.clone());
        self.end_review(place);
        if self.ended_by_admin(place, of, out) {
            return;
        }
        if self.stopping.is_some() || matches!(stopped, Some(Ending::Stop | Ending::Again)) {
            self.review_again(of);
            return;
        }
        let state = &mut self.loops[assignment];
        let again = if failure.cause.class() == CauseClass::Machinery {
            state.machinery += u32::from(!lost);
            let tries = state.machinery;
            let again = lost || retryable && tries <= self.spec.limits.machinery_retries;
            if again {
                let wait = self.backoff(tries.max(1));
                self.set_timer(of, Some((wait, AttemptTimer::ReviewAgain)));
                return;
            }
            again
        } else {
            state.invalid += 1;
            state.invalid < TRIES
        };
        if again {
            self.review_again(of);
            return;
        }
        let task = self.spec.assignments[assignment].id.clone();
        let trouble = Trouble {
            what: EscalationType::Unknown,
            severity: Severity::Critical,
            triggered_by: Role::Reviewer,
            description: format!(
                "no review of {task} gave a verdict: {} ({}): {}",
                failure.cause.word(),
                failure.cause.acp_code(),
                failure.evidence.summary
            ),
            status: "suspended",
            actions: vec![
                format!("have it reviewed again: longshore admin resume {task}"),
                format!("let it land as it is: longshore admin approve {task}"),
                format!("give it up: longshore admin abort {task}"),
            ],
            failed: None,
        };
        self.keep_reviewed(of, out);
        self.hold(assignment, HoldKind::NoVerdict, trouble, out);
    }

    /// What was decided about work while its reviewer was paused is done now that the reviewer has ended.
    fn ended_by_admin(&mut self, place: usize, of: usize, out: &mut Vec<Effect>) -> bool {
        match self.attempts[place].ending {
            Some(Ending::Aborted) => self.abort_reviewed(of, out),
            Some(Ending::PutAside) => self.put_aside(of, out),
            _ => return false,
        }
        true
    }

    /// The backoff after a review that the machinery failed is over.
    pub(super) fn backoff_of_review_over(&mut self, of: usize) {
        self.review_again(of);
    }

    /// A swarm that is being stopped waits for no backoff of a review.
    pub(super) fn stop_waiting_reviews(&mut self) {
        for place in 0..self.attempts.len() {
            if matches!(self.attempts[place].timer, Some((_, AttemptTimer::ReviewAgain))) {
                self.set_timer(place, None);
                self.review_again(place);
            }
        }
    }

    /// What the admin decided about work that was reviewed.
    pub(super) fn decide_reviewed(
        &mut self,
        assignment: usize,
        kind: HoldKind,
        action: &Action,
        out: &mut Vec<Effect>,
    ) {
        let waits = |place: &usize| self.attempts[*place].view.phase == Phase::Reviewing;
        let Some(of) = self.assignments[assignment].attempts.iter().copied().rev().find(waits) else { return };
        let unsure = self.loops[assignment].unsure.take();
        match action {
            Action::Approve => match unsure {
                Some(reviewed) => self.take_verdict(of, &reviewed, None, out),
                None => self.pass(of, out),
            },
            Action::Resume if matches!(kind, HoldKind::LowConfidence | HoldKind::NoVerdict) => {
                self.loops[assignment].invalid = 0;
                self.loops[assignment].machinery = 0;
                self.review_again(of);
            }
            Action::Resume | Action::Retry | Action::Answer { .. } => {
                self.remember_unsure(of, unsure.as_ref());
                self.rework(of, out);
            }
            Action::Rollback => {
                self.remember_unsure(of, unsure.as_ref());
                self.put_aside(of, out);
            }
            Action::Abort => self.abort_reviewed(of, out),
        }
    }

    /// The work does not land, and its stories begin again from the integration branch.
    fn put_aside(&mut self, of: usize, out: &mut Vec<Effect>) {
        let salvage = self.attempts[of].kept.clone();
        let failure = Failure { salvage, ..Failure::new(Cause::Rejected, "the admin put its commits aside") };
        self.keep_reviewed(of, out);
        self.loops[self.attempts[of].assignment].leave_tip();
        for at in 0..self.attempts[of].finished.len() {
            let view = &mut self.stories[self.attempts[of].finished[at].story];
            view.previous = view.previous.take().map(|text| text.replace(MEND, ANEW));
        }
        self.back(of, &failure, out);
    }

    /// The work does not land, and nothing of its task is tried again.
    fn abort_reviewed(&mut self, of: usize, out: &mut Vec<Effect>) {
        let salvage = self.attempts[of].kept.clone();
        let failure = Failure { salvage, ..Failure::new(Cause::AbortedByAdmin, judge::ABORTED) };
        self.keep_reviewed(of, out);
        self.parked -= 1;
        self.attempts[of].finished.clear();
        self.settle(of);
        self.give_up(self.attempts[of].assignment, &failure, out);
    }

    /// What will not land is kept, and said so.
    pub(super) fn keep_reviewed(&mut self, of: usize, out: &mut Vec<Effect>) {
        if let Some(reference) = self.attempts[of].kept.clone() {
            let stories: Vec<usize> = self.attempts[of].finished.iter().map(|done| done.story).collect();
            self.kept(of, &stories, &reference, out);
        }
    }

    /// What a verdict found that does not count goes with the admin's words.
    fn remember_unsure(&mut self, of: usize, unsure: Option<&Reviewed>) {
        let Some(verdict) = unsure.and_then(|reviewed| reviewed.verdict.as_ref()) else { return };
        for at in 0..self.attempts[of].finished.len() {
            let story = self.attempts[of].finished[at].story;
            self.stories[story].previous = Some(told(verdict));
        }
    }
}

/// The spec's word.
fn word(decision: Decision) -> &'static str {
    match decision {
        Decision::Approved => "approved",
        Decision::ApprovedWithFix => "approved_with_fix",
        Decision::Rejected => "rejected",
    }
}
