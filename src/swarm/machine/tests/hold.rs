//! What waits for the admin, and what the admin decides.

use super::amp_fixtures::*;
use super::*;
use crate::protocol::amp::message::{EscalationSeverity, EscalationType};
use crate::swarm::event::{TaskAction, TaskDecision};
use crate::swarm::machine::{AttemptPhase, HoldKind};
use crate::swarm::spec::DEFAULT_HEARTBEAT_TIMEOUT;

fn high_risk_spec() -> SwarmSpec {
    let mut plan = amp_swarm_spec(&[&[(1, &[])], &[(2, &[1])], &[(3, &[])]], None);
    plan.stories[0].risk = RiskLevel::High;
    plan
}

/// A swarm of two tasks with one slot, whose first sandbox is suspended for a missing heartbeat; and the effects of that.
fn suspended_swarm() -> (MachineHarness, AttemptId, Vec<Effect>) {
    let mut plan = amp_swarm_spec(&[&[(1, &[])], &[(2, &[])]], None);
    plan.limits.max_sandboxes = 1;
    plan.limits.story_timeout = DEFAULT_HEARTBEAT_TIMEOUT * 2;
    let (mut rig, _) = MachineHarness::begun(plan);
    let id = attempt(1, 1);
    rig.start_sandbox(&id);
    rig.advance_secs(10);
    rig.handle(story_reported(&id, 1, 1, StoryStatus::InProgress));
    let effects = rig.fire_deadline_in(DEFAULT_HEARTBEAT_TIMEOUT.as_secs());
    (rig, id, effects)
}

#[test]
fn high_risk_stories_and_their_dependents_wait_for_approval() {
    let (mut rig, effects) = MachineHarness::begun(high_risk_spec());
    assert_eq!(escalation_kinds(&effects), [(EscalationType::PermissionDenied, EscalationSeverity::Critical)]);
    assert_eq!(started_attempts(&effects), [attempt(3, 1)]);
    assert_eq!(rig.hold_kind(1), Some(HoldKind::Approval));
    let effects = rig.run_and_land(&attempt(3, 1), &[3], 7);
    assert_eq!(finish_outcome(&effects), Some(SwarmOutcome::Suspended));
    for action in [TaskAction::Resume, TaskAction::Retry, TaskAction::Rollback] {
        let refusal = rig.machine.check_decision(&assignment(1), &action).expect_err("nothing to do so");
        assert!(refusal.contains("`approve` or `abort`") && refusal.contains(action.as_str()), "{refusal}");
    }
    for (action, runs) in [(TaskAction::Approve, true), (answer_action("with care"), true), (TaskAction::Abort, false)]
    {
        let mut rig = rig.clone();
        rig.apply_decision(1, action.clone());
        let effects = rig.handle(Event::Resumed);
        assert_eq!(started_attempts(&effects), if runs { vec![attempt(1, 1)] } else { vec![] }, "{action:?}");
        if !runs {
            assert_eq!(finish_outcome(&effects), Some(SwarmOutcome::SomeFailed));
            assert_eq!((rig.cause(1), rig.status(2)), (Some(Cause::AbortedByAdmin), StoryStatus::Skipped));
            continue;
        }
        let told =
            effects.iter().any(|effect| matches!(effect, Effect::Start { guidance, .. } if guidance == &["with care"]));
        assert_eq!(told, action != TaskAction::Approve);
        rig.run_and_land(&attempt(1, 1), &[1], 8);
        assert_eq!(finish_outcome(&rig.run_and_land(&attempt(2, 1), &[2], 9)), Some(SwarmOutcome::Landed));
        rig.replay_journal();
    }
}

#[test]
fn an_approval_in_a_running_swarm_starts_the_assignment() {
    let (mut rig, _) = MachineHarness::begun(high_risk_spec());
    assert_eq!(started_attempts(&rig.apply_decision(1, TaskAction::Approve)), [attempt(1, 1)]);
    rig.replay_journal();
}

