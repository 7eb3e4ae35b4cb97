//! The invariants, checked from outside by events and effects.

use std::collections::{BTreeMap, BTreeSet};

use super::super::*;
use super::SwarmSimulation;
use super::reviews::ObservedReviews;
use crate::swarm::machine::AttemptPhase;

/// What the checks remember of events and effects.
#[derive(Default)]
pub(super) struct ObservedState {
    pub(super) occupying_slots: BTreeSet<AttemptId>,
    pub(super) started: BTreeSet<AttemptId>,
    pub(super) removed: BTreeSet<AttemptId>,
    pub(super) closed_stories: BTreeMap<StoryKey, &'static str>,
    pub(super) merging: BTreeMap<String, AttemptId>,
    pub(super) heads: BTreeMap<String, CommitId>,
    pub(super) outcome: Option<SwarmOutcome>,
    pub(super) reviews: ObservedReviews,
}

impl SwarmSimulation {
    /// Remembers an applied event.
    pub(super) fn observe_event(&mut self, event: &Event) {
        if let Event::ReviewCollected { attempt, outcome: reviewed } = event {
            self.observe_verdict(attempt, reviewed);
        }
        if let Event::Merged { attempt, head } = event {
            let branch = self.branch_of(attempt);
            self.observed.heads.insert(branch, head.clone());
        }
        if let Event::Merged { attempt, .. }
        | Event::MergeConflicted { attempt, .. }
        | Event::MergeFailed { attempt, .. } = event
        {
            let branch = self.branch_of(attempt);
            // The stories that are left start from the branch again.
            if !matches!(event, Event::MergeFailed { .. }) {
                self.observed.reviews.tips.remove(&attempt.assignment);
            }
            assert_eq!(
                self.observed.merging.remove(&branch).as_ref(),
                Some(attempt),
                "an answer to the merge in flight"
            );
        }
    }

    fn branch_of(&self, id: &AttemptId) -> String {
        let spec = self.rig.machine.spec();
        let file = self.rig.machine.assignment_spec(&id.assignment).expect("in the plan").file;
        spec.files[usize::from(file)].branch.to_string()
    }

    pub(super) fn check_effect(&mut self, effect: &Effect) {
        let says = matches!(effect, Effect::Announce(_) | Effect::SendAmp(_));
        assert!(self.observed.outcome.is_none() || says, "after the end: {effect:?}");
        match effect {
            Effect::Start { attempt, stories, base, .. } => self.check_start(attempt, stories, base),
            Effect::Collect { attempt, .. } => {
                self.observed.occupying_slots.remove(attempt);
            }
            Effect::Remove { attempt, .. } => {
                self.observed.occupying_slots.remove(attempt);
                self.observed.removed.insert(attempt.clone());
            }
            Effect::Merge { attempt, onto, tip, .. } => {
                self.check_tip_may_land(attempt, tip);
                let branch = self.branch_of(attempt);
                assert_eq!(self.observed.heads[&branch], *onto, "merges onto the newest head");
                let other = self.observed.merging.insert(branch, attempt.clone());
                assert_eq!(other, None, "one merge at a time for a branch");
            }
            Effect::Finish(outcome) => self.observed.outcome = Some(*outcome),
            Effect::Announce(announcement) => {
                let (story, closed) = match announcement {
                    Announcement::StoryLanded { story, .. } => (story, "landed"),
                    Announcement::StoryFailed { story, .. } => (story, "failed"),
                    Announcement::StorySkipped { story, .. } => (story, "skipped"),
                    _ => return,
                };
                let before = self.observed.closed_stories.insert(story.key.clone(), closed);
                assert_eq!(before, None, "a story is decided once: {announcement:?}");
            }
            Effect::Persist | Effect::Terminate { .. } | Effect::Kill { .. } => {}
            Effect::StartReview { attempt, review } => self.check_start_review(attempt, review),
            Effect::Pause { attempt } => {
                self.observed.occupying_slots.remove(attempt);
            }
            Effect::Unpause { attempt } => {
                // A sandbox that reported its completion needs no slot.
                if self.rig.machine.attempt(attempt).is_some_and(|view| view.completion.is_none()) {
                    self.observed.occupying_slots.insert(attempt.clone());
                    self.check_sandbox_limit();
                }
            }
            Effect::SendAmp(_) => {}
            Effect::StartCheck { .. } | Effect::PrepareLanding { .. } | Effect::MoveBranch { .. } => {
                panic!("these swarms are of before there were checks: {effect:?}")
            }
            Effect::Inspect { .. } => assert!(!self.engine_lost, "nobody is asked while the engine is away"),
        }
    }

