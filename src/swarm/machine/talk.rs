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

use super::settle::Said;
use super::{HoldKind, Machine, Phase, judge};
use crate::ids::{AttemptId, StoryKey};
use crate::protocol::acp::message::StoryStatus;
use crate::protocol::amp::machine::{Conversation, Late};
use crate::protocol::amp::message::{
    CompletionStatus, Escalation, EscalationType, Kind, MsgId, Role, Severity, Snapshot,
};
use crate::swarm::effect::{Announcement, Effect};
use crate::swarm::word::{Dispatch, Failed, Request, StoryEnd, TaskNews, Word};
use crate::verdict::{Cause, Failure};

/// The most characters of an escalation's description.
const DESCRIPTION: usize = 4000;

/// The conversation of a swarm.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Talk {
    /// How long no orchestrator ran, all in all.
    away: Duration,
    clocks: Conversation,
}

/// What was said of a task.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct TaskTalk {
    /// What the next dispatch refers to.
    pub(super) context: Vec<MsgId>,
    /// The newest dispatch, result and verdict.
    pub(super) dispatch: Option<MsgId>,
    pub(super) result: Option<MsgId>,
    pub(super) verdict: Option<MsgId>,
    /// The request of the newest review since that dispatch.
    request: Option<MsgId>,
    /// The newest that went well.
    last_ok: Option<MsgId>,
    /// Escalations that nobody has answered.
    pub(super) open: Vec<MsgId>,
}

/// An escalation to be made.
pub(super) struct Trouble {
    pub(super) what: EscalationType,
    pub(super) severity: Severity,
    pub(super) triggered_by: Role,
    pub(super) description: String,
    /// The task's status, in a word.
    pub(super) status: &'static str,
    /// What the admin could do.
    pub(super) actions: Vec<String>,
    /// The failure that it is about, if it is one.
    pub(super) failed: Option<Box<Failed>>,
}

impl Machine {
    /// Since the swarm began, the time without an orchestrator included.
    fn whole_time(&self) -> Duration {
        self.now + self.talk.away
    }

    fn at_ms(&self) -> u64 {
        let began = self.spec.amp.as_ref().map_or(0, |amp| amp.began_ms);
        began + u64::try_from(self.whole_time().as_millis()).unwrap_or(u64::MAX / 2)
    }

    fn new_id(&mut self, kind: Kind, assignment: usize) -> MsgId {
        let at = self.at_ms();
        self.talk.clocks.id(kind, &self.spec.assignments[assignment].id, at)
    }

    /// The seconds that a message says, where its ack may take another time than its type's own.
    fn ack_within(&self, kind: Kind) -> Option<u32> {
        let wanted = self.spec.amp.as_ref()?.acks.of(kind)?;
        (Some(wanted) != kind.ack_timeout()).then(|| u32::try_from(wanted.as_secs().max(1)).unwrap_or(u32::MAX))
    }

    fn say(&self, word: Word, out: &mut Vec<Effect>) {
        if self.spec.amp.is_some() {
            out.push(Effect::Tell(Box::new(word)));
        }
    }

    fn acknowledge(&self, of: &MsgId, by: Role, note: Option<String>, out: &mut Vec<Effect>) {
        self.say(Word::Ack { of: of.clone(), by, at_ms: self.at_ms(), note }, out);
    }

    /// The agent of this attempt owes an ack.
    fn expect_ack(&mut self, id: &MsgId, agent: &AttemptId) {
        if let Some(wait) = self.spec.amp.as_ref().and_then(|amp| amp.acks.of(id.kind())) {
            let by = self.whole_time() + wait;
            self.talk.clocks.expect(id.clone(), agent, by);
        }
    }

    /// The agent wrote something to the SSOT, or has just begun.
    pub(super) fn wrote(&mut self, place: usize) {
        if let Some(amp) = self.spec.amp.as_ref().filter(|_| self.attempts[place].suspended.is_none()) {
            let by = self.whole_time() + amp.heartbeat;
            self.talk.clocks.wrote(&self.attempts[place].view.id, by);
        }
    }

    /// Nothing more is waited for of this attempt's agent.
    pub(super) fn falls_silent(&mut self, place: usize) {
        self.talk.clocks.gone(&self.attempts[place].view.id);
    }

