//! Fixtures of the tests of reviews, holds and AMP messages.

use super::*;
use crate::protocol::amp::message::{
    ChangeType, CriterionVerdict, DirectFix, Escalation, EscalationSeverity, EscalationType, Issue, IssueSeverity,
    ReviewDecision, ReviewVerdict,
};
use crate::swarm::amp_intent::{AmpIntent, ReviewSpec};
use crate::swarm::event::{TaskAction, TaskDecision};
use crate::swarm::review_outcome::{ReviewFix, ReviewOutcome};
use crate::swarm::spec::{AckTimeouts, AmpSpec, DEFAULT_HEARTBEAT_TIMEOUT, DEFAULT_REVIEW_ROUNDS};

/// When the swarms of these tests begin.
pub(super) const BEGAN_MS: u64 = 1_760_000_000_000;

/// A plan with AMP settings; `rounds` is [`AmpSpec::review_rounds`].
pub(super) fn amp_swarm_spec(assignments: &[&[(u32, &[u32])]], rounds: Option<u32>) -> SwarmSpec {
    let amp = AmpSpec {
        began_ms: BEGAN_MS,
        ack_timeouts: AckTimeouts::default(),
        heartbeat_timeout: DEFAULT_HEARTBEAT_TIMEOUT,
        review_rounds: rounds,
    };
    SwarmSpec { amp: Some(amp), ..spec(assignments) }
}

/// One assignment with one story, whose work is reviewed.
pub(super) fn single_reviewed_story() -> (MachineHarness, AttemptId) {
    let (rig, _) = MachineHarness::begun(amp_swarm_spec(&[&[(1, &[])]], Some(DEFAULT_REVIEW_ROUNDS)));
    (rig, attempt(1, 1))
}

pub(super) fn attempt_tip(id: &AttemptId) -> CommitId {
    commit(id.assignment.as_str()[7..].parse::<u32>().expect("digits") * 1000 + id.number)
}

impl MachineHarness {
    /// Runs an executor's attempt that finishes the stories.
    pub(super) fn finish_work_with_tree(&mut self, id: &AttemptId, stories: &[u32], tree: &str) -> Vec<Effect> {
        self.run_to_completion(id);
        let stories = stories.iter().map(|story| finished_story(*story)).collect();
        let mut event = result_collected(id, None, stories);
        if let Event::ResultCollected { tip, tree: tip_tree, result_ref, .. } = &mut event {
            (*tip, *tip_tree) = (Some(attempt_tip(id)), Some(tree.to_owned()));
            *result_ref = Some(format!("refs/kept/{}", id.number));
        }
        self.handle(event)
    }

    pub(super) fn finish_work(&mut self, id: &AttemptId, stories: &[u32]) -> Vec<Effect> {
        self.finish_work_with_tree(id, stories, &format!("tree of {id}"))
    }

    /// Runs a reviewer's attempt.
    pub(super) fn finish_review(&mut self, id: &AttemptId, outcome: ReviewOutcome) -> Vec<Effect> {
        self.run_to_completion(id);
        self.handle(Event::ReviewCollected { attempt: id.clone(), outcome: Box::new(outcome) })
    }

    pub(super) fn apply_decision(&mut self, number: u32, action: TaskAction) -> Vec<Effect> {
        let id = format!("decision {}", self.journal.len());
        let decision = TaskDecision { id, task: assignment(number), action, by: "admin".to_owned() };
        assert_eq!(self.machine.check_decision(&decision.task, &decision.action), Ok(()));
        let effects = self.handle(Event::DecisionMade { decision: decision.clone() });
        assert!(!effects.is_empty() && self.machine.has_applied_decision(&decision.id));
        self.assert_ignored(Event::DecisionMade { decision });
        effects
    }

    pub(super) fn hold_kind(&self, number: u32) -> Option<crate::swarm::machine::HoldKind> {
        self.machine.admin_hold(&assignment(number)).map(|hold| hold.kind)
    }
}

pub(super) fn answer_action(text: &str) -> TaskAction {
    TaskAction::Answer { text: text.to_owned() }
}

