//! Random verdicts and decisions, and the invariants of both.

use std::collections::{BTreeMap, BTreeSet};

use super::super::amp_fixtures;
use super::super::*;
use super::SwarmSimulation;
use crate::protocol::amp::message::ReviewDecision;
use crate::swarm::amp_intent::ReviewSpec;
use crate::swarm::event::{TaskAction, TaskDecision};
use crate::swarm::machine::{AttemptPhase, HoldKind};
use crate::swarm::review_outcome::{ReviewFix, ReviewOutcome};

/// After this many decisions, the admin only aborts and approves.
const MAX_FREE_DECISIONS: u32 = 40;

/// What the checks remember of reviews and decisions.
#[derive(Default)]
pub(super) struct ObservedReviews {
    /// By task: the newest reviewed commit, while the next attempt may start from it.
    pub(super) tips: BTreeMap<AssignmentId, CommitId>,
    /// By executor's attempt: the commit that may land.
    approved_tips: BTreeMap<AttemptId, CommitId>,
    /// The same for a verdict of low confidence; `None` for a rejection.
    low_confidence_tips: BTreeMap<AttemptId, Option<CommitId>>,
    /// The newest commit under review.
    last_reviewed: BTreeMap<AssignmentId, (AttemptId, CommitId)>,
    /// The approved tasks.
    approved_tasks: BTreeSet<AssignmentId>,
}

impl SwarmSimulation {
    /// A random review outcome.
    pub(super) fn random_review_outcome(&mut self) -> ReviewOutcome {
        if self.roll_fault() {
            let causes = [Cause::ProtocolViolation, Cause::Timeout, Cause::StoppedByUser, Cause::HostError];
            return amp_fixtures::review_without_verdict(self.random.choose(&causes));
        }
        let decision = self.random.choose(&[
            ReviewDecision::Approved,
            ReviewDecision::Approved,
            ReviewDecision::ApprovedWithFix,
            ReviewDecision::Rejected,
            ReviewDecision::Rejected,
        ]);
        let confidence = self.random.choose(&[0.8, 0.95, 1.0, 0.5]);
        let issues: &[&str] = match decision {
            ReviewDecision::Rejected => &[self.random.choose(&["the sum", "no test", "the name", "Line 9: the sum"])],
            _ => &[],
        };
        let fix = (decision == ReviewDecision::ApprovedWithFix && self.random.chance(90)).then(|| ReviewFix {
            commit: self.next_commit(),
            scope_violation: self.random.chance(30).then(|| "too long".to_owned()),
        });
        ReviewOutcome { fix, ..amp_fixtures::review_with_verdict(decision, confidence, issues) }
    }

    fn random_action(&mut self) -> TaskAction {
        let answer = TaskAction::Answer { text: self.random_text() };
        let all = [
            TaskAction::Approve,
            TaskAction::Resume,
            TaskAction::Retry,
            TaskAction::Abort,
            TaskAction::Rollback,
            answer,
        ];
        self.random.choose(&all)
    }

    /// The admin decides something about some task, which may be refused.
    pub(super) fn decide_randomly(&mut self) {
        let task = assignment(1 + self.random.below(self.rig.machine.spec().assignments.len() as u64 + 1) as u32);
        let action = self.random_action();
        self.send_decision(task, action);
    }

    /// A decision whose id was applied before changes nothing.
    fn send_decision(&mut self, task: AssignmentId, action: TaskAction) {
        let again = self.decision_count > 0 && self.random.chance(10);
        self.decision_count += u32::from(!again);
        let id = if again { self.random.below(self.decision_count.into()) } else { self.decision_count.into() };
        let decision = TaskDecision { id: format!("{id}"), task, action, by: "admin".to_owned() };
        self.handle_event(Event::DecisionMade { decision });
    }

    /// The admin decides about held work, and sometimes reopens failed stories.
    pub(super) fn decide_after_end(&mut self, outcome: SwarmOutcome) {
        let tasks: Vec<AssignmentId> = self.rig.machine.spec().assignments.iter().map(|one| one.id.clone()).collect();
        let enough = self.decision_count >= MAX_FREE_DECISIONS;
        for task in tasks {
            if self.rig.machine.admin_hold(&task).is_some() {
                let ends = self.random.choose(&[TaskAction::Abort, TaskAction::Approve]);
                let action = if enough { ends } else { self.random_action() };
                self.send_decision(task, action);
            } else if outcome != SwarmOutcome::Suspended && !enough && self.random.chance(30) {
                let action = self.random.choose(&[TaskAction::Retry, TaskAction::Rollback]);
                self.send_decision(task, action);
            }
        }
    }

    /// The hold that a decision is about.
    pub(super) fn hold_kind_before(&self, event: &Event) -> Option<HoldKind> {
        let Event::DecisionMade { decision } = event else { return None };
        if !self.rig.machine.has_applied_decision(&decision.id) {
            self.rig.machine.admin_hold(&decision.task).map(|hold| hold.kind)
        } else {
            None
        }
    }