    /// The sandbox got its task.
    pub(super) fn tell_started(&mut self, place: usize, out: &mut Vec<Effect>) {
        if self.spec.amp.is_none() {
            return;
        }
        let assignment = self.attempts[place].assignment;
        let agent = self.attempts[place].view.id.clone();
        let (word, id, status) = match self.attempts[place].view.review.clone() {
            Some(review) => {
                let id = self.new_id(Kind::ReviewRequest, assignment);
                let refs = self.context(assignment, false);
                let ack_within = self.ack_within(Kind::ReviewRequest);
                self.talks[assignment].request = Some(id.clone());
                let request = Request { id: id.clone(), attempt: agent.clone(), review, refs, ack_within };
                (Word::Request(Box::new(request)), id, "in_review")
            }
            None => {
                let id = self.new_id(Kind::TaskDispatch, assignment);
                let refs = self.context(assignment, true);
                self.talks[assignment].dispatch = Some(id.clone());
                self.talks[assignment].result = None;
                self.talks[assignment].request = None;
                let dispatch = Dispatch {
                    id: id.clone(),
                    stories: self.keys(&self.attempts[place].stories),
                    attempt: Some(agent.clone()),
                    guidance: self.loops[assignment].guidance.clone(),
                    refs,
                    ack_within: self.ack_within(Kind::TaskDispatch),
                };
                (Word::Dispatch(dispatch), id, "dispatched")
            }
        };
        self.say(word, out);
        self.attempts[place].told = Some(id.clone());
        self.expect_ack(&id, &agent);
        self.wrote(place);
        self.tell_task(assignment, status, None, out);
    }

    /// For an agent that answers although nobody saw it begin: what it was told.
    fn told_at_last(&mut self, place: usize, out: &mut Vec<Effect>) {
        if self.attempts[place].told.is_none() {
            self.tell_started(place, out);
            self.falls_silent(place);
        }
    }

    /// What the next message of the task refers to; `take`: those that come after it refer to it instead.
    fn context(&mut self, assignment: usize, take: bool) -> Vec<MsgId> {
        let talk = &mut self.talks[assignment];
        if take { std::mem::take(&mut talk.context) } else { talk.context.clone() }
    }

    /// The agent said that it works on a story, or what it does.
    pub(super) fn tell_progress(&mut self, place: usize, status: StoryStatus, output: &str, out: &mut Vec<Effect>) {
        let attempt = &self.attempts[place];
        let assignment = attempt.assignment;
        if let Some(id) = attempt.told.clone().filter(|_| !attempt.acked && status == StoryStatus::InProgress) {
            let by = if attempt.view.review.is_some() { Role::Reviewer } else { Role::Executor };
            self.attempts[place].acked = true;
            self.talk.clocks.acked(&id);
            self.acknowledge(&id, by, None, out);
            self.talks[assignment].last_ok = Some(id);
            self.wrote(place);
        }
        if !output.is_empty() && self.talk.clocks.listens_to(&self.attempts[place].view.id) {
            self.wrote(place);
            let status = if self.attempts[place].view.review.is_some() { "in_review" } else { "in_progress" };
            self.tell_task(assignment, status, Some(output.to_owned()), out);
        }
    }

    /// The task's file: how it stands.
    pub(super) fn tell_task(
        &self,
        assignment: usize,
        status: &'static str,
        progress: Option<String>,
        out: &mut Vec<Effect>,
    ) {
        let stories = self.index.members[assignment].iter().map(|story| &self.stories[*story]);
        let news = TaskNews {
            task: self.spec.assignments[assignment].id.clone(),
            status,
            stories: stories.map(|view| (view.key.clone(), view.status)).collect(),
            progress,
            rejects: self.loops[assignment].rejects,
            at_ms: self.at_ms(),
        };
        self.say(Word::Task(news), out);
    }

    /// What came of a story in an attempt whose agent was told to do it.
    pub(super) fn tell_result(
        &mut self,
        place: usize,
        story: usize,
        said: Option<&Said>,
        status: CompletionStatus,
        failure: Option<&Failure>,
        out: &mut Vec<Effect>,
    ) {
        if self.spec.amp.is_none() {
            return;
        }
        self.told_at_last(place, out);
        let assignment = self.attempts[place].assignment;
        let id = self.new_id(Kind::TaskResult, assignment);
        let (result, diff) = said.map(|said| (said.result.clone(), said.diff.clone())).unzip();
        let commit = self.attempts[place].finished.iter().find(|done| done.story == story);
        let end = StoryEnd {
            id: id.clone(),
            attempt: self.attempts[place].view.id.clone(),
            story: self.stories[story].key.clone(),
            status,
            result,
            diff: diff.unwrap_or_default(),
            commit: commit.map(|done| done.commit.clone()),
            failure: failure.cloned(),
            refs: self.talks[assignment].dispatch.iter().cloned().collect(),
            ack_within: self.ack_within(Kind::TaskResult),
        };
        self.say(Word::Result(Box::new(end)), out);
        self.acknowledge(&id, Role::Coordinator, None, out);
        let talk = &mut self.talks[assignment];
        if status == CompletionStatus::Complete {
            talk.last_ok = Some(id.clone());
        }
        talk.context.push(id.clone());
        talk.result = Some(id);
    }

