//! What a result, or the lack of one, means for each story of an attempt.
//!
//! | the sandbox's word or fate | the story |
//! |---|---|
//! | finished, with a verified tip | lands with the merge |
//! | failed by its own doing | again, while it has retries; else failed |
//! | hung | again once, if it has a retry; else failed |
//! | failed by the machinery's doing, or the sandbox died of that | again after a backoff, while the assignment has machinery retries; else failed |
//! | the sandbox died of a story's doing (memory, time, protocol) | the stories in progress failed; where none was, all that were not finished |
//! | skipped, or not reached, because of another story's failure | again, at no cost |
//! | the swarm was stopped | pending, at no cost |
//!
//! A story that is tried again is tried in the assignment's next attempt, with the others that are left. A result that
//! contradicts itself is a protocol violation of all its stories.

use std::collections::BTreeMap;
use std::time::Duration;

use super::diagnosis::{self, EndReason};
use super::sandbox::WorkDirFate;
use super::timer::AttemptTimer;
use super::{AttemptPhase, AttemptState, SwarmMachine};
use crate::handoff::result::StoryResult;
use crate::ids::{AttemptId, CommitId, StoryKey};
use crate::protocol::acp::message::{CompletionStatus, StoryStatus};
use crate::protocol::amp::message::{self as amp, DiffSummary};
use crate::swarm::effect::{Announcement, Effect};
use crate::swarm::event::{Leftover, MachineryFault, StopLevel};
use crate::verdict::{Cause, CauseClass, Failure, StoryOutcome};

/// Collecting is tried again this often.
const MAX_COLLECT_RETRIES: u32 = 2;
/// And this often while the engine is away; the engine's own timer is mostly the first to end that.
const MAX_COLLECT_RETRIES_ENGINE_LOST: u32 = 60;
/// So many attempts that the engine took along cost an assignment nothing.
const MAX_FREE_ENGINE_LOSSES: u32 = 20;

/// A story that lands with its attempt's merge.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FinishedStory {
    pub(super) story: usize,
    pub(super) commit: CommitId,
    pub(super) duration: Duration,
}

/// What a sandbox said of a story, with git's count of what it changed.
#[derive(Debug, Clone)]
pub(super) struct ReportedStory {
    pub(super) result: StoryResult,
    pub(super) diff: DiffSummary,
}

/// A result that came out.
pub(super) struct CollectedResult<'a> {
    pub(super) tip: Option<&'a CommitId>,
    pub(super) stories: &'a [StoryResult],
    pub(super) diffs: &'a [DiffSummary],
    pub(super) tree: Option<&'a String>,
}

/// The stories of an attempt, by what comes next for them.
#[derive(Default)]
struct StoryTriage {
    finished: Vec<FinishedStory>,
    story_failures: Vec<(usize, Failure)>,
    machinery_failures: Vec<(usize, Failure)>,
    stopped: Vec<(usize, Failure)>,
    untried: Vec<usize>,
    /// What the sandbox said of each.
    reported: BTreeMap<usize, ReportedStory>,
    /// The work folder may have what no ref on the host has.
    has_unsaved_work: bool,
}

/// What came of a work folder that gave no result.
pub(super) struct SalvageOutcome<'a> {
    /// The host's ref of it.
    pub(super) reference: Option<&'a str>,
    /// It is there, or there was nothing to have.
    pub(super) salvaged: bool,
    /// Nothing was left out of it.
    pub(super) complete: bool,
}

impl SwarmMachine {
    pub(super) fn on_result_collected(
        &mut self,
        id: &AttemptId,
        came: CollectedResult<'_>,
        kept: Option<&String>,
        rest: Option<&Leftover>,
        out: &mut Vec<Effect>,
    ) -> bool {
        if self.attempt_index(id).is_none_or(|place| self.attempts[place].view.review.is_some()) {
            return false;
        }
        let Some(place) = self.finish_collecting(id) else { return false };
        let attempt = &mut self.attempts[place];
        attempt.view.tip = came.tip.cloned();
        (attempt.tree, attempt.result_ref) = (came.tree.cloned(), kept.cloned());
        let mut sorted = self.triage_stories(place, &came);
        // What the result has is on the host, under refs of ours. What it lacks may be in the work folder alone.
        let kept = match rest {
            Some(Leftover::Salvaged { reference, .. }) => Some(reference),
            Some(Leftover::Nothing) | None => None,
        };
        let whole = matches!(rest, Some(Leftover::Nothing | Leftover::Salvaged { incomplete: false, .. }));
        let failures = [&sorted.story_failures, &sorted.machinery_failures, &sorted.stopped].into_iter().flatten();
        let salvaged = failures.into_iter().any(|(_, failure)| failure.salvage.is_some());
        let partly = kept.is_some() || salvaged || came.tip.is_some();
        self.request_removal(place, WorkDirFate::from_salvage(!sorted.has_unsaved_work || whole, partly), out);
        if let Some(reference) = kept {
            let unfinished =
                [&mut sorted.story_failures, &mut sorted.machinery_failures, &mut sorted.stopped].into_iter().flatten();
            let mut stories = Vec::new();
            for (story, failure) in unfinished {
                failure.salvage.get_or_insert_with(|| reference.clone());
                stories.push(*story);
            }
            stories.extend(&sorted.untried);
            self.record_salvage(place, &stories, reference, out);
        }
        for (story, failure) in
            [&sorted.story_failures, &sorted.machinery_failures, &sorted.stopped].into_iter().flatten()
        {
            if let Some(reference) = &failure.salvage
                && kept != Some(reference)
            {
                self.record_salvage(place, &[*story], reference, out);
            }
        }
        self.apply_triage(place, sorted, true, out);
        true
    }

