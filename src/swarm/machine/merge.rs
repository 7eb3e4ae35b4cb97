//! One merge at a time for a branch, in the order in which results arrive: for work without checks, and without merge checks.
//! `landing.rs` lands everything else.
//!
//! A merge that failed because of the host keeps its turn while it waits to be retried, so that the landing order does not
//! depend on the length of a backoff. Work that conflicts goes back to its agent (`rejection.rs`). In journals of earlier versions, it
//! is done again once, and the second conflict fails it.

use std::time::Duration;

use super::attempt::FailedStory;
use super::deadlines::AttemptTimer;
use super::diagnosis;
use super::landing_state::conflict_failure;
use super::state::{Applied, SwarmMachine};
use super::view::AttemptPhase;
use crate::ids::{AttemptId, CommitId};
use crate::protocol::acp::message::StoryStatus;
use crate::swarm::amp_intent::TaskPhase;
use crate::swarm::effect::Effect;
use crate::swarm::event::MachineryFault;
use crate::swarm::index::{AttemptIndex, BranchIndex, StoryIndex};
use crate::verdict::Failure;

impl SwarmMachine {
    pub(super) fn queue_merge(&mut self, attempt: AttemptIndex) {
        self.attempts[attempt].view.phase = AttemptPhase::MergeQueued;
        let branch = self.branch_of(attempt);
        self.branches[branch].queue.push_back(attempt);
        self.start_next_merge(branch);
    }

    pub(super) fn branch_of(&self, attempt: AttemptIndex) -> BranchIndex {
        self.assignments[self.attempts[attempt].assignment].branch
    }

    pub(super) fn start_next_merge(&mut self, branch: BranchIndex) {
        let state = &self.branches[branch];
        if state.merging.is_some() || state.landing.is_some() || state.blocked {
            return;
        }
        if state.queue.front().is_some_and(|first| self.lands_in_batch(*first)) {
            self.start_batch(branch);
            return;
        }
        let state = &mut self.branches[branch];
        state.merging = state.queue.pop_front();
        if let Some(attempt) = state.merging {
            self.request_merge(attempt);
        }
    }

    pub(super) fn request_merge(&mut self, attempt: AttemptIndex) {
        let onto = self.branches[self.branch_of(attempt)].head.clone();
        let stories = self.story_keys(&self.attempts[attempt].finished_indices());
        let state = &mut self.attempts[attempt];
        state.view.phase = AttemptPhase::Merging;
        state.view.updated = self.now;
        let Some(tip) = state.view.tip.clone() else { return };
        let file = self.assignments[state.assignment].file;
        let (attempt, base) = (state.view.id.clone(), state.branch_base.clone());
        self.effects.push(Effect::Merge { attempt, file, onto, base, tip, stories });
    }

    pub(super) fn on_merged(&mut self, id: &AttemptId, head: &CommitId) -> Option<Applied> {
        let attempt = self.attempt_merging(id)?;
        let branch = self.branch_of(attempt);
        self.branches[branch].head = head.clone();
        self.branches[branch].merging = None;
        if self.spec.landing.is_some() {
            // What lands was written again.
            for finished in &mut self.attempts[attempt].finished_stories {
                finished.commit = head.clone();
            }
        }
        self.land_attempt(attempt, head);
        self.start_next_merge(branch);
        Some(Applied)
    }

    pub(super) fn is_merging(&self, attempt: AttemptIndex) -> bool {
        self.branches[self.branch_of(attempt)].merging == Some(attempt)
    }

    fn attempt_merging(&self, id: &AttemptId) -> Option<AttemptIndex> {
        self.attempt_in(id, &[AttemptPhase::Merging]).filter(|attempt| self.is_merging(*attempt))
    }

