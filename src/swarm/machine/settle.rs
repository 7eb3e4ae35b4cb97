//! What a result, or the lack of one, means for each story of an attempt.
//!
//! | the sandbox's report or fate | the story |
//! |---|---|
//! | finished, with a verified tip | lands with the merge |
//! | failed because of itself | is retried while it has retries; else it failed |
//! | hung | is retried once, if it has a retry; else it failed |
//! | failed because of the machinery, or the sandbox died of that | is retried after a backoff while the assignment has machinery retries; else it failed |
//! | the sandbox died because of a story (memory, time, protocol) | the stories in progress failed; if there are none, all unfinished ones |
//! | skipped or not reached because another story failed | is retried, at no cost |
//! | the swarm was stopped | pending, at no cost |
//!
//! A retried story runs in the assignment's next attempt, with the others that are left. A result that contradicts itself is
//! a protocol violation of all its stories.

use std::collections::BTreeMap;
use std::time::Duration;

use super::attempt::{Attempt, EndReason, FailedStory, FinishedStory, ReportedStory, WorkDirFate};
use super::deadlines::AttemptTimer;
use super::diagnosis;
use super::state::{Applied, SwarmMachine};
use super::triage::StoryTriage;
use super::view::AttemptPhase;
use crate::handoff::result::StoryResult;
use crate::ids::{AttemptId, CommitId, StoryId, StoryKey};
use crate::protocol::acp::message::{CompletionStatus, StoryStatus};
use crate::protocol::amp::message::DiffSummary;
use crate::swarm::announcement::Announcement;
use crate::swarm::event::{Leftover, MachineryFault, StopLevel};
use crate::swarm::index::{AttemptIndex, StoryIndex};
use crate::verdict::{Cause, Failure, StoryOutcome};

const MAX_COLLECT_RETRIES: u32 = 2;
/// The limit while the engine is lost; [`ENGINE_RETURN_TIMEOUT`](super::engine::ENGINE_RETURN_TIMEOUT) mostly ends that first.
const MAX_COLLECT_RETRIES_ENGINE_LOST: u32 = 60;
/// This many attempts that the engine's loss ended cost an assignment nothing.
const MAX_FREE_ENGINE_LOSSES: u32 = 20;

/// A result that was fetched and verified.
pub(super) struct VerifiedResult<'a> {
    pub(super) tip: Option<&'a CommitId>,
    pub(super) stories: &'a [StoryResult],
    pub(super) diffs: &'a [DiffSummary],
    pub(super) tree: Option<&'a String>,
    pub(super) result_ref: Option<&'a String>,
    pub(super) leftover: Option<&'a Leftover>,
}

/// What became of a work directory that gave no result.
pub(super) struct WorkDirSalvage<'a> {
    /// The host's ref of it.
    pub(super) reference: Option<&'a str>,
    /// There is a ref, or there was nothing to salvage.
    pub(super) salvaged: bool,
    /// Nothing was left out.
    pub(super) complete: bool,
    pub(super) depot_timed_out: bool,
}

impl SwarmMachine {
    pub(super) fn on_result_collected(&mut self, id: &AttemptId, result: &VerifiedResult<'_>) -> Option<Applied> {
        if !self.attempt(id)?.is_executor() {
            return None;
        }
        let attempt = self.finish_collecting(id)?;
        let state = &mut self.attempts[attempt];
        state.view.tip = result.tip.cloned();
        (state.tree, state.result_ref) = (result.tree.cloned(), result.result_ref.cloned());
        let mut triage = self.triage_stories(attempt, result);
        // The host has the result. What the result lacks may only be in the work directory.
        let salvage = match result.leftover {
            Some(Leftover::Salvaged { reference, .. }) => Some(reference),
            Some(Leftover::Nothing) | None => None,
        };
        let complete =
            matches!(result.leftover, Some(Leftover::Nothing | Leftover::Salvaged { incomplete: false, .. }));
        let partial =
            salvage.is_some() || result.tip.is_some() || triage.failures().any(|one| one.failure.salvage.is_some());
        self.request_removal(attempt, WorkDirFate::from_salvage(!triage.has_unsaved_work || complete, partial));
        if let Some(reference) = salvage {
            let mut stories = Vec::new();
            for FailedStory { story, failure } in triage.failures_mut() {
                failure.salvage.get_or_insert_with(|| reference.clone());
                stories.push(*story);
            }
            stories.extend(&triage.untried);
            self.record_salvage(attempt, &stories, reference);
        }
        for FailedStory { story, failure } in triage.failures() {
            if let Some(reference) = failure.salvage.as_ref().filter(|reference| salvage != Some(*reference)) {
                self.record_salvage(attempt, &[*story], reference);
            }
        }
        self.apply_triage(attempt, triage, true);
        Some(Applied)
    }

