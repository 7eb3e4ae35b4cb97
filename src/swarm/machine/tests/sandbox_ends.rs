//! The rules of how sandboxes and swarms end, one by one.

use super::*;
use crate::swarm::effect::CollectMode;
use crate::swarm::event::StopLevel;
use crate::swarm::machine::{AttemptPhase, ContainerStatus};

fn stop_requested(level: StopLevel) -> Event {
    Event::StopRequested { level, by: "SIGINT".to_owned() }
}

fn single_story_swarm() -> (MachineHarness, AttemptId) {
    let (rig, _) = MachineHarness::begun(spec(&[&[(1, &[])]]));
    (rig, attempt(1, 1))
}

/// The cause that a single-story sandbox is judged by which ends so, after it began its story.
fn diagnosed_cause(rig: &mut MachineHarness, id: &AttemptId, exit: ContainerExit) -> Cause {
    let effects = rig.handle(sandbox_ended(id, exit));
    assert_eq!(effects.last(), Some(&Effect::Collect { attempt: id.clone(), mode: CollectMode::Salvage }));
    let effects = rig.handle(collect_failed(id, Cause::HostError, false, Some("refs/salvage")));
    assert!(effects.contains(&Effect::Remove { attempt: id.clone(), keep_work_dir: false }));
    let failure = rig.machine.story(&key(1)).expect("there").failure.clone().expect("failed");
    assert_eq!(failure.salvage.as_deref(), Some("refs/salvage"));
    failure.cause
}

#[test]
fn sandbox_failures_are_diagnosed_from_evidence() {
    let oom = ContainerExit { oom_killed: true, ..container_exit(137) };
    let gone = ContainerExit { code: None, vanished: true, ..container_exit(0) };
    for (report, exit, cause) in [
        (None, oom.clone(), Cause::Oom),
        (Some("GIT_CLONE_FAILED"), oom, Cause::Oom),
        (Some("GIT_CLONE_FAILED"), container_exit(1), Cause::CloneFailed),
        (Some("GIT_CHECKOUT_FAILED"), container_exit(1), Cause::CheckoutFailed),
        (Some("TASK_FILE_NOT_FOUND"), container_exit(1), Cause::TaskFileNotFound),
        (Some("TASK_FILE_INVALID"), container_exit(1), Cause::TaskFileInvalid),
        (Some("CONTAINER_OOM"), container_exit(1), Cause::Oom),
        (Some("CONTAINER_TIMEOUT"), container_exit(1), Cause::Timeout),
        (Some("AGENT_CRASH"), container_exit(1), Cause::AgentFailed),
        (Some("ACP_CONNECTION_LOST"), container_exit(1), Cause::ConnectionLost),
        (Some("UNKNOWN_ERROR"), container_exit(1), Cause::ShimCrash),
        (None, container_exit(137), Cause::KilledOutside),
        (None, container_exit(143), Cause::KilledOutside),
        (None, gone, Cause::KilledOutside),
        (None, container_exit(1), Cause::ShimCrash),
        (None, container_exit(0), Cause::ShimCrash),
    ] {
        let (mut rig, id) = single_story_swarm();
        rig.start_sandbox(&id);
        rig.handle(story_reported(&id, 1, 1, StoryStatus::InProgress));
        if let Some(code) = report {
            rig.handle(Event::ErrorReported {
                attempt: id.clone(),
                record_number: 2,
                code: code.to_owned(),
                message: "m".to_owned(),
            });
            // Only the first decides.
            let second = "AGENT_CRASH".to_owned();
            rig.handle(Event::ErrorReported {
                attempt: id.clone(),
                record_number: 3,
                code: second,
                message: "m".to_owned(),
            });
        }
        assert_eq!(diagnosed_cause(&mut rig, &id, exit.clone()), cause, "{report:?} {exit:?}");
        rig.replay_journal();
    }
}

