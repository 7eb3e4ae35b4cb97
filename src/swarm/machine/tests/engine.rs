//! Loss of the engine, silent sandboxes, and external pauses.

use super::*;
use crate::swarm::machine::AttemptPhase;

fn engine_lost() -> Event {
    Event::EngineLost { problem: "connection refused".to_owned() }
}

fn start_failed_unreachable(id: &AttemptId) -> Event {
    let fault = MachineryFault {
        engine_unreachable: true,
        ..MachineryFault::new(Cause::EngineError, "no engine answers", true)
    };
    Event::StartFailed { attempt: id.clone(), fault }
}

/// One story, no machinery retry, and a liveness timeout of 20 s.
fn impatient_swarm() -> (MachineHarness, AttemptId) {
    let mut plan = spec(&[&[(1, &[])]]);
    plan.limits.machinery_retries = 0;
    plan.limits.liveness_timeout = Duration::from_secs(20);
    let (rig, _) = MachineHarness::begun(plan);
    (rig, attempt(1, 1))
}

#[test]
fn failures_while_the_engine_is_lost_cost_no_retry_and_wait_for_it() {
    let (mut rig, id) = impatient_swarm();
    rig.handle(engine_lost());
    rig.assert_ignored(engine_lost());
    rig.handle(start_failed_unreachable(&id));
    rig.advance_secs(10);
    assert_eq!(started_attempts(&rig.handle(Event::DeadlinePassed)), [], "its backoff is over, and the engine is away");
    assert_eq!(started_attempts(&rig.handle(Event::EngineReconnected)), [attempt(1, 2)]);
    rig.assert_ignored(Event::EngineReconnected);
    // The same before the loss is reported.
    rig.handle(start_failed_unreachable(&attempt(1, 2)));
    assert_eq!(started_attempts(&rig.fire_deadline_in(1)), [attempt(1, 3)]);
    assert_eq!(finish_outcome(&rig.run_and_land(&attempt(1, 3), &[1], 7)), Some(SwarmOutcome::Landed));
}

#[test]
fn a_sandbox_that_ends_with_the_engine_is_an_engine_error_and_costs_no_retry() {
    for (code, vanished) in [(Some(137), false), (Some(143), false), (None, true), (Some(255), false)] {
        let (mut rig, id) = impatient_swarm();
        rig.start_sandbox(&id);
        let exit = ContainerExit { code, vanished, engine_lost: true, ..ContainerExit::default() };
        rig.handle(sandbox_ended(&id, exit));
        rig.handle(collect_failed(&id, Cause::HostError, false, Some("refs/salvage")));
        assert_eq!((rig.cause(1), rig.status(1)), (Some(Cause::EngineError), StoryStatus::Pending), "{code:?}");
        assert_eq!(
            started_attempts(&rig.fire_deadline_in(1)),
            [attempt(1, 2)],
            "no machinery retry was there to be used up"
        );
    }
    // The engine's shutdown stopped the shim, which reports that.
    let (mut rig, id) = impatient_swarm();
    rig.start_sandbox(&id);
    rig.handle(completion_reported(&id, 1, CompletionStatus::Stopped));
    rig.handle(sandbox_ended(&id, ContainerExit { engine_lost: true, ..container_exit(0) }));
    rig.handle(result_collected(&id, None, vec![failed_story(1, Cause::StoppedByUser)]));
    assert_eq!(rig.cause(1), Some(Cause::EngineError));
    assert_eq!(started_attempts(&rig.fire_deadline_in(1)), [attempt(1, 2)]);
    // An OOM kill stays one.
    let (mut rig, id) = impatient_swarm();
    rig.start_sandbox(&id);
    rig.handle(sandbox_ended(&id, ContainerExit { oom_killed: true, engine_lost: true, ..container_exit(137) }));
    rig.handle(collect_failed(&id, Cause::HostError, false, Some("refs/salvage")));
    assert_eq!(rig.cause(1), Some(Cause::Oom));
}

