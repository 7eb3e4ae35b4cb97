//! One merge at a time for a branch, in the order in which results came. Stories land here and nowhere else.
//!
//! A merge that failed by the host's doing keeps its turn while it waits to be tried again, so that the order of what lands
//! does not depend on how long a backoff is.

use super::deadline::AttemptTimer;
use super::{Machine, Phase};
use crate::ids::{AttemptId, CommitId};
use crate::swarm::effect::Effect;
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
        self.not_merged(place, &Failure { cause: Cause::Conflict, evidence, salvage: Some(kept.to_owned()) }, out);
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

    /// What would have landed has failed for good; its commits are under a ref.
    fn not_merged(&mut self, place: usize, failure: &Failure, out: &mut Vec<Effect>) {
        let stories: Vec<usize> =
            std::mem::take(&mut self.attempts[place].finished).into_iter().map(|done| done.story).collect();
        if let Some(reference) = &failure.salvage {
            self.kept(place, &stories, reference, out);
        }
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
