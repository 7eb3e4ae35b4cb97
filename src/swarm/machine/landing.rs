//! Landing: finished work becomes part of its branch once its checks passed in a place where no agent was.
//!
//! ```text
//! candidates -> prepared (merged, one onto the other, in no branch) -> checked in a check sandbox -> the branch moves
//! ```
//!
//! What waits for the same branch is prepared as one batch, and its last commit is checked, which has all of it. If that fails, the
//! batch is bisected: the first prefix that fails names the culprit, since the prefix before it passed. The culprit goes back to its
//! agent with the output and the merged tree; the prefix before it lands; the rest is prepared again. Commits whose checks passed
//! before ([`CheckableCommit::checked`]) are not checked again.
//!
//! | purpose | candidates | when it passes |
//! |---|---|---|
//! | `Base` | none: the branch's head | the agents may start |
//! | `Story` | one, before its review, or without merge checks | it goes to its review, or to its merge |
//! | `Queue` | all that wait for a branch | the branch moves |
//!
//! A story is blamed only for a commit that was made from one that passed. If somebody else moved the branch, its head is checked
//! first, and what fails there is held against nobody.
//!
//! Work whose finished stories have no check is merged without any of this (`merge.rs`).

use std::collections::BTreeMap;

use super::attempt::FinishedStory;
use super::deadlines::Timer;
use super::landing_state::{Landing, LandingPurpose, LandingStage, ReworkBase};
use super::state::{Applied, SwarmMachine};
use super::view::AttemptPhase;
use crate::ids::{CommitId, StoryId};
use crate::swarm::effect::{CandidateSpec, Effect};
use crate::swarm::event::{CheckableCommit, MachineryFault};
use crate::swarm::index::{AttemptIndex, BranchIndex, StoryIndex};
use crate::verdict::{Cause, CriterionResult};

/// How often one landing follows a branch that somebody else moves.
const MAX_BRANCH_MOVES: u32 = 20;

impl SwarmMachine {
    /// Whether finished work of this attempt must pass checks of its own or of all.
    pub(super) fn has_checks(&self, attempt: AttemptIndex) -> bool {
        let state = &self.attempts[attempt];
        let file = self.assignments[state.assignment].file;
        let story_has = |finished: &FinishedStory| self.stories[finished.story].has_checks;
        self.spec.landing.is_some()
            && (self.spec.files[usize::from(file)].has_verify || state.finished_stories.iter().any(story_has))
    }

    /// Whether the attempt's work lands in a batch whose merged tree is checked.
    pub(super) fn lands_in_batch(&self, attempt: AttemptIndex) -> bool {
        self.spec.landing.is_some_and(|landing| landing.merge_check) && self.has_checks(attempt)
    }

    /// The executor's work is on the host: it is checked, reviewed or merged next.
    pub(super) fn submit_finished(&mut self, attempt: AttemptIndex) {
        if self.has_checks(attempt) && (self.is_review_enabled() || !self.lands_in_batch(attempt)) {
            self.check_story(attempt);
        } else if self.is_review_enabled() {
            self.submit_for_review(attempt);
        } else {
            self.queue_merge(attempt);
        }
    }

    /// Checks the work of one attempt, before its review or its merge.
    pub(super) fn check_story(&mut self, attempt: AttemptIndex) {
        let (file, branch) = (self.file_of(attempt), self.branch_of(attempt));
        self.attempts[attempt].view.phase = AttemptPhase::Merging;
        self.start_landing(LandingPurpose::Story, branch, file, vec![attempt]);
    }

    pub(super) fn file_of(&self, attempt: AttemptIndex) -> u16 {
        self.assignments[self.attempts[attempt].assignment].file
    }

    /// Prepares the batch at the head of the branch's queue.
    pub(super) fn start_batch(&mut self, branch: BranchIndex) {
        if self.stop_level.is_some() {
            return;
        }
        let Some(first) = self.branches[branch].queue.front().copied() else { return };
        // The checks of a sandbox are those of one tasks file.
        let file = self.file_of(first);
        let mut batch = Vec::new();
        while let Some(next) = self.branches[branch].queue.front().copied() {
            if self.file_of(next) != file || !self.lands_in_batch(next) {
                break;
            }
            self.branches[branch].queue.pop_front();
            self.attempts[next].view.phase = AttemptPhase::Merging;
            self.attempts[next].view.updated = self.now;
            batch.push(next);
        }
        let id = self.start_landing(LandingPurpose::Queue, branch, file, batch);
        self.branches[branch].landing = Some(id);
    }

    pub(super) fn start_landing(
        &mut self,
        purpose: LandingPurpose,
        branch: BranchIndex,
        file: u16,
        candidates: Vec<AttemptIndex>,
    ) -> u64 {
        self.last_landing += 1;
        let id = self.last_landing;
        let onto = self.branches[branch].head.clone();
        self.landings.insert(id, Landing::new(purpose, branch, file, candidates, onto));
        self.advance_landing(id);
        id
    }

