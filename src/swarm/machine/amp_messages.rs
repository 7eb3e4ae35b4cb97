//! When something is sent in AMP (the design's table "AMP/1.0").
//!
//! | event | message |
//! |---|---|
//! | a sandbox starts | `task_dispatch`, or `review_request` for a reviewer |
//! | its first `in_progress` | the ack of that |
//! | a story ends in an attempt | `task_result`, and the coordinator's ack |
//! | a reviewer answers | `review_verdict`, and the coordinator's ack |
//! | something failed | `escalation`: info if it is retried, else a warning |
//! | an ack or a heartbeat is late | `escalation ack_timeout`, `escalation heartbeat_timeout` |
//! | the admin decides | the acks of the task's escalations; with guidance, a `task_dispatch` to the coordinator |

use super::amp::ResultDraft;
use super::attempt::{FailedStory, ReportedStory};
use super::escalation::{EscalationDraft, FailureContext};
use super::hold::HoldKind;
use super::state::SwarmMachine;
use super::view::AttemptPhase;
use crate::ids::AttemptId;
use crate::protocol::acp::message::StoryStatus;
use crate::protocol::amp::machine::MissedDeadline;
use crate::protocol::amp::message::{AmpRole, MsgId, ReviewVerdict, SubtaskCompletionStatus};
use crate::swarm::amp_intent::{AmpIntent, FailedStories, TaskPhase, TaskUpdate};
use crate::swarm::index::{AssignmentIndex, AttemptIndex, StoryIndex};
use crate::tasks::RiskLevel;
use crate::verdict::{Cause, Failure};

impl SwarmMachine {
    pub(super) fn reset_heartbeat(&mut self, attempt: AttemptIndex) {
        let attempt = &self.attempts[attempt];
        if !attempt.is_suspended() {
            self.amp.reset_heartbeat(&attempt.view.id, self.now);
        }
    }

    pub(super) fn clear_amp_deadlines(&mut self, attempt: AttemptIndex) {
        self.amp.remove_agent(&self.attempts[attempt].view.id);
    }

    /// The sandbox got its task.
    pub(super) fn send_dispatch(&mut self, attempt: AttemptIndex) {
        if !self.amp.is_enabled() {
            return;
        }
        let state = &self.attempts[attempt];
        if state.is_check() {
            // Nobody is in it who could answer.
            return;
        }
        let assignment = state.assignment;
        let phase = match state.view.review().cloned() {
            Some(review) => {
                self.amp.send_review_request(&state.view.id, review, self.now, &mut self.effects);
                TaskPhase::InReview
            }
            None => {
                let stories = self.story_keys(&state.stories);
                let guidance = self.assignments[assignment].review.guidance.clone();
                self.amp.send_dispatch(&state.view.id, stories, guidance, self.now, &mut self.effects);
                TaskPhase::Dispatched
            }
        };
        self.reset_heartbeat(attempt);
        self.send_task_update(assignment, phase);
    }

    /// A result or verdict needs a dispatch to refer to, even of a sandbox that was never seen to start.
    fn ensure_dispatched(&mut self, attempt: AttemptIndex) {
        if !self.amp.has_sent_task(&self.attempts[attempt].view.id) {
            self.send_dispatch(attempt);
            self.clear_amp_deadlines(attempt);
        }
    }

    /// The agent reported that it works on a story, or what it does.
    pub(super) fn report_progress(&mut self, attempt: AttemptIndex, status: StoryStatus, output: &str) {
        let state = &self.attempts[attempt];
        let (role, phase) = match state.is_review() {
            true => (AmpRole::Reviewer, TaskPhase::InReview),
            false => (AmpRole::Executor, TaskPhase::InProgress),
        };
        let assignment = state.assignment;
        if status == StoryStatus::InProgress
            && self.amp.acknowledge_task(&state.view.id, role, self.now, &mut self.effects)
        {
            self.reset_heartbeat(attempt);
        }
        if !output.is_empty() && self.amp.expects_heartbeat(&self.attempts[attempt].view.id) {
            self.reset_heartbeat(attempt);
            self.send_task_progress(assignment, phase, Some(output.to_owned()));
        }
    }

    pub(super) fn send_task_update(&mut self, assignment: AssignmentIndex, phase: TaskPhase) {
        self.send_task_progress(assignment, phase, None);
    }

    fn send_task_progress(&mut self, assignment: AssignmentIndex, phase: TaskPhase, progress: Option<String>) {
        if !self.amp.is_enabled() {
            return;
        }
        let task = &self.assignments[assignment];
        let stories = task.stories.iter().map(|story| &self.stories[*story].view);
        let update = TaskUpdate {
            task: task.id.clone(),
            phase,
            stories: stories.map(|view| (view.key.clone(), view.status)).collect(),
            progress,
            reject_count: task.review.reject_count,
            at_ms: self.amp.unix_ms(self.now),
        };
        self.amp.send(AmpIntent::TaskUpdate(update), &mut self.effects);
    }