    pub(super) fn on_collect_failed(
        &mut self,
        id: &AttemptId,
        fault: &MachineryFault,
        salvage: SalvageOutcome<'_>,
        no_answer: bool,
        out: &mut Vec<Effect>,
    ) -> bool {
        let Some(place) = self.finish_collecting(id) else { return false };
        // What a dead sandbox left is safe by now; a finished one's result is worth another try even so.
        let finished = self.attempts[place].view.completion == Some(CompletionStatus::Completed);
        // What was left out would be left out again: no reason to ask once more.
        let SalvageOutcome { reference: salvage, salvaged, complete: whole } = salvage;
        let safe = salvaged && whole;
        let over = no_answer || salvaged && !finished || self.stop_level == Some(StopLevel::Kill);
        let away = fault.engine_unreachable || self.engine_wait_until.is_some();
        let most = if away { MAX_COLLECT_RETRIES_ENGINE_LOST } else { MAX_COLLECT_RETRIES };
        if fault.retryable && !over && self.attempts[place].collect_retries < most {
            self.attempts[place].collect_retries += 1;
            let wait = self.backoff_duration(self.attempts[place].collect_retries.min(MAX_COLLECT_RETRIES));
            self.set_timer(place, Some((wait, AttemptTimer::CollectRetry)));
            return true;
        }
        if let Some(reference) = salvage {
            // One ref for the whole work folder: it has what each of the stories left.
            let stories = self.attempts[place].stories.clone();
            self.record_salvage(place, &stories, reference, out);
        }
        let reviews = self.attempts[place].view.review.is_some();
        self.request_removal(place, WorkDirFate::from_salvage(safe || reviews, salvage.is_some()), out);
        let attempt = &self.attempts[place];
        let (mut failure, retryable) = match &attempt.end_failure {
            // What killed it matters more than that a dead sandbox left no result.
            Some(death) => (death.clone(), true),
            // What it was ended for, too.
            None if self.attempts[place].end_reason.is_some() => {
                let own = || Failure { cause: fault.cause, evidence: fault.evidence.clone(), salvage: None };
                (diagnosis::unreached_failure(attempt).unwrap_or_else(own), fault.retryable)
            }
            None => (Failure { cause: fault.cause, evidence: fault.evidence.clone(), salvage: None }, fault.retryable),
        };
        if attempt.view.review.is_some() {
            self.on_no_verdict(place, &failure, retryable, out);
            return true;
        }
        failure.salvage = salvage.map(str::to_owned);
        let mut sorted = StoryTriage::default();
        sorted.add_unreached(attempt, attempt.stories.clone(), Some(failure));
        self.apply_triage(place, sorted, retryable, out);
        true
    }

    /// Work that did not land is under this ref: told now, and remembered with the attempt and its stories.
    pub(super) fn record_salvage(&mut self, place: usize, stories: &[usize], reference: &str, out: &mut Vec<Effect>) {
        let note = |refs: &mut Vec<String>| {
            if !refs.iter().any(|known| known == reference) {
                refs.push(reference.to_owned());
            }
        };
        note(&mut self.attempts[place].view.salvage_refs);
        stories.iter().for_each(|story| note(&mut self.stories[*story].salvage_refs));
        let attempt = self.attempts[place].view.id.clone();
        out.push(Effect::Announce(Announcement::Salvaged { attempt, reference: reference.to_owned() }));
    }

