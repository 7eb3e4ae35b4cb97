//! The review loop.

use super::amp_fixtures::*;
use super::*;
use crate::protocol::amp::message::{AmpMessageType, EscalationSeverity, EscalationType, ReviewDecision};
use crate::swarm::amp_intent::AmpIntent;
use crate::swarm::event::{StopLevel, TaskAction};
use crate::swarm::machine::{AttemptPhase, HoldKind};
use crate::swarm::review_outcome::ReviewOutcome;

/// The started attempt, its base and guidance, and the previous failure of its only story.
fn next_start(effects: &[Effect]) -> (AttemptId, CommitId, Vec<String>, String) {
    let mut starts = effects.iter().filter_map(|effect| match effect {
        Effect::Start { attempt, stories, guidance, base } => {
            let previous = stories[0].1.clone().unwrap_or_default();
            Some((attempt.clone(), base.clone(), guidance.clone(), previous))
        }
        _ => None,
    });
    starts.next().unwrap_or_else(|| panic!("nothing is started: {effects:?}"))
}

#[test]
fn work_lands_only_after_approval() {
    let (mut rig, id) = single_reviewed_story();
    let effects = rig.finish_work(&id, &[1]);
    assert_eq!(merged_tips(&effects), [], "nothing lands unreviewed");
    let (reviewer, review) = started_review(&effects).expect("a review");
    assert_eq!((&reviewer, &review.reviewed_attempt, &review.commit), (&attempt(1, 2), &id, &attempt_tip(&id)));
    assert_eq!((review.reject_count, review.base.clone()), (0, commit(1)));
    assert_eq!(rig.machine.attempt(&id).expect("there").phase, AttemptPhase::Reviewing);
    let effects = rig.finish_review(&reviewer, approved_review());
    assert_eq!(merged_tips(&effects), [attempt_tip(&id)]);
    let effects = rig.handle(Event::Merged { attempt: id, head: commit(7) });
    assert_eq!(finish_outcome(&effects), Some(SwarmOutcome::Landed));
    assert_eq!(last_task_status(&effects), Some("landed"));
    rig.replay_journal();
}

#[test]
fn an_accepted_reviewer_fix_lands_with_the_work() {
    let (mut rig, id) = single_reviewed_story();
    rig.finish_work(&id, &[1]);
    assert_eq!(merged_tips(&rig.finish_review(&attempt(1, 2), review_with_fix(77, None))), [commit(77)]);
    let effects = rig.handle(Event::Merged { attempt: id, head: commit(7) });
    assert_eq!(finish_outcome(&effects), Some(SwarmOutcome::Landed));
    assert_eq!(rig.machine.story(&key(1)).expect("there").commit, Some(commit(77)), "the story ends with the fix");
}

#[test]
fn a_reviewer_fix_out_of_scope_counts_as_a_rejection() {
    for none in [false, true] {
        let (mut rig, id) = single_reviewed_story();
        rig.finish_work(&id, &[1]);
        let mut reviewed = review_with_fix(77, Some("it has 9 lines"));
        if none {
            reviewed.fix = None;
        }
        let effects = rig.finish_review(&attempt(1, 2), reviewed);
        assert_eq!(merged_tips(&effects), []);
        let (again, base, _, previous) = next_start(&effects);
        assert_eq!((again, base), (attempt(1, 3), attempt_tip(&id)), "without the fix");
        let why = if none { "there is no commit with the fix" } else { "it has 9 lines" };
        assert!(previous.contains(why), "{previous}");
        assert_eq!(rig.machine.reject_count(&assignment(1)), 1);
        let ended = |said: &Announcement| {
            matches!(said, Announcement::ReviewEnded { decision: ReviewDecision::Rejected, reject_count: 1, .. })
        };
        assert_eq!(count_announcements(&effects, ended), 1);
    }
}

