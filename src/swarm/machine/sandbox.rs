//! A sandbox's life and words, from its start to its end.
//!
//! Records carry their number; one that is not newer than the newest taken in is a replay and counts for nothing. The
//! sandbox's words move views and are told to the user; they decide nothing. `completion` is its last word.

use std::time::Duration;

use super::deadline::{AttemptTimer, MARGIN};
use super::judge::{self, Ending};
use super::{ContainerStatus, Machine, Phase};
use crate::ids::{AttemptId, ContainerId, StoryKey};
use crate::protocol::acp::message::{CompletionStatus, StoryStatus};
use crate::swarm::effect::{Announcement, Effect, Salvaging};
use crate::swarm::event::{Exit, Fault, StopLevel};
use crate::verdict::Failure;

/// How long a sandbox that was let go on may still be seen paused.
const THAWING: Duration = Duration::from_secs(20);
/// The most characters of a story's newest words that are kept.
const TEXT: usize = 500;
/// From the container's being there to the sandbox's last word.
const TALKING: [Phase; 2] = [Phase::Created, Phase::Running];
/// While a container may exist that has not ended.
const LIVE: [Phase; 4] = [Phase::Starting, Phase::Created, Phase::Running, Phase::Completed];

/// What is to become of a work folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Folder {
    /// What was in it is on the host, or there was nothing.
    Goes,
    /// It has what no ref on the host has, and refs have the rest.
    HasMore,
    /// It is all there is.
    HasAll,
}

impl Folder {
    /// `safe`: it may go. `partly`: some of it is under a ref.
    pub(super) fn of(safe: bool, partly: bool) -> Self {
        match (safe, partly) {
            (true, _) => Self::Goes,
            (false, true) => Self::HasMore,
            (false, false) => Self::HasAll,
        }
    }
}

impl Machine {
    pub(super) fn created(&mut self, id: &AttemptId, container: &ContainerId, name: &str) -> bool {
        let Some(place) = self.attempt_in(id, &[Phase::Starting, Phase::Created]) else { return false };
        let view = &mut self.attempts[place].view;
        // Another one where a resumed swarm could not go on with the first.
        if view.container.as_ref() == Some(container) {
            return false;
        }
        view.phase = Phase::Created;
        view.container = Some(container.clone());
        view.name = Some(name.to_owned());
        view.updated = self.now;
        true
    }

