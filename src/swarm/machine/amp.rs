//! The swarm's AMP conversation as a machine of its own: message ids, references between messages, acks and heartbeats.
//! `amp_messages.rs` says when something is sent; this file knows what it refers to and which answer is due.
//!
//! A swarm whose spec has no [`AmpSpec`] sends nothing. Ids follow from events and their times alone, so replaying a journal
//! sends the same messages again.
//!
//! `now` is the machine's time; absences of the orchestrator are added to it here.

use std::collections::BTreeMap;
use std::time::Duration;

use super::attempt::ReportedStory;
use super::diagnosis::truncate_chars;
use super::escalation::EscalationDraft;
use crate::ids::{AssignmentId, AttemptId, CommitId, StoryKey};
use crate::protocol::amp::machine::{AmpDeadlines, MissedDeadline};
use crate::protocol::amp::message::{
    AmpMessageType, AmpRole, Escalation, EscalationSeverity, MsgId, ReviewVerdict, SubtaskCompletionStatus,
    SystemStateSnapshot,
};
use crate::swarm::amp_intent::{AmpIntent, DispatchIntent, ResultIntent, ReviewRequestIntent, ReviewSpec};
use crate::swarm::announcement::{Announcement, StoryRef};
use crate::swarm::effect::Effect;
use crate::swarm::spec::{AmpSpec, SwarmSpec};
use crate::verdict::Failure;

const MAX_DESCRIPTION_CHARS: usize = 4000;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct AmpMachine {
    spec: Option<AmpSpec>,
    /// How long no orchestrator ran, in total.
    total_absence: Duration,
    deadlines: AmpDeadlines,
    tasks: BTreeMap<AssignmentId, TaskMessages>,
    /// The dispatch or review request of each attempt.
    sent_tasks: BTreeMap<AttemptId, SentTask>,
}

/// The messages of a task that later ones refer to.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct TaskMessages {
    /// What the next dispatch refers to.
    context_refs: Vec<MsgId>,
    /// The newest of each type.
    pub(super) dispatch: Option<MsgId>,
    pub(super) result: Option<MsgId>,
    /// Since the newest dispatch.
    request: Option<MsgId>,
    verdict: Option<MsgId>,
    last_successful: Option<MsgId>,
    /// Escalations without an answer.
    open_escalations: Vec<MsgId>,
}

#[derive(Debug, Clone, PartialEq)]
struct SentTask {
    id: MsgId,
    acked: bool,
}

/// A `task_result` without its place in the conversation.
pub(super) struct ResultDraft<'a> {
    pub(super) story: StoryKey,
    pub(super) status: SubtaskCompletionStatus,
    pub(super) reported: Option<&'a ReportedStory>,
    pub(super) commit: Option<CommitId>,
    pub(super) failure: Option<&'a Failure>,
}

impl AmpMachine {
    pub(super) fn new(spec: &SwarmSpec) -> Self {
        Self {
            spec: spec.amp.clone(),
            total_absence: Duration::ZERO,
            deadlines: AmpDeadlines::default(),
            tasks: spec.assignments.iter().map(|one| (one.id.clone(), TaskMessages::default())).collect(),
            sent_tasks: BTreeMap::new(),
        }
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.spec.is_some()
    }

    pub(super) fn total_absence(&self) -> Duration {
        self.total_absence
    }

    pub(super) fn task(&self, id: &AssignmentId) -> Option<&TaskMessages> {
        self.tasks.get(id)
    }

    pub(super) fn ack_timeout(&self, kind: AmpMessageType) -> Option<Duration> {
        self.spec.as_ref()?.ack_timeouts.for_kind(kind)
    }

    /// Since the swarm began, absences included.
    fn elapsed(&self, now: Duration) -> Duration {
        now + self.total_absence
    }

    pub(super) fn unix_ms(&self, now: Duration) -> u64 {
        let began = self.spec.as_ref().map_or(0, |amp| amp.began_ms);
        began + u64::try_from(self.elapsed(now).as_millis()).unwrap_or(u64::MAX / 2)
    }

    fn messages(&mut self, task: &AssignmentId) -> &mut TaskMessages {
        self.tasks.entry(task.clone()).or_default()
    }

    fn new_msg_id(&mut self, kind: AmpMessageType, task: &AssignmentId, now: Duration) -> MsgId {
        let unix_ms = self.unix_ms(now);
        self.deadlines.next_id(kind, task, unix_ms)
    }

    /// The timeout to put into a message: only one that differs from the type's own.
    fn custom_ack_timeout(&self, kind: AmpMessageType) -> Option<u32> {
        let timeout = self.ack_timeout(kind)?;
        (Some(timeout) != kind.ack_timeout()).then(|| u32::try_from(timeout.as_secs().max(1)).unwrap_or(u32::MAX))
    }

    pub(super) fn send(&self, intent: AmpIntent, out: &mut Vec<Effect>) {
        if self.is_enabled() {
            out.push(Effect::SendAmp(Box::new(intent)));
        }
    }

