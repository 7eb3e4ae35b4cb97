//! What waits for the admin, and what the admin can decide about it.
//!
//! | hold | because | approve | resume | answer | retry | rollback | abort |
//! |---|---|---|---|---|---|---|---|
//! | approval | a story is of high risk | runs | - | runs, with the guidance | - | - | fails |
//! | locked | rejected too often | lands as it is | another round | another round, with the guidance | another round, counts at zero | from the integration branch, counts at zero | fails |
//! | low confidence | the reviewer is not sure | the verdict counts | reviewed again | as above | as above | as above | fails |
//! | no verdict | no review gave one | lands as it is | reviewed again | as above | as above | as above | fails |
//! | suspended | its sandbox is paused | continues | continues | continues | started again | from the integration branch | fails |
//! | none, but a story failed | | - | - | - | tried again, counts at zero | the same from the integration branch | - |
//!
//! A hold delays nothing but what depends on it. A swarm that only has held work left ends as suspended.

use std::time::Duration;

use super::attempt::{EndReason, FailedStory, Suspension};
use super::deadlines::{AttemptTimer, Timer};
use super::escalation::EscalationDraft;
use super::hold::{AdminHold, HoldKind};
use super::state::{Applied, SwarmMachine, TrackedStory, WaitCounts};
use crate::ids::AssignmentId;
use crate::protocol::acp::message::StoryStatus;
use crate::swarm::amp_intent::TaskPhase;
use crate::swarm::announcement::Announcement;
use crate::swarm::effect::Effect;
use crate::swarm::event::{TaskAction, TaskDecision};
use crate::swarm::index::{AssignmentIndex, AttemptIndex, StoryIndex};
use crate::swarm::swarm_outcome::SwarmOutcome;
use crate::verdict::{Cause, CauseClass, Failure};

impl SwarmMachine {
    /// The assignment's hold. One without open stories needs no approval, but does again if its skipped stories are reopened.
    pub(super) fn active_hold(&self, assignment: AssignmentIndex) -> Option<&AdminHold> {
        let assignment = &self.assignments[assignment];
        assignment.hold.as_ref().filter(|_| assignment.open_stories > 0)
    }

    pub(super) fn hold_for_admin(&mut self, assignment: AssignmentIndex, kind: HoldKind, draft: EscalationDraft) {
        let reason = draft.description.clone();
        let escalation_id = self.escalate(assignment, draft);
        self.assignments[assignment].hold = Some(AdminHold { kind, escalation_id, reason, since: self.now });
        // Others may have its slot meanwhile.
        for attempt in &self.assignments[assignment].attempts {
            self.slots.remove(attempt);
        }
        self.update_readiness(assignment);
    }

    /// Pauses a running sandbox until the admin decides. Others may have its slot meanwhile.
    pub(super) fn suspend(&mut self, attempt: AttemptIndex, draft: EscalationDraft) {
        let remaining = self.deadlines.get(Timer::Attempt(attempt)).map(|due| due.saturating_sub(self.now));
        let state = &mut self.attempts[attempt];
        let assignment = state.assignment;
        state.suspension = Suspension::Suspended { timer: state.timer.zip(remaining) };
        // A suspended reviewer does not keep the swarm busy.
        self.parked += usize::from(state.is_review());
        self.effects.push(Effect::Pause { attempt: state.view.id.clone() });
        self.clear_timer(attempt);
        self.set_deadline(Timer::AttemptSilence(attempt), None);
        self.clear_amp_deadlines(attempt);
        self.running.remove(&attempt);
        self.suspended += 1;
        self.hold_for_admin(assignment, HoldKind::Suspended, draft);
    }

    /// Ends a suspension. Returns the timer that it interrupted; the slot is the caller's to take.
    fn end_suspension(&mut self, attempt: AttemptIndex, next: Suspension) -> Option<(AttemptTimer, Duration)> {
        let entry = self.queue_entry(attempt);
        let state = &mut self.attempts[attempt];
        let Suspension::Suspended { timer } = state.suspension else { return None };
        state.suspension = next;
        self.suspended -= 1;
        self.parked -= usize::from(state.is_review());
        self.wake_queue.remove(&entry);
        self.assignments[state.assignment].hold = None;
        timer
    }

    /// A suspended sandbox ended all the same, or is about to: it needs no slot.
    pub(super) fn release_suspended(&mut self, attempt: AttemptIndex) {
        self.end_suspension(attempt, Suspension::Evicted);
    }