#[test]
fn rejected_work_goes_back_with_the_findings_and_costs_no_retry() {
    let mut plan = amp_swarm_spec(&[&[(1, &[])]], Some(4));
    plan.limits.retries = 0;
    let (mut rig, _) = MachineHarness::begun(plan);
    let mut id = attempt(1, 1);
    for (round, finding) in [(1_u32, "the sum is wrong"), (2, "no test")] {
        let effects = rig.finish_work(&id, &[1]);
        let (reviewer, review) = started_review(&effects).expect("a review");
        assert_eq!((review.reject_count, review.base), (round - 1, commit(1)), "the whole of it is reviewed");
        let effects = rig.finish_review(&reviewer, rejected_review(finding));
        assert_eq!(escalation_kinds(&effects), [], "that is no trouble");
        let (again, base, _, previous) = next_start(&effects);
        assert_eq!(base, attempt_tip(&id), "on top of what was rejected");
        assert!(previous.contains(&format!("- [major] a.rs:3: {finding}\n  Suggested: mend it")), "{previous}");
        let failure = rig.machine.story(&key(1)).expect("there").failure.clone().expect("why");
        assert_eq!((failure.cause, failure.salvage), (Cause::Rejected, Some(format!("refs/kept/{}", id.number))));
        assert_eq!(rig.status(1), StoryStatus::Pending);
        // The dispatch refers to the messages before it.
        let said = sent_intents(&rig.start_sandbox(&again));
        let Some(AmpIntent::Dispatch(dispatch)) = said.first() else { panic!("{said:?}") };
        let kinds: Vec<AmpMessageType> = dispatch.refs.iter().map(|id| id.message_type()).collect();
        assert_eq!(kinds, [AmpMessageType::TaskResult, AmpMessageType::ReviewVerdict]);
        rig.handle(sandbox_ended(&again, container_exit(1)));
        // The machinery loses the sandbox, so that the fixture can run the next attempt from its start.
        rig.handle(collect_failed(&again, Cause::HostError, false, None));
        let effects = rig.fire_next_deadline();
        let (after, base, _, text) = next_start(&effects);
        assert_eq!((base, text), (attempt_tip(&id), previous), "a failure between does not lose what was rejected");
        id = after;
    }
    rig.finish_work(&id, &[1]);
    let reviewer = AttemptId { number: id.number + 1, ..id.clone() };
    assert_eq!(merged_tips(&rig.finish_review(&reviewer, approved_review())), [attempt_tip(&id)]);
    rig.handle(Event::Merged { attempt: id, head: commit(7) });
    let view = rig.machine.story(&key(1)).expect("there");
    assert_eq!((view.status, view.failures), (StoryStatus::Completed, 0));
    rig.replay_journal();
}

#[test]
fn the_fourth_rejection_locks_only_that_task() {
    let mut plan = amp_swarm_spec(&[&[(1, &[])], &[(2, &[])], &[(3, &[1])]], Some(4));
    plan.limits.max_sandboxes = 2;
    let (mut rig, _) = MachineHarness::begun(plan);
    for round in 0..4 {
        let id = attempt(1, 1 + 2 * round);
        rig.finish_work(&id, &[1]);
        let effects =
            rig.finish_review(&attempt(1, 2 + 2 * round), rejected_review(["a", "b", "c", "d"][round as usize]));
        if round < 3 {
            assert_eq!(escalation_kinds(&effects), []);
            continue;
        }
        assert_eq!(escalation_kinds(&effects), [(EscalationType::HallucinationLock, EscalationSeverity::Critical)]);
        let lock = &escalations(&effects)[0];
        assert!(lock.auto_suspended && lock.system_state_snapshot.reject_count == 4, "{lock:?}");
        assert_eq!(lock.system_state_snapshot.task_status, "locked");
        assert_eq!(
            (started_attempts(&effects), finish_outcome(&effects)),
            (vec![], None),
            "what does not depend on it goes on"
        );
    }
    assert_eq!(rig.hold_kind(1), Some(HoldKind::Locked));
    rig.finish_work(&attempt(2, 1), &[2]);
    rig.finish_review(&attempt(2, 2), approved_review());
    let effects = rig.handle(Event::Merged { attempt: attempt(2, 1), head: commit(7) });
    assert_eq!(finish_outcome(&effects), Some(SwarmOutcome::Suspended), "and then there is nothing left to do");
    assert_eq!(SwarmOutcome::Suspended.exit_code(), 4);
    assert!(!rig.machine.is_complete());
    // Without a decision, a resume changes nothing.
    assert_eq!(finish_outcome(&rig.handle(Event::Resumed)), Some(SwarmOutcome::Suspended));
    // An answer while no orchestrator runs takes effect with the resume.
    let effects = rig.apply_decision(1, answer_action("use a set"));
    assert_eq!(started_attempts(&effects), []);
    let said = sent_intents(&effects);
    let guidance = |word: &AmpIntent| matches!(word, AmpIntent::Dispatch(dispatch) if dispatch.attempt.is_none() && dispatch.guidance == ["use a set"]);
    assert_eq!(said.iter().filter(|word| guidance(word)).count(), 1, "{said:?}");
    let (again, base, guidance, _) = next_start(&rig.handle(Event::Resumed));
    assert_eq!((&again, base, guidance), (&attempt(1, 9), attempt_tip(&attempt(1, 7)), vec!["use a set".to_owned()]));
    rig.finish_work(&again, &[1]);
    let effects = rig.finish_review(&attempt(1, 10), approved_review());
    assert_eq!(merged_tips(&effects), [attempt_tip(&again)]);
    let effects = rig.handle(Event::Merged { attempt: again, head: commit(8) });
    assert_eq!(started_attempts(&effects), [attempt(3, 1)], "what depends on it runs");
    rig.replay_journal();
}

