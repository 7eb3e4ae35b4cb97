//! A sandbox's life and words, from its start to its end.
//!
//! Records carry their number; one that is not newer than the newest taken in is a replay and counts for nothing. The
//! sandbox's words move views and are told to the user; they decide nothing. `completion` is its last word.

use std::time::Duration;

use super::diagnosis::{self, EndReason};
use super::timer::{AttemptTimer, SHIM_SHUTDOWN_MARGIN};
use super::{AttemptPhase, ContainerStatus, SwarmMachine};
use crate::ids::{AttemptId, ContainerId, StoryKey};
use crate::protocol::acp::message::{CompletionStatus, StoryStatus};
use crate::swarm::effect::{Announcement, CollectMode, Effect};
use crate::swarm::event::{ContainerExit, MachineryFault, StopLevel};
use crate::verdict::Failure;

/// How long a sandbox that was let go on may still be seen paused.
const UNPAUSE_WINDOW: Duration = Duration::from_secs(20);
/// The most characters of a story's newest words that are kept.
const MAX_OUTPUT_CHARS: usize = 500;
/// From the container's being there to the sandbox's last word.
const REPORTING_PHASES: [AttemptPhase; 2] = [AttemptPhase::Created, AttemptPhase::Running];
/// While a container may exist that has not ended.
const LIVE_PHASES: [AttemptPhase; 4] =
    [AttemptPhase::Starting, AttemptPhase::Created, AttemptPhase::Running, AttemptPhase::Completed];

/// What is to become of a work folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkDirFate {
    /// What was in it is on the host, or there was nothing.
    Remove,
    /// It has what no ref on the host has, and refs have the rest.
    KeepPartlySalvaged,
    /// It is all there is.
    KeepUnsalvaged,
}

impl WorkDirFate {
    /// `safe`: it may go. `partly`: some of it is under a ref.
    pub(super) fn from_salvage(safe: bool, partly: bool) -> Self {
        match (safe, partly) {
            (true, _) => Self::Remove,
            (false, true) => Self::KeepPartlySalvaged,
            (false, false) => Self::KeepUnsalvaged,
        }
    }
}

impl SwarmMachine {
    pub(super) fn on_sandbox_created(&mut self, id: &AttemptId, container: &ContainerId, name: &str) -> bool {
        let Some(place) = self.attempt_in(id, &[AttemptPhase::Starting, AttemptPhase::Created]) else { return false };
        let view = &mut self.attempts[place].view;
        // Another one where a resumed swarm could not go on with the first.
        if view.container.as_ref() == Some(container) {
            return false;
        }
        view.phase = AttemptPhase::Created;
        view.container = Some(container.clone());
        view.container_name = Some(name.to_owned());
        view.updated = self.now;
        true
    }

    pub(super) fn on_sandbox_started(&mut self, id: &AttemptId, out: &mut Vec<Effect>) -> bool {
        let Some(place) = self.attempt_in(id, &[AttemptPhase::Created]) else { return false };
        let view = &mut self.attempts[place].view;
        view.phase = AttemptPhase::Running;
        view.status = ContainerStatus::Running;
        view.started = Some(self.now);
        view.updated = self.now;
        if let Some(container) = view.container.clone() {
            out.push(Effect::Announce(Announcement::SandboxStarted { attempt: id.clone(), container }));
        }
        match self.attempts[place].timer {
            // It was told to end before anything ran that could hear it.
            Some((_, AttemptTimer::Grace)) => out.push(Effect::Terminate { attempt: id.clone() }),
            Some(_) => out.push(Effect::Kill { attempt: id.clone() }),
            None => {
                let stories = u32::try_from(self.attempts[place].stories.len()).unwrap_or(u32::MAX);
                let limits = &self.spec.limits;
                let wait = limits.story_timeout.saturating_mul(stories).saturating_add(limits.slack);
                self.set_timer(place, Some((wait, AttemptTimer::SandboxTimeout)));
            }
        }
        self.reset_silence(place);
        self.send_dispatch(place, out);
        true
    }