    fn check_start(&mut self, id: &AttemptId, stories: &[(StoryKey, Option<String>)], base: &CommitId) {
        assert!(!self.engine_lost, "nothing is started while the engine is away");
        self.observed.occupying_slots.insert(id.clone());
        self.check_sandbox_limit();
        let machine = &self.rig.machine;
        let again = !self.observed.started.insert(id.clone());
        assert!(
            again
                || id.number == 1
                || self.observed.started.contains(&AttemptId { number: id.number - 1, ..id.clone() })
        );
        assert!(!self.observed.removed.contains(id), "an attempt is not started after its removal");
        let rejected = self.observed.reviews.tips.get(&id.assignment);
        if !again {
            let head = &self.observed.heads[&self.branch_of(id)];
            let right = base == head || rejected == Some(base);
            assert!(
                right,
                "{id} starts from {base}, not from the newest head {head} or what was rejected {rejected:?}"
            );
        }
        self.check_approved(id);
        let own: Vec<&StoryKey> = stories.iter().map(|(story, _)| story).collect();
        for story in &own {
            assert!(!self.observed.closed_stories.contains_key(*story), "a decided story is not run");
            for dependency in &machine.story_spec(story).expect("in the plan").depends_on {
                let done = machine.story_spec(dependency).expect("in the plan").done.is_some();
                let landed = self.observed.closed_stories.get(dependency) == Some(&"landed");
                assert!(done || landed || own.contains(&dependency), "dependencies have landed before");
            }
        }
        for other in machine.attempts().filter(|other| other.phase != AttemptPhase::Settled && other.id != *id) {
            assert_ne!(other.id.assignment, id.assignment, "one live attempt of an assignment");
            let apart = |a: &AssignmentId, b: &AssignmentId| {
                machine.assignment_spec(a).expect("in the plan").exclusive_with.contains(b)
            };
            let (a, b) = (&other.id.assignment, &id.assignment);
            assert!(!apart(a, b) && !apart(b, a), "kept apart until the merge");
        }
    }

    /// The journal survives a round trip through JSON.
    fn check_journal_round_trip(&self) {
        let json = serde_json::to_string(&self.rig.journal).expect("events are JSON");
        let read: Vec<(Event, Duration)> = serde_json::from_str(&json).expect("what was written is read");
        assert_eq!(read, self.rig.journal);
    }

    pub(super) fn check_end(&mut self, outcome: SwarmOutcome) {
        let machine = self.rig.replay_journal();
        self.amp_observer.check_replay(&self.rig);
        if self.rig.full_check_every == 1 {
            self.check_journal_round_trip();
        }
        let broke = self.rig.journal.last().is_some_and(|(event, _)| matches!(event, Event::MachineryFailed { .. }));
        if broke {
            assert_eq!(outcome, SwarmOutcome::MachineryFailed);
            return;
        }
        if outcome == SwarmOutcome::Suspended {
            self.check_suspended(&machine);
            return;
        }
        let over = machine.stories().all(|view| view.is_closed());
        if self.engine_lost && !over {
            // Left as it was, for `resume`.
            assert!(
                outcome == SwarmOutcome::Interrupted && machine.stop_level().is_some()
                    || outcome == SwarmOutcome::MachineryFailed
            );
            return;
        }
        assert_eq!(self.observed.started, self.observed.removed, "every attempt is removed");
        let parked = |phase: AttemptPhase| outcome == SwarmOutcome::Interrupted && phase == AttemptPhase::Reviewing;
        assert!(machine.attempts().all(|attempt| attempt.phase == AttemptPhase::Settled || parked(attempt.phase)));
        let landed = machine.stories().filter(|view| view.has_landed()).count();
        if outcome == SwarmOutcome::Interrupted {
            assert!(machine.stop_level().is_some() && machine.stories().any(|view| !view.is_closed()));
        } else {
            assert!(machine.stories().all(|view| view.is_closed()), "every story is decided");
            assert_eq!(outcome == SwarmOutcome::Landed, landed == machine.stories().count());
        }
        let under_review = |key: &StoryKey| {
            let here = |attempt: &&crate::swarm::machine::AttemptView| {
                attempt.phase == AttemptPhase::Reviewing && attempt.stories.iter().any(|(story, _)| story == key)
            };
            machine.attempts().any(|attempt| here(&attempt))
        };
        for view in machine.stories().filter(|view| !view.done_before) {
            let closed = self.observed.closed_stories.get(&view.key).copied();
            let right = match view.status {
                StoryStatus::Completed => closed == Some("landed") && view.commit.is_some() && view.failure.is_none(),
                StoryStatus::Failed => closed == Some("failed") && view.failure.is_some(),
                StoryStatus::Skipped => closed == Some("skipped") && view.blocked_by.is_some(),
                StoryStatus::Pending => closed.is_none(),
                StoryStatus::InProgress => under_review(&view.key) && closed.is_none(),
            };
            assert!(right, "{view:?} was announced as {closed:?}");
        }
    }
}