    pub(super) fn on_collect_failed(
        &mut self,
        id: &AttemptId,
        fault: &MachineryFault,
        salvage: &WorkDirSalvage<'_>,
    ) -> Option<Applied> {
        let attempt = self.finish_collecting(id)?;
        let limit = match fault.engine_unreachable || self.is_engine_lost() {
            true => MAX_COLLECT_RETRIES_ENGINE_LOST,
            false => MAX_COLLECT_RETRIES,
        };
        let state = &mut self.attempts[attempt];
        // The work of a dead sandbox is safe once salvaged, but the result of a completed one is worth another try.
        let completed = state.view.completion == Some(CompletionStatus::Completed);
        let over =
            salvage.depot_timed_out || salvage.salvaged && !completed || self.stop_level == Some(StopLevel::Kill);
        if fault.retryable && !over && state.collect_retries < limit {
            state.collect_retries += 1;
            let retries = state.collect_retries.min(MAX_COLLECT_RETRIES);
            self.set_timer(attempt, AttemptTimer::CollectRetry, self.backoff_duration(retries));
            return Some(Applied);
        }
        if self.spec.landing.is_some()
            && completed
            && fault.retryable
            && !fault.engine_unreachable
            && self.stop_level != Some(StopLevel::Kill)
            && matches!(fault.cause, Cause::HostError | Cause::DiskFull)
        {
            // What is finished is not done again: the host is what fails. `resume` collects it.
            self.fail_machinery(fault);
            return Some(Applied);
        }
        let (is_executor, stories) = (state.view.is_executor(), state.stories.clone());
        if let Some(reference) = salvage.reference {
            // One ref for the whole work directory, which has the work of all its stories.
            self.record_salvage(attempt, &stories, reference);
        }
        let complete = salvage.salvaged && salvage.complete || !is_executor;
        self.request_removal(attempt, WorkDirFate::from_salvage(complete, salvage.reference.is_some()));
        let state = &self.attempts[attempt];
        // The reason why the sandbox ended matters more than that it left no result.
        let (mut failure, retryable) = match &state.end_failure {
            Some(failure) => (failure.clone(), true),
            None => {
                let ended = state.end_reason.and_then(|_| diagnosis::unreached_failure(state));
                (ended.unwrap_or_else(|| fault.into()), fault.retryable)
            }
        };
        if !is_executor {
            self.on_no_judgement(attempt, &failure, retryable);
            return Some(Applied);
        }
        failure.salvage = salvage.reference.map(str::to_owned);
        let mut triage = StoryTriage::default();
        triage.add_unreached(state, &stories, Some(failure));
        self.apply_triage(attempt, triage, retryable);
        Some(Applied)
    }

    /// A ref keeps work that did not land: announces it, and remembers it with the attempt and its stories.
    pub(super) fn record_salvage(&mut self, attempt: AttemptIndex, stories: &[StoryIndex], reference: &str) {
        let record = |refs: &mut Vec<String>| {
            if !refs.iter().any(|known| known == reference) {
                refs.push(reference.to_owned());
            }
        };
        let view = &mut self.attempts[attempt].view;
        record(&mut view.salvage_refs);
        stories.iter().for_each(|story| record(&mut self.stories[*story].view.salvage_refs));
        let (attempt, reference) = (view.id.clone(), reference.to_owned());
        self.announce(Announcement::Salvaged { attempt, reference });
    }

    /// A swarm that is being killed does not wait longer for the work directory.
    pub(super) fn on_collect_timeout(&mut self, attempt: AttemptIndex) {
        if !self.attempts[attempt].view.is_executor() {
            self.request_removal(attempt, WorkDirFate::Remove);
            let failure = Failure::new(Cause::StoppedByUser, "the swarm was killed before the verdict was out");
            self.on_no_judgement(attempt, &failure, true);
            return;
        }
        self.request_removal(attempt, WorkDirFate::KeepUnsalvaged);
        let state = &self.attempts[attempt];
        let mut triage = StoryTriage::default();
        match state.end_failure.clone() {
            Some(failure) => triage.add_unreached(state, &state.stories, Some(failure)),
            None => {
                let failure = Failure::new(Cause::StoppedByUser, "the swarm was killed before the result was out");
                triage.stopped = FailedStory::for_all(state.stories.iter().copied(), &failure);
            }
        }
        self.apply_triage(attempt, triage, true);
    }