    pub(super) fn on_start_delayed(&mut self, id: &AttemptId, reason: &str, out: &mut Vec<Effect>) -> bool {
        let Some(place) = self.attempt_in(id, &[AttemptPhase::Starting]) else { return false };
        self.attempts[place].view.updated = self.now;
        out.push(Effect::Announce(Announcement::StartDelayed { attempt: id.clone(), reason: reason.to_owned() }));
        true
    }

    /// The sandbox lives: it has the whole of `liveness` again.
    pub(super) fn reset_silence(&mut self, place: usize) {
        self.attempts[place].inspection_pending = false;
        let phase = self.attempts[place].view.phase;
        let suspended = self.attempts[place].suspended.is_some();
        let wait = Some(self.spec.limits.liveness_timeout).filter(|_| phase == AttemptPhase::Running && !suspended);
        self.set_silence_deadline(place, wait);
    }

    /// It has said nothing for too long. What its container looks like is the proof that goes with its end.
    pub(super) fn on_silence_timeout(&mut self, place: usize, out: &mut Vec<Effect>) {
        self.reset_silence(place);
        // What an absent engine's sandboxes say cannot be heard.
        if self.engine_wait_until.is_none() && self.attempts[place].view.phase == AttemptPhase::Running {
            self.attempts[place].inspection_pending = true;
            out.push(Effect::Inspect { attempt: self.attempts[place].view.id.clone() });
        }
    }

    pub(super) fn on_sandbox_inspected(
        &mut self,
        id: &AttemptId,
        paused: bool,
        processes: &[String],
        out: &mut Vec<Effect>,
    ) -> bool {
        let Some(place) = self.attempt_in(id, &[AttemptPhase::Running]) else { return false };
        let woken = self.attempts[place].last_unpaused.is_some_and(|woken| paused && self.now - woken < UNPAUSE_WINDOW);
        if self.attempts[place].suspended.is_some() || woken {
            // That is, or was, longshore's own doing.
            return false;
        }
        let attempt = &mut self.attempts[place];
        let news = attempt.view.paused != paused;
        attempt.view.paused = paused;
        attempt.was_paused |= paused;
        if news && paused {
            let container = attempt.view.container_name.clone().unwrap_or_default();
            out.push(Effect::Announce(Announcement::SandboxPaused { attempt: id.clone(), container }));
        }
        if !attempt.inspection_pending || attempt.end_reason.is_some() {
            return news;
        }
        attempt.processes = processes.to_vec();
        if paused {
            // It would not hear the polite signal.
            attempt.end_reason = Some(EndReason::Silent);
            self.kill(place, out);
        } else {
            self.terminate(place, EndReason::Silent, out);
        }
        true
    }

    pub(super) fn on_start_failed(&mut self, id: &AttemptId, fault: &MachineryFault, out: &mut Vec<Effect>) -> bool {
        let Some(place) = self.attempt_in(id, &[AttemptPhase::Starting, AttemptPhase::Created]) else { return false };
        self.running.remove(&place);
        self.set_timer(place, None);
        let away = self.engine_wait_until.is_some() && fault.retryable;
        let attempt = &mut self.attempts[place];
        attempt.engine_lost |= fault.engine_unreachable || away;
        let stopped = attempt.end_reason == Some(EndReason::SwarmStopped);
        attempt.view.status = if stopped { ContainerStatus::Stopped } else { ContainerStatus::Failed };
        attempt.view.error = Some(fault.evidence.summary.clone());
        attempt.view.updated = self.now;
        let failure = Failure { cause: fault.cause, evidence: fault.evidence.clone(), salvage: None };
        self.request_removal(place, WorkDirFate::Remove, out);
        if self.attempts[place].view.review.is_some() {
            self.on_no_verdict(place, &failure, fault.retryable, out);
        } else {
            self.fail_unstarted(place, failure, fault.retryable, out);
        }
        true
    }