    /// A swarm that is being killed waits no longer for what is in the work folder.
    pub(super) fn on_collect_timeout(&mut self, place: usize, out: &mut Vec<Effect>) {
        let reviews = self.attempts[place].view.review.is_some();
        self.request_removal(place, if reviews { WorkDirFate::Remove } else { WorkDirFate::KeepUnsalvaged }, out);
        if reviews {
            let killed = Failure::new(Cause::StoppedByUser, "the swarm was killed before the verdict was out");
            self.on_no_verdict(place, &killed, true, out);
            return;
        }
        let attempt = &self.attempts[place];
        let mut sorted = StoryTriage::default();
        match attempt.end_failure.clone() {
            Some(death) => sorted.add_unreached(attempt, attempt.stories.clone(), Some(death)),
            None => {
                let stopped = || Failure::new(Cause::StoppedByUser, "the swarm was killed before the result was out");
                sorted.stopped = attempt.stories.iter().map(|story| (*story, stopped())).collect();
            }
        }
        self.apply_triage(place, sorted, true, out);
    }

    /// Nothing of the attempt ever ran.
    pub(super) fn fail_unstarted(&mut self, place: usize, failure: Failure, retryable: bool, out: &mut Vec<Effect>) {
        let attempt = &self.attempts[place];
        let all = attempt.stories.iter().copied();
        let mut sorted = StoryTriage::default();
        if attempt.end_reason == Some(EndReason::SwarmStopped) {
            let stopped = || Failure::new(Cause::StoppedByUser, "the swarm was stopped before the sandbox began");
            sorted.stopped = all.map(|story| (story, stopped())).collect();
        } else {
            // Nothing ran, so it cannot be a story's doing, whatever the cause's class.
            sorted.machinery_failures = all.map(|story| (story, failure.clone())).collect();
        }
        self.apply_triage(place, sorted, retryable, out);
    }

    /// The attempt, if it waits for the answer to a `Collect`; it waits no more.
    pub(super) fn finish_collecting(&mut self, id: &AttemptId) -> Option<usize> {
        let waits = |place: &usize| !matches!(self.attempts[*place].timer, Some((_, AttemptTimer::CollectRetry)));
        let place = self.attempt_in(id, &[AttemptPhase::Collecting]).filter(waits)?;
        self.set_timer(place, None);
        self.attempts[place].view.updated = self.now;
        Some(place)
    }

    fn triage_stories(&self, place: usize, came: &CollectedResult<'_>) -> StoryTriage {
        let (moved, results) = (came.tip.is_some(), came.stories);
        let attempt = &self.attempts[place];
        let file = self.spec.assignments[attempt.assignment].file;
        let mut outcomes: BTreeMap<usize, &StoryResult> = BTreeMap::new();
        let mut said = BTreeMap::new();
        for (at, result) in results.iter().enumerate() {
            let story = self.index.stories.get(&StoryKey { file, id: result.id.clone() });
            if let Some(story) = story.filter(|story| attempt.stories.contains(story)) {
                outcomes.entry(*story).or_insert(result);
                let diff = came.diffs.get(at).cloned().unwrap_or_default();
                said.entry(*story).or_insert_with(|| ReportedStory { result: result.clone(), diff });
            }
        }
        let finished = |story: &usize| {
            matches!(outcomes.get(story).map(|result| &result.outcome), Some(StoryOutcome::Finished { .. }))
        };
        let contradiction = attempt.stories.iter().filter(|story| finished(story)).find_map(|story| {
            if !moved {
                return Some("a story is said to be finished, and the branch did not move".to_owned());
            }
            let unmet = |other: &&usize| attempt.stories.contains(other) && !finished(other);
            let other = self.index.dependencies[*story].iter().find(unmet)?;
            let (story, other) = (&self.stories[*story].key.id, &self.stories[*other].key.id);
            Some(format!("`{story}` is said to be finished, and `{other}`, which it depends on, is not"))
        });
        let mut sorted = StoryTriage { reported: said, ..StoryTriage::default() };
        if let Some(problem) = contradiction {
            let failure = Failure::new(Cause::ProtocolViolation, problem);
            sorted.story_failures = attempt.stories.iter().map(|story| (*story, failure.clone())).collect();
            sorted.has_unsaved_work = true;
            return sorted;
        }
        let mut unreached = Vec::new();
        for story in &attempt.stories {
            let Some(result) = outcomes.get(story) else {
                unreached.push(*story);
                continue;
            };
            match &result.outcome {
                StoryOutcome::Finished { commit } => sorted.finished.push(FinishedStory {
                    story: *story,
                    commit: commit.clone(),
                    duration: Duration::from_millis(result.duration_ms),
                }),
                StoryOutcome::Failed { failure, unsaved, .. } => {
                    sorted.has_unsaved_work |= *unsaved;
                    let failure = diagnosis::story_failure(attempt, failure);
                    sorted.add_failure(attempt, *story, failure);
                }
                StoryOutcome::Skipped { because } => {
                    let because = self.index.stories.get(&StoryKey { file, id: because.clone() });
                    let failed = because.and_then(|story| outcomes.get(story)).map(|result| &result.outcome);
                    match failed {
                        Some(StoryOutcome::Failed { .. }) => sorted.untried.push(*story),
                        _ => unreached.push(*story),
                    }
                }
                StoryOutcome::NotReached => unreached.push(*story),
            }
        }
        // It was in the middle of a story that the result does not know, or past it.
        sorted.has_unsaved_work |= unreached.iter().any(|story| attempt.has_begun_story(*story));
        let verdict = attempt.end_failure.clone().or_else(|| diagnosis::unreached_failure(attempt));
        sorted.add_unreached(attempt, unreached, verdict);
        sorted
    }

