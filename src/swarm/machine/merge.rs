//! One merge at a time for a branch, in the order in which results came. Stories land here and nowhere else.
//!
//! A merge that failed by the host's doing keeps its turn while it waits to be tried again, so that the order of what lands
//! does not depend on how long a backoff is. What does not merge for the first time is done again on top of what it does not merge
//! with; for the second time it has failed.

use std::time::Duration;

use super::deadline::AttemptTimer;
use super::{Machine, Phase, judge};
use crate::ids::{AttemptId, CommitId};
use crate::protocol::acp::message::StoryStatus;
use crate::swarm::effect::{Announcement, Effect};
use crate::swarm::event::Fault;
use crate::verdict::{Cause, Evidence, Failure};

impl Machine {
    /// Puts the attempt's tip in the queue of its branch.
    pub(super) fn queue_merge(&mut self, place: usize, out: &mut Vec<Effect>) {
        self.attempts[place].view.phase = Phase::MergeQueued;
        let branch = self.branch_of(place);
        self.branches[branch].queue.push_back(place);
        self.merge_next(branch, out);
    }

    fn branch_of(&self, place: usize) -> usize {
        self.index.branch[usize::from(self.spec.assignments[self.attempts[place].assignment].file)]
    }

    fn merge_next(&mut self, branch: usize, out: &mut Vec<Effect>) {
        let state = &mut self.branches[branch];
        if state.merging.is_some() {
            return;
        }
        state.merging = state.queue.pop_front();
        if let Some(place) = state.merging {
            self.merge(place, out);
        }
    }

    /// Asks for the merge whose turn it is.
    pub(super) fn merge(&mut self, place: usize, out: &mut Vec<Effect>) {
        let onto = self.branches[self.branch_of(place)].head.clone();
        let attempt = &mut self.attempts[place];
        attempt.view.phase = Phase::Merging;
        attempt.view.updated = self.now;
        let Some(tip) = attempt.view.tip.clone() else { return };
        out.push(Effect::Merge {
            attempt: attempt.view.id.clone(),
            file: self.spec.assignments[attempt.assignment].file,
            onto,
            tip,
            stories: attempt.finished.iter().map(|done| self.stories[done.story].key.clone()).collect(),
        });
    }

    pub(super) fn merged(&mut self, id: &AttemptId, head: &CommitId, out: &mut Vec<Effect>) -> bool {
        let Some(place) = self.attempt_in(id, &[Phase::Merging]) else { return false };
        let branch = self.branch_of(place);
        self.branches[branch].head = head.clone();
        for done in std::mem::take(&mut self.attempts[place].finished) {
            self.land(done, head, out);
        }
        let assignment = self.attempts[place].assignment;
        // What was escalated before has settled itself.
        self.talks[assignment].open.clear();
        // What is left of it begins on top of what has landed.
        self.loops[assignment].leave_tip();
        let failed = |story: &usize| self.stories[*story].status == StoryStatus::Failed;
        let status = match self.assignments[assignment].undecided {
            0 if self.index.members[assignment].iter().any(failed) => "failed",
            0 => "landed",
            _ => "in_progress",
        };
        self.tell_task(assignment, status, None, out);
        self.merge_over(place, out);
        true
    }

    pub(super) fn merge_conflicted(
        &mut self,
        id: &AttemptId,
        paths: &[String],
        kept: &str,
        out: &mut Vec<Effect>,
    ) -> bool {
        let Some(place) = self.attempt_in(id, &[Phase::Merging]) else { return false };
        let summary = match paths {
            [] => "the commits do not merge onto the integration branch".to_owned(),
            [path] => format!("the commits do not merge onto the integration branch: conflict in `{path}`"),
            [path, rest @ ..] => format!(
                "the commits do not merge onto the integration branch: conflicts in `{path}` and {} more",
                rest.len()
            ),
        };
        let evidence = Evidence { paths: paths.to_vec(), ..Evidence::of(summary) };
        let failure = Failure { cause: Cause::Conflict, evidence, salvage: Some(kept.to_owned()) };
        let assignment = self.attempts[place].assignment;
        self.assignments[assignment].conflicts += 1;
        if self.assignments[assignment].conflicts > 1 || self.stopping.is_some() {
            self.not_merged(place, &failure, out);
        } else {
            self.once_more(place, &failure, out);
        }
        true
    }

    pub(super) fn merge_failed(&mut self, id: &AttemptId, fault: &Fault, kept: &str, out: &mut Vec<Effect>) -> bool {
        let Some(place) = self.attempt_in(id, &[Phase::Merging]) else { return false };
        let attempt = &mut self.attempts[place];
        if fault.retryable && attempt.merges < self.spec.limits.machinery_retries {
            attempt.merges += 1;
            attempt.view.phase = Phase::MergeQueued;
            attempt.view.updated = self.now;
            let wait = self.backoff(self.attempts[place].merges);
            self.set_timer(place, Some((wait, AttemptTimer::MergeAgain)));
            return true;
        }
        let failure = Failure { cause: fault.cause, evidence: fault.evidence.clone(), salvage: Some(kept.to_owned()) };
        self.not_merged(place, &failure, out);
        true
    }

    /// What does not merge is done once more, on top of what it does not merge with; that costs no retry.
    fn once_more(&mut self, place: usize, failure: &Failure, out: &mut Vec<Effect>) {
        let assignment = self.attempts[place].assignment;
        let next = self.assignments[assignment].attempts.len() as u32 + 1;
        let done = std::mem::take(&mut self.attempts[place].finished);
        let stories: Vec<usize> = done.into_iter().map(|done| done.story).collect();
        if let Some(reference) = &failure.salvage {
            self.kept(place, &stories, reference, out);
        }
        let tried: Vec<(usize, Failure, bool)> = stories.iter().map(|story| (*story, failure.clone(), true)).collect();
        self.tell_failures(place, &tried, out);
        self.loops[assignment].leave_tip();
        for story in stories {
            let view = &mut self.stories[story];
            view.status = StoryStatus::Pending;
            view.failure = Some(failure.clone());
            view.previous = Some(judge::previous(failure));
            let story = view.key.clone();
            let (failure, after) = (failure.clone(), Duration::ZERO);
            out.push(Effect::Announce(Announcement::StoryRetried { story, failure, next, after }));
        }
        self.merge_over(place, out);
    }

    /// What would have landed has failed for good; its commits are under a ref.
    fn not_merged(&mut self, place: usize, failure: &Failure, out: &mut Vec<Effect>) {
        let stories: Vec<usize> =
            std::mem::take(&mut self.attempts[place].finished).into_iter().map(|done| done.story).collect();
        if let Some(reference) = &failure.salvage {
            self.kept(place, &stories, reference, out);
        }
        let tried: Vec<(usize, Failure, bool)> = stories.iter().map(|story| (*story, failure.clone(), false)).collect();
        self.tell_failures(place, &tried, out);
        self.loops[self.attempts[place].assignment].leave_tip();
        self.fail(stories.into_iter().map(|story| (story, failure.clone())).collect(), out);
        self.merge_over(place, out);
    }

    fn merge_over(&mut self, place: usize, out: &mut Vec<Effect>) {
        let branch = self.branch_of(place);
        self.branches[branch].merging = None;
        self.settle(place);
        self.merge_next(branch, out);
    }
}