    /// A reviewer or a check sandbox ended without what it is for.
    pub(super) fn on_no_judgement(&mut self, attempt: AttemptIndex, failure: &Failure, retryable: bool) {
        match self.attempts[attempt].is_check() {
            true => self.on_check_failed(attempt, failure, retryable),
            false => self.on_no_verdict(attempt, failure, retryable),
        }
    }

    /// Nothing of the attempt ever ran.
    pub(super) fn fail_unstarted(&mut self, attempt: AttemptIndex, failure: &Failure, retryable: bool) {
        let state = &self.attempts[attempt];
        let stories = state.stories.iter().copied();
        let mut triage = StoryTriage::default();
        if state.end_reason == Some(EndReason::SwarmStopped) {
            let failure = Failure::new(Cause::StoppedByUser, "the swarm was stopped before the sandbox began");
            triage.stopped = FailedStory::for_all(stories, &failure);
        } else {
            // Whatever the cause's class, no story can have caused it.
            triage.machinery_failures = FailedStory::for_all(stories, failure);
        }
        self.apply_triage(attempt, triage, retryable);
    }

    /// Ends the wait for the answer to a `Collect`, if the attempt waits for one.
    pub(super) fn finish_collecting(&mut self, id: &AttemptId) -> Option<AttemptIndex> {
        let attempt = self.attempt_in(id, &[AttemptPhase::Collecting])?;
        if self.attempts[attempt].timer == Some(AttemptTimer::CollectRetry) {
            return None;
        }
        self.clear_timer(attempt);
        self.attempts[attempt].view.updated = self.now;
        Some(attempt)
    }

    fn triage_stories(&self, attempt: AttemptIndex, collected: &VerifiedResult<'_>) -> StoryTriage {
        let attempt = &self.attempts[attempt];
        let file = self.assignments[attempt.assignment].file;
        let story_of = |id: &StoryId| self.story_indices.get(&StoryKey { file, id: id.clone() }).copied();
        let mut reported = BTreeMap::new();
        for (position, result) in collected.stories.iter().enumerate() {
            if let Some(story) = story_of(&result.id).filter(|story| attempt.stories.contains(story)) {
                let diff = collected.diffs.get(position).cloned().unwrap_or_default();
                reported.entry(story).or_insert_with(|| ReportedStory { result: result.clone(), diff });
            }
        }
        let mut triage = StoryTriage { reported, ..StoryTriage::default() };
        let contradiction = self
            .find_contradiction(&attempt.stories, &triage.reported, collected.tip)
            .or_else(|| self.find_unconfirmed(attempt, &triage.reported));
        if let Some(problem) = contradiction {
            let failure = Failure::new(Cause::ProtocolViolation, problem);
            triage.story_failures = FailedStory::for_all(attempt.stories.iter().copied(), &failure);
            triage.has_unsaved_work = true;
            return triage;
        }
        let mut unreached = Vec::new();
        for &story in &attempt.stories {
            let Some(ReportedStory { result, .. }) = triage.reported.get(&story) else {
                unreached.push(story);
                continue;
            };
            match &result.outcome {
                StoryOutcome::Finished { .. } if self.spec.landing.is_some() && attempt.end_failure.is_some() => {
                    // Its sandbox did not live to vouch for it.
                    unreached.push(story);
                }
                StoryOutcome::Finished { commit } => {
                    let (commit, duration) = (commit.clone(), Duration::from_millis(result.duration_ms));
                    triage.finished.push(FinishedStory { story, commit, duration });
                }
                StoryOutcome::Failed { failure, unsaved, .. } => {
                    triage.has_unsaved_work |= *unsaved;
                    let failure = diagnosis::story_failure(attempt, failure);
                    triage.add_failure(attempt, story, failure);
                }
                StoryOutcome::Skipped { because } => {
                    let because = story_of(because).and_then(|story| triage.reported.get(&story));
                    match because.map(|reported| &reported.result.outcome) {
                        Some(StoryOutcome::Failed { .. }) => triage.untried.push(story),
                        _ => unreached.push(story),
                    }
                }
                StoryOutcome::NotReached => unreached.push(story),
            }
        }
        // The sandbox began a story that the result does not know.
        triage.has_unsaved_work |= unreached.iter().any(|story| attempt.has_begun_story(*story));
        let failure = attempt.end_failure.clone().or_else(|| diagnosis::unreached_failure(attempt));
        triage.add_unreached(attempt, &unreached, failure);
        triage
    }

