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

use super::Machine;
use super::deadline::AttemptTimer;
use super::judge::Ending;
use super::talk::Trouble;
use crate::ids::AssignmentId;
use crate::protocol::acp::message::StoryStatus;
use crate::protocol::amp::message::MsgId;
use crate::swarm::effect::{Announcement, Effect, Outcome};
use crate::swarm::event::{Action, Decision};
use crate::tasks::RiskLevel;
use crate::verdict::{Cause, CauseClass, Failure};

/// Why an assignment waits for the admin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// What kind.
    pub kind: HoldKind,
    /// The escalation that says so.
    pub message: Option<MsgId>,
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
    pub fn word(self) -> &'static str {
        match self {
            HoldKind::Approval => "awaiting approval",
            HoldKind::Locked => "locked",
            HoldKind::LowConfidence => "verdict unsure",
            HoldKind::NoVerdict => "no verdict",
            HoldKind::Suspended => "suspended",
        }
    }
}

impl Machine {
    /// What the assignment waits for the admin for.
    pub fn hold_of(&self, id: &AssignmentId) -> Option<&Hold> {
        self.index.assignments.get(id).and_then(|place| self.waits_for(*place))
    }

    /// The same, by its place. Where nothing of an assignment is left to do, its approval is wanted no more; it is again if
    /// what was skipped is taken back.
    pub(super) fn waits_for(&self, assignment: usize) -> Option<&Hold> {
        self.holds[assignment].as_ref().filter(|_| self.assignments[assignment].undecided > 0)
    }

    /// Whether this decision was taken in.
    pub fn knows(&self, decision: &str) -> bool {
        self.decisions.contains(decision)
    }

    /// How often the task was rejected.
    pub fn rejects(&self, id: &AssignmentId) -> u32 {
        self.index.assignments.get(id).map_or(0, |place| self.loops[*place].rejects)
    }

    pub(super) fn high_risk(&self, story: usize) -> bool {
        self.spec.stories[story].risk == RiskLevel::High && !self.stories[story].decided()
    }

    pub(super) fn hold(&mut self, assignment: usize, kind: HoldKind, trouble: Trouble, out: &mut Vec<Effect>) {
        let reason = trouble.description.clone();
        let message = self.escalate(assignment, trouble, out);
        self.holds[assignment] = Some(Hold { kind, message, reason, since: self.now });
        self.refresh(assignment);
    }

    /// Pauses a running sandbox until the admin decides. It gives its place to others meanwhile.
    pub(super) fn suspend(&mut self, place: usize, trouble: Trouble, out: &mut Vec<Effect>) {
        let attempt = &self.attempts[place];
        let (assignment, id) = (attempt.assignment, attempt.view.id.clone());
        let left = attempt.timer.map(|(at, what)| (at.saturating_sub(self.now), what));
        self.attempts[place].suspended = Some(left);
        self.attempts[place].was_suspended = true;
        self.set_timer(place, None);
        self.set_silence(place, None);
        self.falls_silent(place);
        self.running.remove(&place);
        self.suspended += 1;
        // A reviewer that is frozen is at nothing.
        self.parked += usize::from(self.attempts[place].view.review.is_some());
        out.push(Effect::Pause { attempt: id });
        self.hold(assignment, HoldKind::Suspended, trouble, out);
    }

    /// A paused sandbox is paused no longer; its place and its timers are the caller's to set.
    fn wake(&mut self, place: usize) -> Option<(Duration, AttemptTimer)> {
        let left = self.attempts[place].suspended.take()?;
        let assignment = self.attempts[place].assignment;
        self.suspended -= 1;
        self.parked -= usize::from(self.attempts[place].view.review.is_some());
        self.wakes.remove(&(self.spec.assignments[assignment].priority, place));
        self.holds[assignment] = None;
        left
    }

    /// A paused sandbox ended all the same, or is about to: it is held no longer, and takes no place.
    pub(super) fn no_longer_suspended(&mut self, place: usize) {
        if self.attempts[place].suspended.is_some() {
            self.wake(place);
            self.attempts[place].evicted = true;
        }
    }

    /// A paused sandbox goes on, and has a place again.
    pub(super) fn go_on(&mut self, place: usize, out: &mut Vec<Effect>) {
        let left = self.wake(place);
        self.running.insert(place);
        self.attempts[place].woken = Some(self.now);
        out.push(Effect::Unpause { attempt: self.attempts[place].view.id.clone() });
        self.set_timer(place, left);
        self.heard(place);
        self.wrote(place);
        self.tell_task(self.attempts[place].assignment, "in_progress", None, out);
    }