#[test]
fn a_low_confidence_verdict_waits_for_the_admin() {
    let fix = || ReviewOutcome {
        fix: review_with_fix(77, None).fix,
        ..review_with_verdict(ReviewDecision::ApprovedWithFix, 0.5, &[])
    };

    let back = Some(attempt(1, 3));
    for (reviewed, action, lands, review, goes_back, rejects) in [
        (
            review_with_verdict(ReviewDecision::Approved, 0.79, &[]),
            TaskAction::Approve,
            Some(attempt_tip(&attempt(1, 1))),
            None,
            None,
            0,
        ),
        (fix(), TaskAction::Approve, Some(commit(77)), None, None, 0),
        (
            review_with_verdict(ReviewDecision::Rejected, 0.1, &["bad"]),
            TaskAction::Approve,
            None,
            None,
            back.clone(),
            1,
        ),
        (review_with_verdict(ReviewDecision::Rejected, 0.1, &["bad"]), TaskAction::Resume, None, back.clone(), None, 0),
        (
            review_with_verdict(ReviewDecision::Rejected, 0.1, &["bad"]),
            answer_action("look"),
            None,
            None,
            back.clone(),
            0,
        ),
        (review_with_verdict(ReviewDecision::Rejected, 0.1, &["bad"]), TaskAction::Retry, None, None, back.clone(), 0),
        (
            review_with_verdict(ReviewDecision::Rejected, 0.1, &["bad"]),
            TaskAction::Rollback,
            None,
            None,
            back.clone(),
            0,
        ),
    ] {
        let (mut rig, id) = single_reviewed_story();
        rig.finish_work(&id, &[1]);
        let wants = reviewed.verdict.as_ref().expect("one").decision;
        let effects = rig.finish_review(&attempt(1, 2), reviewed);
        assert_eq!(escalation_kinds(&effects), [(EscalationType::Unknown, EscalationSeverity::Critical)]);
        assert_eq!((merged_tips(&effects), started_attempts(&effects)), (vec![], vec![]));
        assert_eq!(
            (rig.hold_kind(1), finish_outcome(&effects)),
            (Some(HoldKind::LowConfidence), Some(SwarmOutcome::Suspended))
        );
        rig.apply_decision(1, action.clone());
        let effects = rig.handle(Event::Resumed);
        assert_eq!(merged_tips(&effects), lands.into_iter().collect::<Vec<_>>(), "{action:?} of {wants:?}");
        assert_eq!(started_review(&effects).map(|(id, _)| id), review, "{action:?} of {wants:?}");
        assert_eq!(
            started_attempts(&effects),
            goes_back.clone().into_iter().collect::<Vec<_>>(),
            "{action:?} of {wants:?}"
        );
        assert_eq!(rig.machine.reject_count(&assignment(1)), rejects, "{action:?}");
        if goes_back.is_some() {
            let (_, base, _, previous) = next_start(&effects);
            assert_eq!(base == commit(1), action == TaskAction::Rollback, "{action:?}");
            assert!(previous.contains("- [major] a.rs:3: bad"), "{action:?}: {previous}");
            assert_eq!(previous.contains("where you begin"), action != TaskAction::Rollback, "{previous}");
        }
        rig.replay_journal();
    }
    // 0.8 is enough.
    let (mut rig, id) = single_reviewed_story();
    rig.finish_work(&id, &[1]);
    assert_eq!(
        merged_tips(&rig.finish_review(&attempt(1, 2), review_with_verdict(ReviewDecision::Approved, 0.8, &[]))),
        [attempt_tip(&id)]
    );
}