    /// Why the reports of an attempt cannot all be true.
    fn find_contradiction(
        &self,
        stories: &[StoryIndex],
        reported: &BTreeMap<StoryIndex, ReportedStory>,
        tip: Option<&CommitId>,
    ) -> Option<String> {
        let is_finished = |story: &StoryIndex| {
            let outcome = reported.get(story).map(|reported| &reported.result.outcome);
            matches!(outcome, Some(StoryOutcome::Finished { .. }))
        };
        stories.iter().filter(|story| is_finished(story)).find_map(|story| {
            if tip.is_none() {
                return Some("a story is said to be finished, and the branch did not move".to_owned());
            }
            let unmet = |other: &&StoryIndex| stories.contains(other) && !is_finished(other);
            let other = self.stories[*story].dependencies.iter().find(unmet)?;
            let (story, other) = (&self.stories[*story].view.key.id, &self.stories[*other].view.key.id);
            Some(format!("`{story}` is said to be finished, and `{other}`, which it depends on, is not"))
        })
    }

    /// Why a result that has finished stories is not confirmed by what the sandbox reported of them and of itself (ACP), and by how
    /// it ended.
    fn find_unconfirmed(&self, attempt: &Attempt, reported: &BTreeMap<StoryIndex, ReportedStory>) -> Option<String> {
        let is_finished = |story: &&StoryIndex| {
            let outcome = reported.get(story).map(|reported| &reported.result.outcome);
            matches!(outcome, Some(StoryOutcome::Finished { .. }))
        };
        let finished: Vec<StoryIndex> = attempt.stories.iter().filter(is_finished).copied().collect();
        if self.spec.landing.is_none() || finished.is_empty() || attempt.end_failure.is_some() {
            return None;
        }
        let view = &attempt.view;
        if view.bad_records >= self.spec.limits.max_bad_records.max(1) {
            let count = view.bad_records;
            return Some(format!("a story is said to be finished, and the sandbox sent {count} bad records"));
        }
        match view.completion {
            Some(CompletionStatus::Completed) => {}
            // It was told to.
            Some(CompletionStatus::Stopped) if attempt.end_reason.is_some() => {}
            Some(status) => {
                let status = status.as_str();
                return Some(format!("a story is said to be finished, and the sandbox's completion is `{status}`"));
            }
            None => {}
        }
        let code = view.exit.as_ref().and_then(|exit| exit.code).unwrap_or(0);
        if code != 0 && attempt.end_reason.is_none() && !attempt.engine_lost && !(128..=255).contains(&code) {
            return Some(format!("a story is said to be finished, and the sandbox ended with exit code {code}"));
        }
        let unconfirmed =
            |story: &&StoryIndex| !matches!(attempt.reported_status(**story), Some(StoryStatus::Completed));
        let story = finished.iter().find(unconfirmed)?;
        let id = &self.stories[*story].view.key.id;
        let status = attempt.reported_status(*story).unwrap_or(StoryStatus::Pending).as_str();
        Some(format!("`{id}` is said to be finished, and the sandbox last reported it as `{status}`"))
    }

