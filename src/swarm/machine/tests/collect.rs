//! Collecting results, retries of that, and the work directory's fate.

use super::*;

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
fn a_sandbox_that_failed_before_its_first_story_is_explained_by_its_report() {
    use CompletionStatus::{Completed, Failed, Stopped};
    for (status, reports_error, begins, cause) in [
        (Failed, true, false, Some(Cause::ConnectionLost)),
        (Stopped, false, false, Some(Cause::KilledOutside)),
        (Failed, false, false, None),
        (Failed, true, true, None),
        (Completed, true, false, None),
    ] {
        let (mut rig, id) = single_story_swarm();
        rig.start_sandbox(&id);
        let mut record = 0;
        let mut next = || {
            record += 1;
            record
        };
        if begins {
            rig.handle(story_reported(&id, next(), 1, StoryStatus::InProgress));
        }
        if reports_error {
            rig.handle(error_reported(&id, next(), "ACP_CONNECTION_LOST"));
        }
        rig.handle(completion_reported(&id, next(), status));
        rig.handle(sandbox_ended(&id, container_exit(1)));
        let reported = rig.machine.reported_start_failure(&id);
        assert_eq!(reported.map(|failure| failure.cause), cause, "{status:?} {reports_error} {begins}");
    }
}
