//! Which AMP messages are sent, and when.

use super::amp_fixtures::*;
use super::*;
use crate::protocol::amp::machine::CATCH_UP_PERIOD;
use crate::protocol::amp::message::{
    AmpMessageType, AmpRole, EscalationSeverity, EscalationType, MsgId, SubtaskCompletionStatus,
};
use crate::swarm::amp_intent::AmpIntent;
use crate::swarm::event::TaskAction;
use crate::swarm::spec::DEFAULT_HEARTBEAT_TIMEOUT;

/// An intent in short: its type, and the type of an acked message.
fn intent_summary(intent: &AmpIntent) -> String {
    match intent {
        AmpIntent::Dispatch(dispatch) => match dispatch.attempt {
            Some(_) => "dispatch".to_owned(),
            None => "guidance".to_owned(),
        },
        AmpIntent::Result(result) => format!("result {:?}", result.status).to_lowercase(),
        AmpIntent::ReviewRequest(_) => "request".to_owned(),
        AmpIntent::Verdict { .. } => "verdict".to_owned(),
        AmpIntent::Escalation { escalation, .. } => format!("escalation {:?}", escalation.escalation_type),
        AmpIntent::Ack { of, by, .. } => format!("ack of {} by {}", of.message_type(), by.as_str()),
        AmpIntent::TaskUpdate(_) => String::new(),
    }
}

fn intent_summaries(effects: &[Effect]) -> Vec<String> {
    sent_intents(effects).iter().map(intent_summary).collect()
}

fn msg_ids(effects: &[Effect]) -> Vec<MsgId> {
    let ids = sent_intents(effects).into_iter().filter_map(|intent| match intent {
        AmpIntent::Dispatch(dispatch) => Some(dispatch.id),
        AmpIntent::Result(result) => Some(result.id),
        AmpIntent::ReviewRequest(request) => Some(request.id),
        AmpIntent::Verdict { id, .. } | AmpIntent::Escalation { id, .. } => Some(id),
        AmpIntent::Ack { .. } | AmpIntent::TaskUpdate(_) => None,
    });
    ids.collect()
}

#[test]
fn a_reviewed_task_sends_the_expected_messages() {
    let (mut rig, id) = single_reviewed_story();
    let reviewer = attempt(1, 2);
    let mut all = rig.start_sandbox(&id);
    assert_eq!(intent_summaries(&all), ["dispatch"], "no ack before it has begun");
    all.extend(rig.handle(story_reported(&id, 1, 1, StoryStatus::InProgress)));
    all.extend(rig.handle(story_reported(&id, 2, 1, StoryStatus::InProgress)));
    all.extend(rig.handle(completion_reported(&id, 3, CompletionStatus::Completed)));
    all.extend(rig.handle(sandbox_ended(&id, container_exit(0))));
    assert_eq!(intent_summaries(&all)[1..], ["ack of task_dispatch by executor"], "once, with its first progress");
    all.extend(rig.handle(result_collected(&id, Some(50), vec![finished_story(1)])));
    all.extend(rig.start_sandbox(&reviewer));
    all.extend(rig.handle(story_reported(&reviewer, 1, 1, StoryStatus::InProgress)));
    all.extend(rig.handle(completion_reported(&reviewer, 2, CompletionStatus::Completed)));
    all.extend(rig.handle(sandbox_ended(&reviewer, container_exit(0))));
    all.extend(rig.handle(Event::ReviewCollected { attempt: reviewer, outcome: Box::new(approved_review()) }));
    all.extend(rig.handle(Event::Merged { attempt: id, head: commit(7) }));
    assert_eq!(
        intent_summaries(&all),
        [
            "dispatch",
            "ack of task_dispatch by executor",
            "result complete",
            "ack of task_result by coordinator",
            "request",
            "ack of review_request by reviewer",
            "verdict",
            "ack of review_verdict by coordinator",
        ]
    );
    let ids = msg_ids(&all);
    assert!(ids.iter().all(|id| id.unix_ms() >= BEGAN_MS), "{ids:?}");
    let sent = sent_intents(&all);
    let request = sent.iter().find_map(|intent| match intent {
        AmpIntent::ReviewRequest(request) => Some(request.clone()),
        _ => None,
    });
    let request = request.expect("there");
    assert_eq!((&request.review.dispatch, &request.review.result), (&ids[0], &ids[1]));
    assert_eq!(request.refs, [ids[1].clone()]);
}

#[test]
fn a_swarm_without_an_amp_spec_sends_no_messages() {
    let (mut rig, mut all) = MachineHarness::begun(spec(&[&[(1, &[])]]));
    all.extend(rig.run_and_land(&attempt(1, 1), &[1], 7));
    assert!(!all.iter().any(|effect| matches!(effect, Effect::SendAmp(_))));
}