    /// Decides what can be decided now, sends the rest on its way, and the finished to their merge.
    fn apply_triage(&mut self, place: usize, sorted: StoryTriage, retryable: bool, out: &mut Vec<Effect>) {
        let StoryTriage {
            finished,
            story_failures: own,
            machinery_failures: machinery,
            stopped,
            untried: free,
            reported: said,
            has_unsaved_work: _,
        } = sorted;
        self.attempts[place].finished_stories = finished;
        let stopped_too = stopped.iter().map(|(story, failure)| (*story, failure.clone()));
        // What is finished comes last: a review is asked for with the newest result.
        let told: Vec<(usize, Option<Failure>)> = (own.iter().chain(&machinery))
            .map(|(story, failure)| (*story, Some(failure.clone())))
            .chain(stopped_too.map(|(story, failure)| (story, Some(failure))))
            .chain(self.attempts[place].finished_stories.iter().map(|done| (done.story, None)))
            .collect();
        for (story, failure) in told {
            let begun = said.contains_key(&story) || self.attempts[place].has_begun_story(story);
            let status = match &failure {
                None => amp::SubtaskCompletionStatus::Complete,
                Some(failure) if failure.cause == Cause::StoppedByUser => amp::SubtaskCompletionStatus::Partial,
                Some(_) => amp::SubtaskCompletionStatus::Failed,
            };
            if begun {
                self.send_result(place, story, said.get(&story), status, failure.as_ref(), out);
            }
        }
        let assignment = self.attempts[place].assignment;
        if self.attempts[place].end_reason == Some(EndReason::AdminAbort) {
            self.abort_attempt(place, &[own, machinery, stopped].concat(), out);
            return;
        }
        let (mut again, mut failed) = (Vec::new(), Vec::new());
        let mut wait = Duration::ZERO;
        if !machinery.is_empty() {
            let free =
                self.attempts[place].engine_lost && self.assignments[assignment].engine_losses < MAX_FREE_ENGINE_LOSSES;
            let state = &mut self.assignments[assignment];
            state.engine_losses += u32::from(free);
            state.machinery_failures += u32::from(!free);
            state.last_machinery_failure = (!free).then_some(self.now);
            let failures = state.machinery_failures;
            if free || retryable && failures <= self.spec.limits.machinery_retries {
                wait = self.backoff_duration(failures.max(1));
                again.extend(machinery);
            } else {
                failed.extend(machinery);
            }
        }
        for (story, failure) in own {
            let view = &mut self.stories[story];
            view.failures += 1;
            view.hangs += u32::from(failure.cause == Cause::Hung);
            view.previous_failure = Some(diagnosis::previous_failure_text(&failure));
            // A hang costs its whole time, and is seldom over the next time: once more, and not for each retry.
            let hopeless = failure.cause == Cause::Hung && view.hangs > 1;
            if diagnosis::is_retryable(failure.cause) && !hopeless && view.failures <= self.spec.limits.retries {
                again.push((story, failure));
            } else {
                failed.push((story, failure));
            }
        }
        for (story, failure) in stopped {
            self.release_story(place, story);
            self.stories[story].failure = Some(failure);
        }
        for story in free {
            self.release_story(place, story);
        }
        let tried: Vec<(usize, Failure, bool)> =
            (again.iter().map(|(story, failure): &(usize, Failure)| (*story, failure.clone(), true)))
                .chain(failed.iter().map(|(story, failure): &(usize, Failure)| (*story, failure.clone(), false)))
                .collect();
        self.escalate_failures(place, &tried, out);
        // First: it may take some of `again` away.
        self.fail_stories(failed, out);
        let next = self.assignments[assignment].attempts.len() as u32 + 1;
        for (story, failure) in again {
            let view = &mut self.stories[story];
            if view.is_closed() {
                continue;
            }
            view.status = StoryStatus::Pending;
            view.failure = Some(failure.clone());
            // A swarm that is being stopped tries nothing again; the next `resume` does.
            if self.stop_level.is_none() {
                let story = view.key.clone();
                out.push(Effect::Announce(Announcement::StoryRetried {
                    story,
                    failure,
                    next_attempt: next,
                    delay: wait,
                }));
            }
        }
        if self.stop_level.is_none() && !wait.is_zero() {
            self.set_backoff(assignment, Some(wait));
        }
        if self.attempts[place].finished_stories.is_empty() {
            self.settle_attempt(place);
        } else if self.is_review_enabled() {
            self.submit_for_review(place, out);
        } else {
            self.queue_merge(place, out);
        }
    }