#[test]
fn reopened_skipped_stories_need_approval_again() {
    let mut plan = amp_swarm_spec(&[&[(1, &[])], &[(2, &[1])]], None);
    plan.stories[1].risk = RiskLevel::High;
    plan.limits.retries = 0;
    let (mut rig, _) = MachineHarness::begun(plan);
    rig.run_to_completion(&attempt(1, 1));
    let effects = rig.handle(result_collected(&attempt(1, 1), None, vec![failed_story(1, Cause::AgentFailed)]));
    assert_eq!(finish_outcome(&effects), Some(SwarmOutcome::SomeFailed));
    assert_eq!(rig.hold_kind(2), None, "what is skipped waits for nobody");
    assert!(rig.machine.check_decision(&assignment(2), &TaskAction::Approve).is_err());
    rig.apply_decision(1, TaskAction::Retry);
    assert_eq!(started_attempts(&rig.handle(Event::Resumed)), [attempt(1, 2)]);
    assert_eq!(finish_outcome(&rig.run_and_land(&attempt(1, 2), &[1], 7)), Some(SwarmOutcome::Suspended));
    assert_eq!(rig.hold_kind(2), Some(HoldKind::Approval));
}

#[test]
fn a_heartbeat_timeout_pauses_the_sandbox_and_frees_its_slot() {
    let (mut rig, id, effects) = suspended_swarm();
    assert!(effects.contains(&Effect::Pause { attempt: id.clone() }), "{effects:?}");
    assert_eq!(escalation_kinds(&effects), [(EscalationType::HeartbeatTimeout, EscalationSeverity::Critical)]);
    assert_eq!(started_attempts(&effects), [attempt(2, 1)]);
    // Records that were on their way change nothing, and its timers stand still.
    rig.handle(story_reported(&id, 2, 1, StoryStatus::InProgress));
    rig.assert_ignored(Event::SandboxInspected { attempt: id.clone(), paused: true, processes: Vec::new() });
    assert_eq!(finish_outcome(&rig.run_and_land(&attempt(2, 1), &[2], 7)), Some(SwarmOutcome::Suspended));
    assert_eq!(rig.machine.next_deadline(), None);
    rig.advance_secs(100_000);
    rig.handle(Event::OrchestratorAbsent { ms: 5_000_000 });
    let effects = rig.handle(Event::Resumed);
    assert!(effects.contains(&Effect::Pause { attempt: id.clone() }), "it stays so: {effects:?}");
    assert_eq!(finish_outcome(&effects), Some(SwarmOutcome::Suspended));
    rig.apply_decision(1, TaskAction::Resume);
    let effects = rig.handle(Event::Resumed);
    assert!(effects.contains(&Effect::Unpause { attempt: id.clone() }), "{effects:?}");
    assert!(!effects.contains(&Effect::Pause { attempt: id.clone() }), "{effects:?}");
    // An inspection just after the unpause still sees longshore's own pause.
    rig.assert_ignored(Event::SandboxInspected { attempt: id.clone(), paused: true, processes: Vec::new() });
    // One heartbeat timeout of its time is left, as much as until its next heartbeat is due.
    let effects = rig.fire_deadline_in(DEFAULT_HEARTBEAT_TIMEOUT.as_secs());
    assert!(
        effects.contains(&Effect::Pause { attempt: id.clone() })
            || effects.contains(&Effect::Terminate { attempt: id })
    );
    rig.replay_journal();
}

#[test]
fn a_sandbox_to_be_unpaused_waits_for_a_slot() {
    for action in [TaskAction::Approve, TaskAction::Resume, answer_action("go")] {
        let (mut rig, id, _) = suspended_swarm();
        rig.start_sandbox(&attempt(2, 1));
        let effects = rig.apply_decision(1, action);
        assert!(!effects.contains(&Effect::Unpause { attempt: id.clone() }), "the only place is another's");
        let effects = {
            rig.handle(completion_reported(&attempt(2, 1), 1, CompletionStatus::Completed));
            rig.handle(sandbox_ended(&attempt(2, 1), container_exit(0)))
        };
        assert!(effects.contains(&Effect::Unpause { attempt: id.clone() }), "{effects:?}");
        rig.advance_secs(5);
        rig.handle(completion_reported(&id, 2, CompletionStatus::Completed));
        rig.handle(sandbox_ended(&id, container_exit(0)));
        rig.handle(result_collected(&id, Some(50), vec![finished_story(1)]));
        rig.handle(result_collected(&attempt(2, 1), Some(51), vec![finished_story(2)]));
        rig.handle(Event::Merged { attempt: id, head: commit(7) });
        assert_eq!(
            finish_outcome(&rig.handle(Event::Merged { attempt: attempt(2, 1), head: commit(8) })),
            Some(SwarmOutcome::Landed)
        );
        rig.replay_journal();
    }
}

