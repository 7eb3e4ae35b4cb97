//! A sandbox's life and records, from its start to its end.
//!
//! Records are numbered; one that is not newer than the newest is a replay and is ignored. Records change views and are shown
//! to the user, but decide nothing. `completion` is the last one.

use std::time::Duration;

use super::attempt::{EndReason, WorkDirFate};
use super::deadlines::{AttemptTimer, Timer};
use super::diagnosis;
use super::state::{Applied, SwarmMachine};
use super::timers::SHIM_SHUTDOWN_MARGIN;
use super::view::{AttemptPhase, ContainerStatus};
use crate::ids::{AttemptId, ContainerId, StoryKey};
use crate::protocol::acp::message::{CompletionStatus, StoryStatus};
use crate::swarm::announcement::Announcement;
use crate::swarm::effect::{CollectMode, Effect};
use crate::swarm::event::{ContainerExit, MachineryFault, StopLevel};
use crate::swarm::index::{AttemptIndex, TypedIndex};
use crate::verdict::Failure;

/// How long an unpaused sandbox may still be seen paused.
const UNPAUSE_WINDOW: Duration = Duration::from_secs(20);
const MAX_OUTPUT_CHARS: usize = 500;
/// The phases in which a sandbox may send records.
const REPORTING_PHASES: [AttemptPhase; 2] = [AttemptPhase::Created, AttemptPhase::Running];
/// The phases in which a container may exist that has not ended.
const LIVE_PHASES: [AttemptPhase; 4] =
    [AttemptPhase::Starting, AttemptPhase::Created, AttemptPhase::Running, AttemptPhase::Completed];

impl SwarmMachine {
    pub(super) fn on_sandbox_created(
        &mut self,
        id: &AttemptId,
        container: &ContainerId,
        name: &str,
    ) -> Option<Applied> {
        let attempt = self.attempt_in(id, &[AttemptPhase::Starting, AttemptPhase::Created])?;
        let view = &mut self.attempts[attempt].view;
        // A resumed swarm that cannot continue with the first container creates another one.
        if view.container.as_ref() == Some(container) {
            return None;
        }
        view.phase = AttemptPhase::Created;
        view.container = Some(container.clone());
        view.container_name = Some(name.to_owned());
        view.updated = self.now;
        Some(Applied)
    }

    pub(super) fn on_sandbox_started(&mut self, id: &AttemptId) -> Option<Applied> {
        let attempt = self.attempt_in(id, &[AttemptPhase::Created])?;
        let state = &mut self.attempts[attempt];
        state.view.phase = AttemptPhase::Running;
        state.view.status = ContainerStatus::Running;
        state.view.started = Some(self.now);
        state.view.updated = self.now;
        let timer = state.timer;
        // The checks that all stories share have a time of their own.
        let stories = state.stories.len() + usize::from(state.is_check());
        let stories = u32::try_from(stories).unwrap_or(u32::MAX);
        if let Some(container) = state.view.container.clone() {
            self.announce(Announcement::SandboxStarted { attempt: id.clone(), container });
        }
        match timer {
            // It was terminated before anything ran in it that could hear the signal.
            Some(AttemptTimer::Grace) => self.effects.push(Effect::Terminate { attempt: id.clone() }),
            Some(_) => self.effects.push(Effect::Kill { attempt: id.clone() }),
            None => {
                let limits = &self.spec.limits;
                let wait = limits.story_timeout.saturating_mul(stories).saturating_add(limits.slack);
                self.set_timer(attempt, AttemptTimer::SandboxTimeout, wait);
            }
        }
        self.reset_silence(attempt);
        self.send_dispatch(attempt);
        Some(Applied)
    }

    pub(super) fn on_start_delayed(&mut self, id: &AttemptId, reason: &str) -> Option<Applied> {
        let attempt = self.attempt_in(id, &[AttemptPhase::Starting])?;
        self.attempts[attempt].view.updated = self.now;
        self.announce(Announcement::StartDelayed { attempt: id.clone(), reason: reason.to_owned() });
        Some(Applied)
    }

