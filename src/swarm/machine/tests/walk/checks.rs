//! What must always hold, by what was seen of the machine from outside.

use std::collections::{BTreeMap, BTreeSet};

use super::super::*;
use super::World;
use super::reviews::Reviews;
use crate::swarm::machine::Phase;

/// What the checks remember, from effects and events alone.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) live: BTreeSet<AttemptId>,
    pub(super) started: BTreeSet<AttemptId>,
    pub(super) removed: BTreeSet<AttemptId>,
    pub(super) decided: BTreeMap<StoryKey, &'static str>,
    pub(super) merging: BTreeMap<String, AttemptId>,
    pub(super) heads: BTreeMap<String, CommitId>,
    pub(super) finished: Option<Outcome>,
    pub(super) reviews: Reviews,
}

impl World {
    /// What an event that was taken in says of the world.
    pub(super) fn follow(&mut self, event: &Event) {
        if let Event::ReviewCollected { attempt, reviewed } = event {
            self.follow_verdict(attempt, reviewed);
        }
        if let Event::Merged { attempt, head } = event {
            let branch = self.branch(attempt);
            self.seen.heads.insert(branch, head.clone());
        }
        if let Event::Merged { attempt, .. }
        | Event::MergeConflicted { attempt, .. }
        | Event::MergeFailed { attempt, .. } = event
        {
            let branch = self.branch(attempt);
            // What is left of the task begins on the branch again.
            if !matches!(event, Event::MergeFailed { .. }) {
                self.seen.reviews.tips.remove(&attempt.assignment);
            }
            assert_eq!(self.seen.merging.remove(&branch).as_ref(), Some(attempt), "an answer to the merge in flight");
        }
    }

    fn branch(&self, id: &AttemptId) -> String {
        let spec = self.rig.machine.spec();
        let file = self.rig.machine.assignment(&id.assignment).expect("in the plan").file;
        spec.files[usize::from(file)].branch.to_string()
    }

    pub(super) fn check(&mut self, effect: &Effect) {
        let says = matches!(effect, Effect::Announce(_) | Effect::Tell(_));
        assert!(self.seen.finished.is_none() || says, "after the end: {effect:?}");
        match effect {
            Effect::Start { attempt, stories, base, .. } => self.check_start(attempt, stories, base),
            Effect::Collect { attempt, .. } => {
                self.seen.live.remove(attempt);
            }
            Effect::Remove { attempt, .. } => {
                self.seen.live.remove(attempt);
                self.seen.removed.insert(attempt.clone());
            }
            Effect::Merge { attempt, onto, tip, .. } => {
                self.check_lands(attempt, tip);
                let branch = self.branch(attempt);
                assert_eq!(self.seen.heads[&branch], *onto, "merges onto the newest head");
                let other = self.seen.merging.insert(branch, attempt.clone());
                assert_eq!(other, None, "one merge at a time for a branch");
            }
            Effect::Finish(outcome) => self.seen.finished = Some(*outcome),
            Effect::Announce(said) => {
                let (story, word) = match said {
                    Announcement::StoryLanded { story, .. } => (story, "landed"),
                    Announcement::StoryFailed { story, .. } => (story, "failed"),
                    Announcement::StorySkipped { story, .. } => (story, "skipped"),
                    _ => return,
                };
                let before = self.seen.decided.insert(story.clone(), word);
                assert_eq!(before, None, "a story is decided once: {said:?}");
            }
            Effect::Persist | Effect::Terminate { .. } | Effect::Kill { .. } => {}
            Effect::StartReview { attempt, review } => self.check_start_review(attempt, review),
            Effect::Pause { attempt } => {
                self.seen.live.remove(attempt);
            }
            Effect::Unpause { attempt } => {
                // One that has said its last word takes no place any more.
                if self.rig.machine.attempt(attempt).is_some_and(|view| view.completion.is_none()) {
                    self.seen.live.insert(attempt.clone());
                    self.check_places();
                }
            }
            Effect::Tell(_) => {}
            Effect::Examine { .. } => assert!(!self.away, "nobody is asked while the engine is away"),
        }
    }

