//! What is said in AMP, and when: the table in the design ("AMP/1.0"), as words for the coordinator to make messages of.
//!
//! | what happens | word |
//! |---|---|
//! | a sandbox starts | `task_dispatch`, or `review_request` for a reviewer |
//! | its first `in_progress` | the ack of that |
//! | a story ends in an attempt | `task_result`, and the coordinator's ack |
//! | a reviewer answers | `review_verdict`, and the coordinator's ack |
//! | something failed | `escalation`: for the record where it is tried again, a warning where it is not |
//! | an ack or a word is late | `escalation ack_timeout`, `escalation heartbeat_timeout` |
//! | the admin decides | the acks of the task's escalations; with words of the admin's, a `task_dispatch` to the coordinator |
//!
//! A swarm whose spec has no [`AmpSpec`](crate::swarm::spec::AmpSpec) says nothing. Ids follow from events and their times
//! alone, so a journal that is folded again says the same words again.

use std::time::Duration;

use super::settle::ReportedStory;
use super::{AttemptPhase, HoldKind, SwarmMachine, diagnosis};
use crate::ids::{AttemptId, StoryKey};
use crate::protocol::acp::message::StoryStatus;
use crate::protocol::amp::machine::{AmpDeadlines, MissedDeadline};
use crate::protocol::amp::message::{
    AmpMessageType, AmpRole, Escalation, EscalationSeverity, EscalationType, MsgId, SubtaskCompletionStatus,
    SystemStateSnapshot,
};
use crate::swarm::amp_intent::{
    AmpIntent, DispatchIntent, FailedStories, ResultIntent, ReviewRequestIntent, TaskUpdate,
};
use crate::swarm::effect::{Announcement, Effect};
use crate::verdict::{Cause, Failure};

/// The most characters of an escalation's description.
const MAX_DESCRIPTION_CHARS: usize = 4000;

/// The conversation of a swarm.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct AmpState {
    /// How long no orchestrator ran, all in all.
    total_absence: Duration,
    conversation: AmpDeadlines,
}

/// What was said of a task.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct TaskAmpState {
    /// What the next dispatch refers to.
    pub(super) context_refs: Vec<MsgId>,
    /// The newest dispatch, result and verdict.
    pub(super) dispatch: Option<MsgId>,
    pub(super) result: Option<MsgId>,
    pub(super) verdict: Option<MsgId>,
    /// The request of the newest review since that dispatch.
    request: Option<MsgId>,
    /// The newest that went well.
    last_successful: Option<MsgId>,
    /// Escalations that nobody has answered.
    pub(super) open_escalations: Vec<MsgId>,
}

/// An escalation to be made.
pub(super) struct EscalationDraft {
    pub(super) escalation_type: EscalationType,
    pub(super) severity: EscalationSeverity,
    pub(super) triggered_by: AmpRole,
    pub(super) description: String,
    /// The task's status, in a word.
    pub(super) task_status: &'static str,
    /// What the admin could do.
    pub(super) suggested_actions: Vec<String>,
    /// The failure that it is about, if it is one.
    pub(super) failed_stories: Option<Box<FailedStories>>,
}

impl SwarmMachine {
    /// Since the swarm began, the time without an orchestrator included.
    fn total_elapsed(&self) -> Duration {
        self.now + self.amp_state.total_absence
    }

    fn unix_ms(&self) -> u64 {
        let began = self.spec.amp.as_ref().map_or(0, |amp| amp.began_ms);
        began + u64::try_from(self.total_elapsed().as_millis()).unwrap_or(u64::MAX / 2)
    }

    fn new_msg_id(&mut self, kind: AmpMessageType, assignment: usize) -> MsgId {
        let at = self.unix_ms();
        self.amp_state.conversation.next_id(kind, &self.spec.assignments[assignment].id, at)
    }