#[test]
fn sandboxes_killed_just_before_an_engine_loss_cost_no_retry() {
    let mut plan = spec(&[&[(1, &[])]]);
    plan.limits.machinery_retries = 1;
    let (mut rig, _) = MachineHarness::begun(plan);
    for number in 1..=3 {
        let id = attempt(1, number);
        rig.start_sandbox(&id);
        rig.handle(sandbox_ended(&id, container_exit(137)));
        rig.handle(collect_failed(&id, Cause::HostError, false, Some("refs/salvage")));
        assert_eq!(rig.cause(1), Some(Cause::KilledOutside), "it still answered, and did not say why");
        rig.advance_secs(10);
        rig.handle(engine_lost());
        assert_eq!(started_attempts(&rig.handle(Event::EngineReconnected)), [], "its backoff is told by the clock");
        assert_eq!(started_attempts(&rig.handle(Event::DeadlinePassed)), [attempt(1, number + 1)]);
    }
}

#[test]
fn collect_is_retried_longer_while_the_engine_is_lost() {
    let (mut rig, id) = impatient_swarm();
    rig.run_to_completion(&id);
    rig.handle(engine_lost());
    for _ in 0..10 {
        rig.handle(collect_failed(&id, Cause::EngineError, true, None));
        rig.advance_secs(2);
        let again = rig.handle(Event::DeadlinePassed);
        assert!(matches!(again[..], [Effect::Collect { .. }]), "{again:?}");
    }
    rig.handle(Event::EngineReconnected);
    rig.handle(result_collected(&id, Some(5), vec![finished_story(1)]));
    assert_eq!(finish_outcome(&rig.handle(Event::Merged { attempt: id, head: commit(7) })), Some(SwarmOutcome::Landed));
}

#[test]
fn an_engine_lost_for_too_long_ends_the_swarm_resumably() {
    let (mut rig, id) = impatient_swarm();
    rig.start_sandbox(&id);
    rig.handle(engine_lost());
    while finish_outcome(&rig.handle(Event::DeadlinePassed)).is_none() {
        rig.now = rig.machine.next_deadline().expect("the engine's");
        assert!(rig.now <= Duration::from_secs(300));
    }
    assert_eq!(rig.machine.outcome(), Some(SwarmOutcome::MachineryFailed));
    assert!(!rig.machine.is_complete());
    rig.handle(Event::Resumed);
    assert_eq!(rig.machine.attempt(&id).expect("there").phase, AttemptPhase::Running);
    rig.handle(completion_reported(&id, 1, CompletionStatus::Completed));
    rig.handle(sandbox_ended(&id, container_exit(0)));
    rig.handle(result_collected(&id, Some(5), vec![finished_story(1)]));
    assert_eq!(finish_outcome(&rig.handle(Event::Merged { attempt: id, head: commit(7) })), Some(SwarmOutcome::Landed));
}

#[test]
fn a_stop_while_the_engine_is_lost_leaves_sandboxes_for_resume() {
    let stop = stop_requested(StopLevel::Graceful);
    for order in [[engine_lost(), stop.clone()], [stop, engine_lost()]] {
        let (mut rig, id) = impatient_swarm();
        rig.start_sandbox(&id);
        let [first, second] = order;
        assert_eq!(finish_outcome(&rig.handle(first)), None);
        assert_eq!(finish_outcome(&rig.handle(second)), Some(SwarmOutcome::Interrupted));
        assert!(!rig.machine.is_complete());
        rig.handle(Event::Resumed);
        assert_eq!(rig.machine.attempt(&id).expect("there").phase, AttemptPhase::Running);
    }
}

