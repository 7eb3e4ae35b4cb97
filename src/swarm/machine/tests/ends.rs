//! The rules of how sandboxes and swarms end, one by one.

use super::*;
use crate::swarm::effect::Salvaging;
use crate::swarm::event::StopLevel;
use crate::swarm::machine::{ContainerStatus, Phase};

fn stop(level: StopLevel) -> Event {
    Event::StopRequested { level, by: "SIGINT".to_owned() }
}

fn one() -> (Rig, AttemptId) {
    let (rig, _) = Rig::began(spec(&[&[(1, &[])]]));
    (rig, attempt(1, 1))
}

/// The cause that a single-story sandbox is judged by which ends so, after it began its story.
fn judged(rig: &mut Rig, id: &AttemptId, exit: Exit) -> Cause {
    let effects = rig.give(ended(id, exit));
    assert_eq!(effects.last(), Some(&Effect::Collect { attempt: id.clone(), what: Salvaging::Remains }));
    let effects = rig.give(collect_failed(id, Cause::HostError, false, Some("refs/salvage")));
    assert!(effects.contains(&Effect::Remove { attempt: id.clone(), keep_work: false }));
    let failure = rig.machine.story(&key(1)).expect("there").failure.clone().expect("failed");
    assert_eq!(failure.salvage.as_deref(), Some("refs/salvage"));
    failure.cause
}

#[test]
fn deaths_are_judged_by_evidence() {
    let oom = Exit { oom_killed: true, ..exit(137) };
    let gone = Exit { code: None, vanished: true, ..exit(0) };
    for (report, exit, cause) in [
        (None, oom.clone(), Cause::Oom),
        (Some("GIT_CLONE_FAILED"), oom, Cause::Oom),
        (Some("GIT_CLONE_FAILED"), exit(1), Cause::CloneFailed),
        (Some("GIT_CHECKOUT_FAILED"), exit(1), Cause::CheckoutFailed),
        (Some("TASK_FILE_NOT_FOUND"), exit(1), Cause::TaskFileNotFound),
        (Some("TASK_FILE_INVALID"), exit(1), Cause::TaskFileInvalid),
        (Some("CONTAINER_OOM"), exit(1), Cause::Oom),
        (Some("CONTAINER_TIMEOUT"), exit(1), Cause::Timeout),
        (Some("AGENT_CRASH"), exit(1), Cause::AgentFailed),
        (Some("ACP_CONNECTION_LOST"), exit(1), Cause::ConnectionLost),
        (Some("UNKNOWN_ERROR"), exit(1), Cause::ShimCrash),
        (None, exit(137), Cause::KilledOutside),
        (None, exit(143), Cause::KilledOutside),
        (None, gone, Cause::KilledOutside),
        (None, exit(1), Cause::ShimCrash),
        (None, exit(0), Cause::ShimCrash),
    ] {
        let (mut rig, id) = one();
        rig.run(&id);
        rig.give(said(&id, 1, 1, StoryStatus::InProgress));
        if let Some(code) = report {
            rig.give(Event::ErrorReported {
                attempt: id.clone(),
                record: 2,
                code: code.to_owned(),
                message: "m".to_owned(),
            });
            // Only the first decides.
            let second = "AGENT_CRASH".to_owned();
            rig.give(Event::ErrorReported { attempt: id.clone(), record: 3, code: second, message: "m".to_owned() });
        }
        assert_eq!(judged(&mut rig, &id, exit.clone()), cause, "{report:?} {exit:?}");
        rig.fold();
    }
}