    /// Sends the result of a story that the attempt's agent was told to do.
    pub(super) fn send_result(
        &mut self,
        attempt: AttemptIndex,
        story: StoryIndex,
        reported: Option<&ReportedStory>,
        failure: Option<&Failure>,
    ) {
        if !self.amp.is_enabled() {
            return;
        }
        self.ensure_dispatched(attempt);
        let state = &self.attempts[attempt];
        let finished = state.finished_stories.iter().find(|finished| finished.story == story);
        let draft = ResultDraft {
            story: self.stories[story].view.key.clone(),
            status: match failure.map(|failure| failure.cause) {
                None => SubtaskCompletionStatus::Complete,
                Some(Cause::StoppedByUser) => SubtaskCompletionStatus::Partial,
                Some(_) => SubtaskCompletionStatus::Failed,
            },
            reported,
            commit: finished.map(|finished| finished.commit.clone()),
            failure,
        };
        self.amp.send_result(&state.view.id, draft, self.now, &mut self.effects);
    }

    pub(super) fn send_verdict(&mut self, attempt: AttemptIndex, verdict: &ReviewVerdict) {
        if self.amp.is_enabled() {
            self.ensure_dispatched(attempt);
            self.amp.send_verdict(&self.attempts[attempt].view.id, verdict, self.now, &mut self.effects);
        }
    }

    /// Escalates the failures of an attempt, one escalation per cause.
    pub(super) fn escalate_failures(&mut self, attempt: AttemptIndex, failed: &[FailedStory], retried: bool) {
        let mut groups: Vec<(&Failure, Vec<StoryIndex>)> = Vec::new();
        for FailedStory { story, failure } in failed {
            match groups.iter_mut().find(|(known, _)| known.cause == failure.cause) {
                Some((_, stories)) => stories.push(*story),
                None => groups.push((failure, vec![*story])),
            }
        }
        for (failure, stories) in groups {
            let state = &self.attempts[attempt];
            let assignment = state.assignment;
            let context = FailureContext {
                retried,
                is_rework: state.view.is_rework,
                has_rejected_work: self.assignments[assignment].review.rejected_tip.is_some(),
            };
            let failed = FailedStories {
                attempt: state.view.id.clone(),
                stories: self.story_keys(&stories),
                failure: failure.clone(),
            };
            if let Some(draft) = EscalationDraft::failed_stories(failed, context) {
                self.escalate(assignment, draft);
            }
        }
    }

    pub(super) fn escalate(&mut self, assignment: AssignmentIndex, draft: EscalationDraft) -> Option<MsgId> {
        let task = &self.assignments[assignment];
        let open = task.stories.iter().copied().filter(|story| !self.stories[*story].view.has_landed());
        let stories = self.story_refs(&open.collect::<Vec<_>>());
        let phase = draft.phase;
        let reject_count = task.review.reject_count;
        let id = self.amp.escalate(&task.id, stories, reject_count, draft, self.now, &mut self.effects)?;
        self.send_task_update(assignment, phase);
        Some(id)
    }

    pub(super) fn acknowledge_escalations(&mut self, assignment: AssignmentIndex, note: &str) {
        self.amp.acknowledge_escalations(&self.assignments[assignment].id, note, self.now, &mut self.effects);
    }

    pub(super) fn send_guidance(&mut self, assignment: AssignmentIndex, text: &str) {
        let task = &self.assignments[assignment];
        let stories = self.story_keys(&task.stories);
        self.amp.send_guidance(&task.id, stories, text, self.now, &mut self.effects);
    }

    /// Escalates late acks, and suspends agents whose heartbeat is late.
    pub(super) fn fire_amp_deadlines(&mut self) -> bool {
        let missed = self.amp.take_missed(self.now);
        for deadline in &missed {
            match deadline {
                MissedDeadline::Ack(message) => self.on_ack_timeout(message),
                MissedDeadline::Heartbeat(agent) => self.on_heartbeat_timeout(agent),
            }
        }
        !missed.is_empty()
    }

    fn on_ack_timeout(&mut self, message: &MsgId) {
        let Some(assignment) = self.assignment_indices.get(message.task_id()).copied() else { return };
        let timeout = self.amp.ack_timeout(message.message_type()).unwrap_or_default();
        self.escalate(assignment, EscalationDraft::ack_timeout(message, timeout));
    }

    fn on_heartbeat_timeout(&mut self, agent: &AttemptId) {
        let Some(attempt) = self.attempt_in(agent, &[AttemptPhase::Running]) else { return };
        if self.attempts[attempt].end_reason.is_some() {
            return;
        }
        if self.is_engine_lost() {
            // Its output cannot arrive.
            self.reset_heartbeat(attempt);
            return;
        }
        let timeout = self.spec.amp.as_ref().map(|amp| amp.heartbeat_timeout).unwrap_or_default();
        self.suspend(attempt, EscalationDraft::heartbeat_timeout(agent, timeout));
    }

    pub(super) fn is_high_risk(&self, story: StoryIndex) -> bool {
        self.stories[story].risk == RiskLevel::High && !self.stories[story].view.is_closed()
    }

    /// Holds an assignment that must not start without the admin's approval.
    pub(super) fn request_approval(&mut self, assignment: AssignmentIndex) {
        let task = &self.assignments[assignment];
        let high_risk = task.stories.iter().filter(|story| self.is_high_risk(**story));
        let names: Vec<&str> = high_risk.map(|story| self.stories[*story].view.key.id.as_str()).collect();
        let draft = EscalationDraft::approval_needed(&task.id, &names);
        self.hold_for_admin(assignment, HoldKind::Approval, draft);
    }
}