    /// What failed in an attempt, cause by cause.
    pub(super) fn tell_failures(&mut self, place: usize, failed: &[(usize, Failure, bool)], out: &mut Vec<Effect>) {
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
                Cause::NoChanges if !again && self.attempts[place].view.rework => EscalationType::Conflict,
                _ => EscalationType::Unknown,
            };
            let named: Vec<&str> = stories.iter().map(|story| self.stories[*story].key.id.as_str()).collect();
            let description = format!(
                "{} {}: {} ({}): {}",
                named.join(", "),
                if again { "failed and will be tried again" } else { "did not land" },
                failure.cause.word(),
                failure.cause.acp_code(),
                failure.evidence.summary
            );
            let task = self.spec.assignments[assignment].id.clone();
            let mut actions = Vec::new();
            if !again {
                actions.push(format!("try it again: longshore admin retry {task}, then longshore resume"));
                if self.loops[assignment].tip.is_some() {
                    actions.push(format!("begin again from the integration branch: longshore admin rollback {task}"));
                }
                if let Some(reference) = &failure.salvage {
                    actions.push(format!("look at what it left: git log -p {reference}"));
                }
            }
            let trouble = Trouble {
                what,
                severity: if again { Severity::Info } else { Severity::Warning },
                triggered_by: if what == EscalationType::Unknown { Role::System } else { Role::Executor },
                description,
                status: if again { "retrying" } else { "failed" },
                actions,
                failed: Some(Box::new(Failed {
                    attempt: self.attempts[place].view.id.clone(),
                    stories: self.keys(&stories),
                    failure,
                })),
            };
            self.escalate(assignment, trouble, out);
        }
    }

    /// Tells the admin.
    pub(super) fn escalate(&mut self, assignment: usize, trouble: Trouble, out: &mut Vec<Effect>) -> Option<MsgId> {
        self.spec.amp.as_ref()?;
        let id = self.new_id(Kind::Escalation, assignment);
        let Trouble { what, severity, triggered_by, description, status, actions, failed } = trouble;
        // Of what a sandbox says, the beginning: the whole is in its files.
        let description = judge::shorten(&description, DESCRIPTION);
        let talk = &self.talks[assignment];
        let affected = [&talk.dispatch, &talk.result, &talk.request, &talk.verdict];
        let escalation = Escalation {
            escalation_type: what,
            severity,
            triggered_by,
            description,
            affected_msgs: affected.into_iter().flatten().cloned().collect(),
            system_state_snapshot: Snapshot {
                task_status: status.to_owned(),
                reject_count: self.loops[assignment].rejects,
                last_successful_msg_id: talk.last_ok.clone(),
            },
            suggested_actions: actions,
            auto_suspended: severity != Severity::Info,
        };
        let from = if triggered_by == Role::System { Role::System } else { Role::Coordinator };
        self.talks[assignment].open.push(id.clone());
        let undecided = self.index.members[assignment].iter().copied().filter(|story| !self.stories[*story].landed());
        out.push(Effect::Announce(Announcement::Escalated {
            message: id.clone(),
            stories: self.keys(&undecided.collect::<Vec<_>>()),
            escalation: Box::new(escalation.clone()),
        }));
        self.say(Word::Escalation { id: id.clone(), from, escalation: Box::new(escalation), failed }, out);
        self.tell_task(assignment, status, None, out);
        Some(id)
    }

    /// The task's open escalations have their answer.
    pub(super) fn answer_escalations(&mut self, assignment: usize, note: &str, out: &mut Vec<Effect>) {
        for id in std::mem::take(&mut self.talks[assignment].open) {
            self.acknowledge(&id, Role::Admin, Some(note.to_owned()), out);
            self.talks[assignment].context.push(id);
        }
    }

    /// The admin's words, as a dispatch to the coordinator.
    pub(super) fn tell_guidance(&mut self, assignment: usize, text: &str, out: &mut Vec<Effect>) {
        if self.spec.amp.is_none() {
            return;
        }
        let id = self.new_id(Kind::TaskDispatch, assignment);
        let dispatch = Dispatch {
            id: id.clone(),
            stories: self.keys(&self.index.members[assignment]),
            attempt: None,
            guidance: vec![text.to_owned()],
            refs: self.talks[assignment].context.clone(),
            ack_within: self.ack_within(Kind::TaskDispatch),
        };
        self.say(Word::Dispatch(dispatch), out);
        self.acknowledge(&id, Role::Coordinator, None, out);
        self.talks[assignment].context.push(id);
    }

    /// A verdict came, and is taken in.
    pub(super) fn tell_verdict(
        &mut self,
        place: usize,
        verdict: &crate::protocol::amp::message::ReviewVerdict,
        out: &mut Vec<Effect>,
    ) {
        if self.spec.amp.is_none() {
            return;
        }
        self.told_at_last(place, out);
        let assignment = self.attempts[place].assignment;
        let id = self.new_id(Kind::ReviewVerdict, assignment);
        let word = Word::Verdict {
            id: id.clone(),
            refs: self.attempts[place].told.iter().cloned().collect(),
            ack_within: self.ack_within(Kind::ReviewVerdict),
            verdict: Box::new(verdict.clone()),
        };
        self.say(word, out);
        self.acknowledge(&id, Role::Coordinator, None, out);
        let talk = &mut self.talks[assignment];
        talk.last_ok = Some(id.clone());
        talk.context.push(id.clone());
        talk.verdict = Some(id);
    }

    /// When a clock of the conversation is due, in the machine's own time.
    pub(super) fn talk_deadline(&self) -> Option<Duration> {
        self.talk.clocks.next_deadline().map(|at| at.saturating_sub(self.talk.away))
    }

    /// What is late is told; an agent that writes nothing is suspended.
    pub(super) fn fire_talk(&mut self, out: &mut Vec<Effect>) -> bool {
        let late = self.talk.clocks.late(self.whole_time());
        for late in &late {
            match late {
                Late::Ack(message) => self.no_ack(message, out),
                Late::Silence(agent) => self.no_word(agent, out),
            }
        }
        !late.is_empty()
    }

    fn no_ack(&mut self, message: &MsgId, out: &mut Vec<Effect>) {
        let Some(assignment) = self.index.assignments.get(message.task()).copied() else { return };
        let wait = self.spec.amp.as_ref().and_then(|amp| amp.acks.of(message.kind())).unwrap_or_default();
        let (who, status) = match message.kind() {
            Kind::ReviewRequest => ("reviewer", "in_review"),
            _ => ("executor", "dispatched"),
        };
        let trouble = Trouble {
            what: EscalationType::AckTimeout,
            severity: Severity::Info,
            triggered_by: Role::System,
            description: format!(
                "the {who} of {} has not begun within {} s of its {}; it is waited for until its time is over",
                message.task(),
                wait.as_secs(),
                message.kind()
            ),
            status,
            actions: vec!["see what its sandbox prints: longshore logs".to_owned()],
            failed: None,
        };
        self.escalate(assignment, trouble, out);
    }

    fn no_word(&mut self, agent: &AttemptId, out: &mut Vec<Effect>) {
        let Some(place) = self.attempt_in(agent, &[Phase::Running]) else { return };
        if self.attempts[place].ending.is_some() {
            // It is on its way out.
            return;
        }
        if self.engine_away.is_some() {
            // What it says cannot be heard.
            self.wrote(place);
            return;
        }
        let wait = self.spec.amp.as_ref().map(|amp| amp.heartbeat).unwrap_or_default();
        let task = &agent.assignment;
        let trouble = Trouble {
            what: EscalationType::HeartbeatTimeout,
            severity: Severity::Critical,
            triggered_by: Role::System,
            description: format!(
                "{agent} has said nothing of its work for {} s; its sandbox is paused",
                wait.as_secs()
            ),
            status: "suspended",
            actions: vec![
                format!("let it go on: longshore admin resume {task}"),
                format!("start it again: longshore admin retry {task}"),
                format!("give it up: longshore admin abort {task}"),
            ],
            failed: None,
        };
        self.suspend(place, trouble, out);
    }

    /// No orchestrator ran for so long.
    pub(super) fn was_away(&mut self, away: Duration) -> bool {
        self.talk.away += away;
        let now = self.whole_time();
        self.talk.clocks.settle(now);
        true
    }

    /// How long no orchestrator ran, all in all.
    pub fn away(&self) -> Duration {
        self.talk.away
    }

    pub(super) fn keys(&self, stories: &[usize]) -> Vec<StoryKey> {
        stories.iter().map(|story| self.stories[*story].key.clone()).collect()
    }

    /// For an assignment that must not start before the admin has said so.
    pub(super) fn ask_approval(&mut self, assignment: usize, out: &mut Vec<Effect>) {
        let task = self.spec.assignments[assignment].id.clone();
        let high = self.index.members[assignment].iter().filter(|story| self.high_risk(**story));
        let named: Vec<&str> = high.map(|story| self.stories[*story].key.id.as_str()).collect();
        let description =
            format!("{} of high risk: waits for an approval before anything of it runs", named.join(", "));
        let trouble = Trouble {
            what: EscalationType::PermissionDenied,
            severity: Severity::Critical,
            triggered_by: Role::Coordinator,
            description,
            status: "awaiting_approval",
            actions: vec![
                format!("let it run: longshore admin approve {task}"),
                format!("leave it out: longshore admin abort {task}"),
            ],
            failed: None,
        };
        self.hold(assignment, HoldKind::Approval, trouble, out);
    }
}