    fn check_start(&mut self, id: &AttemptId, stories: &[(StoryKey, Option<String>)], base: &CommitId) {
        assert!(!self.away, "nothing is started while the engine is away");
        self.seen.live.insert(id.clone());
        self.check_places();
        let machine = &self.rig.machine;
        let again = !self.seen.started.insert(id.clone());
        assert!(
            again || id.number == 1 || self.seen.started.contains(&AttemptId { number: id.number - 1, ..id.clone() })
        );
        assert!(!self.seen.removed.contains(id), "an attempt is not started after its removal");
        let rejected = self.seen.reviews.tips.get(&id.assignment);
        if !again {
            let head = &self.seen.heads[&self.branch(id)];
            let right = base == head || rejected == Some(base);
            assert!(
                right,
                "{id} starts from {base}, not from the newest head {head} or what was rejected {rejected:?}"
            );
        }
        self.check_approved(id);
        let own: Vec<&StoryKey> = stories.iter().map(|(story, _)| story).collect();
        for story in &own {
            assert!(!self.seen.decided.contains_key(*story), "a decided story is not run");
            for dependency in &machine.story_spec(story).expect("in the plan").depends_on {
                let done = machine.story_spec(dependency).expect("in the plan").done.is_some();
                let landed = self.seen.decided.get(dependency) == Some(&"landed");
                assert!(done || landed || own.contains(&dependency), "dependencies have landed before");
            }
        }
        for other in machine.attempts().filter(|other| other.phase != Phase::Settled && other.id != *id) {
            assert_ne!(other.id.assignment, id.assignment, "one live attempt of an assignment");
            let apart =
                |a: &AssignmentId, b: &AssignmentId| machine.assignment(a).expect("in the plan").apart_from.contains(b);
            let (a, b) = (&other.id.assignment, &id.assignment);
            assert!(!apart(a, b) && !apart(b, a), "kept apart until the merge");
        }
    }

    /// The journal survives its being written down.
    fn check_json(&self) {
        let json = serde_json::to_string(&self.rig.journal).expect("events are JSON");
        let read: Vec<(Event, Duration)> = serde_json::from_str(&json).expect("what was written is read");
        assert_eq!(read, self.rig.journal);
    }

    pub(super) fn check_end(&mut self, outcome: Outcome) {
        let machine = self.rig.fold();
        self.said.again(&self.rig);
        if self.rig.thorough == 1 {
            self.check_json();
        }
        let broke = self.rig.journal.last().is_some_and(|(event, _)| matches!(event, Event::MachineryFailed { .. }));
        if broke {
            assert_eq!(outcome, Outcome::MachineryFailed);
            return;
        }
        if outcome == Outcome::Suspended {
            self.check_suspended(&machine);
            return;
        }
        let over = machine.stories().all(|view| view.decided());
        if self.away && !over {
            // Left as it was, for `resume`.
            assert!(
                outcome == Outcome::Interrupted && machine.stopping().is_some() || outcome == Outcome::MachineryFailed
            );
            return;
        }
        assert_eq!(self.seen.started, self.seen.removed, "every attempt is removed");
        let parked = |phase: Phase| outcome == Outcome::Interrupted && phase == Phase::Reviewing;
        assert!(machine.attempts().all(|attempt| attempt.phase == Phase::Settled || parked(attempt.phase)));
        let landed = machine.stories().filter(|view| view.landed()).count();
        if outcome == Outcome::Interrupted {
            assert!(machine.stopping().is_some() && machine.stories().any(|view| !view.decided()));
        } else {
            assert!(machine.stories().all(|view| view.decided()), "every story is decided");
            assert_eq!(outcome == Outcome::Landed, landed == machine.stories().count());
        }
        let under_review = |key: &StoryKey| {
            let here = |attempt: &&crate::swarm::machine::AttemptView| {
                attempt.phase == Phase::Reviewing && attempt.stories.iter().any(|(story, _)| story == key)
            };
            machine.attempts().any(|attempt| here(&attempt))
        };
        for view in machine.stories().filter(|view| !view.done_before) {
            let word = self.seen.decided.get(&view.key).copied();
            let right = match view.status {
                StoryStatus::Completed => word == Some("landed") && view.commit.is_some() && view.failure.is_none(),
                StoryStatus::Failed => word == Some("failed") && view.failure.is_some(),
                StoryStatus::Skipped => word == Some("skipped") && view.because.is_some(),
                StoryStatus::Pending => word.is_none(),
                StoryStatus::InProgress => under_review(&view.key) && word.is_none(),
            };
            assert!(right, "{view:?} was told as {word:?}");
        }
    }
}
