//! Reviewers that say anything, an admin who decides anything, and what must hold of both.

use std::collections::{BTreeMap, BTreeSet};

use super::super::amp;
use super::super::*;
use super::World;
use crate::protocol::amp::message::Decision;
use crate::swarm::event::{Action, Decision as Decided};
use crate::swarm::machine::{HoldKind, Phase};
use crate::swarm::reviewed::{Fix, Reviewed};
use crate::swarm::word::Review;

/// The admin decides no more than this before it only aborts and approves.
const DECISIONS: u32 = 40;

/// What the checks remember of reviews and decisions.
#[derive(Default)]
pub(super) struct Reviews {
    /// By task: the newest commit that was under review, while work may go on from it.
    pub(super) tips: BTreeMap<AssignmentId, CommitId>,
    /// By executor's attempt: the commit that may land.
    may_land: BTreeMap<AttemptId, CommitId>,
    /// The same of a verdict that nobody believed yet; none for a rejection.
    unsure: BTreeMap<AttemptId, Option<CommitId>>,
    /// What was under review last.
    newest: BTreeMap<AssignmentId, (AttemptId, CommitId)>,
    /// The tasks that the admin let run.
    approved: BTreeSet<AssignmentId>,
}

impl World {
    /// What a reviewer comes to.
    pub(super) fn reviewed(&mut self) -> Reviewed {
        if self.bad() {
            let causes = [Cause::ProtocolViolation, Cause::Timeout, Cause::StoppedByUser, Cause::HostError];
            return amp::no_verdict(self.random.pick(&causes));
        }
        let decision = self.random.pick(&[
            Decision::Approved,
            Decision::Approved,
            Decision::ApprovedWithFix,
            Decision::Rejected,
            Decision::Rejected,
        ]);
        let confidence = self.random.pick(&[0.8, 0.95, 1.0, 0.5]);
        let issues: &[&str] = match decision {
            Decision::Rejected => &[self.random.pick(&["the sum", "no test", "the name", "Line 9: the sum"])],
            _ => &[],
        };
        let fix = (decision == Decision::ApprovedWithFix && self.random.chance(90))
            .then(|| Fix { commit: self.commit(), refused: self.random.chance(30).then(|| "too long".to_owned()) });
        Reviewed { fix, ..amp::verdict(decision, confidence, issues) }
    }

    fn action(&mut self) -> Action {
        let answer = Action::Answer { text: self.text() };
        let all = [Action::Approve, Action::Resume, Action::Retry, Action::Abort, Action::Rollback, answer];
        self.random.pick(&all)
    }

    /// The admin decides something about some task, which may be nonsense.
    pub(super) fn decide_anything(&mut self) {
        let task = assignment(1 + self.random.below(self.rig.machine.spec().assignments.len() as u64 + 1) as u32);
        let action = self.action();
        self.decide(task, action);
    }

    /// An id that was used before is one that was taken in before: it counts for nothing.
    fn decide(&mut self, task: AssignmentId, action: Action) {
        let again = self.decisions > 0 && self.random.chance(10);
        self.decisions += u32::from(!again);
        let id = if again { self.random.below(self.decisions.into()) } else { self.decisions.into() };
        let decision = Decided { id: format!("{id}"), task, action, by: "admin".to_owned() };
        self.give(Event::Decided { decision });
    }

    /// What is held is decided; now and then, what failed is taken back.
    pub(super) fn decide_at_the_end(&mut self, outcome: Outcome) {
        let tasks: Vec<AssignmentId> = self.rig.machine.spec().assignments.iter().map(|one| one.id.clone()).collect();
        let enough = self.decisions >= DECISIONS;
        for task in tasks {
            if self.rig.machine.hold_of(&task).is_some() {
                let ends = self.random.pick(&[Action::Abort, Action::Approve]);
                let action = if enough { ends } else { self.action() };
                self.decide(task, action);
            } else if outcome != Outcome::Suspended && !enough && self.random.chance(30) {
                let action = self.random.pick(&[Action::Retry, Action::Rollback]);
                self.decide(task, action);
            }
        }
    }

    /// What waits for the admin, where an event is a decision about it.
    pub(super) fn held_before(&self, event: &Event) -> Option<HoldKind> {
        let Event::Decided { decision } = event else { return None };
        if !self.rig.machine.knows(&decision.id) {
            self.rig.machine.hold_of(&decision.task).map(|hold| hold.kind)
        } else {
            None
        }
    }