#[test]
fn the_machinerys_failures_cost_the_story_nothing_and_wait_longer_each_time() {
    let mut plan = spec(&[&[(1, &[])]]);
    plan.limits.retries = 0;
    let (mut rig, _) = Rig::began(plan);
    for (number, wait) in [(1, 1), (2, 2), (3, 4)] {
        let id = attempt(1, number);
        rig.run(&id);
        rig.give(ended(&id, exit(1)));
        let effects = rig.give(collect_failed(&id, Cause::HostError, false, Some("refs/salvage")));
        assert_eq!(announced(&effects, |said| matches!(said, Announcement::StoryRetried { .. })), 1);
        assert_eq!(started(&effects), []);
        let effects = rig.deadline(wait);
        assert!(
            matches!(&effects[1], Effect::Start { attempt: next, stories, .. }
            if *next == attempt(1, number + 1) && stories[0].1.is_none()),
            "an agent is not told of it"
        );
    }
    rig.run(&attempt(1, 4));
    rig.give(ended(&attempt(1, 4), exit(1)));
    let effects = rig.give(collect_failed(&attempt(1, 4), Cause::HostError, false, None));
    assert_eq!(outcome(&effects), Some(Outcome::MachineryFailed));
    assert_eq!(rig.machine.story(&key(1)).map(|view| (view.attempts, view.failures)), Some((4, 0)));
    rig.fold();
}

#[test]
fn a_story_that_hangs_is_tried_once_more_however_many_retries_there_are() {
    for (retries, causes, tries) in [
        (5, &[Cause::Hung, Cause::Hung][..], 2),
        (5, &[Cause::Hung, Cause::AgentFailed, Cause::Hung], 3),
        (0, &[Cause::Hung], 1),
    ] {
        let mut plan = spec(&[&[(1, &[])]]);
        plan.limits.retries = retries;
        let (mut rig, _) = Rig::began(plan);
        for (number, cause) in (1..).zip(causes) {
            assert_eq!(rig.machine.finished(), None, "{causes:?}");
            let id = attempt(1, number);
            rig.complete(&id);
            rig.give(collected(&id, None, vec![failed(1, *cause)]));
        }
        assert_eq!(rig.status(1), StoryStatus::Failed, "{causes:?}");
        assert_eq!((rig.cause(1), rig.machine.story(&key(1)).expect("there").attempts), (Some(Cause::Hung), tries));
        rig.fold();
    }
}

#[test]
fn a_start_that_cannot_work_is_not_tried_again() {
    let fails = |rig: &mut Rig, cause, retryable| {
        rig.give(Event::StartFailed { attempt: attempt(1, 1), fault: Fault::new(cause, "no", retryable) })
    };
    let (mut rig, _) = one();
    let effects = fails(&mut rig, Cause::ImageMissing, false);
    assert_eq!(outcome(&effects), Some(Outcome::MachineryFailed));
    assert_eq!(rig.cause(1), Some(Cause::ImageMissing));
    assert!(rig.machine.over(), "nothing is left to resume");
    rig.ignores(Event::Resumed);
    let (mut rig, _) = one();
    let effects = fails(&mut rig, Cause::EngineError, true);
    assert_eq!(effects[0], Effect::Remove { attempt: attempt(1, 1), keep_work: false });
    assert_eq!(started(&rig.deadline(1)), [attempt(1, 2)]);
}

#[test]
fn the_backstop_asks_then_kills_then_gives_the_engine_up() {
    let (mut rig, id) = one();
    rig.run(&id);
    rig.give(said(&id, 1, 1, StoryStatus::InProgress));
    assert_eq!(rig.deadline(70), [Effect::Terminate { attempt: id.clone() }]);
    assert_eq!(rig.deadline(7), [Effect::Kill { attempt: id.clone() }]);
    let mut killed = rig.clone();
    assert_eq!(judged(&mut killed, &id, exit(137)), Cause::Timeout);
    assert_eq!(started(&killed.give(Event::SandboxRemoved { attempt: id.clone() })), [], "already tried again");
    // Or the engine never says that it ended.
    assert_eq!(rig.deadline(30), [Effect::Collect { attempt: id.clone(), what: Salvaging::Remains }]);
    rig.ignores(ended(&id, exit(137)));
    let effects = rig.give(collect_failed(&id, Cause::HostError, false, None));
    assert!(effects.contains(&Effect::Remove { attempt: id.clone(), keep_work: true }));
    assert_eq!(
        announced(&effects, |said| matches!(said, Announcement::WorkKept { folder, .. } if folder == "T-2026-001-1")),
        1
    );
    assert_eq!(rig.cause(1), Some(Cause::EngineError));
    assert_eq!(rig.machine.attempt(&id).map(|view| view.work_kept), Some(true));
    rig.fold();
}