#[test]
fn a_story_timeout_during_a_suspension_costs_no_retry() {
    let (mut rig, id, _) = suspended_swarm();
    rig.run_and_land(&attempt(2, 1), &[2], 7);
    rig.advance_secs(1_000_000);
    rig.apply_decision(1, TaskAction::Resume);
    rig.handle(Event::Resumed);
    rig.advance_secs(5);
    // Its shim counted the time of the suspension.
    rig.handle(completion_reported(&id, 2, CompletionStatus::Failed));
    rig.handle(sandbox_ended(&id, container_exit(0)));
    rig.handle(result_collected(&id, None, vec![failed_story(1, Cause::Timeout)]));
    assert_eq!((rig.cause(1), rig.status(1)), (Some(Cause::KilledOutside), StoryStatus::Pending));
    assert_eq!(rig.machine.story(&key(1)).expect("there").failures, 0);
}

#[test]
fn a_suspended_sandbox_is_aborted_or_restarted() {
    for finishes in [false, true] {
        for (action, cause) in
            [(TaskAction::Abort, Some(Cause::AbortedByAdmin)), (TaskAction::Retry, None), (TaskAction::Rollback, None)]
        {
            let (mut rig, id, _) = suspended_swarm();
            let effects = rig.apply_decision(1, action.clone());
            assert!(effects.contains(&Effect::Kill { attempt: id.clone() }), "{effects:?}");
            assert_eq!(rig.hold_kind(1), None);
            rig.handle(sandbox_ended(&id, container_exit(137)));
            // Its finished work does not land if the task was aborted.
            let effects = rig.handle(match finishes {
                true => result_collected(&id, Some(50), vec![finished_story(1)]),
                false => result_collected(&id, None, vec![story_result(1, StoryOutcome::NotReached)]),
            });
            if let Some(cause) = cause {
                assert_eq!((rig.cause(1), rig.status(1)), (Some(cause), StoryStatus::Failed), "{action:?}");
                assert_eq!(merged_tips(&effects), []);
                continue;
            }
            assert_eq!(merged_tips(&effects).len(), usize::from(finishes), "{action:?}");
            if !finishes {
                rig.run_and_land(&attempt(2, 1), &[2], 7);
                assert_eq!(rig.machine.attempt(&attempt(1, 2)).map(|view| view.base.clone()), Some(commit(1)));
                assert_eq!(rig.machine.story(&key(1)).expect("there").failures, 0);
            }
            rig.replay_journal();
        }
    }
}

#[test]
fn aborting_a_task_aborts_all_its_stories() {
    let plan = || {
        let mut plan = amp_swarm_spec(&[&[(1, &[]), (2, &[])]], Some(1));
        plan.limits.story_timeout = DEFAULT_HEARTBEAT_TIMEOUT * 2;
        MachineHarness::begun(plan).0
    };
    let all = |rig: &MachineHarness| [rig.cause(1), rig.cause(2)];
    // In a locked task, a story waits for its next attempt.
    let mut rig = plan();
    rig.run_to_completion(&attempt(1, 1));
    rig.handle(result_collected(
        &attempt(1, 1),
        Some(50),
        vec![finished_story(1), failed_story(2, Cause::AgentFailed)],
    ));
    rig.finish_review(&attempt(1, 2), rejected_review("no"));
    assert_eq!(rig.hold_kind(1), Some(HoldKind::Locked));
    rig.apply_decision(1, TaskAction::Abort);
    assert_eq!(all(&rig), [Some(Cause::AbortedByAdmin); 2]);
    assert_eq!(finish_outcome(&rig.handle(Event::Resumed)), Some(SwarmOutcome::SomeFailed));
    // In a suspended task, one story was begun and the other was not.
    let mut rig = plan();
    rig.start_sandbox(&attempt(1, 1));
    rig.handle(story_reported(&attempt(1, 1), 1, 1, StoryStatus::InProgress));
    rig.fire_deadline_in(DEFAULT_HEARTBEAT_TIMEOUT.as_secs());
    rig.apply_decision(1, TaskAction::Abort);
    rig.handle(Event::Resumed);
    rig.handle(sandbox_ended(&attempt(1, 1), container_exit(137)));
    let effects = rig.handle(collect_failed(&attempt(1, 1), Cause::HostError, false, Some("refs/salvage")));
    assert_eq!(all(&rig), [Some(Cause::AbortedByAdmin); 2]);
    assert_eq!(finish_outcome(&effects), Some(SwarmOutcome::SomeFailed));
    rig.replay_journal();
}

