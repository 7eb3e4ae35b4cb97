//! Work that does not land after all: it failed its checks, or does not merge. It goes back to its agent with what is wrong, or fails
//! for good; a ref keeps its commits. Called by `landing.rs`, `check.rs` and `merge.rs`.

use std::collections::BTreeMap;
use std::time::Duration;

use super::attempt::{FailedStory, ReportedStory};
use super::diagnosis;
use super::landing_state::{PendingMerge, ReworkBase, conflict_failure};
use super::state::SwarmMachine;
use crate::ids::StoryId;
use crate::swarm::event::CheckOutcome;
use crate::swarm::index::{AssignmentIndex, AttemptIndex, StoryIndex, TypedIndex};
use crate::verdict::{CriterionResult, Failure};

impl SwarmMachine {
    /// Remembers what the sandbox reported of its finished stories until their checks are done.
    pub(super) fn hold_results(&mut self, attempt: AttemptIndex, reported: &BTreeMap<StoryIndex, ReportedStory>) {
        let finished = self.attempts[attempt].finished_indices();
        let held = finished.into_iter().filter_map(|story| Some((story, reported.get(&story)?.clone()))).collect();
        self.attempts[attempt].unsent_results = held;
    }

    /// Sends the results that waited for the checks. With a failure, the stories did not pass.
    pub(super) fn send_checked_results(
        &mut self,
        attempt: AttemptIndex,
        criteria: Option<&BTreeMap<StoryId, Vec<CriterionResult>>>,
        failure: Option<&Failure>,
    ) {
        let reported = std::mem::take(&mut self.attempts[attempt].unsent_results);
        for story in self.attempts[attempt].finished_indices() {
            let Some(mut report) = reported.get(&story).cloned() else { continue };
            let id = &self.stories[story].view.key.id;
            match criteria.and_then(|criteria| criteria.get(id)) {
                Some(results) => report.result.criteria.clone_from(results),
                // Found passed before: each test command was a part of that.
                None if failure.is_none() => {
                    let tested = &self.spec.stories[story.position()].tested_criteria;
                    for result in report.result.criteria.iter_mut().filter(|result| tested.contains(&result.id)) {
                        result.met = Some(true);
                    }
                }
                None => {}
            }
            self.send_result(attempt, story, Some(&report), failure);
        }
    }

    /// Work that failed its checks goes back to its agent, or fails for good. A ref keeps its commits.
    pub(super) fn reject_checked(&mut self, attempt: AttemptIndex, outcome: &CheckOutcome, rework: ReworkBase) {
        let Some(failure) = &outcome.failure else { return };
        let failure = Failure { salvage: self.attempts[attempt].result_ref.clone(), ..failure.clone() };
        let criteria: BTreeMap<StoryId, Vec<CriterionResult>> =
            outcome.criteria.iter().map(|one| (one.story.clone(), one.results.clone())).collect();
        self.send_checked_results(attempt, Some(&criteria), Some(&failure));
        let stories = self.take_finished(attempt, failure.salvage.as_deref());
        // Of several stories, only the one whose own check failed is to blame.
        let own = |story: &StoryIndex| outcome.failed_story.as_ref() == Some(&self.stories[*story].view.key.id);
        let blamed: Vec<StoryIndex> = match stories.iter().any(own) {
            true => stories.iter().copied().filter(own).collect(),
            false => stories.clone(),
        };
        let agents_only = stories.iter().all(|story| !self.stories[*story].has_command);
        let assignment = self.attempts[attempt].assignment;
        let (mut retried, mut failed) = (Vec::new(), Vec::new());
        for failure in FailedStory::for_all(blamed.iter().copied(), &failure) {
            let group = if self.use_story_retry(&failure) { &mut retried } else { &mut failed };
            group.push(failure);
        }
        if failed.is_empty() && agents_only {
            self.assignments[assignment].rework_base = Some(rework);
        }
        let others = stories.iter().copied().filter(|story| !blamed.contains(story));
        let others: Vec<FailedStory> = FailedStory::for_all(others, &failure);
        self.end_rejected(attempt, retried, failed, others);
    }