    /// Remembers an applied decision.
    pub(super) fn observe_decision(&mut self, decision: &TaskDecision, held: Option<HoldKind>) {
        let TaskDecision { task, action, .. } = decision;
        self.amp_observer.mark_covered(format!("{} {held:?}", action.as_str()));
        let reviews = &mut self.observed.reviews;
        if *action == TaskAction::Rollback {
            reviews.tips.remove(task);
        }
        if held != Some(HoldKind::Approval) || *action != TaskAction::Abort {
            reviews.approved_tasks.insert(task.clone());
        }
        let work = matches!(held, Some(HoldKind::Locked | HoldKind::LowConfidence | HoldKind::NoVerdict));
        if let Some((of, commit)) = reviews.last_reviewed.get(task).cloned().filter(|_| work) {
            let unsure = reviews.low_confidence_tips.remove(&of);
            if *action == TaskAction::Approve
                && let Some(commit) = unsure.unwrap_or(Some(commit))
            {
                reviews.approved_tips.insert(of, commit);
            }
        }
        if held.is_none() {
            for view in self.rig.machine.stories().filter(|view| !view.is_closed()) {
                let before = self.observed.closed_stories.remove(&view.key);
                assert_ne!(before, Some("landed"), "what has landed is not taken back");
            }
        }
    }

    /// Remembers an applied verdict.
    pub(super) fn observe_verdict(&mut self, id: &AttemptId, reviewed: &ReviewOutcome) {
        let review = self.rig.machine.attempt(id).and_then(|view| view.review().cloned()).expect("a reviewer's");
        let Some(verdict) = &reviewed.verdict else { return };
        let lands = match (verdict.decision, &reviewed.fix) {
            (ReviewDecision::Approved, _) => Some(review.commit),
            (ReviewDecision::ApprovedWithFix, Some(ReviewFix { commit, scope_violation: None })) => {
                Some(commit.clone())
            }
            _ => None,
        };
        if verdict.confidence < 0.8 {
            self.observed.reviews.low_confidence_tips.insert(review.reviewed_attempt, lands);
        } else if let Some(commit) = lands {
            self.observed.reviews.approved_tips.insert(review.reviewed_attempt, commit);
        }
    }

    pub(super) fn check_start_review(&mut self, id: &AttemptId, review: &ReviewSpec) {
        assert!(!self.engine_lost, "nothing is started while the engine is away");
        self.observed.occupying_slots.insert(id.clone());
        self.check_sandbox_limit();
        self.observed.started.insert(id.clone());
        assert!(!self.observed.removed.contains(id), "an attempt is not started after its removal");
        let of = self.rig.machine.attempt(&review.reviewed_attempt).expect("there");
        assert_eq!((of.phase, of.tip.as_ref()), (AttemptPhase::Reviewing, Some(&review.commit)));
        assert_eq!(of.id.assignment, id.assignment);
        assert!(
            review.stories.iter().all(|story| !self.observed.closed_stories.contains_key(story)),
            "nothing decided is reviewed"
        );
        let reviews = &mut self.observed.reviews;
        assert!(!reviews.approved_tips.contains_key(&review.reviewed_attempt), "what may land is not reviewed again");
        reviews.tips.insert(id.assignment.clone(), review.commit.clone());
        reviews.last_reviewed.insert(id.assignment.clone(), (review.reviewed_attempt.clone(), review.commit.clone()));
    }

    pub(super) fn check_sandbox_limit(&self) {
        assert!(
            self.observed.occupying_slots.len() <= self.rig.machine.spec().limits.max_sandboxes,
            "at most `max` at once"
        );
    }

    /// Only work that a verdict or the admin approved is merged.
    pub(super) fn check_tip_may_land(&self, id: &AttemptId, tip: &CommitId) {
        if self.rig.machine.spec().amp.as_ref().is_some_and(|amp| amp.review_rounds.is_some()) {
            assert_eq!(self.observed.reviews.approved_tips.get(id), Some(tip), "it lands unreviewed");
        }
    }

    /// Stories of high risk run only with an approval.
    pub(super) fn check_approved(&self, id: &AttemptId) {
        let view = self.rig.machine.attempt(id).expect("there");
        let high = |key: &StoryKey| self.rig.machine.story_spec(key).expect("there").risk == RiskLevel::High;
        let approved = self.observed.reviews.approved_tasks.contains(&id.assignment);
        assert!(approved || !view.stories.iter().any(|(story, _)| high(story)), "{id} runs unapproved");
    }

    /// All that is left waits for the admin.
    pub(super) fn check_suspended(&self, machine: &SwarmMachine) {
        assert!(machine.stories().any(|view| !view.is_closed()) && machine.stop_level().is_none());
        let held = |id: &AssignmentId| machine.admin_hold(id);
        assert!(machine.spec().assignments.iter().any(|one| held(&one.id).is_some()), "nothing is held");
        for attempt in machine.attempts().filter(|attempt| attempt.phase != AttemptPhase::Settled) {
            let kind = held(&attempt.id.assignment).map(|hold| hold.kind);
            match attempt.phase {
                AttemptPhase::Reviewing => assert!(kind.is_some(), "{attempt:?}"),
                AttemptPhase::Running => assert_eq!(kind, Some(HoldKind::Suspended), "{attempt:?}"),
                _ => panic!("it could go on: {attempt:?}"),
            }
        }
    }
}