#[test]
fn a_decision_on_a_suspended_reviewer_applies_to_the_reviewed_work() {
    for (action, cause, base, again) in [
        (TaskAction::Abort, Some(Cause::AbortedByAdmin), None, None),
        (TaskAction::Retry, None, None, Some(attempt(1, 3))),
        (TaskAction::Rollback, Some(Cause::Rejected), Some(commit(1)), None),
    ] {
        for answers in [false, true] {
            let mut plan = amp_swarm_spec(&[&[(1, &[])]], Some(4));
            plan.limits.story_timeout = DEFAULT_HEARTBEAT_TIMEOUT * 2;
            let (mut rig, _) = MachineHarness::begun(plan);
            rig.finish_work(&attempt(1, 1), &[1]);
            let reviewer = attempt(1, 2);
            rig.start_sandbox(&reviewer);
            rig.handle(story_reported(&reviewer, 1, 1, StoryStatus::InProgress));
            let effects = rig.fire_deadline_in(DEFAULT_HEARTBEAT_TIMEOUT.as_secs());
            assert!(effects.contains(&Effect::Pause { attempt: reviewer.clone() }));
            assert_eq!(finish_outcome(&effects), Some(SwarmOutcome::Suspended));
            rig.apply_decision(1, action.clone());
            assert!(rig.handle(Event::Resumed).contains(&Effect::Kill { attempt: reviewer.clone() }));
            rig.handle(sandbox_ended(&reviewer, container_exit(137)));
            if answers && action == TaskAction::Retry {
                continue;
            }
            let reviewed = if answers { approved_review() } else { review_without_verdict(Cause::StoppedByUser) };
            let effects = rig.handle(Event::ReviewCollected { attempt: reviewer, outcome: Box::new(reviewed) });
            assert_eq!((merged_tips(&effects), escalation_kinds(&effects)), (vec![], vec![]), "{action:?}");
            assert_eq!(rig.cause(1), cause, "{action:?}");
            let starts = effects.iter().find_map(|one| match one {
                Effect::Start { base, .. } => Some(base.clone()),
                _ => None,
            });
            assert_eq!(starts, base, "{action:?}");
            assert_eq!(started_review(&effects).map(|(id, _)| id), again, "{action:?}");
            rig.replay_journal();
        }
    }
}

#[test]
fn a_suspended_sandbox_that_already_completed_is_unpaused() {
    let (mut rig, id, _) = suspended_swarm();
    let effects = rig.handle(completion_reported(&id, 2, CompletionStatus::Completed));
    assert!(effects.contains(&Effect::Unpause { attempt: id.clone() }), "or it could not end: {effects:?}");
    assert_eq!(rig.hold_kind(1), None);
    rig.handle(sandbox_ended(&id, container_exit(0)));
    rig.handle(result_collected(&id, Some(50), vec![finished_story(1)]));
    rig.handle(Event::Merged { attempt: id, head: commit(7) });
    assert_eq!(rig.status(1), StoryStatus::Completed);
    // Too many bad records kill it, paused or not.
    let (mut rig, id, _) = suspended_swarm();
    rig.handle(record_refused(&id, 2));
    rig.handle(record_refused(&id, 3));
    assert!(rig.handle(record_refused(&id, 4)).contains(&Effect::Kill { attempt: id.clone() }));
    assert_eq!(rig.hold_kind(1), None);
    rig.handle(sandbox_ended(&id, container_exit(137)));
}