    /// Lets a suspended sandbox continue in a slot of its own.
    pub(super) fn unpause(&mut self, attempt: AttemptIndex) {
        let timer = self.end_suspension(attempt, Suspension::Resumed);
        self.running.insert(attempt);
        self.slots.insert(self.reviewed_attempt(attempt).unwrap_or(attempt));
        let state = &mut self.attempts[attempt];
        state.last_unpaused = Some(self.now);
        let assignment = state.assignment;
        self.effects.push(Effect::Unpause { attempt: state.view.id.clone() });
        if let Some((timer, remaining)) = timer {
            self.set_timer(attempt, timer, remaining);
        }
        self.reset_silence(attempt);
        self.reset_heartbeat(attempt);
        self.send_task_update(assignment, TaskPhase::InProgress);
    }

    /// Checks whether the admin can decide this about the task.
    ///
    /// # Errors
    /// The reason why not, for people.
    pub fn check_decision(&self, task: &AssignmentId, action: &TaskAction) -> Result<(), String> {
        let Some(index) = self.assignment_indices.get(task).copied() else {
            return Err(format!("the swarm has no task `{task}`"));
        };
        let word = action.as_str();
        match self.active_hold(index).map(|hold| hold.kind) {
            Some(HoldKind::Approval) => match action {
                TaskAction::Approve | TaskAction::Abort | TaskAction::Answer { .. } => Ok(()),
                _ => Err(format!("`{task}` waits for an approval: use `approve` or `abort`, not `{word}`")),
            },
            Some(_) => Ok(()),
            None if matches!(action, TaskAction::Retry | TaskAction::Rollback) => {
                let assignment = &self.assignments[index];
                let mut failed = assignment
                    .stories
                    .iter()
                    .filter(|story| self.stories[**story].view.status == StoryStatus::Failed)
                    .peekable();
                if assignment.active {
                    Err(format!("`{task}` is running: wait until its attempt has ended, then {word} it"))
                } else if failed.peek().is_none() {
                    Err(format!("no story of `{task}` has failed: there is nothing to {word}"))
                } else if !failed.any(|story| self.can_dependencies_land(*story)) {
                    Err(format!("the dependencies of `{task}` have not landed: {word} these first"))
                } else {
                    Ok(())
                }
            }
            None => Err(format!("`{task}` does not wait for the admin: there is nothing to {word}")),
        }
    }

    pub(super) fn on_decision_made(&mut self, decision: &TaskDecision) -> Option<Applied> {
        let TaskDecision { id, task, action, by } = decision;
        if self.applied_decisions.contains(id) || self.check_decision(task, action).is_err() {
            return None;
        }
        let assignment = self.assignment_indices[task];
        self.applied_decisions.insert(id.clone());
        self.announce(Announcement::DecisionApplied {
            task: task.clone(),
            action: action.as_str().to_owned(),
            by: by.clone(),
        });
        match action {
            TaskAction::Answer { text } => {
                self.acknowledge_escalations(assignment, &format!("{}: {text}", action.as_str()));
                self.send_guidance(assignment, text);
                self.assignments[assignment].review.guidance.push(text.clone());
            }
            _ => self.acknowledge_escalations(assignment, action.as_str()),
        }
        if matches!(action, TaskAction::Retry | TaskAction::Rollback) {
            self.reset_retry_counts(assignment, *action == TaskAction::Rollback);
        }
        let kind = self.active_hold(assignment).map(|hold| hold.kind);
        self.assignments[assignment].hold = None;
        match kind {
            Some(HoldKind::Approval) if *action == TaskAction::Abort => {
                let failure = Failure::new(Cause::AbortedByAdmin, "the admin did not approve it");
                self.abort_assignment(assignment, &failure);
            }
            Some(HoldKind::Approval) => {}
            Some(HoldKind::Suspended) => self.apply_decision_to_suspended(assignment, action),
            Some(kind) => self.apply_decision_to_reviewed(assignment, kind, action),
            None => self.reopen_failed_stories(assignment),
        }
        self.update_readiness(assignment);
        Some(Applied)
    }

    fn reset_retry_counts(&mut self, assignment: AssignmentIndex, rollback: bool) {
        let state = &mut self.assignments[assignment];
        (state.machinery_failures, state.engine_losses, state.merge_conflicts) = (0, 0, 0);
        state.last_machinery_failure = None;
        (state.pending_merge, state.rework_base) = (None, None);
        state.review.reset_counts(rollback);
        for story in &state.stories {
            let story = &mut self.stories[*story];
            (story.view.failures, story.hangs) = (0, 0);
        }
    }

    /// The open stories of the assignment fail: the admin gave them up.
    pub(super) fn abort_assignment(&mut self, assignment: AssignmentIndex, failure: &Failure) {
        let state = &mut self.assignments[assignment];
        // A later retry begins anew.
        state.review.discard_tip();
        let open = state.stories.iter().copied().filter(|story| !self.stories[*story].view.is_closed());
        let failed = FailedStory::for_all(open, failure);
        self.fail_stories(failed);
        self.send_task_update(assignment, TaskPhase::Aborted);
    }