pub(super) fn issue(text: &str) -> Issue {
    Issue {
        severity: IssueSeverity::Major,
        file: "a.rs".to_owned(),
        line: Some(3),
        description: text.to_owned(),
        suggested_fix: "mend it".to_owned(),
    }
}

pub(super) fn review_with_verdict(decision: ReviewDecision, confidence: f64, issues: &[&str]) -> ReviewOutcome {
    let passed = (decision != ReviewDecision::Rejected).then_some(true);
    let result = CriterionVerdict { criterion: "it works".to_owned(), passed, evidence: "seen".to_owned() };
    let fix = DirectFix { file: "a.rs".to_owned(), change_type: ChangeType::Typo, diff_lines: 2 };
    let verdict = ReviewVerdict {
        decision,
        criteria_results: vec![result],
        issues: issues.iter().map(|text| issue(text)).collect(),
        direct_fixes: if decision == ReviewDecision::ApprovedWithFix { vec![fix] } else { Vec::new() },
        architecture_notes: None,
        confidence,
    };
    ReviewOutcome { verdict: Some(verdict), fix: None, failure: None }
}

pub(super) fn approved_review() -> ReviewOutcome {
    review_with_verdict(ReviewDecision::Approved, 0.9, &[])
}

pub(super) fn rejected_review(text: &str) -> ReviewOutcome {
    review_with_verdict(ReviewDecision::Rejected, 0.9, &[text])
}

pub(super) fn review_with_fix(number: u32, refused: Option<&str>) -> ReviewOutcome {
    let fix = ReviewFix { commit: commit(number), scope_violation: refused.map(str::to_owned) };
    ReviewOutcome { fix: Some(fix), ..review_with_verdict(ReviewDecision::ApprovedWithFix, 0.9, &[]) }
}

pub(super) fn review_without_verdict(cause: Cause) -> ReviewOutcome {
    ReviewOutcome::failed(Failure::new(cause, "nothing that is a verdict"))
}

/// The review that these effects start.
pub(super) fn started_review(effects: &[Effect]) -> Option<(AttemptId, ReviewSpec)> {
    let mut all = effects.iter().filter_map(|effect| match effect {
        Effect::StartReview { attempt, review } => Some((attempt.clone(), (**review).clone())),
        _ => None,
    });
    let first = all.next();
    assert!(all.next().is_none(), "two reviews at once: {effects:?}");
    first
}

/// The commits that these effects merge.
pub(super) fn merged_tips(effects: &[Effect]) -> Vec<CommitId> {
    let merges = effects.iter().filter_map(|effect| match effect {
        Effect::Merge { tip, .. } => Some(tip.clone()),
        _ => None,
    });
    merges.collect()
}

/// The intents, without task updates.
pub(super) fn sent_intents(effects: &[Effect]) -> Vec<AmpIntent> {
    let intents = effects.iter().filter_map(|effect| match effect {
        Effect::SendAmp(intent) if !matches!(**intent, AmpIntent::TaskUpdate(_)) => Some((**intent).clone()),
        _ => None,
    });
    intents.collect()
}

pub(super) fn escalations(effects: &[Effect]) -> Vec<Escalation> {
    let all = sent_intents(effects).into_iter().filter_map(|intent| match intent {
        AmpIntent::Escalation { escalation, .. } => Some(*escalation),
        _ => None,
    });
    all.collect()
}

pub(super) fn escalation_kinds(effects: &[Effect]) -> Vec<(EscalationType, EscalationSeverity)> {
    escalations(effects).iter().map(|one| (one.escalation_type, one.severity)).collect()
}

/// The phase in the newest task update.
pub(super) fn last_task_status(effects: &[Effect]) -> Option<&'static str> {
    let mut all = effects.iter().filter_map(|effect| match effect {
        Effect::SendAmp(intent) => match &**intent {
            AmpIntent::TaskUpdate(update) => Some(update.phase.as_str()),
            _ => None,
        },
        _ => None,
    });
    all.next_back()
}

impl MachineHarness {
    /// Advances to the next deadline and fires it.
    pub(super) fn fire_next_deadline(&mut self) -> Vec<Effect> {
        self.now = self.machine.next_deadline().expect("a deadline");
        self.handle(Event::DeadlinePassed)
    }
}
