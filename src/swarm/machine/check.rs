//! Check sandboxes: what they check, and what they found. No agent was ever in one, so nothing but the commit decides.
//!
//! A check that ends because of the commit (a command failed, took too long or too much memory) is an outcome. One that ends because of
//! the machinery says nothing, and is repeated. Called by `landing.rs`.

use super::attempt::WorkDirFate;
use super::deadlines::Timer;
use super::diagnosis;
use super::landing_state::{FailedPrefix, Landing, LandingPurpose, LandingStage};
use super::state::{Applied, Assignment, SwarmMachine, TrackedStory};
use super::view::AttemptRole;
use crate::ids::{AttemptId, CommitId};
use crate::swarm::announcement::Announcement;
use crate::swarm::effect::CheckSpec;
use crate::swarm::event::{CheckOutcome, MachineryFault};
use crate::swarm::index::{AttemptIndex, BranchIndex};
use crate::verdict::{Cause, CauseClass, Failure};

impl SwarmMachine {
    /// Checks the base of each branch before any agent starts.
    pub(super) fn check_bases(&mut self) {
        for file in 0..self.spec.files.len() {
            let open = |story: &TrackedStory| {
                usize::from(story.view.key.file) == file && !story.view.is_closed() && story.assignment.is_some()
            };
            let branch = self.file_branches[file];
            let is_listed = |other: &u16| self.file_branches[usize::from(*other)] == branch;
            if self.spec.files[file].has_verify
                && !self.unchecked_bases.iter().any(is_listed)
                && self.stories.iter().any(open)
            {
                self.unchecked_bases.insert(file as u16);
            }
        }
        self.start_base_checks();
    }

    pub(super) fn start_base_checks(&mut self) {
        for file in self.unchecked_bases.clone() {
            let running = |landing: &Landing| landing.purpose == LandingPurpose::Base && landing.file == file;
            if !self.landings.values().any(running) {
                self.start_landing(LandingPurpose::Base, self.file_branches[usize::from(file)], file, Vec::new());
            }
        }
    }

    /// Whether agents must wait until the checks passed on the base.
    pub(super) fn is_base_unchecked(&self) -> bool {
        !self.unchecked_bases.is_empty()
    }

    pub(super) fn conclude_base(&mut self, id: u64, failed: Option<FailedPrefix>) {
        let Landing { branch, file, onto, .. } = self.landings[&id].clone();
        self.close_landing(id);
        match failed.and_then(|failed| failed.outcome.failure.clone().map(|failure| (failure, failed.outcome))) {
            None => self.branches[branch].passed_head = Some(onto),
            Some((failure, outcome)) => {
                if self.spec.landing.is_none_or(|landing| !landing.red_base) {
                    self.red_base = Some(failure);
                    return;
                }
                self.tolerate(branch, onto, failure, &outcome.failed_verify);
            }
        }
        self.unchecked_bases.remove(&file);
    }

    /// Starts a check sandbox for the first `count` candidates together, or for the head itself.
    pub(super) fn request_check(&mut self, id: u64, count: usize) {
        let landing = &self.landings[&id];
        if landing.check.is_some() {
            return;
        }
        let commit = match count {
            0 => landing.onto.clone(),
            _ => landing.prepared[count - 1].commit.clone(),
        };
        let stories = match landing.purpose {
            LandingPurpose::Base => Vec::new(),
            _ => self.landing_stories(id, count),
        };
        // A check belongs to the task that it may be held against.
        let assignment = match landing.candidates.get(count.saturating_sub(1)) {
            Some(attempt) => self.attempts[*attempt].assignment,
            None => {
                let of_file = |(_, one): &(_, &Assignment)| one.file == landing.file;
                let Some((assignment, _)) = self.assignments.iter_indexed().find(of_file) else { return };
                assignment
            }
        };
        let spec = CheckSpec {
            commit: commit.clone(),
            stories: self.story_keys(&stories),
            tolerated: self.branches[landing.branch].tolerated.clone(),
        };
        let refs = self.story_refs(&stories);
        let role = AttemptRole::Checker(spec);
        let check = self.add_attempt(assignment, stories, commit.clone(), role);
        self.attempts[check].landing = Some(id);
        if let Some(landing) = self.landings.get_mut(&id) {
            landing.check = Some(check);
        }
        let attempt = self.attempts[check].view.id.clone();
        self.announce(Announcement::CheckStarted { attempt, stories: refs, commit });
        self.request_start(check);
    }

