//! What the tests of reviews, of holds and of what is said share.

use super::*;
use crate::protocol::amp::message::{
    ChangeType, CriterionVerdict, Decision, DirectFix, Escalation, EscalationType, Issue, IssueSeverity, ReviewVerdict,
    Severity,
};
use crate::swarm::event::{Action, Decision as Decided};
use crate::swarm::reviewed::{Fix, Reviewed};
use crate::swarm::spec::{AckTimeouts, AmpSpec, HEARTBEAT, ROUNDS};
use crate::swarm::word::{Review, Word};

/// When the swarms of these tests began.
pub(super) const BEGAN: u64 = 1_760_000_000_000;

/// A plan that speaks AMP; `rounds` as in [`AmpSpec`].
pub(super) fn speaking(assignments: &[&[(u32, &[u32])]], rounds: Option<u32>) -> SwarmSpec {
    let amp = AmpSpec { began_ms: BEGAN, acks: AckTimeouts::default(), heartbeat: HEARTBEAT, rounds };
    SwarmSpec { amp: Some(amp), ..spec(assignments) }
}

/// One assignment with one story, whose work is reviewed.
pub(super) fn one() -> (Rig, AttemptId) {
    let (rig, _) = Rig::began(speaking(&[&[(1, &[])]], Some(ROUNDS)));
    (rig, attempt(1, 1))
}

pub(super) fn tip(id: &AttemptId) -> CommitId {
    commit(id.assignment.as_str()[7..].parse::<u32>().expect("digits") * 1000 + id.number)
}

impl Rig {
    /// An executor's whole life: these stories are finished, and the tree is this one.
    pub(super) fn work_as(&mut self, id: &AttemptId, stories: &[u32], tree: &str) -> Vec<Effect> {
        self.complete(id);
        self.give(Event::ResultCollected {
            attempt: id.clone(),
            tip: Some(tip(id)),
            stories: stories.iter().map(|story| finished(*story)).collect(),
            rest: None,
            diffs: Vec::new(),
            tree: Some(tree.to_owned()),
            kept: Some(format!("refs/kept/{}", id.number)),
        })
    }

    pub(super) fn work(&mut self, id: &AttemptId, stories: &[u32]) -> Vec<Effect> {
        self.work_as(id, stories, &format!("tree of {id}"))
    }

    /// A reviewer's whole life.
    pub(super) fn review(&mut self, id: &AttemptId, reviewed: Reviewed) -> Vec<Effect> {
        self.complete(id);
        self.give(Event::ReviewCollected { attempt: id.clone(), reviewed: Box::new(reviewed) })
    }

    pub(super) fn decide(&mut self, number: u32, action: Action) -> Vec<Effect> {
        let id = format!("decision {}", self.journal.len());
        let decision = Decided { id, task: assignment(number), action, by: "admin".to_owned() };
        assert_eq!(self.machine.can_decide(&decision.task, &decision.action), Ok(()));
        let effects = self.give(Event::Decided { decision: decision.clone() });
        assert!(!effects.is_empty() && self.machine.knows(&decision.id));
        self.ignores(Event::Decided { decision });
        effects
    }

    pub(super) fn held(&self, number: u32) -> Option<crate::swarm::machine::HoldKind> {
        self.machine.hold_of(&assignment(number)).map(|hold| hold.kind)
    }
}

pub(super) fn answer(text: &str) -> Action {
    Action::Answer { text: text.to_owned() }
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

pub(super) fn verdict(decision: Decision, confidence: f64, issues: &[&str]) -> Reviewed {
    let passed = (decision != Decision::Rejected).then_some(true);
    let result = CriterionVerdict { criterion: "it works".to_owned(), passed, evidence: "seen".to_owned() };
    let fix = DirectFix { file: "a.rs".to_owned(), change_type: ChangeType::Typo, diff_lines: 2 };
    let verdict = ReviewVerdict {
        decision,
        criteria_results: vec![result],
        issues: issues.iter().map(|text| issue(text)).collect(),
        direct_fixes: if decision == Decision::ApprovedWithFix { vec![fix] } else { Vec::new() },
        architecture_notes: None,
        confidence,
    };
    Reviewed { verdict: Some(verdict), fix: None, failure: None }
}

pub(super) fn approved() -> Reviewed {
    verdict(Decision::Approved, 0.9, &[])
}

pub(super) fn rejected(text: &str) -> Reviewed {
    verdict(Decision::Rejected, 0.9, &[text])
}

pub(super) fn mended(number: u32, refused: Option<&str>) -> Reviewed {
    let fix = Fix { commit: commit(number), refused: refused.map(str::to_owned) };
    Reviewed { fix: Some(fix), ..verdict(Decision::ApprovedWithFix, 0.9, &[]) }
}

pub(super) fn no_verdict(cause: Cause) -> Reviewed {
    Reviewed::failed(Failure::new(cause, "nothing that is a verdict"))
}

/// The review that is started by these effects.
pub(super) fn reviewing(effects: &[Effect]) -> Option<(AttemptId, Review)> {
    let mut all = effects.iter().filter_map(|effect| match effect {
        Effect::StartReview { attempt, review } => Some((attempt.clone(), (**review).clone())),
        _ => None,
    });
    let first = all.next();
    assert!(all.next().is_none(), "two reviews at once: {effects:?}");
    first
}

/// The commits that these effects merge.
pub(super) fn merged(effects: &[Effect]) -> Vec<CommitId> {
    let merges = effects.iter().filter_map(|effect| match effect {
        Effect::Merge { tip, .. } => Some(tip.clone()),
        _ => None,
    });
    merges.collect()
}

/// What is said but for the pictures of the tasks.
pub(super) fn words(effects: &[Effect]) -> Vec<Word> {
    let words = effects.iter().filter_map(|effect| match effect {
        Effect::Tell(word) if !matches!(**word, Word::Task(_)) => Some((**word).clone()),
        _ => None,
    });
    words.collect()
}

pub(super) fn escalations(effects: &[Effect]) -> Vec<Escalation> {
    let all = words(effects).into_iter().filter_map(|word| match word {
        Word::Escalation { escalation, .. } => Some(*escalation),
        _ => None,
    });
    all.collect()
}

pub(super) fn kinds(effects: &[Effect]) -> Vec<(EscalationType, Severity)> {
    escalations(effects).iter().map(|one| (one.escalation_type, one.severity)).collect()
}

/// The newest status of each task's file.
pub(super) fn task_status(effects: &[Effect]) -> Option<&'static str> {
    let mut all = effects.iter().filter_map(|effect| match effect {
        Effect::Tell(word) => match &**word {
            Word::Task(news) => Some(news.status),
            _ => None,
        },
        _ => None,
    });
    all.next_back()
}

impl Rig {
    /// Goes to the next deadline, whenever that is.
    pub(super) fn give_next(&mut self) -> Vec<Effect> {
        self.now = self.machine.next_deadline().expect("a deadline");
        self.give(Event::DeadlinePassed)
    }
}