#[test]
fn a_stop_ends_suspended_sandboxes_and_resume_runs_them_again() {
    for level in [StopLevel::Graceful, StopLevel::Kill] {
        let (mut rig, id, _) = suspended_swarm();
        assert!(rig.handle(stop_requested(level)).contains(&Effect::Kill { attempt: id.clone() }));
        rig.handle(sandbox_ended(&id, container_exit(137)));
        rig.handle(collect_failed(&id, Cause::HostError, false, Some("refs/salvage")));
        let effects = rig.handle(Event::StartFailed {
            attempt: attempt(2, 1),
            fault: MachineryFault::new(Cause::EngineError, "no", true),
        });
        assert_eq!(finish_outcome(&effects), Some(SwarmOutcome::Interrupted));
        assert_eq!(started_attempts(&rig.handle(Event::Resumed)), [attempt(1, 2)]);
        rig.replay_journal();
    }
}

#[test]
fn a_sandbox_is_not_suspended_while_it_ends_or_the_engine_is_lost() {
    let begun = || {
        let mut plan = amp_swarm_spec(&[&[(1, &[])]], None);
        plan.limits.story_timeout = DEFAULT_HEARTBEAT_TIMEOUT * 4;
        plan.limits.grace_period = DEFAULT_HEARTBEAT_TIMEOUT * 2;
        let (mut rig, _) = MachineHarness::begun(plan);
        rig.start_sandbox(&attempt(1, 1));
        rig.handle(story_reported(&attempt(1, 1), 1, 1, StoryStatus::InProgress));
        rig
    };
    let mut rig = begun();
    rig.advance_secs(DEFAULT_HEARTBEAT_TIMEOUT.as_secs() - 10);
    rig.handle(Event::EngineLost { problem: "refused".to_owned() });
    assert_eq!(rig.fire_deadline_in(10), [], "the engine is away");
    rig.handle(Event::EngineReconnected);
    assert_eq!(
        escalation_kinds(&rig.fire_deadline_in(DEFAULT_HEARTBEAT_TIMEOUT.as_secs())).len(),
        1,
        "from then on it counts again"
    );
    let mut rig = begun();
    rig.handle(stop_requested(StopLevel::Graceful));
    assert_eq!(rig.fire_deadline_in(DEFAULT_HEARTBEAT_TIMEOUT.as_secs()), [], "it is on its way out");
    assert_eq!(rig.machine.attempt(&attempt(1, 1)).expect("there").phase, AttemptPhase::Running);
}

#[test]
fn resume_reissues_a_lost_unpause() {
    let (mut rig, id, _) = suspended_swarm();
    rig.run_and_land(&attempt(2, 1), &[2], 7);
    rig.apply_decision(1, TaskAction::Resume);
    rig.handle(Event::Resumed);
    rig.machine = rig.replay_journal();
    assert!(rig.handle(Event::Resumed).contains(&Effect::Unpause { attempt: id }));
}