    pub(super) fn on_check_collected(&mut self, attempt: &AttemptId, outcome: &CheckOutcome) -> Option<Applied> {
        let id = self.attempts[self.attempt_index(attempt)?].landing?;
        let check = self.finish_collecting(attempt)?;
        self.request_removal(check, WorkDirFate::Remove);
        let mut outcome = outcome.clone();
        if let Some(failure) = &outcome.failure {
            let failure = diagnosis::story_failure(&self.attempts[check], failure);
            if failure.cause.class() != CauseClass::Story {
                self.on_check_failed(check, &failure, true);
                return Some(Applied);
            }
            outcome.failure = Some(failure);
        }
        self.end_check(check, outcome.failure.clone());
        self.apply_check(id, outcome);
        Some(Applied)
    }

    pub(super) fn end_check(&mut self, check: AttemptIndex, failure: Option<Failure>) {
        let state = &self.attempts[check];
        let (attempt, landing) = (state.view.id.clone(), state.landing);
        let stories = self.story_refs(&state.stories);
        self.announce(Announcement::CheckEnded { attempt, stories, failure });
        if let Some(landing) = landing.and_then(|id| self.landings.get_mut(&id)) {
            landing.check = None;
        }
        self.settle_attempt(check);
    }

    pub(super) fn apply_check(&mut self, id: u64, outcome: CheckOutcome) {
        let Some(landing) = self.landings.get_mut(&id) else { return };
        let branch = landing.branch;
        match landing.stage {
            LandingStage::CheckingHead => {
                match &outcome.failure {
                    // The head is in order, so the candidate is not.
                    None => self.branches[branch].passed_head = Some(landing.onto.clone()),
                    Some(failure) => {
                        landing.failed = None;
                        let (commit, failure) = (landing.onto.clone(), failure.clone());
                        self.tolerate(branch, commit, failure, &outcome.failed_verify);
                    }
                }
                self.next_check(id);
            }
            LandingStage::Checking { count } => {
                if outcome.failure.is_some() {
                    landing.failed = Some(FailedPrefix { count, outcome });
                } else {
                    landing.passed = count;
                    landing.still_failing = Some(outcome.failed_verify);
                    for checked in outcome.criteria {
                        landing.criteria.insert(checked.story, checked.results);
                    }
                }
                self.next_check(id);
            }
            LandingStage::Preparing | LandingStage::Moving => {}
        }
    }

    /// The shared checks fail on the branch's head: what fails there is held against nobody.
    pub(super) fn tolerate(&mut self, branch: BranchIndex, commit: CommitId, failure: Failure, commands: &[String]) {
        let state = &mut self.branches[branch];
        for command in commands {
            if !state.tolerated.contains(command) {
                state.tolerated.push(command.clone());
            }
        }
        state.passed_head = Some(commit.clone());
        self.announce(Announcement::BranchRed { commit, failure });
    }

    /// A check sandbox gave no outcome: it is repeated, or the branch is blocked.
    pub(super) fn on_check_failed(&mut self, check: AttemptIndex, failure: &Failure, retryable: bool) {
        let state = &mut self.attempts[check];
        state.view.error.get_or_insert_with(|| failure.evidence.summary.clone());
        let (engine_lost, landing) = (state.engine_lost, state.landing);
        if failure.cause.class() == CauseClass::Story && failure.cause != Cause::ProtocolViolation {
            // It took the sandbox down with it: too much memory, too much time.
            let outcome = CheckOutcome { failure: Some(failure.clone()), ..CheckOutcome::default() };
            self.end_check(check, outcome.failure.clone());
            if let Some(id) = landing {
                self.apply_check(id, outcome);
            }
            return;
        }
        self.end_check(check, Some(failure.clone()));
        let Some(id) = landing else { return };
        if self.stop_level.is_some() {
            self.shelve_landing(id);
            return;
        }
        let Some(state) = self.landings.get_mut(&id) else { return };
        state.machinery_failures += u32::from(!engine_lost);
        let failures = state.machinery_failures;
        if engine_lost || retryable && failures <= self.spec.limits.machinery_retries {
            self.set_deadline(Timer::Landing(id), Some(self.backoff_duration(failures.max(1))));
        } else {
            let fault = MachineryFault {
                evidence: failure.evidence.clone(),
                ..MachineryFault::new(failure.cause, "", retryable)
            };
            self.block_landing(id, &fault);
        }
    }
}