    pub(super) fn started(&mut self, id: &AttemptId, out: &mut Vec<Effect>) -> bool {
        let Some(place) = self.attempt_in(id, &[Phase::Created]) else { return false };
        let view = &mut self.attempts[place].view;
        view.phase = Phase::Running;
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
                self.set_timer(place, Some((wait, AttemptTimer::Backstop)));
            }
        }
        self.heard(place);
        self.tell_started(place, out);
        true
    }

    pub(super) fn start_held(&mut self, id: &AttemptId, reason: &str, out: &mut Vec<Effect>) -> bool {
        let Some(place) = self.attempt_in(id, &[Phase::Starting]) else { return false };
        self.attempts[place].view.updated = self.now;
        out.push(Effect::Announce(Announcement::StartHeld { attempt: id.clone(), reason: reason.to_owned() }));
        true
    }

    /// The sandbox lives: it has the whole of `liveness` again.
    pub(super) fn heard(&mut self, place: usize) {
        self.attempts[place].silent = false;
        let phase = self.attempts[place].view.phase;
        let suspended = self.attempts[place].suspended.is_some();
        let wait = Some(self.spec.limits.liveness).filter(|_| phase == Phase::Running && !suspended);
        self.set_silence(place, wait);
    }

    /// It has said nothing for too long. What its container looks like is the proof that goes with its end.
    pub(super) fn silence_passed(&mut self, place: usize, out: &mut Vec<Effect>) {
        self.heard(place);
        // What an absent engine's sandboxes say cannot be heard.
        if self.engine_away.is_none() && self.attempts[place].view.phase == Phase::Running {
            self.attempts[place].silent = true;
            out.push(Effect::Examine { attempt: self.attempts[place].view.id.clone() });
        }
    }

    pub(super) fn examined(
        &mut self,
        id: &AttemptId,
        paused: bool,
        processes: &[String],
        out: &mut Vec<Effect>,
    ) -> bool {
        let Some(place) = self.attempt_in(id, &[Phase::Running]) else { return false };
        let woken = self.attempts[place].woken.is_some_and(|woken| paused && self.now - woken < THAWING);
        if self.attempts[place].suspended.is_some() || woken {
            // That is, or was, longshore's own doing.
            return false;
        }
        let attempt = &mut self.attempts[place];
        let news = attempt.view.paused != paused;
        attempt.view.paused = paused;
        attempt.was_paused |= paused;
        if news && paused {
            let container = attempt.view.name.clone().unwrap_or_default();
            out.push(Effect::Announce(Announcement::SandboxPaused { attempt: id.clone(), container }));
        }
        if !attempt.silent || attempt.ending.is_some() {
            return news;
        }
        attempt.processes = processes.to_vec();
        if paused {
            // It would not hear the polite signal.
            attempt.ending = Some(Ending::Silent);
            self.kill(place, out);
        } else {
            self.terminate(place, Ending::Silent, out);
        }
        true
    }

    pub(super) fn start_failed(&mut self, id: &AttemptId, fault: &Fault, out: &mut Vec<Effect>) -> bool {
        let Some(place) = self.attempt_in(id, &[Phase::Starting, Phase::Created]) else { return false };
        self.running.remove(&place);
        self.set_timer(place, None);
        let away = self.engine_away.is_some() && fault.retryable;
        let attempt = &mut self.attempts[place];
        attempt.engine_lost |= fault.unreachable || away;
        let stopped = attempt.ending == Some(Ending::Stop);
        attempt.view.status = if stopped { ContainerStatus::Stopped } else { ContainerStatus::Failed };
        attempt.view.error = Some(fault.evidence.summary.clone());
        attempt.view.updated = self.now;
        let failure = Failure { cause: fault.cause, evidence: fault.evidence.clone(), salvage: None };
        self.remove(place, Folder::Goes, out);
        if self.attempts[place].view.review.is_some() {
            self.no_verdict(place, &failure, fault.retryable, out);
        } else {
            self.not_started(place, failure, fault.retryable, out);
        }
        true
    }

    pub(super) fn story_reported(
        &mut self,
        id: &AttemptId,
        record: u64,
        key: &StoryKey,
        status: StoryStatus,
        output: &str,
        out: &mut Vec<Effect>,
    ) -> bool {
        let Some(place) = self.record(id, record, &TALKING) else { return false };
        let attempt = &mut self.attempts[place];
        let Some(at) = attempt.view.stories.iter().position(|(story, _)| story == key) else { return true };
        let before = std::mem::replace(&mut attempt.view.stories[at].1, status);
        let reviews = attempt.view.review.is_some();
        self.tell_progress(place, status, output, out);
        let view = &mut self.stories[self.attempts[place].stories[at]];
        if !output.is_empty() {
            view.text = judge::shorten(output, TEXT);
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

    pub(super) fn error_reported(
        &mut self,
        id: &AttemptId,
        record: u64,
        code: &str,
        message: &str,
        out: &mut Vec<Effect>,
    ) -> bool {
        let Some(place) = self.record(id, record, &TALKING) else { return false };
        let attempt = &mut self.attempts[place];
        let failure = attempt.reported.get_or_insert_with(|| judge::reported(code, message));
        attempt.view.error.get_or_insert_with(|| failure.evidence.summary.clone());
        out.push(Effect::Announce(Announcement::ErrorReported {
            attempt: id.clone(),
            code: code.to_owned(),
            message: message.to_owned(),
        }));
        true
    }

    pub(super) fn completion_reported(
        &mut self,
        id: &AttemptId,
        record: u64,
        status: CompletionStatus,
        errors: &[String],
        out: &mut Vec<Effect>,
    ) -> bool {
        let Some(place) = self.record(id, record, &TALKING) else { return false };
        if self.attempts[place].suspended.is_some() {
            // It had said so before it was paused: there is nothing to decide any more, and it has to go on to end.
            self.no_longer_suspended(place);
            out.push(Effect::Unpause { attempt: id.clone() });
        }
        let attempt = &mut self.attempts[place];
        attempt.view.phase = Phase::Completed;
        attempt.view.completion = Some(status);
        self.set_silence(place, None);
        let attempt = &mut self.attempts[place];
        if let Some(error) = errors.first() {
            attempt.view.error.get_or_insert_with(|| judge::shorten(error, TEXT));
        }
        // What was told to end already has its deadline.
        if attempt.ending.is_none() {
            self.set_timer(place, Some((self.spec.limits.grace, AttemptTimer::Overdue)));
        }
        true
    }

    pub(super) fn record_refused(&mut self, id: &AttemptId, record: u64, reason: &str, out: &mut Vec<Effect>) -> bool {
        let most = self.spec.limits.max_bad_records.max(1);
        // A sandbox that goes on after it was killed for this must not fill the journal.
        if self.attempt_place(id).is_some_and(|place| self.attempts[place].view.bad_records >= most) {
            return false;
        }
        let Some(place) = self.record(id, record, &[Phase::Created, Phase::Running, Phase::Completed]) else {
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
        if count == most && attempt.view.phase != Phase::Completed {
            attempt.ending.get_or_insert(Ending::BadRecords);
            self.kill(place, out);
        }
        true
    }

    /// Takes a record's number in; none where the record is a replay or cannot come now.
    fn record(&mut self, id: &AttemptId, record: u64, phases: &[Phase]) -> Option<usize> {
        let place = self.attempt_in(id, phases)?;
        let view = &mut self.attempts[place].view;
        if record <= view.records {
            return None;
        }
        view.records = record;
        view.updated = self.now;
        self.heard(place);
        Some(place)
    }

    pub(super) fn ended(&mut self, id: &AttemptId, exit: &Exit, out: &mut Vec<Effect>) -> bool {
        let Some(place) = self.attempt_in(id, &LIVE) else { return false };
        self.attempts[place].engine_lost |= exit.engine_lost;
        let death = judge::death(&self.attempts[place], exit);
        self.attempts[place].view.exit = Some(exit.clone());
        out.push(Effect::Announce(Announcement::SandboxEnded { attempt: id.clone(), exit: exit.clone() }));
        self.end(place, death, out);
        true
    }

    /// The container has ended, or is given up. `death` is what it died of, unless it said `completion` before.
    pub(super) fn end(&mut self, place: usize, death: Failure, out: &mut Vec<Effect>) {
        self.no_longer_suspended(place);
        self.falls_silent(place);
        self.running.remove(&place);
        let attempt = &mut self.attempts[place];
        let view = &mut attempt.view;
        view.status = match (view.completion, attempt.ending) {
            (Some(CompletionStatus::Completed), _) => ContainerStatus::Completed,
            (_, Some(Ending::Stop)) => ContainerStatus::Stopped,
            _ => ContainerStatus::Failed,
        };
        if view.completion.is_some() {
            view.collecting = Some(Salvaging::Result);
        } else {
            view.collecting = Some(Salvaging::Remains);
            view.error.get_or_insert_with(|| death.evidence.summary.clone());
            attempt.died_of = Some(death);
        }
        view.phase = Phase::Collecting;
        view.updated = self.now;
        self.set_timer(place, None);
        self.set_silence(place, None);
        self.collect(place, out);
    }

    /// Asks for what is in the work folder.
    pub(super) fn collect(&mut self, place: usize, out: &mut Vec<Effect>) {
        let view = &self.attempts[place].view;
        let what = view.collecting.unwrap_or(Salvaging::Remains);
        out.push(Effect::Collect { attempt: view.id.clone(), what });
        if self.stopping == Some(StopLevel::Kill) {
            self.set_timer(place, Some((self.spec.limits.grace + MARGIN, AttemptTimer::Uncollected)));
        }
    }

    /// Asks for the container's removal, and for that of its work folder where that may go.
    pub(super) fn remove(&mut self, place: usize, folder: Folder, out: &mut Vec<Effect>) {
        let attempt = &mut self.attempts[place];
        let keep_work = folder != Folder::Goes;
        attempt.removal = Some(keep_work);
        attempt.view.work_kept = keep_work;
        out.push(Effect::Remove { attempt: attempt.view.id.clone(), keep_work });
        if keep_work {
            let (attempt, partly) = (attempt.view.id.clone(), folder == Folder::HasMore);
            let folder = attempt.folder();
            out.push(Effect::Announce(Announcement::WorkKept { attempt, folder, partly }));
        }
    }

    pub(super) fn removed(&mut self, id: &AttemptId) -> bool {
        let Some(place) = self.attempt_place(id) else { return false };
        let attempt = &mut self.attempts[place];
        if attempt.removal.is_none() || attempt.view.removed {
            return false;
        }
        attempt.view.removed = true;
        attempt.view.updated = self.now;
        true
    }
}
