//! What waits for the admin, and what the admin can decide about it.
//!
//! | held | because | approve | resume | answer | retry | rollback | abort |
//! |---|---|---|---|---|---|---|---|
//! | approval | a story is of high risk | runs | - | runs, with these words | - | - | fails |
//! | locked | rejected too often | lands as it is | another round | another round, with these words | another round, counts at zero | from the integration branch, counts at zero | fails |
//! | low confidence | the reviewer is not sure | the verdict counts | reviewed again | as above | as above | as above | fails |
//! | no verdict | no review gave one | lands as it is | reviewed again | as above | as above | as above | fails |
//! | suspended | its sandbox is paused | goes on | goes on | goes on | started again | from the integration branch | fails |
//! | nothing, but a story of it failed | | - | - | - | tried again, counts at zero | the same from the integration branch | - |
//!
//! What is held holds nothing else up but what depends on it. A swarm of which nothing else is left ends as suspended.

use std::time::Duration;

use super::SwarmMachine;
use super::amp_state::EscalationDraft;
use super::diagnosis::EndReason;
use super::timer::AttemptTimer;
use crate::ids::AssignmentId;
use crate::protocol::acp::message::StoryStatus;
use crate::protocol::amp::message::MsgId;
use crate::swarm::effect::{Announcement, Effect, SwarmOutcome};
use crate::swarm::event::{TaskAction, TaskDecision};
use crate::tasks::RiskLevel;
use crate::verdict::{Cause, CauseClass, Failure};

/// Why an assignment waits for the admin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminHold {
    /// What kind.
    pub kind: HoldKind,
    /// The escalation that says so.
    pub escalation_id: Option<MsgId>,
    /// Its words.
    pub reason: String,
    /// Since when, since the swarm began.
    pub since: Duration,
}

/// What kind of wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldKind {
    /// A story of high risk has no approval.
    Approval,
    /// It was rejected too often (`hallucination_lock`).
    Locked,
    /// The reviewer is not sure enough of the verdict.
    LowConfidence,
    /// No review gave a verdict.
    NoVerdict,
    /// Its sandbox is paused.
    Suspended,
}

impl HoldKind {
    /// In a word or two, for people.
    pub fn label(self) -> &'static str {
        match self {
            HoldKind::Approval => "awaiting approval",
            HoldKind::Locked => "locked",
            HoldKind::LowConfidence => "verdict unsure",
            HoldKind::NoVerdict => "no verdict",
            HoldKind::Suspended => "suspended",
        }
    }
}

impl SwarmMachine {
    /// What the assignment waits for the admin for.
    pub fn admin_hold(&self, id: &AssignmentId) -> Option<&AdminHold> {
        self.index.assignments.get(id).and_then(|place| self.active_hold(*place))
    }

    /// The same, by its place. Where nothing of an assignment is left to do, its approval is wanted no more; it is again if
    /// what was skipped is taken back.
    pub(super) fn active_hold(&self, assignment: usize) -> Option<&AdminHold> {
        self.holds[assignment].as_ref().filter(|_| self.assignments[assignment].open_stories > 0)
    }

    /// Whether this decision was taken in.
    pub fn has_applied_decision(&self, decision: &str) -> bool {
        self.applied_decisions.contains(decision)
    }

    /// How often the task was rejected.
    pub fn reject_count(&self, id: &AssignmentId) -> u32 {
        self.index.assignments.get(id).map_or(0, |place| self.review_states[*place].reject_count)
    }

    pub(super) fn is_high_risk(&self, story: usize) -> bool {
        self.spec.stories[story].risk == RiskLevel::High && !self.stories[story].is_closed()
    }

    pub(super) fn hold_for_admin(
        &mut self,
        assignment: usize,
        kind: HoldKind,
        trouble: EscalationDraft,
        out: &mut Vec<Effect>,
    ) {
        let reason = trouble.description.clone();
        let message = self.escalate(assignment, trouble, out);
        self.holds[assignment] = Some(AdminHold { kind, escalation_id: message, reason, since: self.now });
        self.update_readiness(assignment);
    }