    fn acknowledge(&self, of: &MsgId, by: AmpRole, note: Option<String>, now: Duration, out: &mut Vec<Effect>) {
        self.send(AmpIntent::Ack { of: of.clone(), by, at_ms: self.unix_ms(now), note }, out);
    }

    /// The agent wrote something to the SSOT, or has just begun.
    pub(super) fn reset_heartbeat(&mut self, agent: &AttemptId, now: Duration) {
        if let Some(timeout) = self.spec.as_ref().map(|amp| amp.heartbeat_timeout) {
            self.deadlines.record_heartbeat(agent, self.elapsed(now) + timeout);
        }
    }

    /// Waiting for this agent ends.
    pub(super) fn remove_agent(&mut self, agent: &AttemptId) {
        self.deadlines.remove_agent(agent);
    }

    pub(super) fn has_sent_task(&self, agent: &AttemptId) -> bool {
        self.sent_tasks.contains_key(agent)
    }

    pub(super) fn expects_heartbeat(&self, agent: &AttemptId) -> bool {
        self.deadlines.expects_heartbeat(agent)
    }

    pub(super) fn send_dispatch(
        &mut self,
        agent: &AttemptId,
        stories: Vec<StoryKey>,
        guidance: Vec<String>,
        now: Duration,
        out: &mut Vec<Effect>,
    ) {
        let id = self.new_msg_id(AmpMessageType::TaskDispatch, &agent.assignment, now);
        let task = self.messages(&agent.assignment);
        let refs = std::mem::take(&mut task.context_refs);
        task.dispatch = Some(id.clone());
        (task.result, task.request) = (None, None);
        let dispatch = DispatchIntent {
            id: id.clone(),
            stories,
            attempt: Some(agent.clone()),
            guidance,
            refs,
            ack_timeout_secs: self.custom_ack_timeout(AmpMessageType::TaskDispatch),
        };
        self.send(AmpIntent::Dispatch(dispatch), out);
        self.expect_answers(agent, id, now);
    }

    pub(super) fn send_review_request(
        &mut self,
        agent: &AttemptId,
        review: ReviewSpec,
        now: Duration,
        out: &mut Vec<Effect>,
    ) {
        let id = self.new_msg_id(AmpMessageType::ReviewRequest, &agent.assignment, now);
        let task = self.messages(&agent.assignment);
        task.request = Some(id.clone());
        // The next dispatch refers to them, too.
        let refs = task.context_refs.clone();
        let request = ReviewRequestIntent {
            id: id.clone(),
            attempt: agent.clone(),
            review,
            refs,
            ack_timeout_secs: self.custom_ack_timeout(AmpMessageType::ReviewRequest),
        };
        self.send(AmpIntent::ReviewRequest(Box::new(request)), out);
        self.expect_answers(agent, id, now);
    }

    /// The agent owes an ack of its task, and heartbeats.
    fn expect_answers(&mut self, agent: &AttemptId, id: MsgId, now: Duration) {
        if let Some(timeout) = self.ack_timeout(id.message_type()) {
            self.deadlines.expect_ack(id.clone(), agent, self.elapsed(now) + timeout);
        }
        self.sent_tasks.insert(agent.clone(), SentTask { id, acked: false });
    }

    /// The agent began: that acknowledges its task. Returns whether this is the first time.
    pub(super) fn acknowledge_task(
        &mut self,
        agent: &AttemptId,
        by: AmpRole,
        now: Duration,
        out: &mut Vec<Effect>,
    ) -> bool {
        let Some(sent) = self.sent_tasks.get_mut(agent).filter(|sent| !sent.acked) else { return false };
        sent.acked = true;
        let id = sent.id.clone();
        self.deadlines.record_ack(&id);
        self.acknowledge(&id, by, None, now, out);
        self.messages(&agent.assignment).last_successful = Some(id);
        true
    }

    pub(super) fn send_result(
        &mut self,
        agent: &AttemptId,
        draft: ResultDraft<'_>,
        now: Duration,
        out: &mut Vec<Effect>,
    ) {
        let id = self.new_msg_id(AmpMessageType::TaskResult, &agent.assignment, now);
        let ResultDraft { story, status, reported, commit, failure } = draft;
        let result = ResultIntent {
            id: id.clone(),
            attempt: agent.clone(),
            story,
            status,
            result: reported.map(|reported| reported.result.clone()),
            diff: reported.map(|reported| reported.diff.clone()).unwrap_or_default(),
            commit,
            failure: failure.cloned(),
            refs: self.messages(&agent.assignment).dispatch.iter().cloned().collect(),
            ack_timeout_secs: self.custom_ack_timeout(AmpMessageType::TaskResult),
        };
        self.send(AmpIntent::Result(Box::new(result)), out);
        self.acknowledge(&id, AmpRole::Coordinator, None, now, out);
        let task = self.messages(&agent.assignment);
        if status == SubtaskCompletionStatus::Complete {
            task.last_successful = Some(id.clone());
        }
        task.context_refs.push(id.clone());
        task.result = Some(id);
    }