    /// Whether the admin can decide this about the task.
    ///
    /// # Errors
    /// Why not, for people.
    pub fn can_decide(&self, task: &AssignmentId, action: &Action) -> Result<(), String> {
        let Some(place) = self.index.assignments.get(task).copied() else {
            return Err(format!("the swarm has no task {task}"));
        };
        let word = action.word();
        match self.waits_for(place).map(|hold| hold.kind) {
            Some(HoldKind::Approval) => match action {
                Action::Approve | Action::Abort | Action::Answer { .. } => Ok(()),
                _ => Err(format!("{task} waits for an approval: `approve` or `abort`, not `{word}`")),
            },
            Some(_) => Ok(()),
            None if matches!(action, Action::Retry | Action::Rollback) => {
                let failed = |story: &usize| self.stories[*story].status == StoryStatus::Failed;
                if self.assignments[place].active {
                    Err(format!("{task} is being worked on: it can be `{word}`ed when that is over"))
                } else if !self.index.members[place].iter().any(failed) {
                    Err(format!("no story of {task} has failed, and nothing of it waits: there is nothing to {word}"))
                } else if !self.index.members[place].iter().any(|story| failed(story) && self.could_run(*story)) {
                    Err(format!("what {task} depends on has not landed: `{word}` that first"))
                } else {
                    Ok(())
                }
            }
            None => Err(format!("nothing of {task} waits for the admin: there is nothing to {word}")),
        }
    }

    /// Takes a decision of the admin's in, once.
    pub(super) fn decided_by_admin(&mut self, decision: &Decision, out: &mut Vec<Effect>) -> bool {
        if self.decisions.contains(&decision.id) || self.can_decide(&decision.task, &decision.action).is_err() {
            return false;
        }
        let assignment = self.index.assignments[&decision.task];
        self.decisions.insert(decision.id.clone());
        let note = match &decision.action {
            Action::Answer { text } => format!("{}: {text}", decision.action.word()),
            other => other.word().to_owned(),
        };
        out.push(Effect::Announce(Announcement::Decided {
            task: decision.task.clone(),
            action: decision.action.word().to_owned(),
            by: decision.by.clone(),
        }));
        self.answer_escalations(assignment, &note, out);
        if let Action::Answer { text } = &decision.action {
            self.tell_guidance(assignment, text, out);
            self.loops[assignment].guidance.push(text.clone());
        }
        if matches!(decision.action, Action::Retry | Action::Rollback) {
            self.count_anew(assignment, decision.action == Action::Rollback);
        }
        let kind = self.waits_for(assignment).map(|hold| hold.kind);
        self.holds[assignment] = None;
        match kind {
            Some(HoldKind::Approval) if decision.action == Action::Abort => self.abort_waiting(assignment, out),
            Some(HoldKind::Approval) => {}
            Some(HoldKind::Suspended) => self.decide_suspended(assignment, &decision.action, out),
            Some(kind) => self.decide_reviewed(assignment, kind, &decision.action, out),
            None => self.take_back(assignment),
        }
        self.refresh(assignment);
        true
    }

    /// As if nothing of it had failed or been rejected.
    fn count_anew(&mut self, assignment: usize, from_the_branch: bool) {
        let state = &mut self.assignments[assignment];
        (state.machinery_failures, state.engine_losses, state.conflicts) = (0, 0, 0);
        state.machinery_failed = None;
        self.loops[assignment].begin_anew(from_the_branch);
        for at in 0..self.index.members[assignment].len() {
            let view = &mut self.stories[self.index.members[assignment][at]];
            (view.failures, view.hangs) = (0, 0);
        }
    }

    fn abort_waiting(&mut self, assignment: usize, out: &mut Vec<Effect>) {
        self.give_up(assignment, &Failure::new(Cause::AbortedByAdmin, "the admin did not approve it"), out);
    }

    /// What is undecided of the task has failed: the admin wants no more of it.
    pub(super) fn give_up(&mut self, assignment: usize, failure: &Failure, out: &mut Vec<Effect>) {
        let stories = self.index.members[assignment].iter().copied().filter(|story| !self.stories[*story].decided());
        let failed = stories.map(|story| (story, failure.clone())).collect();
        // Where it is tried again all the same, it begins anew.
        self.loops[assignment].leave_tip();
        self.fail(failed, out);
        self.tell_task(assignment, "aborted", None, out);
    }

