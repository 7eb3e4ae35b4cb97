//! One merge at a time for a branch, in the order in which results came. Stories land here and nowhere else.
//!
//! A merge that failed by the host's doing keeps its turn while it waits to be tried again, so that the order of what lands
//! does not depend on how long a backoff is. What does not merge for the first time is done again on top of what it does not merge
//! with; for the second time it has failed.

use std::time::Duration;

use super::timer::AttemptTimer;
use super::{AttemptPhase, SwarmMachine, diagnosis};
use crate::ids::{AttemptId, CommitId};
use crate::protocol::acp::message::StoryStatus;
use crate::swarm::effect::{Announcement, Effect};
use crate::swarm::event::MachineryFault;
use crate::verdict::{Cause, Evidence, Failure};

impl SwarmMachine {
    /// Puts the attempt's tip in the queue of its branch.
    pub(super) fn queue_merge(&mut self, place: usize, out: &mut Vec<Effect>) {
        self.attempts[place].view.phase = AttemptPhase::MergeQueued;
        let branch = self.branch_of(place);
        self.branches[branch].queue.push_back(place);
        self.start_next_merge(branch, out);
    }

    fn branch_of(&self, place: usize) -> usize {
        self.index.file_branch[usize::from(self.spec.assignments[self.attempts[place].assignment].file)]
    }

    fn start_next_merge(&mut self, branch: usize, out: &mut Vec<Effect>) {
        let state = &mut self.branches[branch];
        if state.merging.is_some() {
            return;
        }
        state.merging = state.queue.pop_front();
        if let Some(place) = state.merging {
            self.request_merge(place, out);
        }
    }

    /// Asks for the merge whose turn it is.
    pub(super) fn request_merge(&mut self, place: usize, out: &mut Vec<Effect>) {
        let onto = self.branches[self.branch_of(place)].head.clone();
        let attempt = &mut self.attempts[place];
        attempt.view.phase = AttemptPhase::Merging;
        attempt.view.updated = self.now;
        let Some(tip) = attempt.view.tip.clone() else { return };
        out.push(Effect::Merge {
            attempt: attempt.view.id.clone(),
            file: self.spec.assignments[attempt.assignment].file,
            onto,
            tip,
            stories: attempt.finished_stories.iter().map(|done| self.stories[done.story].key.clone()).collect(),
        });
    }

    pub(super) fn on_merged(&mut self, id: &AttemptId, head: &CommitId, out: &mut Vec<Effect>) -> bool {
        let Some(place) = self.attempt_in(id, &[AttemptPhase::Merging]) else { return false };
        let branch = self.branch_of(place);
        self.branches[branch].head = head.clone();
        for done in std::mem::take(&mut self.attempts[place].finished_stories) {
            self.land_story(done, head, out);
        }
        let assignment = self.attempts[place].assignment;
        // What was escalated before has settled itself.
        self.task_amp_states[assignment].open_escalations.clear();
        // What is left of it begins on top of what has landed.
        self.review_states[assignment].discard_tip();
        let failed = |story: &usize| self.stories[*story].status == StoryStatus::Failed;
        let status = match self.assignments[assignment].open_stories {
            0 if self.index.assignment_stories[assignment].iter().any(failed) => "failed",
            0 => "landed",
            _ => "in_progress",
        };
        self.send_task_update(assignment, status, None, out);
        self.finish_merge(place, out);
        true
    }