#[test]
fn machinery_failures_cost_no_retry_and_back_off_exponentially() {
    let mut plan = spec(&[&[(1, &[])]]);
    plan.limits.retries = 0;
    let (mut rig, _) = MachineHarness::begun(plan);
    for (number, wait) in [(1, 1), (2, 2), (3, 4)] {
        let id = attempt(1, number);
        rig.start_sandbox(&id);
        rig.handle(sandbox_ended(&id, container_exit(1)));
        let effects = rig.handle(collect_failed(&id, Cause::HostError, false, Some("refs/salvage")));
        assert_eq!(count_announcements(&effects, |said| matches!(said, Announcement::StoryRetried { .. })), 1);
        assert_eq!(started_attempts(&effects), []);
        let effects = rig.fire_deadline_in(wait);
        assert!(
            matches!(&effects[1], Effect::Start { attempt: next, stories, .. }
            if *next == attempt(1, number + 1) && stories[0].1.is_none()),
            "an agent is not told of it"
        );
    }
    rig.start_sandbox(&attempt(1, 4));
    rig.handle(sandbox_ended(&attempt(1, 4), container_exit(1)));
    let effects = rig.handle(collect_failed(&attempt(1, 4), Cause::HostError, false, None));
    assert_eq!(finish_outcome(&effects), Some(SwarmOutcome::MachineryFailed));
    assert_eq!(rig.machine.story(&key(1)).map(|view| (view.attempts, view.failures)), Some((4, 0)));
    rig.replay_journal();
}

#[test]
fn a_hung_story_is_retried_only_once() {
    for (retries, causes, tries) in [
        (5, &[Cause::Hung, Cause::Hung][..], 2),
        (5, &[Cause::Hung, Cause::AgentFailed, Cause::Hung], 3),
        (0, &[Cause::Hung], 1),
    ] {
        let mut plan = spec(&[&[(1, &[])]]);
        plan.limits.retries = retries;
        let (mut rig, _) = MachineHarness::begun(plan);
        for (number, cause) in (1..).zip(causes) {
            assert_eq!(rig.machine.outcome(), None, "{causes:?}");
            let id = attempt(1, number);
            rig.run_to_completion(&id);
            rig.handle(result_collected(&id, None, vec![failed_story(1, *cause)]));
        }
        assert_eq!(rig.status(1), StoryStatus::Failed, "{causes:?}");
        assert_eq!((rig.cause(1), rig.machine.story(&key(1)).expect("there").attempts), (Some(Cause::Hung), tries));
        rig.replay_journal();
    }
}

#[test]
fn a_permanent_start_failure_is_not_retried() {
    let fails = |rig: &mut MachineHarness, cause, retryable| {
        rig.handle(Event::StartFailed { attempt: attempt(1, 1), fault: MachineryFault::new(cause, "no", retryable) })
    };
    let (mut rig, _) = single_story_swarm();
    let effects = fails(&mut rig, Cause::ImageMissing, false);
    assert_eq!(finish_outcome(&effects), Some(SwarmOutcome::MachineryFailed));
    assert_eq!(rig.cause(1), Some(Cause::ImageMissing));
    assert!(rig.machine.is_complete(), "nothing is left to resume");
    rig.assert_ignored(Event::Resumed);
    let (mut rig, _) = single_story_swarm();
    let effects = fails(&mut rig, Cause::EngineError, true);
    assert_eq!(effects[0], Effect::Remove { attempt: attempt(1, 1), keep_work_dir: false });
    assert_eq!(started_attempts(&rig.fire_deadline_in(1)), [attempt(1, 2)]);
}

#[test]
fn sandbox_timeout_terminates_then_kills_then_blames_the_engine() {
    let (mut rig, id) = single_story_swarm();
    rig.start_sandbox(&id);
    rig.handle(story_reported(&id, 1, 1, StoryStatus::InProgress));
    assert_eq!(rig.fire_deadline_in(70), [Effect::Terminate { attempt: id.clone() }]);
    assert_eq!(rig.fire_deadline_in(7), [Effect::Kill { attempt: id.clone() }]);
    let mut killed = rig.clone();
    assert_eq!(diagnosed_cause(&mut killed, &id, container_exit(137)), Cause::Timeout);
    assert_eq!(
        started_attempts(&killed.handle(Event::SandboxRemoved { attempt: id.clone() })),
        [],
        "already tried again"
    );
    // Or the engine never says that it ended.
    assert_eq!(rig.fire_deadline_in(30), [Effect::Collect { attempt: id.clone(), mode: CollectMode::Salvage }]);
    rig.assert_ignored(sandbox_ended(&id, container_exit(137)));
    let effects = rig.handle(collect_failed(&id, Cause::HostError, false, None));
    assert!(effects.contains(&Effect::Remove { attempt: id.clone(), keep_work_dir: true }));
    assert_eq!(
        count_announcements(
            &effects,
            |said| matches!(said, Announcement::WorkDirKept { work_dir, .. } if work_dir == "T-2026-001-1")
        ),
        1
    );
    assert_eq!(rig.cause(1), Some(Cause::EngineError));
    assert_eq!(rig.machine.attempt(&id).map(|view| view.work_dir_kept), Some(true));
    rig.replay_journal();
}