    /// Closes what can be closed, retries the rest, and sends finished work to its review or merge.
    fn apply_triage(&mut self, attempt: AttemptIndex, triage: StoryTriage, retryable: bool) {
        let StoryTriage { finished, story_failures, machinery_failures, stopped, untried, reported, .. } = triage;
        self.attempts[attempt].finished_stories = finished;
        for FailedStory { story, failure } in story_failures.iter().chain(&machinery_failures).chain(&stopped) {
            if reported.contains_key(story) || self.attempts[attempt].has_begun_story(*story) {
                self.send_result(attempt, *story, reported.get(story), Some(failure));
            }
        }
        // After the failures: a review is requested with the newest result.
        if self.has_checks(attempt) {
            self.hold_results(attempt, &reported);
        } else {
            for story in self.attempts[attempt].finished_indices() {
                self.send_result(attempt, story, reported.get(&story), None);
            }
        }
        if self.attempts[attempt].end_reason == Some(EndReason::AdminAbort) {
            let mut failures = story_failures.into_iter().chain(machinery_failures).chain(stopped);
            self.abort_attempt(attempt, failures.find_map(|one| one.failure.salvage));
            return;
        }
        let mut wait = Duration::ZERO;
        let (mut retried, mut failed) = (Vec::new(), Vec::new());
        if !machinery_failures.is_empty() {
            match self.machinery_backoff(attempt, retryable) {
                Some(backoff) => {
                    wait = backoff;
                    retried.extend(machinery_failures);
                }
                None => failed.extend(machinery_failures),
            }
        }
        for failure in story_failures {
            let group = if self.use_story_retry(&failure) { &mut retried } else { &mut failed };
            group.push(failure);
        }
        for FailedStory { story, failure } in stopped {
            self.release_story(attempt, story);
            self.stories[story].view.failure = Some(failure);
        }
        for story in untried {
            self.release_story(attempt, story);
        }
        self.escalate_failures(attempt, &retried, true);
        self.escalate_failures(attempt, &failed, false);
        // First, because it may skip some of `retried`.
        self.fail_stories(failed);
        for FailedStory { story, failure } in retried {
            if self.stories[story].view.is_closed() {
                continue;
            }
            // A swarm that is being stopped retries nothing; the next `resume` does.
            match self.stop_level {
                None => self.retry_story(story, &failure, wait),
                Some(_) => self.requeue_story(story, &failure),
            }
        }
        if self.stop_level.is_none() && !wait.is_zero() {
            self.set_backoff(self.attempts[attempt].assignment, Some(wait));
        }
        if self.attempts[attempt].finished_stories.is_empty() {
            self.settle_attempt(attempt);
        } else {
            self.submit_finished(attempt);
        }
    }

    /// Uses up one of the assignment's machinery retries, or none if the engine was lost. Returns the backoff before the
    /// next attempt, or `None` if there is no retry left.
    fn machinery_backoff(&mut self, attempt: AttemptIndex, retryable: bool) -> Option<Duration> {
        let &Attempt { assignment, engine_lost, .. } = &self.attempts[attempt];
        let state = &mut self.assignments[assignment];
        let free = engine_lost && state.engine_losses < MAX_FREE_ENGINE_LOSSES;
        state.engine_losses += u32::from(free);
        state.machinery_failures += u32::from(!free);
        state.last_machinery_failure = (!free).then_some(self.now);
        let failures = state.machinery_failures;
        let retried = free || retryable && failures <= self.spec.limits.machinery_retries;
        retried.then(|| self.backoff_duration(failures.max(1)))
    }

    /// Records a story's own failure. Returns whether it has a retry left.
    pub(super) fn use_story_retry(&mut self, failed: &FailedStory) -> bool {
        let FailedStory { story, failure } = failed;
        let mut had_merge = false;
        if let Some(assignment) = self.stories[*story].assignment {
            // What it was to go on from may be why it failed.
            let state = &mut self.assignments[assignment];
            had_merge = state.pending_merge.take().is_some();
            state.rework_base = None;
        }
        let has_fresh_start = self.spec.landing.is_some() && failure.cause == Cause::Conflict;
        let story = &mut self.stories[*story];
        if has_fresh_start && had_merge && story.has_command {
            // A command that knows nothing of merges is no agent that failed to resolve one: it runs again on what landed.
            return true;
        }
        let hung = failure.cause == Cause::Hung;
        story.view.failures += 1;
        story.hangs += u32::from(hung);
        story.previous_failure = Some(diagnosis::previous_failure_text(failure));
        // A hang costs its whole time and seldom ends the next time, so it gets one retry only.
        let hopeless = hung && story.hangs > 1;
        (diagnosis::is_retryable(failure.cause) || has_fresh_start)
            && !hopeless
            && story.view.failures <= self.spec.limits.retries
    }

    /// The admin gave the task up: nothing of the attempt lands, whatever its result.
    pub(super) fn abort_attempt(&mut self, attempt: AttemptIndex, salvage: Option<String>) {
        self.record_reviewed_salvage(attempt);
        self.attempts[attempt].finished_stories.clear();
        self.settle_attempt(attempt);
        let failure = Failure { salvage, ..Failure::new(Cause::AbortedByAdmin, diagnosis::ADMIN_ABORT_SUMMARY) };
        self.abort_assignment(self.attempts[attempt].assignment, &failure);
    }

    /// Makes a story pending again at no cost; one that was never begun does not count as attempted.
    fn release_story(&mut self, attempt: AttemptIndex, story: StoryIndex) {
        let begun = self.attempts[attempt].has_begun_story(story);
        let view = &mut self.stories[story].view;
        view.status = StoryStatus::Pending;
        view.attempts -= u32::from(!begun);
    }
}