#[test]
fn the_backstop_has_time_for_every_story() {
    let (mut rig, _) = Rig::began(spec(&[&[(1, &[]), (2, &[]), (3, &[])]]));
    rig.run(&attempt(1, 1));
    assert_eq!(rig.deadline(190), [Effect::Terminate { attempt: attempt(1, 1) }]);
}

#[test]
fn only_the_story_in_progress_is_blamed() {
    let (mut rig, _) = Rig::began(spec(&[&[(1, &[]), (2, &[]), (3, &[])]]));
    let id = attempt(1, 1);
    rig.run(&id);
    rig.give(said(&id, 1, 1, StoryStatus::InProgress));
    rig.give(said(&id, 2, 1, StoryStatus::Completed));
    rig.give(said(&id, 3, 2, StoryStatus::InProgress));
    rig.give(ended(&id, Exit { oom_killed: true, ..exit(137) }));
    let effects = rig.give(collect_failed(&id, Cause::HostError, false, Some("refs/salvage")));
    let failures: Vec<u32> = rig.machine.stories().map(|view| view.failures).collect();
    assert_eq!(failures, [0, 1, 0]);
    let attempts: Vec<u32> = rig.machine.stories().map(|view| view.attempts).collect();
    assert_eq!(attempts, [2, 2, 1], "the second attempt has begun, and the first never got to the third story");
    assert_eq!(started(&effects), [attempt(1, 2)]);
}

#[test]
fn what_a_dead_sandbox_finished_still_lands() {
    let (mut rig, _) = Rig::began(spec(&[&[(1, &[]), (2, &[])]]));
    let id = attempt(1, 1);
    rig.run(&id);
    rig.give(said(&id, 1, 1, StoryStatus::InProgress));
    rig.give(ended(&id, exit(137)));
    rig.give(collected(&id, Some(9), vec![finished(1), result(2, StoryOutcome::NotReached)]));
    rig.give(Event::Merged { attempt: id, head: commit(20) });
    assert_eq!((rig.status(1), rig.status(2)), (StoryStatus::Completed, StoryStatus::Pending));
    assert_eq!(rig.cause(2), Some(Cause::KilledOutside));
    assert_eq!(started(&rig.deadline(1)), [attempt(1, 2)]);
}

#[test]
fn work_that_a_result_does_not_know_is_kept() {
    let (mut rig, _) = Rig::began(spec(&[&[(1, &[]), (2, &[])]]));
    let id = attempt(1, 1);
    rig.run(&id);
    rig.give(said(&id, 1, 1, StoryStatus::InProgress));
    rig.give(said(&id, 2, 1, StoryStatus::Completed));
    rig.give(said(&id, 3, 2, StoryStatus::InProgress));
    rig.give(ended(&id, exit(137)));
    let effects = rig.give(collected(&id, Some(9), vec![finished(1), result(2, StoryOutcome::NotReached)]));
    assert_eq!(effects[0], Effect::Remove { attempt: id, keep_work: true });
    assert_eq!(announced(&effects, |said| matches!(said, Announcement::WorkKept { .. })), 1);
}

#[test]
fn a_completion_stays_true_however_the_container_ends() {
    let (mut rig, id) = one();
    rig.run(&id);
    rig.give(completion(&id, 1, CompletionStatus::Completed));
    rig.ignores(completion(&id, 2, CompletionStatus::Failed));
    rig.ignores(said(&id, 3, 1, StoryStatus::InProgress));
    assert_eq!(rig.deadline(5), [Effect::Terminate { attempt: id.clone() }]);
    assert_eq!(rig.deadline(7), [Effect::Kill { attempt: id.clone() }]);
    let effects = rig.give(ended(&id, exit(137)));
    assert_eq!(effects.last(), Some(&Effect::Collect { attempt: id.clone(), what: Salvaging::Result }));
    assert_eq!(rig.machine.attempt(&id).map(|view| view.status), Some(ContainerStatus::Completed));
    rig.give(collected(&id, Some(9), vec![finished(1)]));
    assert_eq!(outcome(&rig.give(Event::Merged { attempt: id, head: commit(20) })), Some(Outcome::Landed));
}