    /// A decision was taken in.
    pub(super) fn decided(&mut self, decision: &Decided, held: Option<HoldKind>) {
        let Decided { task, action, .. } = decision;
        self.said.meet(format!("{} {held:?}", action.word()));
        let reviews = &mut self.seen.reviews;
        if *action == Action::Rollback {
            reviews.tips.remove(task);
        }
        if held != Some(HoldKind::Approval) || *action != Action::Abort {
            reviews.approved.insert(task.clone());
        }
        let work = matches!(held, Some(HoldKind::Locked | HoldKind::LowConfidence | HoldKind::NoVerdict));
        if let Some((of, commit)) = reviews.newest.get(task).cloned().filter(|_| work) {
            let unsure = reviews.unsure.remove(&of);
            if *action == Action::Approve
                && let Some(commit) = unsure.unwrap_or(Some(commit))
            {
                reviews.may_land.insert(of, commit);
            }
        }
        if held.is_none() {
            for view in self.rig.machine.stories().filter(|view| !view.decided()) {
                let before = self.seen.decided.remove(&view.key);
                assert_ne!(before, Some("landed"), "what has landed is not taken back");
            }
        }
    }

    /// A verdict was taken in.
    pub(super) fn follow_verdict(&mut self, id: &AttemptId, reviewed: &Reviewed) {
        let review = self.rig.machine.attempt(id).and_then(|view| view.review.clone()).expect("a reviewer's");
        let Some(verdict) = &reviewed.verdict else { return };
        let lands = match (verdict.decision, &reviewed.fix) {
            (Decision::Approved, _) => Some(review.commit),
            (Decision::ApprovedWithFix, Some(Fix { commit, refused: None })) => Some(commit.clone()),
            _ => None,
        };
        if verdict.confidence < 0.8 {
            self.seen.reviews.unsure.insert(review.of, lands);
        } else if let Some(commit) = lands {
            self.seen.reviews.may_land.insert(review.of, commit);
        }
    }

    pub(super) fn check_start_review(&mut self, id: &AttemptId, review: &Review) {
        assert!(!self.away, "nothing is started while the engine is away");
        self.seen.live.insert(id.clone());
        self.check_places();
        self.seen.started.insert(id.clone());
        assert!(!self.seen.removed.contains(id), "an attempt is not started after its removal");
        let of = self.rig.machine.attempt(&review.of).expect("there");
        assert_eq!((of.phase, of.tip.as_ref()), (Phase::Reviewing, Some(&review.commit)));
        assert_eq!(of.id.assignment, id.assignment);
        assert!(
            review.stories.iter().all(|story| !self.seen.decided.contains_key(story)),
            "nothing decided is reviewed"
        );
        let reviews = &mut self.seen.reviews;
        assert!(!reviews.may_land.contains_key(&review.of), "what may land is not reviewed again");
        reviews.tips.insert(id.assignment.clone(), review.commit.clone());
        reviews.newest.insert(id.assignment.clone(), (review.of.clone(), review.commit.clone()));
    }

    pub(super) fn check_places(&self) {
        assert!(self.seen.live.len() <= self.rig.machine.spec().limits.max, "at most `max` at once");
    }

    /// Only what a verdict or the admin let land is merged.
    pub(super) fn check_lands(&self, id: &AttemptId, tip: &CommitId) {
        if self.rig.machine.spec().amp.as_ref().is_some_and(|amp| amp.rounds.is_some()) {
            assert_eq!(self.seen.reviews.may_land.get(id), Some(tip), "it lands unreviewed");
        }
    }

    /// High risk runs approved, or not at all.
    pub(super) fn check_approved(&self, id: &AttemptId) {
        let view = self.rig.machine.attempt(id).expect("there");
        let high = |key: &StoryKey| self.rig.machine.story_spec(key).expect("there").risk == RiskLevel::High;
        let approved = self.seen.reviews.approved.contains(&id.assignment);
        assert!(approved || !view.stories.iter().any(|(story, _)| high(story)), "{id} runs unapproved");
    }

    /// Nothing can go on but what the admin decides.
    pub(super) fn check_suspended(&self, machine: &Machine) {
        assert!(machine.stories().any(|view| !view.decided()) && machine.stopping().is_none());
        let held = |id: &AssignmentId| machine.hold_of(id);
        assert!(machine.spec().assignments.iter().any(|one| held(&one.id).is_some()), "nothing is held");
        for attempt in machine.attempts().filter(|attempt| attempt.phase != Phase::Settled) {
            let kind = held(&attempt.id.assignment).map(|hold| hold.kind);
            match attempt.phase {
                Phase::Reviewing => assert!(kind.is_some(), "{attempt:?}"),
                Phase::Running => assert_eq!(kind, Some(HoldKind::Suspended), "{attempt:?}"),
                _ => panic!("it could go on: {attempt:?}"),
            }
        }
    }
}