    /// The sandbox is alive: its silence counts from now.
    pub(super) fn reset_silence(&mut self, attempt: AttemptIndex) {
        let state = &mut self.attempts[attempt];
        state.inspection_pending = false;
        let counts = state.view.phase == AttemptPhase::Running && !state.is_suspended();
        let wait = counts.then_some(self.spec.limits.liveness_timeout);
        self.set_deadline(Timer::AttemptSilence(attempt), wait);
    }

    /// The state of its container will explain the silence, or be the evidence when it is terminated.
    pub(super) fn on_silence_timeout(&mut self, attempt: AttemptIndex) {
        self.reset_silence(attempt);
        // With the engine lost, no sandbox can be heard.
        if !self.is_engine_lost() && self.attempts[attempt].view.phase == AttemptPhase::Running {
            let state = &mut self.attempts[attempt];
            state.inspection_pending = true;
            self.effects.push(Effect::Inspect { attempt: state.view.id.clone() });
        }
    }

    pub(super) fn on_sandbox_inspected(
        &mut self,
        id: &AttemptId,
        paused: bool,
        processes: &[String],
    ) -> Option<Applied> {
        let attempt = self.attempt_in(id, &[AttemptPhase::Running])?;
        let state = &mut self.attempts[attempt];
        let just_unpaused = state.last_unpaused.is_some_and(|at| paused && self.now - at < UNPAUSE_WINDOW);
        if state.is_suspended() || just_unpaused {
            // The pause is, or was, longshore's own.
            return None;
        }
        let changed = state.view.paused != paused;
        state.view.paused = paused;
        state.was_paused |= paused;
        let inspected = state.inspection_pending && state.end_reason.is_none();
        if inspected {
            state.processes = processes.to_vec();
        }
        if changed && paused {
            let container = state.view.container_name.clone().unwrap_or_default();
            self.announce(Announcement::SandboxPaused { attempt: id.clone(), container });
        }
        if !inspected {
            return changed.then_some(Applied);
        }
        if paused {
            // A frozen sandbox does not get the polite signal.
            self.attempts[attempt].end_reason = Some(EndReason::Silent);
            self.kill(attempt);
        } else {
            self.terminate(attempt, EndReason::Silent);
        }
        Some(Applied)
    }

    pub(super) fn on_start_failed(&mut self, id: &AttemptId, fault: &MachineryFault) -> Option<Applied> {
        let attempt = self.attempt_in(id, &[AttemptPhase::Starting, AttemptPhase::Created])?;
        self.running.remove(&attempt);
        self.clear_timer(attempt);
        let engine_lost = fault.engine_unreachable || self.is_engine_lost() && fault.retryable;
        let state = &mut self.attempts[attempt];
        state.engine_lost |= engine_lost;
        let stopped = state.end_reason == Some(EndReason::SwarmStopped);
        state.view.status = if stopped { ContainerStatus::Stopped } else { ContainerStatus::Failed };
        state.view.error = Some(fault.evidence.summary.clone());
        state.view.updated = self.now;
        let is_executor = state.view.is_executor();
        self.request_removal(attempt, WorkDirFate::Remove);
        if !is_executor {
            self.on_no_judgement(attempt, &Failure::from(fault), fault.retryable);
        } else {
            self.fail_unstarted(attempt, &Failure::from(fault), fault.retryable);
        }
        Some(Applied)
    }