#[test]
fn who_stopped_a_sandbox_is_for_the_machine_to_say() {
    // By its own word stopped by the user; but nobody told the machine.
    let (mut rig, id) = one();
    rig.run(&id);
    rig.give(completion(&id, 1, CompletionStatus::Stopped));
    rig.give(ended(&id, exit(0)));
    rig.give(collected(&id, None, vec![failed(1, Cause::StoppedByUser)]));
    assert_eq!(rig.cause(1), Some(Cause::KilledOutside));
    // The same after the backstop.
    let (mut rig, id) = one();
    rig.run(&id);
    rig.deadline(70);
    rig.give(completion(&id, 1, CompletionStatus::Stopped));
    rig.give(ended(&id, exit(0)));
    rig.give(collected(&id, None, vec![failed(1, Cause::StoppedByUser)]));
    assert_eq!(rig.cause(1), Some(Cause::Timeout));
}

#[test]
fn a_completion_that_tried_nothing_is_the_machinerys_failure() {
    for (report, cause) in [(None, Cause::ShimCrash), (Some("GIT_CLONE_FAILED"), Cause::CloneFailed)] {
        let (mut rig, id) = one();
        rig.run(&id);
        if let Some(code) = report {
            rig.give(Event::ErrorReported {
                attempt: id.clone(),
                record: 1,
                code: code.to_owned(),
                message: "m".to_owned(),
            });
        }
        rig.give(completion(&id, 2, CompletionStatus::Failed));
        rig.give(ended(&id, exit(1)));
        rig.give(collected(&id, None, vec![]));
        assert_eq!(rig.cause(1), Some(cause));
        assert_eq!(started(&rig.deadline(1)), [attempt(1, 2)]);
    }
}

#[test]
fn too_many_bad_records_end_a_sandbox() {
    let (mut rig, id) = one();
    rig.run(&id);
    rig.give(refused(&id, 1));
    rig.ignores(refused(&id, 1));
    rig.give(refused(&id, 2));
    let effects = rig.give(refused(&id, 3));
    assert_eq!(effects.last(), Some(&Effect::Kill { attempt: id.clone() }));
    rig.ignores(refused(&id, 4));
    assert_eq!(judged(&mut rig, &id, exit(137)), Cause::ProtocolViolation);
}

#[test]
fn replayed_records_count_for_nothing() {
    let (mut rig, id) = one();
    rig.run(&id);
    rig.give(said(&id, 1, 1, StoryStatus::InProgress));
    rig.give(said(&id, 2, 1, StoryStatus::Completed));
    rig.ignores(said(&id, 1, 1, StoryStatus::InProgress));
    rig.ignores(said(&id, 2, 1, StoryStatus::Completed));
    assert_eq!(rig.machine.attempt(&id).map(|view| view.records), Some(2));
    // A story of another assignment: the record counts, and moves nothing.
    assert_eq!(rig.give(said(&id, 3, 7, StoryStatus::InProgress)), []);
}

#[test]
fn collecting_is_tried_again_while_the_fault_may_pass() {
    let (mut rig, id) = one();
    rig.complete(&id);
    for wait in [1, 2] {
        assert_eq!(rig.give(collect_failed(&id, Cause::DiskFull, true, None)), []);
        rig.ignores(collected(&id, Some(9), vec![finished(1)]));
        assert_eq!(rig.deadline(wait), [Effect::Collect { attempt: id.clone(), what: Salvaging::Result }]);
    }
    let effects = rig.give(collect_failed(&id, Cause::DiskFull, true, None));
    assert!(effects.contains(&Effect::Remove { attempt: id.clone(), keep_work: true }));
    assert_eq!(rig.cause(1), Some(Cause::DiskFull));
    assert_eq!(rig.status(1), StoryStatus::Pending, "it is tried again");
}