    /// Requests what the landing's stage needs; also again, in a resumed swarm and after a backoff.
    pub(super) fn advance_landing(&mut self, id: u64) {
        let Some(landing) = self.landings.get(&id) else { return };
        let (file, purpose, stage) = (landing.file, landing.purpose, landing.stage);
        match stage {
            LandingStage::Preparing => {
                let candidates = landing.candidates.clone();
                let onto = self.branches[landing.branch].head.clone();
                let candidates: Vec<CandidateSpec> =
                    candidates.into_iter().filter_map(|attempt| self.candidate(attempt)).collect();
                let merge_check = self.spec.landing.is_some_and(|landing| landing.merge_check);
                let merge = merge_check || purpose != LandingPurpose::Story;
                self.effects.push(Effect::PrepareLanding { landing: id, file, onto, candidates, merge });
            }
            LandingStage::Checking { count } => self.request_check(id, count),
            LandingStage::CheckingHead => self.request_check(id, 0),
            LandingStage::Moving => {
                let (from, to) = (landing.onto.clone(), landing.prepared[landing.passed - 1].commit.clone());
                let stories = self.landing_stories(id, landing.passed);
                let stories = self.story_keys(&stories);
                self.effects.push(Effect::MoveBranch { landing: id, file, from, to, stories });
            }
        }
    }

    pub(super) fn candidate(&self, attempt: AttemptIndex) -> Option<CandidateSpec> {
        let state = &self.attempts[attempt];
        let stories = self.story_keys(&state.finished_indices());
        let (attempt, base) = (state.view.id.clone(), state.branch_base.clone());
        Some(CandidateSpec { attempt, base, tip: state.view.tip.clone()?, stories })
    }

    /// The stories of the first candidates.
    pub(super) fn landing_stories(&self, id: u64, count: usize) -> Vec<StoryIndex> {
        let candidates = self.landings[&id].candidates.iter().take(count);
        candidates.flat_map(|attempt| self.attempts[*attempt].finished_indices()).collect()
    }

    pub(super) fn on_landing_prepared(
        &mut self,
        id: u64,
        onto: &CommitId,
        commits: &[CheckableCommit],
        conflict: Option<&Vec<String>>,
    ) -> Option<Applied> {
        let landing = self.landings.get_mut(&id).filter(|landing| landing.stage == LandingStage::Preparing)?;
        (landing.onto, landing.prepared) = (onto.clone(), commits.to_vec());
        if let (LandingPurpose::Story, Some(false), Some(attempt)) =
            (landing.purpose, self.spec.landing.map(|landing| landing.merge_check), landing.candidates.first())
        {
            // It is checked as its agent left it: what it began with is what may be to blame.
            landing.onto = self.attempts[*attempt].branch_base.clone();
        }
        (landing.passed, landing.failed) = (0, None);
        landing.criteria.clear();
        landing.still_failing = None;
        let (branch, purpose) = (landing.branch, landing.purpose);
        let merged = match purpose {
            LandingPurpose::Base => 0,
            _ => commits.len().min(landing.candidates.len()),
        };
        let rest = landing.candidates.split_off(merged);
        self.branches[branch].head = onto.clone();
        let conflicting = match (conflict, merged, purpose) {
            (Some(paths), 0, LandingPurpose::Story | LandingPurpose::Queue) => Some(paths),
            _ => None,
        };
        if let (Some(paths), Some((first, others))) = (conflicting, rest.split_first()) {
            self.requeue_candidates(branch, others);
            self.close_landing(id);
            self.reject_conflict(*first, paths);
            self.start_next_merge(branch);
            return Some(Applied);
        }
        self.requeue_candidates(branch, &rest);
        if commits.is_empty() {
            self.close_landing(id);
            self.start_next_merge(branch);
            return Some(Applied);
        }
        self.next_check(id);
        Some(Applied)
    }

    /// Puts candidates back to the head of their branch's queue.
    pub(super) fn requeue_candidates(&mut self, branch: BranchIndex, candidates: &[AttemptIndex]) {
        for attempt in candidates.iter().rev() {
            self.attempts[*attempt].view.phase = AttemptPhase::MergeQueued;
            self.branches[branch].queue.push_front(*attempt);
        }
    }

    pub(super) fn close_landing(&mut self, id: u64) {
        self.set_deadline(Timer::Landing(id), None);
        if let Some(landing) = self.landings.remove(&id)
            && self.branches[landing.branch].landing == Some(id)
        {
            self.branches[landing.branch].landing = None;
        }
    }

    /// Goes on with the bisection: checks the next prefix, or ends if it is known which candidates pass.
    pub(super) fn next_check(&mut self, id: u64) {
        let stopped = self.stop_level.is_some();
        loop {
            let Some(landing) = self.landings.get_mut(&id) else { return };
            let all = landing.prepared.len();
            let count = match &landing.failed {
                None if landing.passed == all => return self.conclude(id),
                None => all,
                Some(failed) if failed.count - landing.passed <= 1 => return self.conclude(id),
                Some(failed) => (landing.passed + failed.count) / 2,
            };
            if landing.prepared[count - 1].checked {
                landing.passed = count;
                landing.still_failing = Some(Vec::new());
                continue;
            }
            landing.stage = LandingStage::Checking { count };
            if stopped {
                self.shelve_landing(id);
            } else {
                self.advance_landing(id);
            }
            return;
        }
    }