    pub(super) fn on_story_reported(
        &mut self,
        id: &AttemptId,
        record: u64,
        key: &StoryKey,
        status: StoryStatus,
        output: &str,
        out: &mut Vec<Effect>,
    ) -> bool {
        let Some(place) = self.accept_record(id, record, &REPORTING_PHASES) else { return false };
        let attempt = &mut self.attempts[place];
        let Some(at) = attempt.view.stories.iter().position(|(story, _)| story == key) else { return true };
        let before = std::mem::replace(&mut attempt.view.stories[at].1, status);
        let reviews = attempt.view.review.is_some();
        self.report_progress(place, status, output, out);
        let view = &mut self.stories[self.attempts[place].stories[at]];
        if !output.is_empty() {
            view.latest_output = diagnosis::truncate_chars(output, MAX_OUTPUT_CHARS);
        }
        if matches!(status, StoryStatus::Pending | StoryStatus::Skipped) {
            return true;
        }
        if reviews {
            // The story is done, as far as its executor goes; what is said is of the review.
            // The verdict has its own announcement.
            if !output.is_empty() && status == StoryStatus::InProgress {
                let (story, text) = (key.clone(), output.to_owned());
                out.push(Effect::Announce(Announcement::StoryProgress { story, text }));
            }
            return true;
        }
        // Whatever the sandbox says of it, it is not decided before its commit has landed.
        view.status = StoryStatus::InProgress;
        view.started.get_or_insert(self.now);
        let story = key.clone();
        out.push(Effect::Announce(match status {
            StoryStatus::Completed if before != StoryStatus::Completed => Announcement::StoryFinished { story },
            StoryStatus::InProgress if before == StoryStatus::Pending => {
                Announcement::StoryStarted { story, attempt: id.clone() }
            }
            _ if output.is_empty() => return true,
            _ => Announcement::StoryProgress { story, text: output.to_owned() },
        }));
        true
    }

    pub(super) fn on_error_reported(
        &mut self,
        id: &AttemptId,
        record: u64,
        code: &str,
        message: &str,
        out: &mut Vec<Effect>,
    ) -> bool {
        let Some(place) = self.accept_record(id, record, &REPORTING_PHASES) else { return false };
        let attempt = &mut self.attempts[place];
        let failure = attempt.first_error.get_or_insert_with(|| diagnosis::error_record_failure(code, message));
        attempt.view.error.get_or_insert_with(|| failure.evidence.summary.clone());
        out.push(Effect::Announce(Announcement::ErrorReported {
            attempt: id.clone(),
            code: code.to_owned(),
            message: message.to_owned(),
        }));
        true
    }

    pub(super) fn on_completion_reported(
        &mut self,
        id: &AttemptId,
        record: u64,
        status: CompletionStatus,
        errors: &[String],
        out: &mut Vec<Effect>,
    ) -> bool {
        let Some(place) = self.accept_record(id, record, &REPORTING_PHASES) else { return false };
        if self.attempts[place].suspended.is_some() {
            // It had said so before it was paused: there is nothing to decide any more, and it has to go on to end.
            self.release_suspended(place);
            out.push(Effect::Unpause { attempt: id.clone() });
        }
        let attempt = &mut self.attempts[place];
        attempt.view.phase = AttemptPhase::Completed;
        attempt.view.completion = Some(status);
        self.set_silence_deadline(place, None);
        let attempt = &mut self.attempts[place];
        if let Some(error) = errors.first() {
            attempt.view.error.get_or_insert_with(|| diagnosis::truncate_chars(error, MAX_OUTPUT_CHARS));
        }
        // What was told to end already has its deadline.
        if attempt.end_reason.is_none() {
            self.set_timer(place, Some((self.spec.limits.grace_period, AttemptTimer::ExitOverdue)));
        }
        true
    }

    pub(super) fn on_record_refused(
        &mut self,
        id: &AttemptId,
        record: u64,
        reason: &str,
        out: &mut Vec<Effect>,
    ) -> bool {
        let most = self.spec.limits.max_bad_records.max(1);
        // A sandbox that goes on after it was killed for this must not fill the journal.
        if self.attempt_index(id).is_some_and(|place| self.attempts[place].view.bad_records >= most) {
            return false;
        }
        let Some(place) =
            self.accept_record(id, record, &[AttemptPhase::Created, AttemptPhase::Running, AttemptPhase::Completed])
        else {
            return false;
        };
        let attempt = &mut self.attempts[place];
        attempt.view.bad_records += 1;
        let count = attempt.view.bad_records;
        out.push(Effect::Announce(Announcement::RecordRefused {
            attempt: id.clone(),
            reason: reason.to_owned(),
            count,
        }));
        if count == most && attempt.view.phase != AttemptPhase::Completed {
            attempt.end_reason.get_or_insert(EndReason::BadRecords);
            self.kill(place, out);
        }
        true
    }