#[test]
fn what_is_safe_is_collected_again_only_for_a_finished_result() {
    for completes in [false, true] {
        let (mut rig, id) = one();
        rig.run(&id);
        if completes {
            rig.give(completion(&id, 1, CompletionStatus::Completed));
        }
        rig.give(ended(&id, exit(i64::from(!completes))));
        assert_eq!(rig.give(collect_failed(&id, Cause::EngineError, true, None)), [], "not safe: once more");
        rig.deadline(1);
        if completes {
            let again = rig.give(collect_failed(&id, Cause::EngineError, true, Some("refs/salvage")));
            assert_eq!(again, [], "safe, and finished: its result is worth another try");
            rig.deadline(2);
        }
        let effects = rig.give(collect_failed(&id, Cause::EngineError, true, Some("refs/salvage")));
        assert!(effects.contains(&Effect::Remove { attempt: id, keep_work: false }));
        let failure = rig.machine.story(&key(1)).and_then(|view| view.failure.clone()).expect("it failed");
        assert_eq!(failure.salvage.as_deref(), Some("refs/salvage"));
    }
}

#[test]
fn a_depot_that_did_not_answer_is_not_asked_again() {
    let (mut rig, id) = one();
    rig.complete(&id);
    let fault = Fault::new(Cause::EngineError, "no answer", true);
    let event = Event::CollectFailed {
        attempt: id.clone(),
        fault,
        salvage: None,
        nothing_there: false,
        left_out: false,
        no_answer: true,
    };
    let effects = rig.give(event);
    assert_eq!(effects[0], Effect::Remove { attempt: id, keep_work: true });
    assert_eq!(rig.status(1), StoryStatus::Pending, "it is tried again");
}

#[test]
fn a_work_folder_that_a_result_could_not_save_is_kept() {
    for unsaved in [false, true] {
        let (mut rig, id) = one();
        rig.complete(&id);
        let failure = Failure::new(Cause::DiskFull, "cannot commit");
        let outcome = StoryOutcome::Failed { failure, salvage: None, unsaved };
        let effects = rig.give(collected(&id, None, vec![result(1, outcome)]));
        assert_eq!(effects[0], Effect::Remove { attempt: id, keep_work: unsaved });
        assert_eq!(announced(&effects, |said| matches!(said, Announcement::WorkKept { .. })), usize::from(unsaved));
    }
}

#[test]
fn an_empty_work_folder_is_not_kept() {
    let (mut rig, id) = one();
    rig.run(&id);
    rig.give(ended(&id, exit(1)));
    let effects = rig.give(Event::CollectFailed {
        attempt: id.clone(),
        fault: Fault::new(Cause::HostError, "no result", false),
        salvage: None,
        nothing_there: true,
        left_out: false,
        no_answer: false,
    });
    assert!(effects.contains(&Effect::Remove { attempt: id, keep_work: false }));
}

#[test]
fn a_graceful_stop_ends_what_runs_and_keeps_what_is_finished() {
    let mut plan = spec(&[&[(1, &[])], &[(2, &[])], &[(3, &[])], &[(4, &[1])]]);
    plan.limits.max = 3;
    let (mut rig, _) = Rig::began(plan);
    rig.run(&attempt(1, 1));
    rig.complete(&attempt(2, 1));
    let effects = rig.give(stop(StopLevel::Graceful));
    assert_eq!(
        effects[1..],
        [Effect::Terminate { attempt: attempt(1, 1) }, Effect::Terminate { attempt: attempt(3, 1) }]
    );
    rig.ignores(stop(StopLevel::Graceful));
    // One that was just being made is told again once it can hear.
    let effects = rig.run(&attempt(3, 1));
    assert_eq!(effects.last(), Some(&Effect::Terminate { attempt: attempt(3, 1) }));
    assert_eq!(rig.deadline(7), [Effect::Kill { attempt: attempt(1, 1) }, Effect::Kill { attempt: attempt(3, 1) }]);
    rig.give(collected(&attempt(2, 1), Some(9), vec![finished(2)]));
    rig.give(Event::Merged { attempt: attempt(2, 1), head: commit(20) });
    for number in [1, 3] {
        rig.give(ended(&attempt(number, 1), exit(137)));
        let salvage = collect_failed(&attempt(number, 1), Cause::HostError, false, Some("refs/salvage"));
        let effects = rig.give(salvage);
        assert_eq!(outcome(&effects).is_some(), number == 3, "after the last");
    }
    assert_eq!(rig.machine.finished(), Some(Outcome::Interrupted));
    assert_eq!((rig.status(1), rig.cause(1)), (StoryStatus::Pending, Some(Cause::StoppedByUser)));
    assert_eq!(rig.status(2), StoryStatus::Completed);
    assert_eq!(rig.machine.attempt(&attempt(1, 1)).map(|view| view.status), Some(ContainerStatus::Stopped));
    rig.fold();
    // And it goes on from there, from the new head.
    let effects = rig.give(Event::Resumed);
    assert_eq!(started(&effects), [attempt(1, 2), attempt(3, 2)]);
    rig.land(&attempt(1, 2), &[1], 21);
    rig.land(&attempt(3, 2), &[3], 22);
    assert_eq!(outcome(&rig.land(&attempt(4, 1), &[4], 23)), Some(Outcome::Landed));
    rig.fold();
}

