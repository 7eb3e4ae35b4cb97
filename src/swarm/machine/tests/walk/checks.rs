//! What must always hold, by what was seen of the machine from outside.

use std::collections::{BTreeMap, BTreeSet};

use super::super::*;
use super::World;
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
}

impl World {
    /// What an event that was taken in says of the world.
    pub(super) fn follow(&mut self, event: &Event) {
        if let Event::Merged { attempt, head } = event {
            let branch = self.branch(attempt);
            self.seen.heads.insert(branch, head.clone());
        }
        if let Event::Merged { attempt, .. }
        | Event::MergeConflicted { attempt, .. }
        | Event::MergeFailed { attempt, .. } = event
        {
            let branch = self.branch(attempt);
            assert_eq!(self.seen.merging.remove(&branch).as_ref(), Some(attempt), "an answer to the merge in flight");
        }
    }

    fn branch(&self, id: &AttemptId) -> String {
        let spec = self.rig.machine.spec();
        let file = self.rig.machine.assignment(&id.assignment).expect("in the plan").file;
        spec.files[usize::from(file)].branch.to_string()
    }

    pub(super) fn check(&mut self, effect: &Effect) {
        assert!(self.seen.finished.is_none(), "after the end: {effect:?}");
        match effect {
            Effect::Start { attempt, stories, base, .. } => self.check_start(attempt, stories, base),
            Effect::Collect { attempt, .. } => {
                self.seen.live.remove(attempt);
            }
            Effect::Remove { attempt, .. } => {
                self.seen.live.remove(attempt);
                self.seen.removed.insert(attempt.clone());
            }
            Effect::Merge { attempt, onto, .. } => {
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
            Effect::StartReview { .. } | Effect::Pause { .. } | Effect::Unpause { .. } | Effect::Tell(_) => {}
            Effect::Examine { .. } => assert!(!self.away, "nobody is asked while the engine is away"),
        }
    }

    fn check_start(&mut self, id: &AttemptId, stories: &[(StoryKey, Option<String>)], base: &CommitId) {
        assert!(!self.away, "nothing is started while the engine is away");
        let machine = &self.rig.machine;
        self.seen.live.insert(id.clone());
        assert!(self.seen.live.len() <= machine.spec().limits.max, "at most `max` at once");
        let again = !self.seen.started.insert(id.clone());
        assert!(
            again || id.number == 1 || self.seen.started.contains(&AttemptId { number: id.number - 1, ..id.clone() })
        );
        assert!(!self.seen.removed.contains(id), "an attempt is not started after its removal");
        if !again {
            assert_eq!(self.seen.heads[&self.branch(id)], *base, "starts from the newest head");
        }
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
        if self.rig.thorough == 1 {
            self.check_json();
        }
        let broke = self.rig.journal.last().is_some_and(|(event, _)| matches!(event, Event::MachineryFailed { .. }));
        if broke {
            assert_eq!(outcome, Outcome::MachineryFailed);
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
        assert!(machine.attempts().all(|attempt| attempt.phase == Phase::Settled));
        let landed = machine.stories().filter(|view| view.landed()).count();
        if outcome == Outcome::Interrupted {
            assert!(machine.stopping().is_some() && machine.stories().any(|view| !view.decided()));
        } else {
            assert!(machine.stories().all(|view| view.decided()), "every story is decided");
            assert_eq!(outcome == Outcome::Landed, landed == machine.stories().count());
        }
        for view in machine.stories().filter(|view| !view.done_before) {
            let word = self.seen.decided.get(&view.key).copied();
            let right = match view.status {
                StoryStatus::Completed => word == Some("landed") && view.commit.is_some() && view.failure.is_none(),
                StoryStatus::Failed => word == Some("failed") && view.failure.is_some() && view.attempts > 0,
                StoryStatus::Skipped => word == Some("skipped") && view.because.is_some(),
                StoryStatus::Pending => word.is_none(),
                StoryStatus::InProgress => false,
            };
            assert!(right, "{view:?} was told as {word:?}");
        }
    }
}