    /// It is known which of the candidates pass, and which one does not.
    pub(super) fn conclude(&mut self, id: u64) {
        let Some(landing) = self.landings.get_mut(&id) else { return };
        let (branch, purpose, passed) = (landing.branch, landing.purpose, landing.passed);
        if purpose == LandingPurpose::Base {
            let failed = landing.failed.take();
            return self.conclude_base(id, failed);
        }
        // Its own checks failed, or shared ones on top of a head that passed: otherwise the head may be to blame.
        let is_shared = landing.failed.as_ref().is_some_and(|failed| failed.outcome.failed_story.is_none());
        if is_shared && passed == 0 && self.branches[branch].passed_head.as_ref() != Some(&landing.onto) {
            landing.stage = LandingStage::CheckingHead;
            return match self.stop_level {
                Some(_) => self.shelve_landing(id),
                None => self.advance_landing(id),
            };
        }
        let culprits = usize::from(landing.failed.is_some());
        let rest = landing.candidates.split_off(passed + culprits);
        self.requeue_candidates(branch, &rest);
        let Some(landing) = self.landings.get_mut(&id) else { return };
        if passed == 0 {
            let landing = landing.clone();
            self.close_landing(id);
            self.reject_culprit(&landing);
            self.start_next_merge(branch);
        } else if purpose == LandingPurpose::Story {
            let attempt = landing.candidates[0];
            let criteria = std::mem::take(&mut landing.criteria);
            self.close_landing(id);
            self.on_story_checked(attempt, &criteria);
        } else {
            landing.stage = LandingStage::Moving;
            self.advance_landing(id);
        }
    }

    /// The story's own check passed, before its review or its merge.
    pub(super) fn on_story_checked(
        &mut self,
        attempt: AttemptIndex,
        criteria: &BTreeMap<StoryId, Vec<CriterionResult>>,
    ) {
        self.send_checked_results(attempt, Some(criteria), None);
        if self.is_review_enabled() && !self.attempts[attempt].is_approved {
            self.submit_for_review(attempt);
        } else {
            self.queue_merge(attempt);
        }
    }

    pub(super) fn on_branch_moved(&mut self, id: u64, head: &CommitId) -> Option<Applied> {
        let landing = self.landings.get(&id).filter(|landing| landing.stage == LandingStage::Moving)?.clone();
        let branch = landing.branch;
        let state = &mut self.branches[branch];
        state.head = head.clone();
        if landing.prepared[landing.passed - 1].commit == *head {
            state.passed_head = Some(head.clone());
            if let Some(failing) = &landing.still_failing {
                // What passes now is held against the next story that breaks it.
                state.tolerated.retain(|command| failing.contains(command));
            }
        }
        self.close_landing(id);
        for (attempt, prepared) in landing.candidates.iter().zip(&landing.prepared).take(landing.passed) {
            for finished in &mut self.attempts[*attempt].finished_stories {
                finished.commit = prepared.commit.clone();
            }
            self.send_checked_results(*attempt, Some(&landing.criteria), None);
            self.land_attempt(*attempt, head);
        }
        // After the others: its next attempt starts from what they landed.
        self.reject_culprit(&landing);
        self.start_next_merge(branch);
        Some(Applied)
    }

    /// Rejects the candidate after those that passed, if it was found to fail.
    fn reject_culprit(&mut self, landing: &Landing) {
        let (Some(culprit), Some(failed)) = (landing.candidates.get(landing.passed), &landing.failed) else { return };
        let onto = match landing.passed {
            0 => landing.onto.clone(),
            passed => landing.prepared[passed - 1].commit.clone(),
        };
        let rework = ReworkBase { commit: landing.prepared[landing.passed].commit.clone(), onto };
        self.reject_checked(*culprit, &failed.outcome, rework);
    }

    /// Somebody else moved the branch: what is to land is merged with that, and checked again.
    pub(super) fn on_branch_advanced(&mut self, id: u64, found: &CommitId) -> Option<Applied> {
        let landing = self.landings.get_mut(&id).filter(|landing| landing.stage == LandingStage::Moving)?;
        landing.branch_moves += 1;
        if landing.branch_moves > MAX_BRANCH_MOVES {
            let summary = format!("the branch moved {MAX_BRANCH_MOVES} times while its next head was being checked");
            let fault = MachineryFault::new(Cause::HostError, summary, false);
            self.block_landing(id, &fault);
            return Some(Applied);
        }
        landing.stage = LandingStage::Preparing;
        let branch = landing.branch;
        self.branches[branch].head = found.clone();
        self.advance_landing(id);
        Some(Applied)
    }
}
