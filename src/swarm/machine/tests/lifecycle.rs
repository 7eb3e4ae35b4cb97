//! Stopping, resuming, and the end of a swarm.

use super::*;
use crate::swarm::machine::{AttemptPhase, ContainerStatus};

#[test]
fn a_graceful_stop_terminates_sandboxes_and_keeps_finished_work() {
    let mut plan = spec(&[&[(1, &[])], &[(2, &[])], &[(3, &[])], &[(4, &[1])]]);
    plan.limits.max_sandboxes = 3;
    let (mut rig, _) = MachineHarness::begun(plan);
    rig.start_sandbox(&attempt(1, 1));
    rig.run_to_completion(&attempt(2, 1));
    let effects = rig.handle(stop_requested(StopLevel::Graceful));
    assert_eq!(
        effects[1..],
        [Effect::Terminate { attempt: attempt(1, 1) }, Effect::Terminate { attempt: attempt(3, 1) }]
    );
    rig.assert_ignored(stop_requested(StopLevel::Graceful));
    // A sandbox that was being created is terminated again once it runs.
    let effects = rig.start_sandbox(&attempt(3, 1));
    assert_eq!(effects.last(), Some(&Effect::Terminate { attempt: attempt(3, 1) }));
    assert_eq!(
        rig.fire_deadline_in(7),
        [Effect::Kill { attempt: attempt(1, 1) }, Effect::Kill { attempt: attempt(3, 1) }]
    );
    rig.handle(result_collected(&attempt(2, 1), Some(9), vec![finished_story(2)]));
    rig.handle(merged(&attempt(2, 1), 20));
    for number in [1, 3] {
        rig.handle(sandbox_ended(&attempt(number, 1), container_exit(137)));
        let salvage = collect_failed(&attempt(number, 1), Cause::HostError, false, Some("refs/salvage"));
        let effects = rig.handle(salvage);
        assert_eq!(finish_outcome(&effects).is_some(), number == 3, "after the last");
    }
    assert_eq!(rig.machine.outcome(), Some(SwarmOutcome::Interrupted));
    assert_eq!((rig.status(1), rig.cause(1)), (StoryStatus::Pending, Some(Cause::StoppedByUser)));
    assert_eq!(rig.status(2), StoryStatus::Completed);
    assert_eq!(rig.machine.attempt(&attempt(1, 1)).map(|view| view.status), Some(ContainerStatus::Stopped));
    rig.replay_journal();
    // Resuming continues from the new head.
    let effects = rig.handle(Event::Resumed);
    assert_eq!(started_attempts(&effects), [attempt(1, 2), attempt(3, 2)]);
    rig.run_and_land(&attempt(1, 2), &[1], 21);
    rig.run_and_land(&attempt(3, 2), &[3], 22);
    assert_eq!(finish_outcome(&rig.run_and_land(&attempt(4, 1), &[4], 23)), Some(SwarmOutcome::Landed));
    rig.replay_journal();
}

#[test]
fn a_second_stop_kills_sandboxes() {
    let (mut rig, id) = single_story_swarm();
    rig.start_sandbox(&id);
    rig.handle(stop_requested(StopLevel::Graceful));
    let effects = rig.handle(stop_requested(StopLevel::Kill));
    assert_eq!(effects[1..], [Effect::Kill { attempt: id.clone() }]);
    rig.assert_ignored(stop_requested(StopLevel::Graceful));
    assert_eq!(diagnosed_cause(&mut rig, &id, container_exit(137)), Cause::StoppedByUser);
    assert_eq!(rig.machine.outcome(), Some(SwarmOutcome::Interrupted));
}