    /// The admin gave the task up while the sandbox was paused: nothing of it lands, whatever the sandbox came to.
    fn abort_attempt(&mut self, place: usize, failed: &[(usize, Failure)], out: &mut Vec<Effect>) {
        let assignment = self.attempts[place].assignment;
        let salvage = failed.iter().find_map(|(_, failure)| failure.salvage.clone());
        self.record_reviewed_salvage(place, out);
        self.attempts[place].finished_stories.clear();
        self.settle_attempt(place);
        let failure = Failure { salvage, ..Failure::new(Cause::AbortedByAdmin, diagnosis::ADMIN_ABORT_SUMMARY) };
        self.abort_assignment(assignment, &failure, out);
    }

    /// Takes a story back that its attempt did no harm to; one that was never begun does not count as tried.
    fn release_story(&mut self, place: usize, story: usize) {
        let begun = self.attempts[place].has_begun_story(story);
        let view = &mut self.stories[story];
        view.status = StoryStatus::Pending;
        view.attempts -= u32::from(!begun);
    }
}

impl AttemptState {
    /// Whether the sandbox has said anything of the story but that it was not tried.
    fn has_begun_story(&self, story: usize) -> bool {
        let mut words = self.stories.iter().zip(&self.view.stories);
        words.any(|(at, (_, status))| *at == story && !matches!(status, StoryStatus::Pending | StoryStatus::Skipped))
    }

    /// Whether the sandbox's newest word of the story is that it works on it.
    fn is_story_in_progress(&self, story: usize) -> bool {
        let mut words = self.stories.iter().zip(&self.view.stories);
        words.any(|(at, (_, status))| *at == story && *status == StoryStatus::InProgress)
    }
}

impl StoryTriage {
    fn add_failure(&mut self, attempt: &AttemptState, story: usize, failure: Failure) {
        match failure.cause.class() {
            CauseClass::Story => self.story_failures.push((story, failure)),
            CauseClass::User
                if matches!(
                    attempt.end_reason,
                    Some(EndReason::SwarmStopped | EndReason::AdminRetry | EndReason::AdminRollback)
                ) =>
            {
                self.stopped.push((story, failure));
            }
            CauseClass::User | CauseClass::Machinery => self.machinery_failures.push((story, failure)),
        }
    }

    /// Sorts the stories that the sandbox gives no outcome for.
    fn add_unreached(&mut self, attempt: &AttemptState, stories: Vec<usize>, verdict: Option<Failure>) {
        if stories.is_empty() {
            return;
        }
        let progress =
            !(self.finished.is_empty() && self.story_failures.is_empty() && self.machinery_failures.is_empty());
        let Some(failure) = verdict else {
            if progress {
                self.untried.extend(stories);
            } else {
                let failure = Failure::new(Cause::ShimCrash, "the sandbox completed without trying its stories");
                self.machinery_failures.extend(stories.into_iter().map(|story| (story, failure.clone())));
            }
            return;
        };
        if failure.cause.class() != CauseClass::Story {
            for story in stories {
                self.add_failure(attempt, story, failure.clone());
            }
            return;
        }
        let (blamed, rest): (Vec<usize>, Vec<usize>) =
            stories.into_iter().partition(|story| attempt.is_story_in_progress(*story));
        if blamed.is_empty() && !progress {
            self.story_failures.extend(rest.into_iter().map(|story| (story, failure.clone())));
        } else {
            self.story_failures.extend(blamed.into_iter().map(|story| (story, failure.clone())));
            self.untried.extend(rest);
        }
    }
}