#[test]
fn a_silent_sandbox_is_inspected_and_ended_with_the_evidence() {
    for paused in [false, true] {
        let (mut rig, id) = impatient_swarm();
        rig.start_sandbox(&id);
        rig.advance_secs(15);
        rig.handle(story_reported(&id, 1, 1, StoryStatus::InProgress));
        let examine = [Effect::Inspect { attempt: id.clone() }];
        assert_eq!(rig.fire_deadline_in(20), examine, "20 s after its last word");
        // Without an answer, it is inspected again.
        assert_eq!(rig.fire_deadline_in(20), examine);
        let processes = vec!["1 acp-shim serve".to_owned()];
        let effects = rig.handle(Event::SandboxInspected { attempt: id.clone(), paused, processes: processes.clone() });
        let told = count_announcements(&effects, |said| matches!(said, Announcement::SandboxPaused { .. }));
        assert_eq!(told, usize::from(paused));
        let end = if paused { Effect::Kill { attempt: id.clone() } } else { Effect::Terminate { attempt: id.clone() } };
        assert!(effects.contains(&end), "{effects:?}");
        rig.handle(sandbox_ended(&id, container_exit(137)));
        let effects = rig.handle(collect_failed(&id, Cause::HostError, false, Some("refs/salvage")));
        assert_eq!(finish_outcome(&effects), Some(SwarmOutcome::MachineryFailed), "it had no machinery retry");
        let failure = rig.machine.story(&key(1)).expect("there").failure.clone().expect("failed");
        assert_eq!(failure.cause, Cause::ConnectionLost);
        assert_eq!(failure.evidence.processes, processes);
        assert_eq!(failure.evidence.summary.contains("paused"), paused, "{}", failure.evidence.summary);
    }
}

#[test]
fn a_record_during_inspection_keeps_the_sandbox() {
    let (mut rig, id) = impatient_swarm();
    rig.start_sandbox(&id);
    rig.fire_deadline_in(20);
    rig.handle(story_reported(&id, 1, 1, StoryStatus::InProgress));
    rig.assert_ignored(Event::SandboxInspected { attempt: id.clone(), paused: false, processes: Vec::new() });
    // A pause is announced and ends nothing by itself; its end is not announced.
    let pause = |paused| Event::SandboxInspected { attempt: id.clone(), paused, processes: Vec::new() };
    assert!(matches!(rig.handle(pause(true))[..], [Effect::Announce(Announcement::SandboxPaused { .. })]));
    rig.assert_ignored(pause(true));
    assert_eq!(rig.handle(pause(false)), []);
}

#[test]
fn silence_is_ignored_while_the_engine_is_lost() {
    let (mut rig, id) = impatient_swarm();
    rig.start_sandbox(&id);
    rig.handle(engine_lost());
    assert_eq!(rig.fire_deadline_in(20), []);
    rig.advance_secs(19);
    rig.handle(Event::EngineReconnected);
    assert_eq!(rig.fire_deadline_in(20), [Effect::Inspect { attempt: id }], "counted from the engine's return");
}

#[test]
fn a_timeout_during_an_external_pause_is_blamed_on_the_pause() {
    for paused in [false, true] {
        let mut plan = spec(&[&[(1, &[])]]);
        plan.limits.retries = 0;
        let (mut rig, _) = MachineHarness::begun(plan);
        let id = attempt(1, 1);
        rig.start_sandbox(&id);
        for is in [paused, false] {
            rig.handle(Event::SandboxInspected { attempt: id.clone(), paused: is, processes: Vec::new() });
        }
        rig.handle(completion_reported(&id, 1, CompletionStatus::Failed));
        rig.handle(sandbox_ended(&id, container_exit(0)));
        rig.handle(result_collected(&id, None, vec![failed_story(1, Cause::Timeout)]));
        let (cause, status) = match paused {
            true => (Cause::KilledOutside, StoryStatus::Pending),
            false => (Cause::Timeout, StoryStatus::Failed),
        };
        assert_eq!((rig.cause(1), rig.status(1)), (Some(cause), status));
    }
}