    /// The attempt's work is on its branch, whose head is now `head`.
    pub(super) fn land_attempt(&mut self, attempt: AttemptIndex, head: &CommitId) {
        for finished in std::mem::take(&mut self.attempts[attempt].finished_stories) {
            self.land_story(finished, head);
        }
        let assignment = self.attempts[attempt].assignment;
        let state = &mut self.assignments[assignment];
        // The merge settles what was escalated before, and the stories that are left start from the new head.
        self.amp.close_escalations(&state.id);
        state.review.discard_tip();
        (state.pending_merge, state.rework_base) = (None, None);
        let failed = |story: &StoryIndex| self.stories[*story].view.status == StoryStatus::Failed;
        let phase = match state.open_stories {
            0 if state.stories.iter().any(failed) => TaskPhase::Failed,
            0 => TaskPhase::Landed,
            _ => TaskPhase::InProgress,
        };
        self.send_task_update(assignment, phase);
        self.settle_attempt(attempt);
    }

    pub(super) fn on_merge_conflicted(
        &mut self,
        id: &AttemptId,
        paths: &[String],
        result_ref: &str,
    ) -> Option<Applied> {
        let attempt = self.attempt_merging(id)?;
        if self.spec.landing.is_some() {
            let branch = self.branch_of(attempt);
            self.branches[branch].merging = None;
            self.reject_conflict(attempt, paths);
            self.start_next_merge(branch);
            return Some(Applied);
        }
        let failure = Failure { salvage: Some(result_ref.to_owned()), ..conflict_failure(paths) };
        let state = &mut self.assignments[self.attempts[attempt].assignment];
        state.merge_conflicts += 1;
        let retried = state.merge_conflicts == 1 && self.stop_level.is_none();
        self.reject_merge(attempt, &failure, retried);
        Some(Applied)
    }

    pub(super) fn on_merge_failed(
        &mut self,
        id: &AttemptId,
        fault: &MachineryFault,
        result_ref: &str,
    ) -> Option<Applied> {
        let attempt = self.attempt_merging(id)?;
        let state = &mut self.attempts[attempt];
        if fault.retryable && state.merge_retries < self.spec.limits.machinery_retries {
            state.merge_retries += 1;
            state.view.phase = AttemptPhase::MergeQueued;
            state.view.updated = self.now;
            let wait = self.backoff_duration(self.attempts[attempt].merge_retries);
            self.set_timer(attempt, AttemptTimer::MergeRetry, wait);
        } else if self.spec.landing.is_some() {
            // The work stays finished; `resume` continues here.
            let branch = self.branch_of(attempt);
            self.branches[branch].merging = None;
            self.attempts[attempt].view.phase = AttemptPhase::MergeQueued;
            self.attempts[attempt].merge_retries = 0;
            self.branches[branch].queue.push_front(attempt);
            self.block_branch(branch, &[attempt], fault);
        } else {
            let failure = Failure { salvage: Some(result_ref.to_owned()), ..Failure::from(fault) };
            self.reject_merge(attempt, &failure, false);
        }
        Some(Applied)
    }

    /// Work that did not merge is done again, which costs no retry, or fails for good. A ref keeps its commits.
    fn reject_merge(&mut self, attempt: AttemptIndex, failure: &Failure, retried: bool) {
        let assignment = self.attempts[attempt].assignment;
        let finished = std::mem::take(&mut self.attempts[attempt].finished_stories);
        let stories: Vec<StoryIndex> = finished.into_iter().map(|finished| finished.story).collect();
        if let Some(reference) = &failure.salvage {
            self.record_salvage(attempt, &stories, reference);
        }
        let failed = FailedStory::for_all(stories.iter().copied(), failure);
        self.escalate_failures(attempt, &failed, retried);
        self.assignments[assignment].review.discard_tip();
        if retried {
            for story in stories {
                self.stories[story].previous_failure = Some(diagnosis::previous_failure_text(failure));
                self.retry_story(story, failure, Duration::ZERO);
            }
        } else {
            self.fail_stories(failed);
        }
        let branch = self.branch_of(attempt);
        self.branches[branch].merging = None;
        self.settle_attempt(attempt);
        self.start_next_merge(branch);
    }
}