    fn apply_decision_to_suspended(&mut self, assignment: AssignmentIndex, action: &TaskAction) {
        let suspended = |attempt: &AttemptIndex| self.attempts[*attempt].is_suspended();
        let Some(attempt) = self.assignments[assignment].attempts.iter().copied().find(suspended) else { return };
        let reason = match action {
            TaskAction::Abort => EndReason::AdminAbort,
            TaskAction::Retry => EndReason::AdminRetry,
            TaskAction::Rollback => EndReason::AdminRollback,
            TaskAction::Approve | TaskAction::Resume | TaskAction::Answer { .. } => {
                // Another attempt may have its slot.
                self.wake_queue.insert(self.queue_entry(attempt));
                return;
            }
        };
        self.attempts[attempt].end_reason.get_or_insert(reason);
        self.kill(attempt);
    }

    /// Reopens the failed stories of an assignment, and those that were skipped because of them. A story stays failed if
    /// something that it depends on can no longer land.
    fn reopen_failed_stories(&mut self, assignment: AssignmentIndex) {
        let mut reopened = Vec::new();
        for story in self.assignments[assignment].stories.clone() {
            if self.stories[story].view.status == StoryStatus::Failed && self.can_dependencies_land(story) {
                self.reopen_story(story);
                reopened.push(story);
            }
        }
        while let Some(story) = reopened.pop() {
            for dependent in self.stories[story].dependents.clone() {
                let TrackedStory { view, assignment: owner, .. } = &self.stories[dependent];
                let skipped = view.status == StoryStatus::Skipped && !view.done_before;
                let own = view.status == StoryStatus::Failed && *owner == Some(assignment);
                if (skipped || own) && self.can_dependencies_land(dependent) {
                    self.reopen_story(dependent);
                    reopened.push(dependent);
                }
            }
        }
        self.recount_waits();
    }

    /// Counts again what each assignment waits for, after stories were reopened.
    pub(super) fn recount_waits(&mut self) {
        for assignment in self.assignments.indices() {
            let WaitCounts { open_stories, unmet_dependencies } = self.count_waits(assignment);
            let state = &mut self.assignments[assignment];
            (state.open_stories, state.unmet_dependencies) = (open_stories, unmet_dependencies);
            self.update_readiness(assignment);
        }
    }

    /// Whether all that the story depends on has landed, or may yet.
    fn can_dependencies_land(&self, story: StoryIndex) -> bool {
        let mut dependencies = self.stories[story].dependencies.iter().map(|other| &self.stories[*other].view);
        dependencies.all(|view| view.has_landed() || !view.is_closed())
    }

    fn reopen_story(&mut self, story: StoryIndex) {
        let view = &mut self.stories[story].view;
        match view.status {
            StoryStatus::Failed => {
                self.counts.failed -= 1;
                let class = view.failure.as_ref().map(|failure| failure.cause.class());
                self.counts.failed_by_machinery -= usize::from(class == Some(CauseClass::Machinery));
            }
            _ => {
                self.counts.skipped -= 1;
                view.failure = None;
            }
        }
        (view.status, view.ended, view.blocked_by) = (StoryStatus::Pending, None, None);
        self.counts.open += 1;
    }

    /// Ends a swarm that only has held work left. Returns whether it did.
    pub(super) fn finish_if_held(&mut self) -> bool {
        let held = self.assignments.indices().any(|assignment| self.active_hold(assignment).is_some());
        if held {
            self.finish(SwarmOutcome::Suspended);
        }
        held
    }

    /// A swarm that is being stopped ends its suspended sandboxes, too.
    pub(super) fn kill_suspended(&mut self) {
        for attempt in self.find_attempts(|attempt| attempt.is_suspended()) {
            self.attempts[attempt].end_reason.get_or_insert(EndReason::SwarmStopped);
            self.kill(attempt);
        }
    }

    /// Restores the pause, or its end, of an attempt in a resumed swarm.
    pub(super) fn reissue_pause(&mut self, attempt: AttemptIndex) {
        let entry = self.queue_entry(attempt);
        let state = &mut self.attempts[attempt];
        if self.wake_queue.contains(&entry) {
            // It continues as soon as it has a slot.
        } else if state.is_suspended() {
            self.effects.push(Effect::Pause { attempt: state.view.id.clone() });
        } else if state.was_suspended() && state.timer != Some(AttemptTimer::KillTimeout) {
            // The last orchestrator may have died before it unpaused the sandbox.
            state.last_unpaused = Some(self.now);
            self.effects.push(Effect::Unpause { attempt: state.view.id.clone() });
        }
    }
}