#[test]
fn a_review_without_a_verdict_is_retried_once_then_escalated() {
    for cause in [Cause::ProtocolViolation, Cause::Timeout, Cause::AgentFailed] {
        let (mut rig, id) = single_reviewed_story();
        rig.finish_work(&id, &[1]);
        let effects = rig.finish_review(&attempt(1, 2), review_without_verdict(cause));
        assert_eq!(started_review(&effects).map(|(id, _)| id), Some(attempt(1, 3)));
        assert_eq!(escalation_kinds(&effects), []);
        let effects = rig.finish_review(&attempt(1, 3), review_without_verdict(cause));
        assert_eq!(escalation_kinds(&effects), [(EscalationType::Unknown, EscalationSeverity::Critical)]);
        assert_eq!(
            (rig.hold_kind(1), finish_outcome(&effects)),
            (Some(HoldKind::NoVerdict), Some(SwarmOutcome::Suspended))
        );
        let mut lands = rig.clone();
        lands.apply_decision(1, TaskAction::Approve);
        assert_eq!(merged_tips(&lands.handle(Event::Resumed)), [attempt_tip(&id)]);
        rig.apply_decision(1, TaskAction::Resume);
        let effects = rig.handle(Event::Resumed);
        assert_eq!(started_review(&effects).map(|(id, _)| id), Some(attempt(1, 4)), "and it has both tries again");
        let effects = rig.finish_review(&attempt(1, 4), review_without_verdict(cause));
        assert!(started_review(&effects).is_some());
    }
}

#[test]
fn a_review_failed_by_the_machinery_is_retried_after_a_backoff() {
    let mut plan = amp_swarm_spec(&[&[(1, &[])]], Some(4));
    plan.limits.machinery_retries = 2;
    let (mut rig, _) = MachineHarness::begun(plan);
    rig.finish_work(&attempt(1, 1), &[1]);
    // The start fails, the sandbox dies, and its output cannot be collected.
    let fault = MachineryFault::new(Cause::EngineError, "busy", true);
    rig.handle(Event::StartFailed { attempt: attempt(1, 2), fault });
    assert_eq!(started_review(&rig.fire_deadline_in(1)).map(|(id, _)| id), Some(attempt(1, 3)));
    rig.start_sandbox(&attempt(1, 3));
    rig.handle(sandbox_ended(&attempt(1, 3), container_exit(137)));
    rig.handle(Event::ReviewCollected {
        attempt: attempt(1, 3),
        outcome: Box::new(review_without_verdict(Cause::HostError)),
    });
    assert_eq!(started_review(&rig.fire_deadline_in(2)).map(|(id, _)| id), Some(attempt(1, 4)));
    rig.run_to_completion(&attempt(1, 4));
    let effects = rig.handle(collect_failed(&attempt(1, 4), Cause::DiskFull, false, None));
    assert_eq!(
        (rig.hold_kind(1), finish_outcome(&effects)),
        (Some(HoldKind::NoVerdict), Some(SwarmOutcome::Suspended))
    );
    // The loss of the engine costs no retry.
    rig.apply_decision(1, TaskAction::Resume);
    rig.handle(Event::Resumed);
    for number in 5..12 {
        let fault =
            MachineryFault { engine_unreachable: true, ..MachineryFault::new(Cause::EngineError, "away", true) };
        rig.handle(Event::StartFailed { attempt: attempt(1, number), fault });
        assert_eq!(started_review(&rig.fire_deadline_in(1)).map(|(id, _)| id), Some(attempt(1, number + 1)));
    }
    rig.replay_journal();
}