    /// The seconds that a message says, where its ack may take another time than its type's own.
    fn ack_timeout_secs(&self, kind: AmpMessageType) -> Option<u32> {
        let wanted = self.spec.amp.as_ref()?.ack_timeouts.for_kind(kind)?;
        (Some(wanted) != kind.ack_timeout()).then(|| u32::try_from(wanted.as_secs().max(1)).unwrap_or(u32::MAX))
    }

    fn send_amp(&self, word: AmpIntent, out: &mut Vec<Effect>) {
        if self.spec.amp.is_some() {
            out.push(Effect::SendAmp(Box::new(word)));
        }
    }

    fn acknowledge(&self, of: &MsgId, by: AmpRole, note: Option<String>, out: &mut Vec<Effect>) {
        self.send_amp(AmpIntent::Ack { of: of.clone(), by, at_ms: self.unix_ms(), note }, out);
    }

    /// The agent of this attempt owes an ack.
    fn expect_ack(&mut self, id: &MsgId, agent: &AttemptId) {
        if let Some(wait) = self.spec.amp.as_ref().and_then(|amp| amp.ack_timeouts.for_kind(id.message_type())) {
            let by = self.total_elapsed() + wait;
            self.amp_state.conversation.expect_ack(id.clone(), agent, by);
        }
    }

    /// The agent wrote something to the SSOT, or has just begun.
    pub(super) fn reset_heartbeat(&mut self, place: usize) {
        if let Some(amp) = self.spec.amp.as_ref().filter(|_| self.attempts[place].suspended.is_none()) {
            let by = self.total_elapsed() + amp.heartbeat_timeout;
            self.amp_state.conversation.record_heartbeat(&self.attempts[place].view.id, by);
        }
    }

    /// Nothing more is waited for of this attempt's agent.
    pub(super) fn clear_amp_deadlines(&mut self, place: usize) {
        self.amp_state.conversation.remove_agent(&self.attempts[place].view.id);
    }

    /// The sandbox got its task.
    pub(super) fn send_dispatch(&mut self, place: usize, out: &mut Vec<Effect>) {
        if self.spec.amp.is_none() {
            return;
        }
        let assignment = self.attempts[place].assignment;
        let agent = self.attempts[place].view.id.clone();
        let (word, id, status) = match self.attempts[place].view.review.clone() {
            Some(review) => {
                let id = self.new_msg_id(AmpMessageType::ReviewRequest, assignment);
                let refs = self.context_refs(assignment, false);
                let ack_within = self.ack_timeout_secs(AmpMessageType::ReviewRequest);
                self.task_amp_states[assignment].request = Some(id.clone());
                let request = ReviewRequestIntent {
                    id: id.clone(),
                    attempt: agent.clone(),
                    review,
                    refs,
                    ack_timeout_secs: ack_within,
                };
                (AmpIntent::ReviewRequest(Box::new(request)), id, "in_review")
            }
            None => {
                let id = self.new_msg_id(AmpMessageType::TaskDispatch, assignment);
                let refs = self.context_refs(assignment, true);
                self.task_amp_states[assignment].dispatch = Some(id.clone());
                self.task_amp_states[assignment].result = None;
                self.task_amp_states[assignment].request = None;
                let dispatch = DispatchIntent {
                    id: id.clone(),
                    stories: self.story_keys(&self.attempts[place].stories),
                    attempt: Some(agent.clone()),
                    guidance: self.review_states[assignment].guidance.clone(),
                    refs,
                    ack_timeout_secs: self.ack_timeout_secs(AmpMessageType::TaskDispatch),
                };
                (AmpIntent::Dispatch(dispatch), id, "dispatched")
            }
        };
        self.send_amp(word, out);
        self.attempts[place].task_msg_id = Some(id.clone());
        self.expect_ack(&id, &agent);
        self.reset_heartbeat(place);
        self.send_task_update(assignment, status, None, out);
    }

    /// For an agent that answers although nobody saw it begin: what it was told.
    fn ensure_dispatched(&mut self, place: usize, out: &mut Vec<Effect>) {
        if self.attempts[place].task_msg_id.is_none() {
            self.send_dispatch(place, out);
            self.clear_amp_deadlines(place);
        }
    }