    pub(super) fn on_story_reported(
        &mut self,
        id: &AttemptId,
        record: u64,
        key: &StoryKey,
        status: StoryStatus,
        output: &str,
    ) -> Option<Applied> {
        let attempt = self.accept_record(id, record, &REPORTING_PHASES)?;
        let state = &mut self.attempts[attempt];
        let Some(position) = state.view.stories.iter().position(|(story, _)| story == key) else {
            return Some(Applied);
        };
        let before = std::mem::replace(&mut state.view.stories[position].1, status);
        let (story_index, is_executor) = (state.stories[position], state.view.is_executor());
        if !state.is_check() {
            self.report_progress(attempt, status, output);
        }
        let view = &mut self.stories[story_index].view;
        if !output.is_empty() {
            view.latest_output = diagnosis::truncate_chars(output, MAX_OUTPUT_CHARS);
        }
        if matches!(status, StoryStatus::Pending | StoryStatus::Skipped) {
            return Some(Applied);
        }
        let story = self.spec.story_ref(key);
        let progress = (!output.is_empty()).then(|| {
            let (story, text) = (story.clone(), output.to_owned());
            Announcement::StoryProgress { story, text }
        });
        let announcement = if !is_executor {
            // It reports about its review or checks, not about the story; what these come to has an announcement of its own.
            progress.filter(|_| status == StoryStatus::InProgress)
        } else {
            // A story is only completed when its commit has landed.
            view.status = StoryStatus::InProgress;
            view.started.get_or_insert(self.now);
            match status {
                StoryStatus::Completed if before != StoryStatus::Completed => {
                    Some(Announcement::StoryFinished { story })
                }
                StoryStatus::InProgress if before == StoryStatus::Pending => {
                    let title = self.spec.stories[story_index.position()].title.clone();
                    Some(Announcement::StoryStarted { story, title, attempt: id.clone() })
                }
                _ => progress,
            }
        };
        self.effects.extend(announcement.map(Effect::Announce));
        Some(Applied)
    }

    pub(super) fn on_error_reported(
        &mut self,
        id: &AttemptId,
        record: u64,
        code: &str,
        message: &str,
    ) -> Option<Applied> {
        let attempt = self.accept_record(id, record, &REPORTING_PHASES)?;
        let state = &mut self.attempts[attempt];
        let failure = state.first_error.get_or_insert_with(|| diagnosis::error_record_failure(code, message));
        state.view.error.get_or_insert_with(|| failure.evidence.summary.clone());
        self.announce(Announcement::ErrorReported {
            attempt: id.clone(),
            code: code.to_owned(),
            message: message.to_owned(),
        });
        Some(Applied)
    }

    pub(super) fn on_completion_reported(
        &mut self,
        id: &AttemptId,
        record: u64,
        status: CompletionStatus,
        errors: &[String],
    ) -> Option<Applied> {
        let attempt = self.accept_record(id, record, &REPORTING_PHASES)?;
        if self.attempts[attempt].is_suspended() {
            // It reported this before it was paused: nothing is left to decide, and it must run to exit.
            self.release_suspended(attempt);
            self.effects.push(Effect::Unpause { attempt: id.clone() });
        }
        let state = &mut self.attempts[attempt];
        state.view.phase = AttemptPhase::Completed;
        state.view.completion = Some(status);
        if let Some(error) = errors.first() {
            state.view.error.get_or_insert_with(|| diagnosis::truncate_chars(error, MAX_OUTPUT_CHARS));
        }
        let ending = state.end_reason.is_some();
        self.set_deadline(Timer::AttemptSilence(attempt), None);
        // A terminated sandbox already has its deadline.
        if !ending {
            self.set_timer(attempt, AttemptTimer::ExitOverdue, self.spec.limits.grace_period);
        }
        Some(Applied)
    }

    pub(super) fn on_record_refused(&mut self, id: &AttemptId, record: u64, reason: &str) -> Option<Applied> {
        let most = self.spec.limits.max_bad_records.max(1);
        // A sandbox that sends on after it was killed for this must not fill the journal.
        if self.attempt(id).is_some_and(|view| view.bad_records >= most) {
            return None;
        }
        let phases = [AttemptPhase::Created, AttemptPhase::Running, AttemptPhase::Completed];
        let attempt = self.accept_record(id, record, &phases)?;
        let state = &mut self.attempts[attempt];
        state.view.bad_records += 1;
        let count = state.view.bad_records;
        let kill = count == most && state.view.phase != AttemptPhase::Completed;
        if kill {
            state.end_reason.get_or_insert(EndReason::BadRecords);
        }
        self.announce(Announcement::RecordRefused { attempt: id.clone(), reason: reason.to_owned(), count });
        if kill {
            self.kill(attempt);
        }
        Some(Applied)
    }

