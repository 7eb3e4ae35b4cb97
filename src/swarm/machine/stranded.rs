//! Finished work that cannot land now: the swarm is being stopped, the host's git fails, or somebody reset the branch. It stays
//! finished, and lands as soon as it can: nothing of it is done again.

use super::deadlines::Timer;
use super::landing_state::{Landing, LandingPurpose, LandingStage};
use super::state::{Applied, Branch, SwarmMachine};
use super::view::AttemptPhase;
use crate::ids::{CommitId, StoryKey};
use crate::protocol::acp::message::StoryStatus;
use crate::swarm::announcement::Announcement;
use crate::swarm::event::MachineryFault;
use crate::swarm::index::{AttemptIndex, BranchIndex, StoryIndex};
use crate::verdict::Failure;

impl SwarmMachine {
    pub(super) fn on_landing_failed(&mut self, id: u64, fault: &MachineryFault) -> Option<Applied> {
        let landing = self.landings.get_mut(&id)?;
        if !matches!(landing.stage, LandingStage::Preparing | LandingStage::Moving) {
            return None;
        }
        landing.machinery_failures += 1;
        let failures = landing.machinery_failures;
        if fault.retryable && failures <= self.spec.limits.machinery_retries && self.stop_level.is_none() {
            self.set_deadline(Timer::Landing(id), Some(self.backoff_duration(failures)));
        } else {
            self.block_landing(id, fault);
        }
        Some(Applied)
    }

    /// The machinery cannot land anything on this branch. What waits for it stays finished, and `resume` continues.
    pub(super) fn block_landing(&mut self, id: u64, fault: &MachineryFault) {
        let Some(landing) = self.landings.get(&id) else { return };
        let (branch, candidates) = (landing.branch, landing.candidates.clone());
        self.shelve_landing(id);
        self.block_branch(branch, &candidates, fault);
    }

    pub(super) fn block_branch(&mut self, branch: BranchIndex, waiting: &[AttemptIndex], fault: &MachineryFault) {
        for attempt in waiting {
            let stories = self.attempts[*attempt].finished_indices();
            let salvage = self.attempts[*attempt].result_ref.clone();
            if let Some(reference) = &salvage {
                self.record_salvage(*attempt, &stories, reference);
            }
            for story in stories {
                self.stories[story].view.failure = Some(Failure { salvage: salvage.clone(), ..Failure::from(fault) });
            }
        }
        if !self.branches[branch].blocked {
            self.branches[branch].blocked = true;
            self.announce(Announcement::MachineryFailed { failure: fault.into() });
        }
    }

    /// Ends a landing without a decision. Its candidates wait.
    pub(super) fn shelve_landing(&mut self, id: u64) {
        let Some(landing) = self.landings.get(&id) else { return };
        let (purpose, branch, candidates) = (landing.purpose, landing.branch, landing.candidates.clone());
        self.close_landing(id);
        match purpose {
            LandingPurpose::Base => {}
            LandingPurpose::Queue => self.requeue_candidates(branch, &candidates),
            LandingPurpose::Story => {
                for attempt in candidates {
                    self.attempts[attempt].view.phase = AttemptPhase::MergeQueued;
                    self.shelved.push_back(attempt);
                }
            }
        }
    }

    /// A stop waits for no backoff of a landing.
    pub(super) fn shelve_waiting_landings(&mut self) {
        let waiting = |id: &u64| self.deadlines.contains(Timer::Landing(*id));
        for id in self.landings.keys().copied().filter(waiting).collect::<Vec<_>>() {
            self.shelve_landing(id);
        }
    }

    /// How many attempts wait to land, and cannot until the swarm is resumed.
    pub(super) fn count_stranded(&self) -> usize {
        let stopped = self.stop_level.is_some();
        let stranded =
            |branch: &&Branch| (stopped || branch.blocked) && branch.landing.is_none() && branch.merging.is_none();
        let queued: usize = self.branches.iter().filter(stranded).map(|branch| branch.queue.len()).sum();
        queued + self.shelved.len()
    }

    pub(super) fn has_blocked_branch(&self) -> bool {
        self.branches.iter().any(|branch| branch.blocked)
    }

    /// Somebody reset the branch while no orchestrator ran: these stories are not on it any more, and are done again.
    pub(super) fn on_branch_rewound(&mut self, file: u16, head: &CommitId, lost: &[StoryKey]) -> Option<Applied> {
        let branch = *self.file_branches.get(usize::from(file))?;
        self.branches[branch].head = head.clone();
        self.branches[branch].passed_head = None;
        let stale =
            |(id, landing): (&u64, &Landing)| (landing.branch == branch && landing.check.is_none()).then_some(*id);
        for id in self.landings.iter().filter_map(stale).collect::<Vec<_>>() {
            self.shelve_landing(id);
        }
        let lost: Vec<StoryIndex> = lost.iter().filter_map(|key| self.story_indices.get(key)).copied().collect();
        let has_landed = |story: &StoryIndex| {
            let view = &self.stories[*story].view;
            view.has_landed() && !view.done_before
        };
        let lost: Vec<StoryIndex> = lost.into_iter().filter(has_landed).collect();
        for story in &lost {
            let view = &mut self.stories[*story].view;
            (view.status, view.ended, view.commit) = (StoryStatus::Pending, None, None);
            self.counts.landed -= 1;
            self.counts.open += 1;
        }
        self.announce(Announcement::BranchRewound { commit: head.clone(), stories: self.story_refs(&lost) });
        self.recount_waits();
        if self.outcome.is_none() {
            self.restart_shelved();
            self.start_next_merge(branch);
        }
        Some(Applied)
    }

    pub(super) fn restart_shelved(&mut self) {
        for attempt in std::mem::take(&mut self.shelved) {
            self.submit_finished(attempt);
        }
    }

    /// Continues the landings of a resumed swarm.
    pub(super) fn resume_landings(&mut self) {
        for branch in self.branches.iter_mut() {
            branch.blocked = false;
        }
        for id in self.landings.keys().copied().collect::<Vec<_>>() {
            self.set_deadline(Timer::Landing(id), None);
            if let Some(landing) = self.landings.get_mut(&id) {
                landing.machinery_failures = 0;
            }
            // A check sandbox has effects of its own.
            self.advance_landing(id);
        }
        self.restart_shelved();
        for branch in self.branches.indices() {
            self.start_next_merge(branch);
        }
        self.start_base_checks();
    }
}