    /// What the next message of the task refers to; `take`: those that come after it refer to it instead.
    fn context_refs(&mut self, assignment: usize, take: bool) -> Vec<MsgId> {
        let talk = &mut self.task_amp_states[assignment];
        if take { std::mem::take(&mut talk.context_refs) } else { talk.context_refs.clone() }
    }

    /// The agent said that it works on a story, or what it does.
    pub(super) fn report_progress(&mut self, place: usize, status: StoryStatus, output: &str, out: &mut Vec<Effect>) {
        let attempt = &self.attempts[place];
        let assignment = attempt.assignment;
        if let Some(id) =
            attempt.task_msg_id.clone().filter(|_| !attempt.task_acked && status == StoryStatus::InProgress)
        {
            let by = if attempt.view.review.is_some() { AmpRole::Reviewer } else { AmpRole::Executor };
            self.attempts[place].task_acked = true;
            self.amp_state.conversation.record_ack(&id);
            self.acknowledge(&id, by, None, out);
            self.task_amp_states[assignment].last_successful = Some(id);
            self.reset_heartbeat(place);
        }
        if !output.is_empty() && self.amp_state.conversation.expects_heartbeat(&self.attempts[place].view.id) {
            self.reset_heartbeat(place);
            let status = if self.attempts[place].view.review.is_some() { "in_review" } else { "in_progress" };
            self.send_task_update(assignment, status, Some(output.to_owned()), out);
        }
    }

    /// The task's file: how it stands.
    pub(super) fn send_task_update(
        &self,
        assignment: usize,
        status: &'static str,
        progress: Option<String>,
        out: &mut Vec<Effect>,
    ) {
        let stories = self.index.assignment_stories[assignment].iter().map(|story| &self.stories[*story]);
        let news = TaskUpdate {
            task: self.spec.assignments[assignment].id.clone(),
            status,
            stories: stories.map(|view| (view.key.clone(), view.status)).collect(),
            progress,
            reject_count: self.review_states[assignment].reject_count,
            at_ms: self.unix_ms(),
        };
        self.send_amp(AmpIntent::TaskUpdate(news), out);
    }

    /// What came of a story in an attempt whose agent was told to do it.
    pub(super) fn send_result(
        &mut self,
        place: usize,
        story: usize,
        said: Option<&ReportedStory>,
        status: SubtaskCompletionStatus,
        failure: Option<&Failure>,
        out: &mut Vec<Effect>,
    ) {
        if self.spec.amp.is_none() {
            return;
        }
        self.ensure_dispatched(place, out);
        let assignment = self.attempts[place].assignment;
        let id = self.new_msg_id(AmpMessageType::TaskResult, assignment);
        let (result, diff) = said.map(|said| (said.result.clone(), said.diff.clone())).unzip();
        let commit = self.attempts[place].finished_stories.iter().find(|done| done.story == story);
        let end = ResultIntent {
            id: id.clone(),
            attempt: self.attempts[place].view.id.clone(),
            story: self.stories[story].key.clone(),
            status,
            result,
            diff: diff.unwrap_or_default(),
            commit: commit.map(|done| done.commit.clone()),
            failure: failure.cloned(),
            refs: self.task_amp_states[assignment].dispatch.iter().cloned().collect(),
            ack_timeout_secs: self.ack_timeout_secs(AmpMessageType::TaskResult),
        };
        self.send_amp(AmpIntent::Result(Box::new(end)), out);
        self.acknowledge(&id, AmpRole::Coordinator, None, out);
        let talk = &mut self.task_amp_states[assignment];
        if status == SubtaskCompletionStatus::Complete {
            talk.last_successful = Some(id.clone());
        }
        talk.context_refs.push(id.clone());
        talk.result = Some(id);
    }