#[test]
fn a_kill_does_not_wait_for_a_hanging_collect() {
    // A collect under way before the kill, one that waits for a retry, and one begun after it; with a completion and without.
    for (again, completes, before) in
        [(false, true, true), (false, false, true), (true, true, true), (false, true, false), (false, false, false)]
    {
        let (mut rig, id) = single_story_swarm();
        let what = if completes { CollectMode::Result } else { CollectMode::Salvage };
        let collect = Effect::Collect { attempt: id.clone(), mode: what };
        rig.start_sandbox(&id);
        if completes {
            rig.handle(completion_reported(&id, 1, CompletionStatus::Completed));
        }
        if before {
            rig.handle(sandbox_ended(&id, container_exit(i64::from(!completes))));
            if again {
                rig.handle(collect_failed(&id, Cause::EngineError, true, None));
            }
            assert_eq!(rig.handle(stop_requested(StopLevel::Kill)).contains(&collect), again);
        } else {
            rig.handle(stop_requested(StopLevel::Kill));
            assert!(rig.handle(sandbox_ended(&id, container_exit(137))).contains(&collect));
        }
        let effects = rig.fire_deadline_in(7);
        assert_eq!(effects[0], Effect::Remove { attempt: id.clone(), keep_work_dir: true });
        assert_eq!(count_announcements(&effects, |said| matches!(said, Announcement::WorkDirKept { .. })), 1);
        assert_eq!(finish_outcome(&effects), Some(SwarmOutcome::Interrupted));
        assert_eq!(rig.status(1), StoryStatus::Pending);
        rig.assert_ignored(result_collected(&id, Some(9), vec![finished_story(1)]));
        rig.replay_journal();
        let effects = rig.handle(Event::Resumed);
        assert!(effects.contains(&Effect::Remove { attempt: id, keep_work_dir: true }));
        assert_eq!(started_attempts(&effects), [attempt(1, 2)]);
    }
}

#[test]
fn results_collected_in_time_survive_a_kill() {
    let (mut rig, id) = single_story_swarm();
    rig.run_to_completion(&id);
    rig.handle(stop_requested(StopLevel::Kill));
    rig.handle(result_collected(&id, Some(9), vec![finished_story(1)]));
    assert_eq!(finish_outcome(&rig.handle(merged(&id, 20))), Some(SwarmOutcome::Landed));
    let (mut rig, id) = single_story_swarm();
    rig.run_to_completion(&id);
    rig.handle(stop_requested(StopLevel::Kill));
    let effects = rig.handle(collect_failed(&id, Cause::EngineError, true, None));
    assert_eq!(effects[0], Effect::Remove { attempt: id, keep_work_dir: true }, "no other try");
    assert_eq!(finish_outcome(&effects), Some(SwarmOutcome::Interrupted));
}

#[test]
fn a_stop_cancels_backoffs_and_does_not_interrupt_a_finished_swarm() {
    let (mut rig, id) = single_story_swarm();
    rig.handle(Event::StartFailed { attempt: id, fault: MachineryFault::new(Cause::EngineError, "busy", true) });
    assert_eq!(finish_outcome(&rig.handle(stop_requested(StopLevel::Graceful))), Some(SwarmOutcome::Interrupted));
    assert_eq!(started_attempts(&rig.handle(Event::Resumed)), [attempt(1, 2)], "without a wait");

    let (mut rig, id) = single_story_swarm();
    rig.run_to_completion(&id);
    rig.handle(stop_requested(StopLevel::Graceful));
    rig.handle(result_collected(&id, Some(9), vec![finished_story(1)]));
    assert_eq!(finish_outcome(&rig.handle(merged(&id, 20))), Some(SwarmOutcome::Landed));
}

#[test]
fn a_stop_before_begin_interrupts_the_swarm() {
    let mut rig = MachineHarness::new(spec(&[&[(1, &[])]]));
    assert_eq!(finish_outcome(&rig.handle(stop_requested(StopLevel::Graceful))), Some(SwarmOutcome::Interrupted));
    rig.assert_ignored(Event::Began);
    assert_eq!(started_attempts(&rig.handle(Event::Resumed)), [attempt(1, 1)]);
}