    pub(super) fn on_merge_conflicted(
        &mut self,
        id: &AttemptId,
        paths: &[String],
        kept: &str,
        out: &mut Vec<Effect>,
    ) -> bool {
        let Some(place) = self.attempt_in(id, &[AttemptPhase::Merging]) else { return false };
        let summary = match paths {
            [] => "the commits do not merge onto the integration branch".to_owned(),
            [path] => format!("the commits do not merge onto the integration branch: conflict in `{path}`"),
            [path, rest @ ..] => format!(
                "the commits do not merge onto the integration branch: conflicts in `{path}` and {} more",
                rest.len()
            ),
        };
        let evidence = Evidence { paths: paths.to_vec(), ..Evidence::from_summary(summary) };
        let failure = Failure { cause: Cause::Conflict, evidence, salvage: Some(kept.to_owned()) };
        let assignment = self.attempts[place].assignment;
        self.assignments[assignment].merge_conflicts += 1;
        if self.assignments[assignment].merge_conflicts > 1 || self.stop_level.is_some() {
            self.fail_unmerged(place, &failure, out);
        } else {
            self.retry_after_conflict(place, &failure, out);
        }
        true
    }

    pub(super) fn on_merge_failed(
        &mut self,
        id: &AttemptId,
        fault: &MachineryFault,
        kept: &str,
        out: &mut Vec<Effect>,
    ) -> bool {
        let Some(place) = self.attempt_in(id, &[AttemptPhase::Merging]) else { return false };
        let attempt = &mut self.attempts[place];
        if fault.retryable && attempt.merge_retries < self.spec.limits.machinery_retries {
            attempt.merge_retries += 1;
            attempt.view.phase = AttemptPhase::MergeQueued;
            attempt.view.updated = self.now;
            let wait = self.backoff_duration(self.attempts[place].merge_retries);
            self.set_timer(place, Some((wait, AttemptTimer::MergeRetry)));
            return true;
        }
        let failure = Failure { cause: fault.cause, evidence: fault.evidence.clone(), salvage: Some(kept.to_owned()) };
        self.fail_unmerged(place, &failure, out);
        true
    }

    /// What does not merge is done once more, on top of what it does not merge with; that costs no retry.
    fn retry_after_conflict(&mut self, place: usize, failure: &Failure, out: &mut Vec<Effect>) {
        let assignment = self.attempts[place].assignment;
        let next = self.assignments[assignment].attempts.len() as u32 + 1;
        let done = std::mem::take(&mut self.attempts[place].finished_stories);
        let stories: Vec<usize> = done.into_iter().map(|done| done.story).collect();
        if let Some(reference) = &failure.salvage {
            self.record_salvage(place, &stories, reference, out);
        }
        let tried: Vec<(usize, Failure, bool)> = stories.iter().map(|story| (*story, failure.clone(), true)).collect();
        self.escalate_failures(place, &tried, out);
        self.review_states[assignment].discard_tip();
        for story in stories {
            let view = &mut self.stories[story];
            view.status = StoryStatus::Pending;
            view.failure = Some(failure.clone());
            view.previous_failure = Some(diagnosis::previous_failure_text(failure));
            let story = view.key.clone();
            let (failure, after) = (failure.clone(), Duration::ZERO);
            out.push(Effect::Announce(Announcement::StoryRetried { story, failure, next_attempt: next, delay: after }));
        }
        self.finish_merge(place, out);
    }

    /// What would have landed has failed for good; its commits are under a ref.
    fn fail_unmerged(&mut self, place: usize, failure: &Failure, out: &mut Vec<Effect>) {
        let stories: Vec<usize> =
            std::mem::take(&mut self.attempts[place].finished_stories).into_iter().map(|done| done.story).collect();
        if let Some(reference) = &failure.salvage {
            self.record_salvage(place, &stories, reference, out);
        }
        let tried: Vec<(usize, Failure, bool)> = stories.iter().map(|story| (*story, failure.clone(), false)).collect();
        self.escalate_failures(place, &tried, out);
        self.review_states[self.attempts[place].assignment].discard_tip();
        self.fail_stories(stories.into_iter().map(|story| (story, failure.clone())).collect(), out);
        self.finish_merge(place, out);
    }

    fn finish_merge(&mut self, place: usize, out: &mut Vec<Effect>) {
        let branch = self.branch_of(place);
        self.branches[branch].merging = None;
        self.settle_attempt(place);
        self.start_next_merge(branch, out);
    }
}