    /// What failed in an attempt, cause by cause.
    pub(super) fn escalate_failures(&mut self, place: usize, failed: &[(usize, Failure, bool)], out: &mut Vec<Effect>) {
        let assignment = self.attempts[place].assignment;
        let mut groups: Vec<(Failure, bool, Vec<usize>)> = Vec::new();
        for (story, failure, again) in failed {
            match groups.iter_mut().find(|(known, same, _)| known.cause == failure.cause && same == again) {
                Some((_, _, stories)) => stories.push(*story),
                None => groups.push((failure.clone(), *again, vec![*story])),
            }
        }
        for (failure, again, stories) in groups {
            let what = match failure.cause {
                // It goes back to the executor, which is what the protocol wants; the admin hears when attempts end.
                Cause::VerificationFailed if again => continue,
                Cause::StoppedByUser | Cause::AbortedByAdmin | Cause::DependencyFailed | Cause::Rejected => continue,
                Cause::VerificationFailed => EscalationType::CiFailure,
                Cause::BranchViolation => EscalationType::BranchViolation,
                Cause::Conflict => EscalationType::Conflict,
                // The reviewer wants a change, and the executor makes none.
                Cause::NoChanges if !again && self.attempts[place].view.is_rework => EscalationType::Conflict,
                _ => EscalationType::Unknown,
            };
            let named: Vec<&str> = stories.iter().map(|story| self.stories[*story].key.id.as_str()).collect();
            let description = format!(
                "{} {}: {} ({}): {}",
                named.join(", "),
                if again { "failed and will be tried again" } else { "did not land" },
                failure.cause.as_str(),
                failure.cause.acp_code(),
                failure.evidence.summary
            );
            let task = self.spec.assignments[assignment].id.clone();
            let mut actions = Vec::new();
            if !again {
                actions.push(format!("try it again: longshore admin retry {task}, then longshore resume"));
                if self.review_states[assignment].rejected_tip.is_some() {
                    actions.push(format!("begin again from the integration branch: longshore admin rollback {task}"));
                }
                if let Some(reference) = &failure.salvage {
                    actions.push(format!("look at what it left: git log -p {reference}"));
                }
            }
            let trouble = EscalationDraft {
                escalation_type: what,
                severity: if again { EscalationSeverity::Info } else { EscalationSeverity::Warning },
                triggered_by: if what == EscalationType::Unknown { AmpRole::System } else { AmpRole::Executor },
                description,
                task_status: if again { "retrying" } else { "failed" },
                suggested_actions: actions,
                failed_stories: Some(Box::new(FailedStories {
                    attempt: self.attempts[place].view.id.clone(),
                    stories: self.story_keys(&stories),
                    failure,
                })),
            };
            self.escalate(assignment, trouble, out);
        }
    }

    /// Tells the admin.
    pub(super) fn escalate(
        &mut self,
        assignment: usize,
        trouble: EscalationDraft,
        out: &mut Vec<Effect>,
    ) -> Option<MsgId> {
        self.spec.amp.as_ref()?;
        let id = self.new_msg_id(AmpMessageType::Escalation, assignment);
        let EscalationDraft {
            escalation_type: what,
            severity,
            triggered_by,
            description,
            task_status: status,
            suggested_actions: actions,
            failed_stories: failed,
        } = trouble;
        // Of what a sandbox says, the beginning: the whole is in its files.
        let description = diagnosis::truncate_chars(&description, MAX_DESCRIPTION_CHARS);
        let talk = &self.task_amp_states[assignment];
        let affected = [&talk.dispatch, &talk.result, &talk.request, &talk.verdict];
        let escalation = Escalation {
            escalation_type: what,
            severity,
            triggered_by,
            description,
            affected_msgs: affected.into_iter().flatten().cloned().collect(),
            system_state_snapshot: SystemStateSnapshot {
                task_status: status.to_owned(),
                reject_count: self.review_states[assignment].reject_count,
                last_successful_msg_id: talk.last_successful.clone(),
            },
            suggested_actions: actions,
            auto_suspended: severity != EscalationSeverity::Info,
        };
        let from = if triggered_by == AmpRole::System { AmpRole::System } else { AmpRole::Coordinator };
        self.task_amp_states[assignment].open_escalations.push(id.clone());
        let undecided = self.index.assignment_stories[assignment]
            .iter()
            .copied()
            .filter(|story| !self.stories[*story].has_landed());
        out.push(Effect::Announce(Announcement::Escalated {
            message: id.clone(),
            stories: self.story_keys(&undecided.collect::<Vec<_>>()),
            escalation: Box::new(escalation.clone()),
        }));
        self.send_amp(
            AmpIntent::Escalation { id: id.clone(), from, escalation: Box::new(escalation), failed_stories: failed },
            out,
        );
        self.send_task_update(assignment, status, None, out);
        Some(id)
    }