#[test]
fn a_missing_ack_is_escalated_once_and_waiting_continues() {
    for review in [false, true] {
        let mut plan = amp_swarm_spec(&[&[(1, &[])]], Some(4));
        plan.limits.story_timeout = DEFAULT_HEARTBEAT_TIMEOUT * 2;
        let (mut rig, _) = MachineHarness::begun(plan);
        let mut id = attempt(1, 1);
        if review {
            rig.finish_work(&id, &[1]);
            id = attempt(1, 2);
        }
        let asked = msg_ids(&rig.start_sandbox(&id)).pop().expect("sent");
        let (kind, seconds) =
            if review { (AmpMessageType::ReviewRequest, 600) } else { (AmpMessageType::TaskDispatch, 300) };
        assert_eq!(asked.message_type(), kind);
        let effects = rig.fire_deadline_in(seconds);
        assert_eq!(escalation_kinds(&effects), [(EscalationType::AckTimeout, EscalationSeverity::Info)]);
        let late = &escalations(&effects)[0];
        assert!(!late.auto_suspended && late.affected_msgs.contains(&asked), "{late:?}");
        assert_eq!(late.triggered_by, AmpRole::System);
        assert_eq!(last_task_status(&effects), Some(if review { "in_review" } else { "dispatched" }));
        // A late ack is written all the same.
        let effects = rig.handle(story_reported(&id, 1, 1, StoryStatus::InProgress));
        assert_eq!(
            intent_summaries(&effects),
            [format!("ack of {kind} by {}", if review { "reviewer" } else { "executor" })]
        );
        assert!(
            escalation_kinds(&rig.fire_next_deadline())
                .contains(&(EscalationType::HeartbeatTimeout, EscalationSeverity::Critical))
        );
    }
}

#[test]
fn an_ended_sandbox_clears_its_amp_deadlines() {
    let (mut rig, _) = MachineHarness::begun(amp_swarm_spec(&[&[(1, &[])]], None));
    let id = attempt(1, 1);
    rig.start_sandbox(&id);
    rig.handle(sandbox_ended(&id, container_exit(1)));
    assert_eq!(rig.machine.next_deadline(), None);
}

#[test]
fn deadlines_missed_during_an_absence_are_escalated_once_after_replay() {
    for heard in [false, true] {
        let mut plan = amp_swarm_spec(&[&[(1, &[])]], None);
        plan.limits.story_timeout = DEFAULT_HEARTBEAT_TIMEOUT * 9;
        let (mut rig, _) = MachineHarness::begun(plan);
        let id = attempt(1, 1);
        rig.start_sandbox(&id);
        rig.handle(Event::MachineryFailed { fault: MachineryFault::new(Cause::EngineError, "gone", false) });
        let before = rig.now;
        assert_eq!(sent_intents(&rig.handle(Event::OrchestratorAbsent { ms: 86_400_000 })), []);
        assert_eq!((escalation_kinds(&rig.handle(Event::Resumed)), rig.now), (vec![], before));
        if heard {
            let effects = rig.handle(story_reported(&id, 1, 1, StoryStatus::InProgress));
            let at = sent_intents(&effects).into_iter().find_map(|intent| match intent {
                AmpIntent::Ack { at_ms, .. } => Some(at_ms),
                _ => None,
            });
            assert_eq!(at, Some(BEGAN_MS + 86_400_000), "the time without an orchestrator counts");
            assert_eq!(
                escalation_kinds(&rig.fire_deadline_in(DEFAULT_HEARTBEAT_TIMEOUT.as_secs())).len(),
                1,
                "the heartbeat, counted from there"
            );
            continue;
        }
        let effects = rig.fire_deadline_in(CATCH_UP_PERIOD.as_secs());
        let both = [EscalationType::AckTimeout, EscalationType::HeartbeatTimeout];
        let escalated: Vec<EscalationType> = escalation_kinds(&effects).into_iter().map(|(kind, _)| kind).collect();
        assert_eq!(escalated, both);
        rig.handle(Event::OrchestratorAbsent { ms: 86_400_000 });
        assert_eq!(escalation_kinds(&rig.handle(Event::Resumed)), [], "once");
        rig.advance_secs(10);
        rig.assert_ignored(Event::DeadlinePassed);
        rig.replay_journal();
    }
}