    /// Pauses a running sandbox until the admin decides. It gives its place to others meanwhile.
    pub(super) fn suspend(&mut self, place: usize, trouble: EscalationDraft, out: &mut Vec<Effect>) {
        let attempt = &self.attempts[place];
        let (assignment, id) = (attempt.assignment, attempt.view.id.clone());
        let left = attempt.timer.map(|(at, what)| (at.saturating_sub(self.now), what));
        self.attempts[place].suspended = Some(left);
        self.attempts[place].was_suspended = true;
        self.set_timer(place, None);
        self.set_silence_deadline(place, None);
        self.clear_amp_deadlines(place);
        self.running.remove(&place);
        self.suspended += 1;
        // A reviewer that is frozen is at nothing.
        self.parked += usize::from(self.attempts[place].view.review.is_some());
        out.push(Effect::Pause { attempt: id });
        self.hold_for_admin(assignment, HoldKind::Suspended, trouble, out);
    }

    /// A paused sandbox is paused no longer; its place and its timers are the caller's to set.
    fn clear_suspension(&mut self, place: usize) -> Option<(Duration, AttemptTimer)> {
        let left = self.attempts[place].suspended.take()?;
        let assignment = self.attempts[place].assignment;
        self.suspended -= 1;
        self.parked -= usize::from(self.attempts[place].view.review.is_some());
        self.wake_queue.remove(&(self.spec.assignments[assignment].priority, place));
        self.holds[assignment] = None;
        left
    }

    /// A paused sandbox ended all the same, or is about to: it is held no longer, and takes no place.
    pub(super) fn release_suspended(&mut self, place: usize) {
        if self.attempts[place].suspended.is_some() {
            self.clear_suspension(place);
            self.attempts[place].evicted = true;
        }
    }

    /// A paused sandbox goes on, and has a place again.
    pub(super) fn unpause(&mut self, place: usize, out: &mut Vec<Effect>) {
        let left = self.clear_suspension(place);
        self.running.insert(place);
        self.attempts[place].last_unpaused = Some(self.now);
        out.push(Effect::Unpause { attempt: self.attempts[place].view.id.clone() });
        self.set_timer(place, left);
        self.reset_silence(place);
        self.reset_heartbeat(place);
        self.send_task_update(self.attempts[place].assignment, "in_progress", None, out);
    }

    /// Whether the admin can decide this about the task.
    ///
    /// # Errors
    /// Why not, for people.
    pub fn check_decision(&self, task: &AssignmentId, action: &TaskAction) -> Result<(), String> {
        let Some(place) = self.index.assignments.get(task).copied() else {
            return Err(format!("the swarm has no task {task}"));
        };
        let word = action.as_str();
        match self.active_hold(place).map(|hold| hold.kind) {
            Some(HoldKind::Approval) => match action {
                TaskAction::Approve | TaskAction::Abort | TaskAction::Answer { .. } => Ok(()),
                _ => Err(format!("{task} waits for an approval: `approve` or `abort`, not `{word}`")),
            },
            Some(_) => Ok(()),
            None if matches!(action, TaskAction::Retry | TaskAction::Rollback) => {
                let failed = |story: &usize| self.stories[*story].status == StoryStatus::Failed;
                if self.assignments[place].active {
                    Err(format!("{task} is being worked on: it can be `{word}`ed when that is over"))
                } else if !self.index.assignment_stories[place].iter().any(failed) {
                    Err(format!("no story of {task} has failed, and nothing of it waits: there is nothing to {word}"))
                } else if !self.index.assignment_stories[place]
                    .iter()
                    .any(|story| failed(story) && self.can_dependencies_land(*story))
                {
                    Err(format!("what {task} depends on has not landed: `{word}` that first"))
                } else {
                    Ok(())
                }
            }
            None => Err(format!("nothing of {task} waits for the admin: there is nothing to {word}")),
        }
    }