#[test]
fn a_machinery_failure_ends_the_swarm_and_leaves_sandboxes_running() {
    let (mut rig, id) = single_story_swarm();
    rig.start_sandbox(&id);
    let effects =
        rig.handle(Event::MachineryFailed { fault: MachineryFault::new(Cause::EngineError, "no daemon", false) });
    assert_eq!(finish_outcome(&effects), Some(SwarmOutcome::MachineryFailed));
    assert!(!rig.machine.is_complete());
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Kill { .. } | Effect::Terminate { .. })));
    rig.assert_ignored(story_reported(&id, 1, 1, StoryStatus::InProgress));
    rig.handle(Event::Resumed);
    assert_eq!(rig.machine.attempt(&id).map(|view| view.phase), Some(AttemptPhase::Running));
    rig.handle(story_reported(&id, 1, 1, StoryStatus::InProgress));
    rig.replay_journal();
}

#[test]
fn resume_reissues_effects_that_may_be_lost() {
    let mut plan = spec(&[&[(1, &[])], &[(2, &[])], &[(3, &[])], &[(4, &[])]]);
    plan.limits.max_sandboxes = 4;
    let (mut rig, _) = MachineHarness::begun(plan);
    rig.run_to_completion(&attempt(2, 1));
    rig.run_to_completion(&attempt(3, 1));
    rig.handle(result_collected(&attempt(3, 1), Some(9), vec![finished_story(3)]));
    rig.start_sandbox(&attempt(4, 1));
    rig.machine = rig.replay_journal();
    let effects = rig.handle(Event::Resumed);
    let merge = Effect::Merge {
        attempt: attempt(3, 1),
        file: 0,
        onto: commit(1),
        base: commit(1),
        tip: commit(9),
        stories: vec![key(3)],
    };
    assert_eq!(
        effects[1..],
        [
            Effect::Start {
                attempt: attempt(1, 1),
                stories: vec![(key(1), None)],
                guidance: Vec::new(),
                base: commit(1)
            },
            Effect::Collect { attempt: attempt(2, 1), mode: CollectMode::Result },
            merge,
            Effect::Remove { attempt: attempt(3, 1), keep_work_dir: false },
        ]
    );
    rig.handle(Event::SandboxRemoved { attempt: attempt(3, 1) });
    let effects = rig.handle(Event::Resumed);
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Remove { .. })), "it is gone");
}

#[test]
fn time_is_truncated_to_milliseconds_and_never_decreases() {
    let (mut rig, id) = single_story_swarm();
    rig.now = Duration::from_micros(1_500_999);
    rig.start_sandbox(&id);
    assert_eq!(rig.machine.last_event_at(), Duration::from_millis(1500));
    rig.now = Duration::from_millis(3);
    rig.handle(story_reported(&id, 1, 1, StoryStatus::InProgress));
    assert_eq!(rig.machine.last_event_at(), Duration::from_millis(1500));
    assert_eq!(rig.machine.next_deadline(), Some(Duration::from_millis(71_500)));
    rig.advance_secs(1);
    rig.replay_journal();
}

#[test]
fn events_about_unknown_ids_are_ignored() {
    let (mut rig, id) = single_story_swarm();
    for unknown in [attempt(1, 0), attempt(1, 2), attempt(9, 1)] {
        rig.assert_ignored(Event::SandboxCreated {
            attempt: unknown.clone(),
            container: container(&id),
            name: "box".to_owned(),
        });
        rig.assert_ignored(sandbox_ended(&unknown, container_exit(0)));
        rig.assert_ignored(Event::SandboxRemoved { attempt: unknown.clone() });
        rig.assert_ignored(record_refused(&unknown, 1));
    }
    for early in [
        Event::SandboxStarted { attempt: id.clone() },
        story_reported(&id, 1, 1, StoryStatus::InProgress),
        result_collected(&id, Some(9), vec![finished_story(1)]),
        collect_failed(&id, Cause::HostError, true, None),
        merged(&id, 9),
        Event::SandboxRemoved { attempt: id.clone() },
        Event::DeadlinePassed,
        Event::Began,
    ] {
        rig.assert_ignored(early);
    }
}