    fn decide_suspended(&mut self, assignment: usize, action: &Action, out: &mut Vec<Effect>) {
        let paused = |place: &usize| self.attempts[*place].suspended.is_some();
        let Some(place) = self.assignments[assignment].attempts.iter().copied().find(paused) else { return };
        let ending = match action {
            Action::Abort => Ending::Aborted,
            Action::Retry => Ending::Again,
            Action::Rollback => Ending::PutAside,
            Action::Approve | Action::Resume | Action::Answer { .. } => {
                // Its place may be another's by now.
                self.wakes.insert((self.spec.assignments[assignment].priority, place));
                return;
            }
        };
        self.attempts[place].ending.get_or_insert(ending);
        self.kill(place, out);
    }

    /// Takes the failed stories of an assignment back, and what was skipped because of them. One that was given up while what it
    /// depends on had not landed, and did not land either, stays as it is.
    fn take_back(&mut self, assignment: usize) {
        let mut open = Vec::new();
        for at in 0..self.index.members[assignment].len() {
            let story = self.index.members[assignment][at];
            if self.stories[story].status == StoryStatus::Failed && self.could_run(story) {
                self.reopen(story);
                open.push(story);
            }
        }
        while let Some(story) = open.pop() {
            for at in 0..self.index.dependents[story].len() {
                let dependent = self.index.dependents[story][at];
                let view = &self.stories[dependent];
                let skipped = view.status == StoryStatus::Skipped && !view.done_before;
                let own = view.status == StoryStatus::Failed && self.index.owner[dependent] == Some(assignment);
                if (skipped || own) && self.could_run(dependent) {
                    self.reopen(dependent);
                    open.push(dependent);
                }
            }
        }
        self.count_waits();
    }

    /// Whether all that the story depends on has landed, or may yet.
    fn could_run(&self, story: usize) -> bool {
        self.index.dependencies[story]
            .iter()
            .all(|other| self.stories[*other].landed() || !self.stories[*other].decided())
    }

    fn reopen(&mut self, story: usize) {
        let view = &mut self.stories[story];
        match view.status {
            StoryStatus::Failed => {
                self.tally.failed -= 1;
                let class = view.failure.as_ref().map(|failure| failure.cause.class());
                self.tally.machinery -= usize::from(class == Some(CauseClass::Machinery));
            }
            _ => {
                self.tally.skipped -= 1;
                view.failure = None;
            }
        }
        (view.status, view.ended, view.because) = (StoryStatus::Pending, None, None);
        self.tally.undecided += 1;
    }

    /// Counts again what assignments wait for.
    fn count_waits(&mut self) {
        for assignment in 0..self.assignments.len() {
            let undecided = self.index.members[assignment].iter().copied().filter(|s| !self.stories[*s].decided());
            let undecided: Vec<usize> = undecided.collect();
            let outside = |dependency: &&usize| {
                self.index.owner[**dependency] != Some(assignment) && !self.stories[**dependency].decided()
            };
            let waits = undecided.iter().map(|s| self.index.dependencies[*s].iter().filter(outside).count()).sum();
            self.assignments[assignment].undecided = undecided.len();
            self.assignments[assignment].waiting_on = waits;
            self.refresh(assignment);
        }
    }

    /// Ends a swarm of which all that is left waits for the admin.
    pub(super) fn all_held(&mut self, out: &mut Vec<Effect>) -> bool {
        let held = (0..self.holds.len()).any(|assignment| self.waits_for(assignment).is_some());
        if held {
            self.finish(Outcome::Suspended, out);
        }
        held
    }

    /// The holds of a swarm that is being stopped: what is paused is ended like the rest.
    pub(super) fn stop_suspended(&mut self, out: &mut Vec<Effect>) {
        for place in 0..self.attempts.len() {
            if self.attempts[place].suspended.is_some() {
                self.attempts[place].ending.get_or_insert(Ending::Stop);
                self.kill(place, out);
            }
        }
    }

    /// What is paused stays so in a swarm that is taken up again, and what is not does not.
    pub(super) fn pause_again(&mut self, place: usize, out: &mut Vec<Effect>) {
        let attempt = &self.attempts[place];
        let id = attempt.view.id.clone();
        let waking = (self.spec.assignments[attempt.assignment].priority, place);
        if self.wakes.contains(&waking) {
            // It goes on as soon as it has a place.
        } else if attempt.suspended.is_some() {
            out.push(Effect::Pause { attempt: id });
        } else if attempt.was_suspended && !matches!(attempt.timer, Some((_, AttemptTimer::Lost))) {
            // Who let it go on may have died before it did.
            self.attempts[place].woken = Some(self.now);
            out.push(Effect::Unpause { attempt: id });
        }
    }
}