#[test]
fn retry_reopens_failed_stories_and_their_skipped_dependents() {
    // 4 depends on 1 and, through 3, on 2; both fail.
    for (action, from) in [(TaskAction::Retry, 1), (TaskAction::Rollback, 1)] {
        let mut plan = amp_swarm_spec(&[&[(1, &[])], &[(2, &[])], &[(3, &[2])], &[(4, &[1, 3])], &[(5, &[1])]], None);
        plan.limits.retries = 0;
        let (mut rig, _) = MachineHarness::begun(plan);
        for number in [1, 2] {
            rig.run_to_completion(&attempt(number, 1));
            rig.handle(result_collected(&attempt(number, 1), None, vec![failed_story(number, Cause::AgentFailed)]));
        }
        assert_eq!(rig.machine.outcome(), Some(SwarmOutcome::SomeFailed));
        rig.assert_ignored(Event::Resumed);
        let effects = rig.apply_decision(1, action.clone());
        assert_eq!(started_attempts(&effects), [], "nothing is done before the swarm is taken up");
        let effects = rig.handle(Event::Resumed);
        let base = effects.iter().find_map(|one| match one {
            Effect::Start { base, attempt: id, .. } if *id == attempt(1, 2) => Some(base.clone()),
            _ => None,
        });
        assert_eq!(base, Some(commit(from)), "{action:?}");
        let pending =
            |rig: &MachineHarness| (1..=5).map(|story| rig.status(story) == StoryStatus::Pending).collect::<Vec<_>>();
        assert_eq!(pending(&rig), [true, false, false, false, true], "4 waits for what will not come");
        assert_eq!(started_attempts(&rig.run_and_land(&attempt(1, 2), &[1], 7)), [attempt(5, 1)]);
        // Then the other one, too, while the swarm runs.
        assert_eq!(started_attempts(&rig.apply_decision(2, TaskAction::Retry)), [attempt(2, 2)]);
        rig.run_and_land(&attempt(5, 1), &[5], 8);
        assert_eq!(started_attempts(&rig.run_and_land(&attempt(2, 2), &[2], 9)), [attempt(3, 1)]);
        assert_eq!(started_attempts(&rig.run_and_land(&attempt(3, 1), &[3], 10)), [attempt(4, 1)]);
        assert_eq!(finish_outcome(&rig.run_and_land(&attempt(4, 1), &[4], 11)), Some(SwarmOutcome::Landed));
        rig.replay_journal();
    }
}

#[test]
fn an_inapplicable_decision_is_refused_with_a_reason() {
    let (mut rig, id) = single_reviewed_story();
    let all = [
        TaskAction::Approve,
        TaskAction::Resume,
        TaskAction::Retry,
        TaskAction::Abort,
        TaskAction::Rollback,
        answer_action("x"),
    ];
    let refusals = |rig: &MachineHarness, number: u32| {
        let all = all.iter().map(|action| rig.machine.check_decision(&assignment(number), action));
        all.map(|one| one.expect_err("no").replace('`', "")).collect::<Vec<_>>()
    };
    assert_eq!(refusals(&rig, 9), vec!["the swarm has no task T-2026-009"; 6]);
    let refused = refusals(&rig, 1);
    assert_eq!(refused[0], "T-2026-001 does not wait for the admin: there is nothing to approve");
    assert!(refused[2].starts_with("T-2026-001 is running"), "{}", refused[2]);
    rig.finish_work(&id, &[1]);
    rig.finish_review(&attempt(1, 2), approved_review());
    rig.handle(Event::Merged { attempt: id, head: commit(7) });
    assert!(refusals(&rig, 1)[4].starts_with("no story of T-2026-001 has failed"), "{:?}", refusals(&rig, 1));
    let decision =
        TaskDecision { id: "1".to_owned(), task: assignment(1), action: TaskAction::Abort, by: "me".to_owned() };
    rig.assert_ignored(Event::DecisionMade { decision });
    assert!(!rig.machine.has_applied_decision("1"), "what was refused may come again when it can be done");
}

#[test]
fn an_aborted_story_is_not_reopened_before_its_dependencies() {
    let mut plan = amp_swarm_spec(&[&[(1, &[])], &[(2, &[1])]], None);
    plan.stories[1].risk = RiskLevel::High;
    plan.limits.retries = 0;
    let (mut rig, _) = MachineHarness::begun(plan);
    rig.apply_decision(2, TaskAction::Abort);
    rig.run_to_completion(&attempt(1, 1));
    rig.handle(result_collected(&attempt(1, 1), None, vec![failed_story(1, Cause::AgentFailed)]));
    let refusal = rig.machine.check_decision(&assignment(2), &TaskAction::Retry).expect_err("1 has failed");
    assert_eq!(refusal, "the dependencies of `T-2026-002` have not landed: retry these first");
    rig.apply_decision(1, TaskAction::Retry);
    rig.apply_decision(2, TaskAction::Retry);
    assert_eq!(started_attempts(&rig.handle(Event::Resumed)), [attempt(1, 2)]);
    assert_eq!(started_attempts(&rig.run_and_land(&attempt(1, 2), &[1], 7)), [attempt(2, 1)]);
}