#[test]
fn a_second_stop_kills() {
    let (mut rig, id) = one();
    rig.run(&id);
    rig.give(stop(StopLevel::Graceful));
    let effects = rig.give(stop(StopLevel::Kill));
    assert_eq!(effects[1..], [Effect::Kill { attempt: id.clone() }]);
    rig.ignores(stop(StopLevel::Graceful));
    assert_eq!(judged(&mut rig, &id, exit(137)), Cause::StoppedByUser);
    assert_eq!(rig.machine.finished(), Some(Outcome::Interrupted));
}

#[test]
fn a_kill_does_not_wait_for_a_collect_that_hangs() {
    // Under way before the kill, waiting for another try, and begun after it; with a completion and without.
    for (again, completes, before) in
        [(false, true, true), (false, false, true), (true, true, true), (false, true, false), (false, false, false)]
    {
        let (mut rig, id) = one();
        let what = if completes { Salvaging::Result } else { Salvaging::Remains };
        let collect = Effect::Collect { attempt: id.clone(), what };
        rig.run(&id);
        if completes {
            rig.give(completion(&id, 1, CompletionStatus::Completed));
        }
        if before {
            rig.give(ended(&id, exit(i64::from(!completes))));
            if again {
                rig.give(collect_failed(&id, Cause::EngineError, true, None));
            }
            assert_eq!(rig.give(stop(StopLevel::Kill)).contains(&collect), again);
        } else {
            rig.give(stop(StopLevel::Kill));
            assert!(rig.give(ended(&id, exit(137))).contains(&collect));
        }
        let effects = rig.deadline(7);
        assert_eq!(effects[0], Effect::Remove { attempt: id.clone(), keep_work: true });
        assert_eq!(announced(&effects, |said| matches!(said, Announcement::WorkKept { .. })), 1);
        assert_eq!(outcome(&effects), Some(Outcome::Interrupted));
        assert_eq!(rig.status(1), StoryStatus::Pending);
        rig.ignores(collected(&id, Some(9), vec![finished(1)]));
        rig.fold();
        let effects = rig.give(Event::Resumed);
        assert!(effects.contains(&Effect::Remove { attempt: id, keep_work: true }));
        assert_eq!(started(&effects), [attempt(1, 2)]);
    }
}

#[test]
fn what_is_collected_in_time_survives_a_kill() {
    let (mut rig, id) = one();
    rig.complete(&id);
    rig.give(stop(StopLevel::Kill));
    rig.give(collected(&id, Some(9), vec![finished(1)]));
    assert_eq!(outcome(&rig.give(Event::Merged { attempt: id, head: commit(20) })), Some(Outcome::Landed));
    let (mut rig, id) = one();
    rig.complete(&id);
    rig.give(stop(StopLevel::Kill));
    let effects = rig.give(collect_failed(&id, Cause::EngineError, true, None));
    assert_eq!(effects[0], Effect::Remove { attempt: id, keep_work: true }, "no other try");
    assert_eq!(outcome(&effects), Some(Outcome::Interrupted));
}

#[test]
fn a_stop_cancels_backoffs_and_a_swarm_with_nothing_left_is_not_interrupted() {
    let (mut rig, id) = one();
    rig.give(Event::StartFailed { attempt: id, fault: Fault::new(Cause::EngineError, "busy", true) });
    assert_eq!(outcome(&rig.give(stop(StopLevel::Graceful))), Some(Outcome::Interrupted));
    assert_eq!(started(&rig.give(Event::Resumed)), [attempt(1, 2)], "without a wait");

    let (mut rig, id) = one();
    rig.complete(&id);
    rig.give(stop(StopLevel::Graceful));
    rig.give(collected(&id, Some(9), vec![finished(1)]));
    assert_eq!(outcome(&rig.give(Event::Merged { attempt: id, head: commit(20) })), Some(Outcome::Landed));
}