#[test]
fn failures_are_escalated_by_cause() {
    use crate::protocol::amp::message::EscalationType::*;
    for (cause, first, last) in [
        // Failing checks go back to the executor; the admin hears of the last failure.
        (Cause::VerificationFailed, None, CiFailure),
        (Cause::AgentFailed, Some(Unknown), Unknown),
        (Cause::BranchViolation, Some(BranchViolation), BranchViolation),
    ] {
        let (mut rig, _) = MachineHarness::begun(amp_swarm_spec(&[&[(1, &[])]], Some(4)));
        rig.run_to_completion(&attempt(1, 1));
        let effects = rig.handle(result_collected(&attempt(1, 1), None, vec![failed_story(1, cause)]));
        assert_eq!(
            escalation_kinds(&effects),
            first.map(|kind| (kind, EscalationSeverity::Info)).into_iter().collect::<Vec<_>>()
        );
        assert_eq!(started_review(&effects), None, "failed work is not reviewed");
        assert_eq!(intent_summaries(&effects)[..2], ["result failed", "ack of task_result by coordinator"]);
        rig.run_to_completion(&attempt(1, 2));
        let effects = rig.handle(result_collected(&attempt(1, 2), None, vec![failed_story(1, cause)]));
        assert_eq!(escalation_kinds(&effects), [(last, EscalationSeverity::Warning)]);
        assert_eq!(finish_outcome(&effects), Some(SwarmOutcome::SomeFailed));
    }
}

#[test]
fn a_stopped_story_is_reported_as_partial() {
    let (mut rig, _) = MachineHarness::begun(amp_swarm_spec(&[&[(1, &[])]], None));
    let id = attempt(1, 1);
    rig.start_sandbox(&id);
    rig.handle(story_reported(&id, 1, 1, StoryStatus::InProgress));
    rig.handle(stop_requested(StopLevel::Graceful));
    rig.handle(completion_reported(&id, 2, CompletionStatus::Stopped));
    rig.handle(sandbox_ended(&id, container_exit(0)));
    let effects = rig.handle(result_collected(&id, None, vec![failed_story(1, Cause::StoppedByUser)]));
    let ends = sent_intents(&effects).into_iter().find_map(|intent| match intent {
        AmpIntent::Result(result) => Some((result.status, result.failure.map(|failure| failure.cause))),
        _ => None,
    });
    assert_eq!(ends, Some((SubtaskCompletionStatus::Partial, Some(Cause::StoppedByUser))));
    assert_eq!(escalation_kinds(&effects), [], "it was the user who did it");
}

#[test]
fn an_admin_decision_acks_the_open_escalations() {
    let mut plan = amp_swarm_spec(&[&[(1, &[])]], None);
    plan.stories[0].risk = RiskLevel::High;
    let (mut rig, effects) = MachineHarness::begun(plan);
    let escalation = msg_ids(&effects).pop().expect("sent");
    let effects = rig.apply_decision(1, answer_action("mind the dog"));
    assert_eq!(
        intent_summaries(&effects),
        ["ack of escalation by admin", "guidance", "ack of task_dispatch by coordinator"]
    );
    let notes: Vec<Option<String>> = sent_intents(&effects)
        .into_iter()
        .filter_map(|intent| match intent {
            AmpIntent::Ack { note, by: AmpRole::Admin, .. } => Some(note),
            _ => None,
        })
        .collect();
    assert_eq!(notes, [Some("answer: mind the dog".to_owned())]);
    let guidance = msg_ids(&effects).pop().expect("sent");
    rig.handle(Event::Resumed);
    // The task's next dispatch refers to both.
    let dispatch = sent_intents(&rig.start_sandbox(&attempt(1, 1))).remove(0);
    let AmpIntent::Dispatch(dispatch) = dispatch else { panic!("{dispatch:?}") };
    assert_eq!(dispatch.refs, [escalation, guidance]);
    assert_eq!(dispatch.guidance, ["mind the dog"]);
}

#[test]
fn an_abort_is_written_to_the_task_file() {
    let mut plan = amp_swarm_spec(&[&[(1, &[])]], None);
    plan.stories[0].risk = RiskLevel::High;
    let (mut rig, _) = MachineHarness::begun(plan);
    assert_eq!(last_task_status(&rig.apply_decision(1, TaskAction::Abort)), Some("aborted"));
}

#[test]
fn work_of_a_sandbox_without_a_start_event_is_still_reviewed() {
    let (mut rig, id) = single_reviewed_story();
    rig.handle(Event::SandboxCreated { attempt: id.clone(), container: container(&id), name: "box".to_owned() });
    rig.handle(sandbox_ended(&id, container_exit(0)));
    let effects = rig.handle(result_collected(&id, Some(50), vec![finished_story(1)]));
    assert_eq!(intent_summaries(&effects)[..2], ["dispatch", "result complete"]);
    assert!(started_review(&effects).is_some());
    assert_eq!(rig.machine.next_deadline(), None, "and nothing is waited for of it");
}