#[test]
fn sandbox_timeout_scales_with_story_count() {
    let (mut rig, _) = MachineHarness::begun(spec(&[&[(1, &[]), (2, &[]), (3, &[])]]));
    rig.start_sandbox(&attempt(1, 1));
    assert_eq!(rig.fire_deadline_in(190), [Effect::Terminate { attempt: attempt(1, 1) }]);
}

#[test]
fn only_the_story_in_progress_is_blamed() {
    let (mut rig, _) = MachineHarness::begun(spec(&[&[(1, &[]), (2, &[]), (3, &[])]]));
    let id = attempt(1, 1);
    rig.start_sandbox(&id);
    rig.handle(story_reported(&id, 1, 1, StoryStatus::InProgress));
    rig.handle(story_reported(&id, 2, 1, StoryStatus::Completed));
    rig.handle(story_reported(&id, 3, 2, StoryStatus::InProgress));
    rig.handle(sandbox_ended(&id, ContainerExit { oom_killed: true, ..container_exit(137) }));
    let effects = rig.handle(collect_failed(&id, Cause::HostError, false, Some("refs/salvage")));
    let failures: Vec<u32> = rig.machine.stories().map(|view| view.failures).collect();
    assert_eq!(failures, [0, 1, 0]);
    let attempts: Vec<u32> = rig.machine.stories().map(|view| view.attempts).collect();
    assert_eq!(attempts, [2, 2, 1], "the second attempt has begun, and the first never got to the third story");
    assert_eq!(started_attempts(&effects), [attempt(1, 2)]);
}

#[test]
fn stories_finished_before_a_crash_still_land() {
    let (mut rig, _) = MachineHarness::begun(spec(&[&[(1, &[]), (2, &[])]]));
    let id = attempt(1, 1);
    rig.start_sandbox(&id);
    rig.handle(story_reported(&id, 1, 1, StoryStatus::InProgress));
    rig.handle(sandbox_ended(&id, container_exit(137)));
    rig.handle(result_collected(&id, Some(9), vec![finished_story(1), story_result(2, StoryOutcome::NotReached)]));
    rig.handle(Event::Merged { attempt: id, head: commit(20) });
    assert_eq!((rig.status(1), rig.status(2)), (StoryStatus::Completed, StoryStatus::Pending));
    assert_eq!(rig.cause(2), Some(Cause::KilledOutside));
    assert_eq!(started_attempts(&rig.fire_deadline_in(1)), [attempt(1, 2)]);
}

#[test]
fn work_missing_from_the_result_keeps_the_work_dir() {
    let (mut rig, _) = MachineHarness::begun(spec(&[&[(1, &[]), (2, &[])]]));
    let id = attempt(1, 1);
    rig.start_sandbox(&id);
    rig.handle(story_reported(&id, 1, 1, StoryStatus::InProgress));
    rig.handle(story_reported(&id, 2, 1, StoryStatus::Completed));
    rig.handle(story_reported(&id, 3, 2, StoryStatus::InProgress));
    rig.handle(sandbox_ended(&id, container_exit(137)));
    let effects =
        rig.handle(result_collected(&id, Some(9), vec![finished_story(1), story_result(2, StoryOutcome::NotReached)]));
    assert_eq!(effects[0], Effect::Remove { attempt: id, keep_work_dir: true });
    assert_eq!(count_announcements(&effects, |said| matches!(said, Announcement::WorkDirKept { .. })), 1);
}

#[test]
fn a_completion_holds_regardless_of_the_container_exit() {
    let (mut rig, id) = single_story_swarm();
    rig.start_sandbox(&id);
    rig.handle(completion_reported(&id, 1, CompletionStatus::Completed));
    rig.assert_ignored(completion_reported(&id, 2, CompletionStatus::Failed));
    rig.assert_ignored(story_reported(&id, 3, 1, StoryStatus::InProgress));
    assert_eq!(rig.fire_deadline_in(5), [Effect::Terminate { attempt: id.clone() }]);
    assert_eq!(rig.fire_deadline_in(7), [Effect::Kill { attempt: id.clone() }]);
    let effects = rig.handle(sandbox_ended(&id, container_exit(137)));
    assert_eq!(effects.last(), Some(&Effect::Collect { attempt: id.clone(), mode: CollectMode::Result }));
    assert_eq!(rig.machine.attempt(&id).map(|view| view.status), Some(ContainerStatus::Completed));
    rig.handle(result_collected(&id, Some(9), vec![finished_story(1)]));
    assert_eq!(
        finish_outcome(&rig.handle(Event::Merged { attempt: id, head: commit(20) })),
        Some(SwarmOutcome::Landed)
    );
}