    pub(super) fn send_verdict(
        &mut self,
        agent: &AttemptId,
        verdict: &ReviewVerdict,
        now: Duration,
        out: &mut Vec<Effect>,
    ) {
        let id = self.new_msg_id(AmpMessageType::ReviewVerdict, &agent.assignment, now);
        let intent = AmpIntent::Verdict {
            id: id.clone(),
            refs: self.sent_tasks.get(agent).map(|sent| sent.id.clone()).into_iter().collect(),
            ack_timeout_secs: self.custom_ack_timeout(AmpMessageType::ReviewVerdict),
            verdict: Box::new(verdict.clone()),
        };
        self.send(intent, out);
        self.acknowledge(&id, AmpRole::Coordinator, None, now, out);
        let task = self.messages(&agent.assignment);
        task.last_successful = Some(id.clone());
        task.context_refs.push(id.clone());
        task.verdict = Some(id);
    }

    /// Sends the admin's guidance as a dispatch to the coordinator.
    pub(super) fn send_guidance(
        &mut self,
        task: &AssignmentId,
        stories: Vec<StoryKey>,
        text: &str,
        now: Duration,
        out: &mut Vec<Effect>,
    ) {
        if !self.is_enabled() {
            return;
        }
        let id = self.new_msg_id(AmpMessageType::TaskDispatch, task, now);
        let dispatch = DispatchIntent {
            id: id.clone(),
            stories,
            attempt: None,
            guidance: vec![text.to_owned()],
            refs: self.messages(task).context_refs.clone(),
            ack_timeout_secs: self.custom_ack_timeout(AmpMessageType::TaskDispatch),
        };
        self.send(AmpIntent::Dispatch(dispatch), out);
        self.acknowledge(&id, AmpRole::Coordinator, None, now, out);
        self.messages(task).context_refs.push(id);
    }

    /// Announces and sends an escalation. `stories`: those of the task that have not landed.
    pub(super) fn escalate(
        &mut self,
        task: &AssignmentId,
        stories: Vec<StoryRef>,
        reject_count: u32,
        draft: EscalationDraft,
        now: Duration,
        out: &mut Vec<Effect>,
    ) -> Option<MsgId> {
        if !self.is_enabled() {
            return None;
        }
        let id = self.new_msg_id(AmpMessageType::Escalation, task, now);
        let messages = self.messages(task);
        let affected = [&messages.dispatch, &messages.result, &messages.request, &messages.verdict];
        let escalation = Escalation {
            escalation_type: draft.escalation_type,
            severity: draft.severity,
            triggered_by: draft.triggered_by,
            description: truncate_chars(&draft.description, MAX_DESCRIPTION_CHARS),
            affected_msgs: affected.into_iter().flatten().cloned().collect(),
            system_state_snapshot: SystemStateSnapshot {
                task_status: draft.phase.as_str().to_owned(),
                reject_count,
                last_successful_msg_id: messages.last_successful.clone(),
            },
            suggested_actions: draft.suggested_actions,
            auto_suspended: draft.severity != EscalationSeverity::Info,
        };
        messages.open_escalations.push(id.clone());
        let from = if draft.triggered_by == AmpRole::System { AmpRole::System } else { AmpRole::Coordinator };
        out.push(Effect::Announce(Announcement::Escalated {
            message: id.clone(),
            task: task.clone(),
            stories,
            escalation_type: escalation.escalation_type,
            severity: escalation.severity,
            description: escalation.description.clone(),
            suggested_actions: escalation.suggested_actions.clone(),
            auto_suspended: escalation.auto_suspended,
        }));
        let failed_stories = draft.failed_stories.map(Box::new);
        self.send(
            AmpIntent::Escalation { id: id.clone(), from, escalation: Box::new(escalation), failed_stories },
            out,
        );
        Some(id)
    }

    /// The admin's decision answers the task's open escalations.
    pub(super) fn acknowledge_escalations(
        &mut self,
        task: &AssignmentId,
        note: &str,
        now: Duration,
        out: &mut Vec<Effect>,
    ) {
        for id in std::mem::take(&mut self.messages(task).open_escalations) {
            self.acknowledge(&id, AmpRole::Admin, Some(note.to_owned()), now, out);
            self.messages(task).context_refs.push(id);
        }
    }

    /// The task's open escalations need no answer any more.
    pub(super) fn close_escalations(&mut self, task: &AssignmentId) {
        self.messages(task).open_escalations.clear();
    }

    /// The next deadline, in the machine's own time.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.deadlines.next_deadline().map(|at| at.saturating_sub(self.total_absence))
    }

    pub(super) fn take_missed(&mut self, now: Duration) -> Vec<MissedDeadline> {
        self.deadlines.take_missed(self.elapsed(now))
    }

    /// No orchestrator ran for this long.
    pub(super) fn record_absence(&mut self, absence: Duration, now: Duration) {
        self.total_absence += absence;
        self.deadlines.postpone_overdue(self.elapsed(now));
    }
}