    /// Takes the stories that do not land with this attempt after all.
    pub(super) fn take_finished(&mut self, attempt: AttemptIndex, reference: Option<&str>) -> Vec<StoryIndex> {
        let finished = std::mem::take(&mut self.attempts[attempt].finished_stories);
        let stories: Vec<StoryIndex> = finished.into_iter().map(|finished| finished.story).collect();
        if let Some(reference) = reference {
            self.record_salvage(attempt, &stories, reference);
        }
        stories
    }

    /// Retries and fails the stories of an attempt whose work does not land. `others` are retried at no cost.
    pub(super) fn end_rejected(
        &mut self,
        attempt: AttemptIndex,
        retried: Vec<FailedStory>,
        failed: Vec<FailedStory>,
        others: Vec<FailedStory>,
    ) {
        self.escalate_failures(attempt, &retried, true);
        self.escalate_failures(attempt, &failed, false);
        let assignment = self.attempts[attempt].assignment;
        self.assignments[assignment].review.discard_tip();
        self.fail_stories(failed);
        for FailedStory { story, failure } in retried.into_iter().chain(others) {
            if self.stories[story].view.is_closed() {
                continue;
            }
            match self.stop_level {
                None => self.retry_story(story, &failure, Duration::ZERO),
                Some(_) => self.requeue_story(story, &failure),
            }
        }
        self.settle_attempt(attempt);
    }

    /// Work that does not merge goes back to its agent as a merge in progress. The first time costs no retry.
    pub(super) fn reject_conflict(&mut self, attempt: AttemptIndex, paths: &[String]) {
        let failure = Failure { salvage: self.attempts[attempt].result_ref.clone(), ..conflict_failure(paths) };
        let tip = self.attempts[attempt].view.tip.clone();
        self.send_checked_results(attempt, None, Some(&failure));
        let stories = self.take_finished(attempt, failure.salvage.as_deref());
        let assignment = self.attempts[attempt].assignment;
        self.keep_apart(assignment, paths);
        self.assignments[assignment].merge_conflicts += 1;
        let free = self.assignments[assignment].merge_conflicts == 1;
        let (mut retried, mut failed) = (Vec::new(), Vec::new());
        for failed_story in FailedStory::for_all(stories, &failure) {
            let again = match free {
                true => {
                    let text = diagnosis::previous_failure_text(&failure);
                    self.stories[failed_story.story].previous_failure = Some(text);
                    true
                }
                false => self.use_story_retry(&failed_story),
            };
            if again { &mut retried } else { &mut failed }.push(failed_story);
        }
        if failed.is_empty() {
            self.assignments[assignment].pending_merge = tip.map(|tip| PendingMerge { tip, paths: paths.to_vec() });
        }
        self.end_rejected(attempt, retried, failed, Vec::new());
    }

    /// Assignments that conflicted in the same files do not run at the same time any more.
    pub(super) fn keep_apart(&mut self, assignment: AssignmentIndex, paths: &[String]) {
        self.assignments[assignment].conflict_paths.extend(paths.iter().cloned());
        for other in self.assignments.indices() {
            let (own, others) = (&self.assignments[assignment], &self.assignments[other]);
            if other == assignment
                || others.open_stories == 0
                || own.exclusive_with.contains(&other)
                || own.conflict_paths.is_disjoint(&others.conflict_paths)
            {
                continue;
            }
            let (own_active, other_active) = (usize::from(own.active), usize::from(others.active));
            self.assignments[assignment].exclusive_with.push(other);
            self.assignments[assignment].active_exclusions += other_active;
            self.assignments[other].exclusive_with.push(assignment);
            self.assignments[other].active_exclusions += own_active;
            self.update_readiness(other);
        }
    }
}