#[test]
fn the_machine_decides_who_stopped_a_sandbox() {
    // By its own word stopped by the user; but nobody told the machine.
    let (mut rig, id) = single_story_swarm();
    rig.start_sandbox(&id);
    rig.handle(completion_reported(&id, 1, CompletionStatus::Stopped));
    rig.handle(sandbox_ended(&id, container_exit(0)));
    rig.handle(result_collected(&id, None, vec![failed_story(1, Cause::StoppedByUser)]));
    assert_eq!(rig.cause(1), Some(Cause::KilledOutside));
    // The same after the backstop.
    let (mut rig, id) = single_story_swarm();
    rig.start_sandbox(&id);
    rig.fire_deadline_in(70);
    rig.handle(completion_reported(&id, 1, CompletionStatus::Stopped));
    rig.handle(sandbox_ended(&id, container_exit(0)));
    rig.handle(result_collected(&id, None, vec![failed_story(1, Cause::StoppedByUser)]));
    assert_eq!(rig.cause(1), Some(Cause::Timeout));
}

#[test]
fn a_completion_without_tried_stories_is_a_machinery_failure() {
    for (report, cause) in [(None, Cause::ShimCrash), (Some("GIT_CLONE_FAILED"), Cause::CloneFailed)] {
        let (mut rig, id) = single_story_swarm();
        rig.start_sandbox(&id);
        if let Some(code) = report {
            rig.handle(Event::ErrorReported {
                attempt: id.clone(),
                record_number: 1,
                code: code.to_owned(),
                message: "m".to_owned(),
            });
        }
        rig.handle(completion_reported(&id, 2, CompletionStatus::Failed));
        rig.handle(sandbox_ended(&id, container_exit(1)));
        rig.handle(result_collected(&id, None, vec![]));
        assert_eq!(rig.cause(1), Some(cause));
        assert_eq!(started_attempts(&rig.fire_deadline_in(1)), [attempt(1, 2)]);
    }
}

#[test]
fn too_many_bad_records_end_a_sandbox() {
    let (mut rig, id) = single_story_swarm();
    rig.start_sandbox(&id);
    rig.handle(record_refused(&id, 1));
    rig.assert_ignored(record_refused(&id, 1));
    rig.handle(record_refused(&id, 2));
    let effects = rig.handle(record_refused(&id, 3));
    assert_eq!(effects.last(), Some(&Effect::Kill { attempt: id.clone() }));
    rig.assert_ignored(record_refused(&id, 4));
    assert_eq!(diagnosed_cause(&mut rig, &id, container_exit(137)), Cause::ProtocolViolation);
}

#[test]
fn replayed_records_are_ignored() {
    let (mut rig, id) = single_story_swarm();
    rig.start_sandbox(&id);
    rig.handle(story_reported(&id, 1, 1, StoryStatus::InProgress));
    rig.handle(story_reported(&id, 2, 1, StoryStatus::Completed));
    rig.assert_ignored(story_reported(&id, 1, 1, StoryStatus::InProgress));
    rig.assert_ignored(story_reported(&id, 2, 1, StoryStatus::Completed));
    assert_eq!(rig.machine.attempt(&id).map(|view| view.record_count), Some(2));
    // A story of another assignment: the record counts, and moves nothing.
    assert_eq!(rig.handle(story_reported(&id, 3, 7, StoryStatus::InProgress)), []);
}

#[test]
fn collect_is_retried_for_retryable_faults() {
    let (mut rig, id) = single_story_swarm();
    rig.run_to_completion(&id);
    for wait in [1, 2] {
        assert_eq!(rig.handle(collect_failed(&id, Cause::DiskFull, true, None)), []);
        rig.assert_ignored(result_collected(&id, Some(9), vec![finished_story(1)]));
        assert_eq!(rig.fire_deadline_in(wait), [Effect::Collect { attempt: id.clone(), mode: CollectMode::Result }]);
    }
    let effects = rig.handle(collect_failed(&id, Cause::DiskFull, true, None));
    assert!(effects.contains(&Effect::Remove { attempt: id.clone(), keep_work_dir: true }));
    assert_eq!(rig.cause(1), Some(Cause::DiskFull));
    assert_eq!(rig.status(1), StoryStatus::Pending, "it is tried again");
}

