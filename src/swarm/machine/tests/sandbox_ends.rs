//! How sandboxes end, and what their end means for their stories.

use super::*;
use crate::swarm::machine::ContainerStatus;

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
            rig.handle(error_reported(&id, 2, code));
            // Only the first counts.
            rig.handle(error_reported(&id, 3, "AGENT_CRASH"));
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
    // The engine never reports the end.
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
    rig.handle(merged(&id, 20));
    assert_eq!((rig.status(1), rig.status(2)), (StoryStatus::Completed, StoryStatus::Pending));
    assert_eq!(rig.cause(2), Some(Cause::KilledOutside));
    assert_eq!(started_attempts(&rig.fire_deadline_in(1)), [attempt(1, 2)]);
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
    assert_eq!(finish_outcome(&rig.handle(merged(&id, 20))), Some(SwarmOutcome::Landed));
}

#[test]
fn the_machine_decides_who_stopped_a_sandbox() {
    // It reports that the user stopped it, but the machine knows of no stop.
    let (mut rig, id) = single_story_swarm();
    rig.start_sandbox(&id);
    rig.handle(completion_reported(&id, 1, CompletionStatus::Stopped));
    rig.handle(sandbox_ended(&id, container_exit(0)));
    rig.handle(result_collected(&id, None, vec![failed_story(1, Cause::StoppedByUser)]));
    assert_eq!(rig.cause(1), Some(Cause::KilledOutside));
    // The same after the sandbox timeout.
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
            rig.handle(error_reported(&id, 1, code));
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
    // For a story of another assignment, only the record number counts.
    assert_eq!(rig.handle(story_reported(&id, 3, 7, StoryStatus::InProgress)), []);
}