    /// Takes a record's number in; none where the record is a replay or cannot come now.
    fn accept_record(&mut self, id: &AttemptId, record: u64, phases: &[AttemptPhase]) -> Option<usize> {
        let place = self.attempt_in(id, phases)?;
        let view = &mut self.attempts[place].view;
        if record <= view.record_count {
            return None;
        }
        view.record_count = record;
        view.updated = self.now;
        self.reset_silence(place);
        Some(place)
    }

    pub(super) fn on_sandbox_ended(&mut self, id: &AttemptId, exit: &ContainerExit, out: &mut Vec<Effect>) -> bool {
        let Some(place) = self.attempt_in(id, &LIVE_PHASES) else { return false };
        self.attempts[place].engine_lost |= exit.engine_lost;
        let death = diagnosis::exit_failure(&self.attempts[place], exit);
        self.attempts[place].view.exit = Some(exit.clone());
        out.push(Effect::Announce(Announcement::SandboxEnded { attempt: id.clone(), exit: exit.clone() }));
        self.end_sandbox(place, death, out);
        true
    }

    /// The container has ended, or is given up. `death` is what it died of, unless it said `completion` before.
    pub(super) fn end_sandbox(&mut self, place: usize, death: Failure, out: &mut Vec<Effect>) {
        self.release_suspended(place);
        self.clear_amp_deadlines(place);
        self.running.remove(&place);
        let attempt = &mut self.attempts[place];
        let view = &mut attempt.view;
        view.status = match (view.completion, attempt.end_reason) {
            (Some(CompletionStatus::Completed), _) => ContainerStatus::Completed,
            (_, Some(EndReason::SwarmStopped)) => ContainerStatus::Stopped,
            _ => ContainerStatus::Failed,
        };
        if view.completion.is_some() {
            view.collect_mode = Some(CollectMode::Result);
        } else {
            view.collect_mode = Some(CollectMode::Salvage);
            view.error.get_or_insert_with(|| death.evidence.summary.clone());
            attempt.end_failure = Some(death);
        }
        view.phase = AttemptPhase::Collecting;
        view.updated = self.now;
        self.set_timer(place, None);
        self.set_silence_deadline(place, None);
        self.request_collect(place, out);
    }

    /// Asks for what is in the work folder.
    pub(super) fn request_collect(&mut self, place: usize, out: &mut Vec<Effect>) {
        let view = &self.attempts[place].view;
        let what = view.collect_mode.unwrap_or(CollectMode::Salvage);
        out.push(Effect::Collect { attempt: view.id.clone(), mode: what });
        if self.stop_level == Some(StopLevel::Kill) {
            self.set_timer(
                place,
                Some((self.spec.limits.grace_period + SHIM_SHUTDOWN_MARGIN, AttemptTimer::CollectTimeout)),
            );
        }
    }

    /// Asks for the container's removal, and for that of its work folder where that may go.
    pub(super) fn request_removal(&mut self, place: usize, folder: WorkDirFate, out: &mut Vec<Effect>) {
        let attempt = &mut self.attempts[place];
        let keep_work = folder != WorkDirFate::Remove;
        attempt.removal = Some(keep_work);
        attempt.view.work_dir_kept = keep_work;
        out.push(Effect::Remove { attempt: attempt.view.id.clone(), keep_work_dir: keep_work });
        if keep_work {
            let (attempt, partly) = (attempt.view.id.clone(), folder == WorkDirFate::KeepPartlySalvaged);
            let folder = attempt.dir_name();
            out.push(Effect::Announce(Announcement::WorkDirKept {
                attempt,
                work_dir: folder,
                partly_salvaged: partly,
            }));
        }
    }

    pub(super) fn on_sandbox_removed(&mut self, id: &AttemptId) -> bool {
        let Some(place) = self.attempt_index(id) else { return false };
        let attempt = &mut self.attempts[place];
        if attempt.removal.is_none() || attempt.view.removed {
            return false;
        }
        attempt.view.removed = true;
        attempt.view.updated = self.now;
        true
    }
}