    /// Takes a decision of the admin's in, once.
    pub(super) fn on_decision_made(&mut self, decision: &TaskDecision, out: &mut Vec<Effect>) -> bool {
        if self.applied_decisions.contains(&decision.id)
            || self.check_decision(&decision.task, &decision.action).is_err()
        {
            return false;
        }
        let assignment = self.index.assignments[&decision.task];
        self.applied_decisions.insert(decision.id.clone());
        let note = match &decision.action {
            TaskAction::Answer { text } => format!("{}: {text}", decision.action.as_str()),
            other => other.as_str().to_owned(),
        };
        out.push(Effect::Announce(Announcement::DecisionApplied {
            task: decision.task.clone(),
            action: decision.action.as_str().to_owned(),
            by: decision.by.clone(),
        }));
        self.ack_escalations(assignment, &note, out);
        if let TaskAction::Answer { text } = &decision.action {
            self.send_guidance(assignment, text, out);
            self.review_states[assignment].guidance.push(text.clone());
        }
        if matches!(decision.action, TaskAction::Retry | TaskAction::Rollback) {
            self.reset_retry_counts(assignment, decision.action == TaskAction::Rollback);
        }
        let kind = self.active_hold(assignment).map(|hold| hold.kind);
        self.holds[assignment] = None;
        match kind {
            Some(HoldKind::Approval) if decision.action == TaskAction::Abort => self.abort_unapproved(assignment, out),
            Some(HoldKind::Approval) => {}
            Some(HoldKind::Suspended) => self.apply_decision_to_suspended(assignment, &decision.action, out),
            Some(kind) => self.apply_decision_to_reviewed(assignment, kind, &decision.action, out),
            None => self.reopen_failed_stories(assignment),
        }
        self.update_readiness(assignment);
        true
    }

    /// As if nothing of it had failed or been rejected.
    fn reset_retry_counts(&mut self, assignment: usize, from_the_branch: bool) {
        let state = &mut self.assignments[assignment];
        (state.machinery_failures, state.engine_losses, state.merge_conflicts) = (0, 0, 0);
        state.last_machinery_failure = None;
        self.review_states[assignment].reset_counts(from_the_branch);
        for at in 0..self.index.assignment_stories[assignment].len() {
            let view = &mut self.stories[self.index.assignment_stories[assignment][at]];
            (view.failures, view.hangs) = (0, 0);
        }
    }

    fn abort_unapproved(&mut self, assignment: usize, out: &mut Vec<Effect>) {
        self.abort_assignment(assignment, &Failure::new(Cause::AbortedByAdmin, "the admin did not approve it"), out);
    }

    /// What is undecided of the task has failed: the admin wants no more of it.
    pub(super) fn abort_assignment(&mut self, assignment: usize, failure: &Failure, out: &mut Vec<Effect>) {
        let stories =
            self.index.assignment_stories[assignment].iter().copied().filter(|story| !self.stories[*story].is_closed());
        let failed = stories.map(|story| (story, failure.clone())).collect();
        // Where it is tried again all the same, it begins anew.
        self.review_states[assignment].discard_tip();
        self.fail_stories(failed, out);
        self.send_task_update(assignment, "aborted", None, out);
    }

    fn apply_decision_to_suspended(&mut self, assignment: usize, action: &TaskAction, out: &mut Vec<Effect>) {
        let paused = |place: &usize| self.attempts[*place].suspended.is_some();
        let Some(place) = self.assignments[assignment].attempts.iter().copied().find(paused) else { return };
        let ending = match action {
            TaskAction::Abort => EndReason::AdminAbort,
            TaskAction::Retry => EndReason::AdminRetry,
            TaskAction::Rollback => EndReason::AdminRollback,
            TaskAction::Approve | TaskAction::Resume | TaskAction::Answer { .. } => {
                // Its place may be another's by now.
                self.wake_queue.insert((self.spec.assignments[assignment].priority, place));
                return;
            }
        };
        self.attempts[place].end_reason.get_or_insert(ending);
        self.kill(place, out);
    }

