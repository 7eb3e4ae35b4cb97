//! Closes stories, each once: it landed, failed for good, or is skipped because a story that it depends on did. What depends
//! on it becomes ready, or is skipped in turn; everything else continues.

use std::time::Duration;

use super::attempt::{FailedStory, FinishedStory};
use super::review_state::RejectedWork;
use super::state::SwarmMachine;
use crate::ids::CommitId;
use crate::protocol::acp::message::StoryStatus;
use crate::swarm::announcement::{Announcement, StoryRef};
use crate::swarm::index::StoryIndex;
use crate::verdict::{Cause, CauseClass, Failure};

impl SwarmMachine {
    /// The story is on its integration branch, whose head is now `head`.
    pub(super) fn land_story(&mut self, finished: FinishedStory, head: &CommitId) {
        let FinishedStory { story, commit, duration } = finished;
        let view = &mut self.stories[story].view;
        view.status = StoryStatus::Completed;
        view.commit = Some(commit.clone());
        view.failure = None;
        view.duration = Some(duration);
        self.counts.landed += 1;
        self.announce(Announcement::StoryLanded { story: self.story_ref(story), commit, head: head.clone(), duration });
        self.close_story(story);
    }

    /// The stories, all of one assignment, have failed for good.
    pub(super) fn fail_stories(&mut self, failed: Vec<FailedStory>) {
        let stories: Vec<StoryIndex> = failed.iter().map(|failed| failed.story).collect();
        for FailedStory { story, mut failure } in failed {
            let owner = self.stories[story].assignment;
            if let Some(RejectedWork { attempt, reference }) =
                owner.and_then(|owner| self.assignments[owner].review.rejected_work.clone())
            {
                failure.salvage.get_or_insert_with(|| reference.clone());
                self.record_salvage(attempt, &[story], &reference);
            }
            let view = &mut self.stories[story].view;
            view.status = StoryStatus::Failed;
            view.failure = Some(failure.clone());
            self.counts.failed += 1;
            self.counts.failed_by_machinery += usize::from(failure.cause.class() == CauseClass::Machinery);
            let attempts = view.attempts;
            self.announce(Announcement::StoryFailed { story: self.story_ref(story), failure, attempts });
            self.close_story(story);
        }
        // After all of them: a story that failed itself is not also skipped because of another.
        for story in stories {
            self.skip_dependents(story);
        }
    }

    fn skip_dependents(&mut self, root: StoryIndex) {
        let blocked_by = self.story_ref(root);
        let mut reached = vec![root];
        while let Some(story) = reached.pop() {
            for dependent in self.stories[story].dependents.clone() {
                if !self.stories[dependent].view.is_closed() {
                    self.skip_story(dependent, &blocked_by);
                    reached.push(dependent);
                }
            }
        }
    }

    fn skip_story(&mut self, story: StoryIndex, blocked_by: &StoryRef) {
        let view = &mut self.stories[story].view;
        view.status = StoryStatus::Skipped;
        view.blocked_by = Some(blocked_by.key.clone());
        view.failure = Some(Failure::new(Cause::DependencyFailed, format!("`{}` did not land", blocked_by.key.id)));
        self.counts.skipped += 1;
        self.announce(Announcement::StorySkipped { story: self.story_ref(story), blocked_by: blocked_by.clone() });
        self.close_story(story);
    }

    /// No story waits for this one any more, nor does it wait for others.
    fn close_story(&mut self, story: StoryIndex) {
        self.stories[story].view.ended = Some(self.now);
        self.counts.open -= 1;
        let own = self.stories[story].assignment;
        if let Some(own) = own {
            let unmet = self.count_unmet(&self.stories[story]);
            let state = &mut self.assignments[own];
            state.unmet_dependencies -= unmet;
            state.open_stories -= 1;
            self.update_readiness(own);
        }
        for dependent in self.stories[story].dependents.clone() {
            let dependent = &self.stories[dependent];
            let waits = dependent.assignment != own && !dependent.view.is_closed();
            if let Some(other) = dependent.assignment.filter(|_| waits) {
                self.assignments[other].unmet_dependencies -= 1;
                self.update_readiness(other);
            }
        }
    }

    /// The story is to be done again, in the assignment's next attempt.
    pub(super) fn retry_story(&mut self, story: StoryIndex, failure: &Failure, delay: Duration) {
        self.requeue_story(story, failure);
        let assignment = self.stories[story].assignment;
        let next_attempt = assignment.map_or(1, |assignment| self.assignments[assignment].next_attempt_number());
        let (story, failure) = (self.story_ref(story), failure.clone());
        self.announce(Announcement::StoryRetried { story, failure, next_attempt, delay });
    }

    pub(super) fn requeue_story(&mut self, story: StoryIndex, failure: &Failure) {
        let view = &mut self.stories[story].view;
        (view.status, view.failure) = (StoryStatus::Pending, Some(failure.clone()));
    }
}