    /// Takes a record's number in; `None` if the record is a replay or cannot come now.
    fn accept_record(&mut self, id: &AttemptId, record: u64, phases: &[AttemptPhase]) -> Option<AttemptIndex> {
        let attempt = self.attempt_in(id, phases)?;
        let view = &mut self.attempts[attempt].view;
        if record <= view.record_count {
            return None;
        }
        view.record_count = record;
        view.updated = self.now;
        self.reset_silence(attempt);
        Some(attempt)
    }

    pub(super) fn on_sandbox_ended(&mut self, id: &AttemptId, exit: &ContainerExit) -> Option<Applied> {
        let attempt = self.attempt_in(id, &LIVE_PHASES)?;
        let state = &mut self.attempts[attempt];
        state.engine_lost |= exit.engine_lost;
        let failure = diagnosis::exit_failure(state, exit);
        state.view.exit = Some(exit.clone());
        self.announce(Announcement::SandboxEnded {
            attempt: id.clone(),
            exit_code: exit.code,
            oom_killed: exit.oom_killed,
            vanished: exit.vanished,
            error: exit.error.clone(),
            stderr_tail: exit.stderr_tail.clone(),
        });
        self.end_sandbox(attempt, failure);
        Some(Applied)
    }

    /// The container has ended, or is given up. `failure` explains it, unless the sandbox reported a completion before.
    pub(super) fn end_sandbox(&mut self, attempt: AttemptIndex, failure: Failure) {
        self.release_suspended(attempt);
        self.clear_amp_deadlines(attempt);
        self.running.remove(&attempt);
        let state = &mut self.attempts[attempt];
        let view = &mut state.view;
        view.status = match (view.completion, state.end_reason) {
            (Some(CompletionStatus::Completed), _) => ContainerStatus::Completed,
            (_, Some(EndReason::SwarmStopped)) => ContainerStatus::Stopped,
            _ => ContainerStatus::Failed,
        };
        if view.completion.is_some() {
            view.collect_mode = Some(CollectMode::Result);
        } else {
            view.collect_mode = Some(CollectMode::Salvage);
            view.error.get_or_insert_with(|| failure.evidence.summary.clone());
            state.end_failure = Some(failure);
        }
        view.phase = AttemptPhase::Collecting;
        view.updated = self.now;
        self.clear_timer(attempt);
        self.set_deadline(Timer::AttemptSilence(attempt), None);
        self.request_collect(attempt);
    }

    pub(super) fn request_collect(&mut self, attempt: AttemptIndex) {
        let view = &self.attempts[attempt].view;
        let mode = view.collect_mode.unwrap_or(CollectMode::Salvage);
        self.effects.push(Effect::Collect { attempt: view.id.clone(), mode });
        if self.stop_level == Some(StopLevel::Kill) {
            self.set_collect_timeout(attempt);
        }
    }

    pub(super) fn set_collect_timeout(&mut self, attempt: AttemptIndex) {
        let wait = self.spec.limits.grace_period + SHIM_SHUTDOWN_MARGIN;
        self.set_timer(attempt, AttemptTimer::CollectTimeout, wait);
    }

    /// Requests the removal of the container, and of its work directory unless that is kept.
    pub(super) fn request_removal(&mut self, attempt: AttemptIndex, fate: WorkDirFate) {
        let state = &mut self.attempts[attempt];
        let (id, keep_work_dir) = (state.view.id.clone(), fate != WorkDirFate::Remove);
        state.removal = Some(fate);
        state.view.work_dir_kept = keep_work_dir;
        self.effects.push(Effect::Remove { attempt: id.clone(), keep_work_dir });
        if keep_work_dir {
            let (work_dir, partly_salvaged) = (id.dir_name(), fate == WorkDirFate::KeepPartlySalvaged);
            self.announce(Announcement::WorkDirKept { attempt: id, work_dir, partly_salvaged });
        }
    }

    pub(super) fn on_sandbox_removed(&mut self, id: &AttemptId) -> Option<Applied> {
        let attempt = self.attempt_index(id)?;
        let state = &mut self.attempts[attempt];
        if state.removal.is_none() || state.view.removed {
            return None;
        }
        state.view.removed = true;
        state.view.updated = self.now;
        Some(Applied)
    }
}