    /// The task's open escalations have their answer.
    pub(super) fn ack_escalations(&mut self, assignment: usize, note: &str, out: &mut Vec<Effect>) {
        for id in std::mem::take(&mut self.task_amp_states[assignment].open_escalations) {
            self.acknowledge(&id, AmpRole::Admin, Some(note.to_owned()), out);
            self.task_amp_states[assignment].context_refs.push(id);
        }
    }

    /// The admin's words, as a dispatch to the coordinator.
    pub(super) fn send_guidance(&mut self, assignment: usize, text: &str, out: &mut Vec<Effect>) {
        if self.spec.amp.is_none() {
            return;
        }
        let id = self.new_msg_id(AmpMessageType::TaskDispatch, assignment);
        let dispatch = DispatchIntent {
            id: id.clone(),
            stories: self.story_keys(&self.index.assignment_stories[assignment]),
            attempt: None,
            guidance: vec![text.to_owned()],
            refs: self.task_amp_states[assignment].context_refs.clone(),
            ack_timeout_secs: self.ack_timeout_secs(AmpMessageType::TaskDispatch),
        };
        self.send_amp(AmpIntent::Dispatch(dispatch), out);
        self.acknowledge(&id, AmpRole::Coordinator, None, out);
        self.task_amp_states[assignment].context_refs.push(id);
    }

    /// A verdict came, and is taken in.
    pub(super) fn send_verdict(
        &mut self,
        place: usize,
        verdict: &crate::protocol::amp::message::ReviewVerdict,
        out: &mut Vec<Effect>,
    ) {
        if self.spec.amp.is_none() {
            return;
        }
        self.ensure_dispatched(place, out);
        let assignment = self.attempts[place].assignment;
        let id = self.new_msg_id(AmpMessageType::ReviewVerdict, assignment);
        let word = AmpIntent::Verdict {
            id: id.clone(),
            refs: self.attempts[place].task_msg_id.iter().cloned().collect(),
            ack_timeout_secs: self.ack_timeout_secs(AmpMessageType::ReviewVerdict),
            verdict: Box::new(verdict.clone()),
        };
        self.send_amp(word, out);
        self.acknowledge(&id, AmpRole::Coordinator, None, out);
        let talk = &mut self.task_amp_states[assignment];
        talk.last_successful = Some(id.clone());
        talk.context_refs.push(id.clone());
        talk.verdict = Some(id);
    }

    /// When a clock of the conversation is due, in the machine's own time.
    pub(super) fn next_amp_deadline(&self) -> Option<Duration> {
        self.amp_state.conversation.next_deadline().map(|at| at.saturating_sub(self.amp_state.total_absence))
    }

    /// What is late is told; an agent that writes nothing is suspended.
    pub(super) fn fire_amp_deadlines(&mut self, out: &mut Vec<Effect>) -> bool {
        let late = self.amp_state.conversation.take_missed(self.total_elapsed());
        for late in &late {
            match late {
                MissedDeadline::Ack(message) => self.on_ack_timeout(message, out),
                MissedDeadline::Heartbeat(agent) => self.on_heartbeat_timeout(agent, out),
            }
        }
        !late.is_empty()
    }