#[test]
fn a_stop_before_the_beginning_ends_it() {
    let mut rig = Rig::new(spec(&[&[(1, &[])]]));
    assert_eq!(outcome(&rig.give(stop(StopLevel::Graceful))), Some(Outcome::Interrupted));
    rig.ignores(Event::Began);
    assert_eq!(started(&rig.give(Event::Resumed)), [attempt(1, 1)]);
}

#[test]
fn when_the_machinery_is_gone_it_ends_at_once_and_leaves_what_runs() {
    let (mut rig, id) = one();
    rig.run(&id);
    let effects = rig.give(Event::MachineryFailed { fault: Fault::new(Cause::EngineError, "no daemon", false) });
    assert_eq!(outcome(&effects), Some(Outcome::MachineryFailed));
    assert!(!rig.machine.over());
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Kill { .. } | Effect::Terminate { .. })));
    rig.ignores(said(&id, 1, 1, StoryStatus::InProgress));
    rig.give(Event::Resumed);
    assert_eq!(rig.machine.attempt(&id).map(|view| view.phase), Some(Phase::Running));
    rig.give(said(&id, 1, 1, StoryStatus::InProgress));
    rig.fold();
}

#[test]
fn a_resumed_swarm_gives_again_what_may_not_have_been_done() {
    let mut plan = spec(&[&[(1, &[])], &[(2, &[])], &[(3, &[])], &[(4, &[])]]);
    plan.limits.max = 4;
    let (mut rig, _) = Rig::began(plan);
    rig.complete(&attempt(2, 1));
    rig.complete(&attempt(3, 1));
    rig.give(collected(&attempt(3, 1), Some(9), vec![finished(3)]));
    rig.run(&attempt(4, 1));
    rig.machine = rig.fold();
    let effects = rig.give(Event::Resumed);
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
            Effect::Collect { attempt: attempt(2, 1), what: Salvaging::Result },
            merge,
            Effect::Remove { attempt: attempt(3, 1), keep_work: false },
        ]
    );
    rig.give(Event::SandboxRemoved { attempt: attempt(3, 1) });
    let effects = rig.give(Event::Resumed);
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Remove { .. })), "it is gone");
}

#[test]
fn the_clock_is_cut_to_milliseconds_and_never_goes_back() {
    let (mut rig, id) = one();
    rig.now = Duration::from_micros(1_500_999);
    rig.run(&id);
    assert_eq!(rig.machine.updated(), Duration::from_millis(1500));
    rig.now = Duration::from_millis(3);
    rig.give(said(&id, 1, 1, StoryStatus::InProgress));
    assert_eq!(rig.machine.updated(), Duration::from_millis(1500));
    assert_eq!(rig.machine.next_deadline(), Some(Duration::from_millis(71_500)));
    rig.wait(1);
    rig.fold();
}

#[test]
fn events_about_nothing_known_are_ignored() {
    let (mut rig, id) = one();
    for unknown in [attempt(1, 0), attempt(1, 2), attempt(9, 1)] {
        rig.ignores(Event::SandboxCreated {
            attempt: unknown.clone(),
            container: container(&id),
            name: "box".to_owned(),
        });
        rig.ignores(ended(&unknown, exit(0)));
        rig.ignores(Event::SandboxRemoved { attempt: unknown.clone() });
        rig.ignores(refused(&unknown, 1));
    }
    for early in [
        Event::SandboxStarted { attempt: id.clone() },
        said(&id, 1, 1, StoryStatus::InProgress),
        collected(&id, Some(9), vec![finished(1)]),
        collect_failed(&id, Cause::HostError, true, None),
        Event::Merged { attempt: id.clone(), head: commit(9) },
        Event::SandboxRemoved { attempt: id.clone() },
        Event::DeadlinePassed,
        Event::Began,
    ] {
        rig.ignores(early);
    }
}