#[test]
fn salvaged_work_is_collected_again_only_after_a_completion() {
    for completes in [false, true] {
        let (mut rig, id) = single_story_swarm();
        rig.start_sandbox(&id);
        if completes {
            rig.handle(completion_reported(&id, 1, CompletionStatus::Completed));
        }
        rig.handle(sandbox_ended(&id, container_exit(i64::from(!completes))));
        assert_eq!(rig.handle(collect_failed(&id, Cause::EngineError, true, None)), [], "not safe: once more");
        rig.fire_deadline_in(1);
        if completes {
            let again = rig.handle(collect_failed(&id, Cause::EngineError, true, Some("refs/salvage")));
            assert_eq!(again, [], "safe, and finished: its result is worth another try");
            rig.fire_deadline_in(2);
        }
        let effects = rig.handle(collect_failed(&id, Cause::EngineError, true, Some("refs/salvage")));
        assert!(effects.contains(&Effect::Remove { attempt: id, keep_work_dir: false }));
        let failure = rig.machine.story(&key(1)).and_then(|view| view.failure.clone()).expect("it failed");
        assert_eq!(failure.salvage.as_deref(), Some("refs/salvage"));
    }
}

#[test]
fn collect_is_not_retried_after_a_depot_timeout() {
    let (mut rig, id) = single_story_swarm();
    rig.run_to_completion(&id);
    let fault = MachineryFault::new(Cause::EngineError, "no answer", true);
    let event = Event::CollectFailed {
        attempt: id.clone(),
        fault,
        salvage_ref: None,
        work_dir_empty: false,
        salvage_incomplete: false,
        depot_timed_out: true,
    };
    let effects = rig.handle(event);
    assert_eq!(effects[0], Effect::Remove { attempt: id, keep_work_dir: true });
    assert_eq!(rig.status(1), StoryStatus::Pending, "it is tried again");
}

#[test]
fn a_work_dir_with_unsaved_work_is_kept() {
    for unsaved in [false, true] {
        let (mut rig, id) = single_story_swarm();
        rig.run_to_completion(&id);
        let failure = Failure::new(Cause::DiskFull, "cannot commit");
        let outcome = StoryOutcome::Failed { failure, salvage: None, unsaved };
        let effects = rig.handle(result_collected(&id, None, vec![story_result(1, outcome)]));
        assert_eq!(effects[0], Effect::Remove { attempt: id, keep_work_dir: unsaved });
        assert_eq!(
            count_announcements(&effects, |said| matches!(said, Announcement::WorkDirKept { .. })),
            usize::from(unsaved)
        );
    }
}

#[test]
fn an_empty_work_dir_is_removed() {
    let (mut rig, id) = single_story_swarm();
    rig.start_sandbox(&id);
    rig.handle(sandbox_ended(&id, container_exit(1)));
    let effects = rig.handle(Event::CollectFailed {
        attempt: id.clone(),
        fault: MachineryFault::new(Cause::HostError, "no result", false),
        salvage_ref: None,
        work_dir_empty: true,
        salvage_incomplete: false,
        depot_timed_out: false,
    });
    assert!(effects.contains(&Effect::Remove { attempt: id, keep_work_dir: false }));
}

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
    // One that was just being made is told again once it can hear.
    let effects = rig.start_sandbox(&attempt(3, 1));
    assert_eq!(effects.last(), Some(&Effect::Terminate { attempt: attempt(3, 1) }));
    assert_eq!(
        rig.fire_deadline_in(7),
        [Effect::Kill { attempt: attempt(1, 1) }, Effect::Kill { attempt: attempt(3, 1) }]
    );
    rig.handle(result_collected(&attempt(2, 1), Some(9), vec![finished_story(2)]));
    rig.handle(Event::Merged { attempt: attempt(2, 1), head: commit(20) });
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
    // And it goes on from there, from the new head.
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
    // Under way before the kill, waiting for another try, and begun after it; with a completion and without.
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
    assert_eq!(
        finish_outcome(&rig.handle(Event::Merged { attempt: id, head: commit(20) })),
        Some(SwarmOutcome::Landed)
    );
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
    assert_eq!(
        finish_outcome(&rig.handle(Event::Merged { attempt: id, head: commit(20) })),
        Some(SwarmOutcome::Landed)
    );
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
    let merge =
        Effect::Merge { attempt: attempt(3, 1), file: 0, onto: commit(1), tip: commit(9), stories: vec![key(3)] };
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
        Event::Merged { attempt: id.clone(), head: commit(9) },
        Event::SandboxRemoved { attempt: id.clone() },
        Event::DeadlinePassed,
        Event::Began,
    ] {
        rig.assert_ignored(early);
    }
}