    /// Takes the failed stories of an assignment back, and what was skipped because of them. One that was given up while what it
    /// depends on had not landed, and did not land either, stays as it is.
    fn reopen_failed_stories(&mut self, assignment: usize) {
        let mut open = Vec::new();
        for at in 0..self.index.assignment_stories[assignment].len() {
            let story = self.index.assignment_stories[assignment][at];
            if self.stories[story].status == StoryStatus::Failed && self.can_dependencies_land(story) {
                self.reopen_story(story);
                open.push(story);
            }
        }
        while let Some(story) = open.pop() {
            for at in 0..self.index.dependents[story].len() {
                let dependent = self.index.dependents[story][at];
                let view = &self.stories[dependent];
                let skipped = view.status == StoryStatus::Skipped && !view.done_before;
                let own =
                    view.status == StoryStatus::Failed && self.index.story_assignment[dependent] == Some(assignment);
                if (skipped || own) && self.can_dependencies_land(dependent) {
                    self.reopen_story(dependent);
                    open.push(dependent);
                }
            }
        }
        self.recount_open_stories();
    }

    /// Whether all that the story depends on has landed, or may yet.
    fn can_dependencies_land(&self, story: usize) -> bool {
        self.index.dependencies[story]
            .iter()
            .all(|other| self.stories[*other].has_landed() || !self.stories[*other].is_closed())
    }

    fn reopen_story(&mut self, story: usize) {
        let view = &mut self.stories[story];
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

    /// Counts again what assignments wait for.
    fn recount_open_stories(&mut self) {
        for assignment in 0..self.assignments.len() {
            let undecided =
                self.index.assignment_stories[assignment].iter().copied().filter(|s| !self.stories[*s].is_closed());
            let undecided: Vec<usize> = undecided.collect();
            let outside = |dependency: &&usize| {
                self.index.story_assignment[**dependency] != Some(assignment) && !self.stories[**dependency].is_closed()
            };
            let waits = undecided.iter().map(|s| self.index.dependencies[*s].iter().filter(outside).count()).sum();
            self.assignments[assignment].open_stories = undecided.len();
            self.assignments[assignment].unmet_dependencies = waits;
            self.update_readiness(assignment);
        }
    }

    /// Ends a swarm of which all that is left waits for the admin.
    pub(super) fn finish_if_all_held(&mut self, out: &mut Vec<Effect>) -> bool {
        let held = (0..self.holds.len()).any(|assignment| self.active_hold(assignment).is_some());
        if held {
            self.finish(SwarmOutcome::Suspended, out);
        }
        held
    }

    /// The holds of a swarm that is being stopped: what is paused is ended like the rest.
    pub(super) fn kill_suspended(&mut self, out: &mut Vec<Effect>) {
        for place in 0..self.attempts.len() {
            if self.attempts[place].suspended.is_some() {
                self.attempts[place].end_reason.get_or_insert(EndReason::SwarmStopped);
                self.kill(place, out);
            }
        }
    }

    /// What is paused stays so in a swarm that is taken up again, and what is not does not.
    pub(super) fn reissue_pause(&mut self, place: usize, out: &mut Vec<Effect>) {
        let attempt = &self.attempts[place];
        let id = attempt.view.id.clone();
        let waking = (self.spec.assignments[attempt.assignment].priority, place);
        if self.wake_queue.contains(&waking) {
            // It goes on as soon as it has a place.
        } else if attempt.suspended.is_some() {
            out.push(Effect::Pause { attempt: id });
        } else if attempt.was_suspended && !matches!(attempt.timer, Some((_, AttemptTimer::KillTimeout))) {
            // Who let it go on may have died before it did.
            self.attempts[place].last_unpaused = Some(self.now);
            out.push(Effect::Unpause { attempt: id });
        }
    }
}
