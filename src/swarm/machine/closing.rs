//! A story is decided, once: it landed, failed for good, or is skipped because a story that it depends on did. What depends
//! on it may run, or is skipped in turn; all else goes on.

use super::SwarmMachine;
use super::settle::FinishedStory;
use crate::ids::{CommitId, StoryKey};
use crate::protocol::acp::message::StoryStatus;
use crate::swarm::effect::{Announcement, Effect};
use crate::verdict::{Cause, CauseClass, Failure};

impl SwarmMachine {
    /// The story is on its integration branch, whose head is now `head`.
    pub(super) fn land_story(&mut self, done: FinishedStory, head: &CommitId, out: &mut Vec<Effect>) {
        let FinishedStory { story, commit, duration } = done;
        let view = &mut self.stories[story];
        view.status = StoryStatus::Completed;
        view.commit = Some(commit.clone());
        view.failure = None;
        view.duration = Some(duration);
        self.counts.landed += 1;
        out.push(Effect::Announce(Announcement::StoryLanded {
            story: view.key.clone(),
            commit,
            head: head.clone(),
            duration,
        }));
        self.close_story(story);
    }

    /// The stories, all of one assignment, have failed for good.
    pub(super) fn fail_stories(&mut self, failed: Vec<(usize, Failure)>, out: &mut Vec<Effect>) {
        let stories: Vec<usize> = failed.iter().map(|(story, _)| *story).collect();
        for (story, mut failure) in failed {
            // What a reviewer rejected, and nobody mended.
            if let Some((place, reference)) =
                self.index.story_assignment[story].and_then(|owner| self.review_states[owner].rejected_ref.clone())
            {
                failure.salvage.get_or_insert_with(|| reference.clone());
                self.record_salvage(place, &[story], &reference, out);
            }
            let view = &mut self.stories[story];
            view.status = StoryStatus::Failed;
            view.failure = Some(failure.clone());
            self.counts.failed += 1;
            self.counts.failed_by_machinery += usize::from(failure.cause.class() == CauseClass::Machinery);
            out.push(Effect::Announce(Announcement::StoryFailed {
                story: view.key.clone(),
                failure,
                attempts: view.attempts,
            }));
            self.close_story(story);
        }
        // After all of them: one that failed itself is not also skipped because of another.
        for story in stories {
            self.skip_dependents(story, out);
        }
    }

    fn skip_dependents(&mut self, root: usize, out: &mut Vec<Effect>) {
        let because = self.stories[root].key.clone();
        let mut reached = vec![root];
        while let Some(story) = reached.pop() {
            for at in 0..self.index.dependents[story].len() {
                let dependent = self.index.dependents[story][at];
                if !self.stories[dependent].is_closed() {
                    self.skip_story(dependent, &because, out);
                    reached.push(dependent);
                }
            }
        }
    }

    fn skip_story(&mut self, story: usize, because: &StoryKey, out: &mut Vec<Effect>) {
        let view = &mut self.stories[story];
        view.status = StoryStatus::Skipped;
        view.blocked_by = Some(because.clone());
        view.failure = Some(Failure::new(Cause::DependencyFailed, format!("`{}` did not land", because.id)));
        self.counts.skipped += 1;
        out.push(Effect::Announce(Announcement::StorySkipped { story: view.key.clone(), blocked_by: because.clone() }));
        self.close_story(story);
    }

    /// Nobody waits for the story any more, nor does it wait for others.
    fn close_story(&mut self, story: usize) {
        self.stories[story].ended = Some(self.now);
        self.counts.open -= 1;
        let own = self.index.story_assignment[story];
        if let Some(own) = own {
            let waits = |other: &&usize| {
                self.index.story_assignment[**other] != Some(own) && !self.stories[**other].is_closed()
            };
            let edges = self.index.dependencies[story].iter().filter(waits).count();
            let state = &mut self.assignments[own];
            state.unmet_dependencies -= edges;
            state.open_stories -= 1;
            self.update_readiness(own);
        }
        for at in 0..self.index.dependents[story].len() {
            let dependent = self.index.dependents[story][at];
            let owner = self.index.story_assignment[dependent];
            if let Some(other) = owner.filter(|_| owner != own && !self.stories[dependent].is_closed()) {
                self.assignments[other].unmet_dependencies -= 1;
                self.update_readiness(other);
            }
        }
    }
}