#[test]
fn repeated_findings_escalate_a_conflict_and_work_continues() {
    // By round: the finding and the tree; then whether they are a conflict.
    let circles: [&[(&str, &str, bool)]; 4] = [
        &[
            ("the sum is wrong", "a", false),
            ("The sum is wrong!", "b", false),
            ("line 7: the SUM is wrong", "c", false),
        ],
        &[("sum", "a", false), ("Sum, 2", "b", false), ("sum", "c", true)],
        &[("sum", "a", false), ("test", "b", false), ("sum", "c", true)],
        &[("sum", "a", false), ("test", "b", false), ("doc", "a", true)],
    ];
    for rounds in circles {
        let (mut rig, mut id) = single_reviewed_story();
        for (finding, tree, circle) in rounds {
            rig.finish_work_with_tree(&id, &[1], tree);
            let reviewer = AttemptId { number: id.number + 1, ..id.clone() };
            let effects = rig.finish_review(&reviewer, rejected_review(finding));
            let expected: &[_] = if *circle { &[(EscalationType::Conflict, EscalationSeverity::Info)] } else { &[] };
            assert_eq!(escalation_kinds(&effects), expected, "{finding} {tree} in {rounds:?}");
            assert!(escalations(&effects).iter().all(|one| !one.auto_suspended));
            (id, ..) = next_start(&effects);
        }
    }
}

#[test]
fn several_stories_of_one_assignment_are_reviewed_together() {
    let mut plan = amp_swarm_spec(&[&[(1, &[]), (2, &[1]), (3, &[])]], Some(4));
    plan.limits.retries = 1;
    let (mut rig, _) = MachineHarness::begun(plan);
    let id = attempt(1, 1);
    rig.run_to_completion(&id);
    let results = vec![finished_story(1), finished_story(2), failed_story(3, Cause::VerificationFailed)];
    let effects = rig.handle(result_collected(&id, Some(50), results));
    let (_, review) = started_review(&effects).expect("a review");
    assert_eq!(review.stories, [key(1), key(2)], "what is finished");
    let newest = sent_intents(&effects).into_iter().find_map(|word| match word {
        AmpIntent::Result(end) if end.id == review.result => Some(*end),
        _ => None,
    });
    let newest = newest.expect("the result that the request is about is told");
    assert_eq!((newest.story, newest.failure), (key(2), None), "a complete one");
    assert_eq!(escalation_kinds(&effects), [], "a failed check goes back to the executor");
    // All reviewed stories go back; then some of them land, and the rest starts on top of these.
    let effects = rig.finish_review(&attempt(1, 2), rejected_review("bad"));
    let Some(Effect::Start { stories, base, .. }) = effects.iter().find(|one| matches!(one, Effect::Start { .. }))
    else {
        panic!("{effects:?}")
    };
    assert_eq!((stories.len(), base), (3, &commit(50)));
    let id = attempt(1, 3);
    rig.run_to_completion(&id);
    let effects = rig.handle(result_collected(
        &id,
        Some(51),
        vec![finished_story(1), finished_story(2), story_result(3, StoryOutcome::NotReached)],
    ));
    assert_eq!(started_review(&effects).expect("a review").1.base, commit(1));
    rig.finish_review(&attempt(1, 4), approved_review());
    let effects = rig.handle(Event::Merged { attempt: id, head: commit(7) });
    assert_eq!(last_task_status(&effects), Some("in_progress"), "a story of it is left");
    let (again, base, ..) = next_start(&effects);
    assert_eq!((&again, base), (&attempt(1, 5), commit(7)), "from the branch that it landed on");
    rig.run_to_completion(&again);
    let effects = rig.handle(result_collected(&again, Some(52), vec![finished_story(3)]));
    assert_eq!(started_review(&effects).expect("a review").1.base, commit(7), "what has landed is not reviewed again");
    let effects = rig.finish_review(&attempt(1, 6), approved_review());
    assert_eq!(merged_tips(&effects), [commit(52)]);
    rig.replay_journal();
}