    fn on_ack_timeout(&mut self, message: &MsgId, out: &mut Vec<Effect>) {
        let Some(assignment) = self.index.assignments.get(message.task_id()).copied() else { return };
        let wait = self
            .spec
            .amp
            .as_ref()
            .and_then(|amp| amp.ack_timeouts.for_kind(message.message_type()))
            .unwrap_or_default();
        let (who, status) = match message.message_type() {
            AmpMessageType::ReviewRequest => ("reviewer", "in_review"),
            _ => ("executor", "dispatched"),
        };
        let trouble = EscalationDraft {
            escalation_type: EscalationType::AckTimeout,
            severity: EscalationSeverity::Info,
            triggered_by: AmpRole::System,
            description: format!(
                "the {who} of {} has not begun within {} s of its {}; it is waited for until its time is over",
                message.task_id(),
                wait.as_secs(),
                message.message_type()
            ),
            task_status: status,
            suggested_actions: vec!["see what its sandbox prints: longshore logs".to_owned()],
            failed_stories: None,
        };
        self.escalate(assignment, trouble, out);
    }

    fn on_heartbeat_timeout(&mut self, agent: &AttemptId, out: &mut Vec<Effect>) {
        let Some(place) = self.attempt_in(agent, &[AttemptPhase::Running]) else { return };
        if self.attempts[place].end_reason.is_some() {
            // It is on its way out.
            return;
        }
        if self.engine_wait_until.is_some() {
            // What it says cannot be heard.
            self.reset_heartbeat(place);
            return;
        }
        let wait = self.spec.amp.as_ref().map(|amp| amp.heartbeat_timeout).unwrap_or_default();
        let task = &agent.assignment;
        let trouble = EscalationDraft {
            escalation_type: EscalationType::HeartbeatTimeout,
            severity: EscalationSeverity::Critical,
            triggered_by: AmpRole::System,
            description: format!(
                "{agent} has said nothing of its work for {} s; its sandbox is paused",
                wait.as_secs()
            ),
            task_status: "suspended",
            suggested_actions: vec![
                format!("let it go on: longshore admin resume {task}"),
                format!("start it again: longshore admin retry {task}"),
                format!("give it up: longshore admin abort {task}"),
            ],
            failed_stories: None,
        };
        self.suspend(place, trouble, out);
    }

    /// No orchestrator ran for so long.
    pub(super) fn on_orchestrator_absent(&mut self, away: Duration) -> bool {
        self.amp_state.total_absence += away;
        let now = self.total_elapsed();
        self.amp_state.conversation.postpone_overdue(now);
        true
    }

    /// How long no orchestrator ran, all in all.
    pub fn total_absence(&self) -> Duration {
        self.amp_state.total_absence
    }

    pub(super) fn story_keys(&self, stories: &[usize]) -> Vec<StoryKey> {
        stories.iter().map(|story| self.stories[*story].key.clone()).collect()
    }

    /// For an assignment that must not start before the admin has said so.
    pub(super) fn request_approval(&mut self, assignment: usize, out: &mut Vec<Effect>) {
        let task = self.spec.assignments[assignment].id.clone();
        let high = self.index.assignment_stories[assignment].iter().filter(|story| self.is_high_risk(**story));
        let named: Vec<&str> = high.map(|story| self.stories[*story].key.id.as_str()).collect();
        let description =
            format!("{} of high risk: waits for an approval before anything of it runs", named.join(", "));
        let trouble = EscalationDraft {
            escalation_type: EscalationType::PermissionDenied,
            severity: EscalationSeverity::Critical,
            triggered_by: AmpRole::Coordinator,
            description,
            task_status: "awaiting_approval",
            suggested_actions: vec![
                format!("let it run: longshore admin approve {task}"),
                format!("leave it out: longshore admin abort {task}"),
            ],
            failed_stories: None,
        };
        self.hold_for_admin(assignment, HoldKind::Approval, trouble, out);
    }
}