#[test]
fn a_merge_conflict_after_review_is_redone_once_and_reviewed_again() {
    let (mut rig, id) = single_reviewed_story();
    rig.finish_work(&id, &[1]);
    rig.finish_review(&attempt(1, 2), rejected_review("bad"));
    let id = attempt(1, 3);
    rig.finish_work(&id, &[1]);
    rig.finish_review(&attempt(1, 4), approved_review());
    let conflict =
        |id: &AttemptId| Event::MergeConflicted { attempt: id.clone(), paths: vec![], result_ref: "refs/k".to_owned() };
    let effects = rig.handle(conflict(&id));
    assert_eq!(escalation_kinds(&effects), [(EscalationType::Conflict, EscalationSeverity::Info)]);
    let (again, base, ..) = next_start(&effects);
    assert_eq!((&again, base), (&attempt(1, 5), commit(1)), "from the branch, not from what did not merge");
    let effects = rig.finish_work(&again, &[1]);
    assert_eq!(merged_tips(&effects), []);
    rig.finish_review(&attempt(1, 6), approved_review());
    let effects = rig.handle(conflict(&again));
    assert_eq!(escalation_kinds(&effects), [(EscalationType::Conflict, EscalationSeverity::Warning)]);
    assert_eq!(finish_outcome(&effects), Some(SwarmOutcome::SomeFailed));
    rig.replay_journal();
}

#[test]
fn a_stop_during_a_running_or_queued_review_leaves_the_work_for_resume() {
    for level in [StopLevel::Graceful, StopLevel::Kill] {
        // While the review runs.
        let (mut rig, id) = single_reviewed_story();
        rig.finish_work(&id, &[1]);
        rig.start_sandbox(&attempt(1, 2));
        let stop = stop_requested(level);
        let effects = rig.handle(stop.clone());
        let reviewer = attempt(1, 2);
        let end = match level {
            StopLevel::Graceful => Effect::Terminate { attempt: reviewer.clone() },
            StopLevel::Kill => Effect::Kill { attempt: reviewer.clone() },
        };
        assert!(effects.contains(&end), "{effects:?}");
        rig.handle(sandbox_ended(&reviewer, container_exit(143)));
        let effects = rig.handle(Event::ReviewCollected {
            attempt: reviewer,
            outcome: Box::new(review_without_verdict(Cause::StoppedByUser)),
        });
        assert_eq!((finish_outcome(&effects), escalation_kinds(&effects)), (Some(SwarmOutcome::Interrupted), vec![]));
        let effects = rig.handle(Event::Resumed);
        assert_eq!(started_review(&effects).map(|(id, _)| id), Some(attempt(1, 3)));
        assert_eq!(merged_tips(&rig.finish_review(&attempt(1, 3), approved_review())), [attempt_tip(&id)]);
        rig.replay_journal();
        // While it waits for a slot or a backoff.
        let (mut rig, id) = single_reviewed_story();
        rig.finish_work(&id, &[1]);
        rig.handle(Event::StartFailed {
            attempt: attempt(1, 2),
            fault: MachineryFault::new(Cause::EngineError, "busy", true),
        });
        assert_eq!(finish_outcome(&rig.handle(stop)), Some(SwarmOutcome::Interrupted));
        assert!(!rig.machine.is_complete());
        assert_eq!(started_review(&rig.handle(Event::Resumed)).map(|(id, _)| id), Some(attempt(1, 3)));
        rig.replay_journal();
    }
}

#[test]
fn verdicts_come_only_from_reviewers_and_results_only_from_executors() {
    let (mut rig, id) = single_reviewed_story();
    rig.run_to_completion(&id);
    let reviewed =
        |id: &AttemptId| Event::ReviewCollected { attempt: id.clone(), outcome: Box::new(approved_review()) };
    rig.assert_ignored(reviewed(&id));
    rig.handle(result_collected(&id, Some(50), vec![finished_story(1)]));
    rig.run_to_completion(&attempt(1, 2));
    rig.assert_ignored(result_collected(&attempt(1, 2), Some(50), vec![finished_story(1)]));
    assert_eq!(merged_tips(&rig.handle(reviewed(&attempt(1, 2)))), [commit(50)]);
    rig.assert_ignored(reviewed(&attempt(1, 2)));
}
